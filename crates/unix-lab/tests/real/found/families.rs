//! Children, groups, sessions and terminals.

use tontine_unix_lab::explore::Exploration;
use tontine_unix_lab::scenario::Scenario;
use tontine_unix_sim::LockingMode;

use super::is_the_same;

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

/// Who is ended by a signal while it waits looks once more on its way out, and takes a child that
/// has ended by then. The Linux backend only looked, and the virtual Unix was made to do the same.
#[test]
fn who_was_ended_takes_a_child_in_its_last_look() {
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

/// A second thread read in the background, and SIGTTIN was the first one's to deliver. Until that
/// had a turn the read began anew, and sent the next one. On Linux the reader looks itself.
#[test]
fn who_reads_in_the_background_may_take_the_signal_itself() {
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

/// The Linux backend waits in two calls, a look and a take, and the handler of SIGCHLD came
/// between: it killed its process, and left a zombie behind. One call that takes has taken before
/// it sees to signals.
#[test]
fn a_handler_of_sigchld_ends_who_has_waited_already() {
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

/// The same, and the handler waited: it had the child that its thread waited for, and the thread
/// slept on or had none.
#[test]
fn a_handler_of_sigchld_finds_the_child_taken() {
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

/// The session's leader took a terminal when it had a child already. On Linux a controlling
/// terminal is each process's own, handed down by fork, so the child has none: it opens nothing,
/// and job control does not hold it back. Here it was the whole session's.
#[test]
fn who_was_there_before_the_leader_took_a_terminal_has_none() {
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

/// Three wait, one for the next, and a typed key ends them all. Each may take its child in its last
/// look, if that is ended first: of some twenty steps with several orders this is the last. The
/// search for one in which the virtual Unix does what Linux did was given up before.
#[test]
fn a_search_goes_on_through_many_steps_that_can_go_in_two_ways() {
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

/// Who closes the last descriptor of a terminal's other end, or leads its session, sleeps on Linux
/// when it has hung up the others, in its exit too: they may go on before. Where an exit is one
/// piece the virtual Unix knew no such order: who waited for the one that exits always had it
/// before SIGHUP, and a member never died before its leader was gone.
#[test]
fn who_is_hung_up_may_go_on_before_the_exit_that_did_it_ends() {
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
        for mode in LockingMode::ALL {
            let outcome = Exploration::scenario(&scenario).mode(mode).preemption_bound(1).run();
            let found =
                outcome.violation.unwrap_or_else(|| panic!("{mode}: always one way:\n{text}"));
            assert!(found.what.contains(other), "{mode}: {}", found.what);
        }
    }
}

/// A session leader lost its terminal, acquired another one and ended. Its group got SIGHUP and
/// SIGCONT for the lost one. On Linux it gets SIGHUP for the new one only, and a stopped process
/// stays stopped.
#[test]
fn leader_with_new_terminal_hangs_up_only_that_one() {
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
  note \"goes on\"
",
    );
}

/// The foreground group of a terminal was one that no process had made yet, and a process of
/// another session made it. Linux, which has the group's number, hangs it up when the session's
/// leader exits after the terminal was closed; here it stayed.
#[test]
fn foreground_group_made_in_another_session_is_hung_up() {
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
