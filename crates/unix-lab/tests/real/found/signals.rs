//! Signals and threads: who takes one, when, and what it interrupts.

use super::is_the_same;

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

/// Two threads let a signal in, the first one does not, and two are sent, one after the other. On
/// Linux the second is had by who comes next in turn, not by the first thread again, which has one
/// to see to.
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

/// The Linux backend signalled a group with its table locked, which blocks all signals in this
/// thread: another one was woken for what this one handles, and its `sigwaitinfo` ended.
#[test]
fn a_group_is_signalled_with_the_mask_as_it_is() {
    is_the_same(
        "\
process main
  thread waiter
  on HUP
    note \"handled\"
  kill group self HUP

thread waiter
  sigwaitinfo {} -> anything
",
    );
}

/// A process was stopped while another of its threads slept in `read`. That one slept on in its
/// call: it took what was written, though it was stopped, and others that read did not get it.
#[test]
fn who_is_stopped_takes_nothing_from_a_pipe() {
    is_the_same(
        "\
process main
  pipe reads writes
  thread sleeper
  fork other
  raise STOP

process other
  sleep 1ms
  write writes \"ab\"
  read reads 4

thread sleeper
  read reads 4
",
    );
}

/// The same, and the reader's descriptor had been closed meanwhile. Its call had the file, so that
/// the pipe had a reader still. On Linux a stop is outside of the call, and the pipe is broken.
#[test]
fn who_is_stopped_holds_no_file_that_is_closed() {
    is_the_same(
        "\
process main
  pipe reads writes
  thread sleeper
  fork other
  close reads
  raise STOP

process other
  close reads
  write writes \"x\" -> anything

thread sleeper
  read reads 4 -> anything
",
    );
}

/// SIGCONT, which is handled, continued a process of two threads, and the first one had it. On
/// Linux each looks for signals when it goes on: whoever does so first has it.
#[test]
fn who_goes_on_first_has_what_continued_it() {
    is_the_same(
        "\
process main
  on CONT
    note \"taken\"
  child = fork stopped
  yield
  yield
  yield
  yield
  kill child CONT

process stopped
  thread other
  raise STOP

thread other
",
    );
}

/// A handler signals itself, and another thread that lets the signal in ends that when it comes
/// first. The virtual Unix was not asked again after one run without an end.
#[test]
fn what_goes_on_for_ever_under_one_schedule_may_end_under_another() {
    is_the_same(
        "\
process main
  thread other
  on CHLD
    kill self CHLD
  kill self CHLD

thread other
  getpid
  getpid
  getpid
",
    );
}
