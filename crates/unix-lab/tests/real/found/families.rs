//! Tests of children, groups, sessions and terminals.

use tontine_unix_lab::explore::Exploration;
use tontine_unix_lab::scenario::Scenario;

use super::is_the_same;
use crate::extent;

/// Regression: for an ended process, the Linux backend first looked up the group and returned
/// EPERM, because the process would have been the leader of that group.
#[test]
fn setpgid_of_ended_process_returns_esrch_for_any_group() {
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

/// On Linux, a terminal can have the number of any process of its session as its foreground group,
/// even if that group does not exist yet. The group is in the foreground once it is created. POSIX
/// specifies EPERM.
#[test]
fn nonexistent_group_may_become_foreground_group() {
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

/// Regression: a group was left by its only member and created again. The virtual terminal still
/// had the first group in the foreground, and stopped the second group when it read.
#[test]
fn recreated_group_remains_in_foreground() {
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

/// Regression: a descriptor was closed and a child forked. The Linux backend holds the child by a
/// descriptor, which reused the number of the closed descriptor, so reading from that number
/// returned EINVAL.
#[test]
fn closed_descriptor_stays_closed_after_fork() {
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

/// Regression: the Linux backend first looked up the process, which had ended, and returned ESRCH.
/// The kernel first checks the numbers.
#[test]
fn invalid_number_is_refused_before_process_lookup() {
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

/// If unread input precedes a key, only the kernel's worker delivers the key to the terminal.
/// Regression: the typing call was reported before the key terminated the caller.
#[test]
fn typed_key_after_unread_input_arrives_within_call() {
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

/// If the terminal's user end closes while a reader sleeps, Linux returns EIO to this reader, and
/// end of file to later readers. Regression: the virtual Unix returned end of file to both.
#[test]
fn hang_up_gives_sleeping_reader_eio_and_later_reader_eof() {
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

/// If a signal terminates a process during a wait, the process checks once more during its exit,
/// and reaps a child that has ended by then. Regression: the Linux backend only checked and did not
/// reap, and the virtual Unix was changed to match it.
#[test]
fn killed_waiter_reaps_child_in_last_check() {
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

/// Regression: a process ended after its child, an unreaped zombie in another group. That group was
/// already orphaned, and had a stopped member. Linux checks the groups of all children that it
/// reparents, including those of zombies.
#[test]
fn reparenting_zombie_hangs_up_its_orphaned_group() {
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

/// Regression: a process was a subreaper for a while. The Linux backend waited only for the
/// children that it had recorded, and returned ECHILD.
#[test]
fn former_subreaper_still_waits_for_orphans() {
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

/// Regression: a session leader, the last process that had the terminal's other end open, ended.
/// The virtual Unix closed that end first, and the hang-up sent SIGHUP and SIGCONT to the leader's
/// group. On Linux the leader ends first and sends only SIGHUP; the terminal that hangs up
/// afterwards has no session.
#[test]
fn session_leader_ends_before_terminal_hangs_up() {
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

/// Regression: a second thread read in the background, and the first thread took SIGTTIN. Until the
/// first thread ran, the read restarted and sent another SIGTTIN. On Linux the reader checks for
/// signals itself.
#[test]
fn background_reader_thread_may_take_own_sigttin() {
    is_the_same(
        "\
process main
  openpty user terminal
  controlling terminal
  fork reads
  wait -> anything

process reads
  setpgid 0 0
  on TTIN
  thread reader
  pause -> anything

thread reader
  read terminal 8 -> anything
",
    );
}

/// Regression: the Linux backend waited in two calls, a check and a reap. Between the two calls the
/// handler of SIGCHLD ran, killed its process and left a zombie behind. A single reaping call reaps
/// before it handles signals.
#[test]
fn sigchld_handler_runs_after_wait_has_reaped() {
    is_the_same(
        "\
process main
  fork quick
  on CHLD
    kill self TERM
  wait

process quick
",
    );
}

/// Like [`sigchld_handler_runs_after_wait_has_reaped`], but the handler waited. It reaped the child
/// that its thread waited for, and the thread continued to sleep or had no child.
#[test]
fn sigchld_handler_finds_child_already_reaped() {
    is_the_same(
        "\
process main
  on CHLD
    wait any nohang -> anything
  fork quick
  wait

process quick
",
    );
}

/// Regression: the session leader acquired a terminal after it had forked a child. On Linux a
/// controlling terminal is per process and inherited by fork, so the child has no terminal. It
/// cannot open the terminal, and job control does not restrict the child. On the virtual Unix the
/// terminal belonged to the whole session.
#[test]
fn child_forked_before_terminal_has_no_terminal() {
    is_the_same(
        "\
process main
  openpty u t
  child = fork before
  controlling t
  later = fork behind
  wait child
  wait later

process before
  opentty -> anything
  tcgetpgrp t -> anything
  setpgid 0 0
  ignore TTOU
  tcsetattr t +tostop -> anything

process behind
  opentty -> anything
  tcgetpgrp t -> anything
",
    );
}

/// Three processes wait, each for the next, and a typed key terminates all three. Each may reap its
/// child in its last check, if that child ends first. This is the last of about twenty steps with
/// several possible orders. Regression: the search for the order in which the virtual Unix matches
/// Linux was abandoned earlier.
#[test]
fn search_continues_through_many_steps_with_two_outcomes() {
    is_the_same(
        "\
process p0
  openpty u t -> anything
  controlling t -> anything
  fork p1 -> anything
  thread t1 -> anything
  block {} -> anything
  wait -> anything

process p1
  fork p2 -> anything
  fork p3 -> anything
  wait -> anything

process p2
  on HUP -> anything
  k4 = fork p4 -> anything
  wait k4 -> anything
  thread t0 -> anything
  thread t0 -> anything
  raise TTOU -> anything
  thread t0 -> anything
  wait -> anything

process p3
  block INT -> anything
  type u \"\\x03\" -> anything

process p4
  kill parent HUP -> anything

thread t0

thread t1
",
    );
}

/// On Linux, a process that closes the last descriptor of a terminal's controlling end, or leads
/// its session, may sleep after it has hung up the others, even during its exit. The others may run
/// before the exit completes. Regression: the exit of the virtual Unix was indivisible and excluded
/// that order. A process that waited for the exiting process always reaped it before SIGHUP, and a
/// member never died before its leader had ended.
#[test]
fn hung_up_process_may_run_before_exit_completes() {
    let member_exits = "\
process main
  on HUP
  openpty u t
  controlling t
  fork member
  close u
  wait -> exited 0

process member
  block {}
";
    let leader_exits = "\
process main
  subreaper 1
  leader = fork leader
  wait leader
  wait -> killed HUP

process leader
  ignore CHLD
  setsid
  openpty u t
  controlling t
  fork member

process member
  pause
";
    for (text, other) in [(member_exits, "EINTR"), (leader_exits, "ECHILD")] {
        let scenario: Scenario = text.parse().expect("a scenario");
        for &mode in extent::modes() {
            let outcome = Exploration::scenario(&scenario).mode(mode).preemption_bound(1).run();
            let found =
                outcome.violation.unwrap_or_else(|| panic!("{mode}: only one order:\n{text}"));
            assert!(found.what.contains(other), "{mode}: {}", found.what);
        }
    }
}

/// Regression: a session leader lost its terminal, acquired another one and ended. Its group
/// received SIGHUP and SIGCONT for the lost terminal. On Linux the group receives SIGHUP for the
/// new terminal only, and a stopped process stays stopped.
#[test]
fn leader_with_new_terminal_hangs_up_only_new_terminal() {
    is_the_same(
        "\
process main
  openpty u t
  child = fork leader
  wait child

process leader
  setsid
  openpty v s
  controlling s
  on HUP
    note \"hung up\"
  close v
  child = fork stopped
  waitid child stopped nowait
  controlling t

process stopped
  raise STOP
  note \"continues\"
",
    );
}

/// Regression: the foreground group of a terminal did not exist yet, and a process of another
/// session created it. Linux holds the group's number, and hangs the group up when the session
/// leader exits after the terminal was closed. The virtual Unix spared the group.
#[test]
fn foreground_group_of_another_session_is_hung_up() {
    is_the_same(
        "\
process main
  openpty u t
  controlling t
  pipe r w
  child = fork other
  close w
  tcsetpgrp t child
  kill child USR1
  read r 1
  close u

process other
  block USR1
  close u
  sigwaitinfo {USR1}
  setsid
  close w
  pause
",
    );
}
