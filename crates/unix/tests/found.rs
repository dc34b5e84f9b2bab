//! What random scenarios found: each test is a scenario on which the virtual Unix and Linux once
//! parted, and its story. They are compared in every mode, under several orders of steps.

use tontine_unix::check::{Checker, Comparison, Options, against};
use tontine_unix::scenario::Scenario;
use tontine_unix::{Mode, Virtual};

/// Orders of steps that are tried.
const SEEDS: u64 = 6;

/// How often both sides must part in a row: a busy machine now and then shows an order of events
/// within a step that is not the kernel's doing.
const TIMES: usize = 4;

/// Both do the same, in every mode.
fn is_the_same(text: &str) {
    let scenario: Scenario = text.parse().unwrap_or_else(|error| panic!("{error}"));
    let mut checker = Checker::new().expect("a PID namespace");
    for seed in 1..=SEEDS {
        let options = Options { seed, ..Options::new() };
        let parted = (0..TIMES).map_while(|_| parts(&mut checker, &scenario, &options));
        if let Some(difference) = parted.skip(TIMES - 1).last() {
            panic!("{difference}");
        }
    }
}

/// What differs in a mode, if anything does.
fn parts(checker: &mut Checker, scenario: &Scenario, options: &Options) -> Option<String> {
    let real = checker.on_linux(scenario, options).expect("it comes to rest");
    Mode::ALL.into_iter().find_map(|mode| {
        let options = Options { builder: Virtual::builder().mode(mode), ..options.clone() };
        let found = against(scenario, &options, &real).expect("it was compared on Linux");
        match found {
            Comparison::Differs(difference) => Some(format!("{mode}: {difference}")),
            _ => None,
        }
    })
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

/// A thread stopped its own process by a signal that another one took, who stood at its gate. On
/// the virtual Unix it took it when everybody was at rest, and so the first one had told of its
/// call and come to its next gate. On Linux whoever is woken may go on at once, and stops the first
/// one within its call.
#[test]
fn who_stops_its_own_process_may_be_stopped_within_the_call() {
    is_the_same(
        "\
process main
  child = fork other
  thread stopper
  fork other

process other

thread stopper
  kill self STOP
",
    );
}

/// A child killed its whole group, its parent with it, which waited. On the virtual Unix the child
/// saw to its own end before anybody else could go on, so that the parent found it in its last look
/// and `init` never heard of it. On Linux whoever a call has woken may go on before the caller's
/// own signals are seen to.
#[test]
fn who_is_woken_may_go_on_before_the_caller_ends() {
    is_the_same(
        "\
process main
  child = fork member
  waitid child exited

process member
  kill own-group TERM
",
    );
}

/// Several steps in a row can each go in two ways. Schedules of the virtual Unix were all rolled
/// anew until one went in each of them as Linux did: after 64 of them the two parted.
#[test]
fn each_step_may_go_its_own_way() {
    is_the_same(
        "\
process main
  on CHLD
    note \"told: {code}\"
  one = fork quiet
  kill one STOP
  kill one CONT
  kill one KILL
  two = fork quiet
  kill two STOP
  kill two CONT
  kill two KILL

process quiet
  pause
",
    );
}

/// A tracer that wants nothing to be left of its children had waited for none of them. Its tracee
/// is left all the same, for the tracer to wait for; but not when that ends: `init` adopted a child
/// of which Linux leaves nothing.
#[test]
fn a_tracee_of_who_wants_no_zombies_goes_with_its_tracer() {
    is_the_same(
        "\
process main
  fork tracer
  wait

process tracer
  on CHLD nocldwait
    note \"told\"
  child = fork tracee
  wait child nohang

process tracee
  ptrace traceme
",
    );
}

/// The conductor of real processes took who stood at a gate for one that sleeps in the call of its
/// handler: with SA_RESTART the kernel went on with the gate's sleep by itself, and what the gate
/// says of itself was what the handler's own gate had said last.
#[test]
fn a_handler_with_restart_leaves_its_thread_at_the_gate() {
    is_the_same(
        "\
process main
  on USR1 restart
    block {USR2}
  child = fork other
  getpid
  getpid
  getpid

process other
  kill parent USR1
",
    );
}

/// Everybody slept, and the next timer was an alarm of a hundred seconds: it went off at once on
/// the virtual clock, and on Linux the run was given up before.
#[test]
fn a_far_alarm_is_waited_for_by_nobody() {
    is_the_same(
        "\
process main
  alarm 100
  pause
",
    );
}

/// The Linux backend looked for the process first, which was gone, and answered ESRCH. The kernel
/// looks at the numbers first.
#[test]
fn a_number_that_can_be_none_is_refused_before_the_process_is_looked_for() {
    is_the_same(
        "\
process main
  child = fork quick
  wait child
  setpgid child -1 -> EINVAL
  tgkill child 0 HUP -> EINVAL

process quick
",
    );
}

/// Where there is something to read before, the kernel's worker carries a key to the terminal by
/// itself: whoever typed had told of its call when it was ended by the key.
#[test]
fn a_key_comes_before_its_call_returns_also_behind_other_input() {
    is_the_same(
        "\
process main
  openpty user terminal
  controlling terminal
  type user \"line\\n\"
  fork other
  type user \"\\x03\"

process other
  pause
",
    );
}

/// A thread ended, and the virtual Unix had all others look for signals that it left behind. That
/// started the read of another one anew, which looked its descriptor up once more: it was another
/// file's meanwhile.
#[test]
fn a_read_goes_on_with_its_file_though_the_descriptor_is_anothers() {
    is_the_same(
        "\
process main
  pipe reads writes
  thread closes
  thread reads
  sleep 1ms

thread reads
  read reads 4

thread closes
  dup2 writes reads
",
    );
}

/// Linux tells who sleeps in a read when the terminal's user leaves EIO, and who reads later the
/// end. The virtual Unix said the end to both.
#[test]
fn who_reads_when_the_user_leaves_is_told_otherwise_than_who_comes_later() {
    is_the_same(
        "\
process main
  openpty user terminal
  child = fork reader
  yield
  close user
  wait child

process reader
  close user
  read terminal 8 -> anything
  read terminal 8 -> anything
",
    );
}

/// A stop does not stop who is in an orphaned group. It wakes the thread all the same, and on Linux
/// `sigtimedwait` ends with EINTR whenever it is woken for nothing that it waits for.
#[test]
fn a_stop_that_stops_nobody_ends_sigwaitinfo() {
    is_the_same(
        "\
process main
  child = fork waiter
  yield
  yield
  kill child TSTP

process waiter
  sigwaitinfo {} -> anything
",
    );
}

/// A tracer let its tracee go on with SIGSTOP in the place of another signal. On the virtual Unix a
/// stop counted only if the process itself had taken it from what was pending.
#[test]
fn a_tracer_may_have_its_tracee_go_on_with_a_stop() {
    is_the_same(
        "\
process main
  child = fork tracee
  wait child -> anything
  ptrace continue child STOP -> anything
  wait child nohang stopped -> anything

process tracee
  ptrace traceme
  raise WINCH
",
    );
}

/// A thread slept in `sigsuspend`, whose mask blocked what was pending for its process, and another
/// signal woke it for which there was no handler. Linux begins the call anew then, with the mask of
/// before for a moment: that let the first one in, and the process ended.
#[test]
fn what_wakes_sigsuspend_for_nothing_shows_the_mask_of_before() {
    is_the_same(
        "\
process main
  thread sleeper
  block HUP
  kill self HUP
  block CHLD
  child = fork quick
  wait child

process quick

thread sleeper
  sigsuspend HUP
",
    );
}

/// Who was ended by a signal while it waited found its child in a last look, so that nobody else
/// heard of it. On Linux a waiter that has been ended does not go on.
#[test]
fn who_was_ended_waits_for_nobody() {
    is_the_same(
        "\
process main
  openpty user terminal
  controlling terminal
  thread writer
  fork leaver
  block TSTP
  type user \"\\x1a\"
  wait -> anything

process leaver
  fork stays
  setpgid 0 0
  ignore TTOU

process stays
  yield

thread writer
  write terminal \"x\\n\" -> anything
  sigtimedwait {} 0s -> anything
",
    );
}

/// A process ended whose child had ended before, unwaited for, in another group. That group was
/// orphaned already, and had a stopped member. Linux looks at the groups of all children that it
/// gives away, also of those that have ended.
#[test]
fn a_zombie_that_is_given_away_has_its_orphaned_group_hung_up() {
    is_the_same(
        "\
process main
  one = fork first
  setpgid one 0

process first
  fork second
  yield
  yield
  yield
  yield

process second
  fork third
  yield

process third
  raise STOP
",
    );
}

/// A process took orphans in, and then no more. The Linux backend waited for those that it knew
/// alone, and said that there was none.
#[test]
fn orphans_that_came_are_waited_for_though_no_more_come() {
    is_the_same(
        "\
process main
  subreaper 1
  child = fork leaves
  wait child
  subreaper 0
  wait -> anything

process leaves
  fork stays

process stays
",
    );
}

/// The Linux backend signalled group 0 with its table locked, which blocks all signals. What the
/// caller ignores is pending then for a moment, and wakes a thread in `sigwaitinfo`.
#[test]
fn group_0_is_the_callers_own() {
    is_the_same(
        "\
process main
  thread waiter
  kill group 0 URG
  getpid

thread waiter
  sigwaitinfo {} -> anything
",
    );
}

/// A blocked signal that is ignored by default is kept for the process. The other thread, in
/// `sigwaitinfo`, did not block it: on Linux it is woken, drops the signal, and its call ends with
/// EINTR.
#[test]
fn a_signal_of_which_nothing_comes_ends_sigwait() {
    is_the_same(
        "\
process main
  thread waiter
  yield
  yield
  yield
  block URG
  kill self URG
  getpid

thread waiter
  sigwaitinfo {} -> anything
",
    );
}

/// A tracer let its tracee go on with SIGSTOP, and the tracee stopped. SIGCHLD said that it was
/// trapped, as it says before each signal; this was a stop.
#[test]
fn a_tracee_that_was_told_to_stop_has_stopped() {
    is_the_same(
        "\
process main
  on CHLD restart
    note \"told: {code}\"
  child = fork tracee
  wait child -> anything
  ptrace continue child STOP -> anything
  wait child -> anything

process tracee
  ptrace traceme
  raise WINCH
",
    );
}

/// A session's leader ended, the last that had the terminal's other end open too. It let go of that
/// first, and its group was sent SIGHUP and SIGCONT by the terminal that hung up. On Linux the end
/// of the leader comes first, which sends SIGHUP alone, and what is hung up then is nobody's.
#[test]
fn a_leader_ends_before_its_terminal_does() {
    is_the_same(
        "\
process main
  openpty user terminal
  controlling terminal
  pipe reads writes
  fork stays
  read reads 1 -> anything

process stays
  block {HUP CONT}
  close user
  write writes \"x\"
  sigwaitinfo HUP -> anything
  sigpending -> anything
",
    );
}

/// Two threads let a signal in, the first one does not, and two are sent, one after the other. On
/// Linux the second is had by who comes next in turn, not by the first thread again, which has one to
/// see to.
#[test]
fn threads_take_signals_in_turn() {
    is_the_same(
        "\
process main
  on USR1
    note \"one\"
  on USR2
    note \"two\"
  block USR1
  thread waits
  unblock USR1
  thread waits
  block {USR1 USR2}
  kill self USR1
  kill self USR2

thread waits
  pause -> anything
  pause -> anything
  pause -> anything
",
    );
}

/// A thread forked a child that ended. Both threads let SIGCHLD in: on Linux who forked is asked
/// first, be it not the first thread.
#[test]
fn a_childs_end_is_told_to_the_thread_that_made_it() {
    is_the_same(
        "\
process main
  on CHLD
    note \"told\"
  thread forks
  pause -> anything

thread forks
  fork quick
  pause -> anything

process quick
",
    );
}

/// A thread ended while a signal was pending that it blocked. All others were woken to see to that,
/// also who blocked it in `sigpause`: the mask of before held for a moment, let it in, and the
/// process ended.
#[test]
fn a_thread_that_ends_wakes_nobody_for_what_all_block() {
    is_the_same(
        "\
process main
  thread t1
  sigpause TERM -> anything

thread t1
  block TERM
  kill self TERM
",
    );
}
