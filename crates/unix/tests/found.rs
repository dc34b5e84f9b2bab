//! What random scenarios found: each test is a scenario on which the virtual Unix and Linux once
//! parted, and its story. They are compared in every mode, under several orders of steps.

use tontine_unix::check::{Checker, Comparison, Options, against};
use tontine_unix::scenario::Scenario;
use tontine_unix::{Mode, Virtual};

/// Orders of steps that are tried.
const SEEDS: u64 = 6;

/// Both do the same, in every mode.
fn is_the_same(text: &str) {
    let scenario: Scenario = text.parse().unwrap_or_else(|error| panic!("{error}"));
    let mut checker = Checker::new().expect("a PID namespace");
    for seed in 1..=SEEDS {
        let options = Options { seed, ..Options::new() };
        let real = checker.on_linux(&scenario, &options).expect("it comes to rest");
        for mode in Mode::ALL {
            let options = Options { builder: Virtual::builder().mode(mode), ..options.clone() };
            let found = against(&scenario, &options, &real).expect("it was compared on Linux");
            if let Comparison::Differs(difference) = found {
                panic!("{mode}: {difference}");
            }
        }
    }
}

/// A thread killed its own process. The signal was another thread's to deliver, and until that had
/// done so this one went on: its call returned, and the next one was made. On Linux what ends a
/// process ends it when it is sent.
#[test]
fn a_thread_that_kills_its_process_does_nothing_more() {
    is_the_same(
        "\
process main
  child = fork victim
  wait

process victim
  thread killer
  pause

thread killer
  kill self TERM
  note \"never\"
",
    );
}

/// The killer blocked what it sent; the other thread did not, and the process ended. Only that
/// other thread did so at once.
#[test]
fn who_blocks_what_ends_its_process_ends_with_it() {
    is_the_same(
        "\
process main
  thread killer
  pause -> anything

thread killer
  block {USR1}
  kill self USR1
  sigpending
",
    );
}

/// A session's leader signalled its group, and itself with it. A member was told by `wait` to have
/// died of SIGHUP, which the leader's end sends to the foreground: it came later, but has the lower
/// number. On Linux the member had been ended by the first one before it could look.
#[test]
fn the_first_signal_that_ends_a_process_is_the_one() {
    is_the_same(
        "\
process main
  openpty user terminal
  controlling terminal
  fork member
  kill own-group USR2

process member
  pause
",
    );
}

/// The Linux backend looked for the group first, and answered EPERM for a process that is gone: the
/// group was the one that this process would lead.
#[test]
fn setpgid_of_who_is_gone_is_esrch_whatever_the_group() {
    is_the_same(
        "\
process main
  child = fork quick
  wait child
  setpgid child child -> anything
  setpgid child 0 -> anything

process quick
",
    );
}

/// Linux lets a terminal have any process's number of its session in the foreground, though no
/// group has it, and the group is in the foreground when it is made. POSIX has EPERM.
#[test]
fn a_group_may_come_to_the_foreground_before_it_is_made() {
    is_the_same(
        "\
process main
  openpty user terminal
  controlling terminal
  ignore TTOU
  child = fork job
  tcsetpgrp terminal child -> anything
  tcgetpgrp terminal -> anything
  setpgid child 0
  type user \"line\\n\"
  wait child stopped

process job
  read terminal 8 -> anything
",
    );
}

/// A group was left by its only member and made again: the virtual terminal had the first one in
/// the foreground, and stopped the second for reading.
#[test]
fn a_group_that_is_made_again_is_in_the_foreground_still() {
    is_the_same(
        "\
process main
  openpty user terminal
  controlling terminal
  ignore TTOU
  child = fork job
  setpgid child 0
  tcsetpgrp terminal child
  setpgid child self
  setpgid child 0
  type user \"line\\n\"
  wait child stopped

process job
  read terminal 8 -> anything
",
    );
}

/// A descriptor was closed and a child forked, which the Linux backend holds by a descriptor: the
/// number of the closed one. To read from it was EINVAL.
#[test]
fn a_closed_descriptor_stays_closed_whoever_is_forked() {
    is_the_same(
        "\
process main
  pipe reads writes
  close reads
  child = fork quick
  read reads 4 -> anything
  write reads \"x\" -> anything
  wait child

process quick
",
    );
}

/// On Linux a thread began with the alternate stack that Rust's runtime gives it, of a few KiB: a
/// handler that asked for `onstack` ran there, and died of SIGSEGV.
#[test]
fn a_thread_begins_without_an_alternate_stack() {
    is_the_same(
        "\
process main
  on USR1 onstack
    note \"handled\"
  t = thread other
  join t

thread other
  sigstack
  raise USR1
",
    );
}
