//! Tests of signals and threads: the thread that takes a signal, the time, and the interrupted
//! call.

use super::is_the_same;

/// Regression: a thread killed its own process, but another thread delivered the signal. Until then
/// the first thread continued: its call returned, and it made the next call. On Linux a fatal
/// signal terminates the process when it is sent.
#[test]
fn thread_killing_own_process_makes_no_further_call() {
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

/// Regression: the killing thread blocked the signal that it sent; the other thread did not, and
/// ended immediately. The killing thread continued although the process had ended.
#[test]
fn thread_blocking_fatal_signal_ends_with_process() {
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

/// Regression: a session leader signalled its group, including itself. `wait` reported that a
/// member had died of SIGHUP, which the leader's exit sends to the foreground group. SIGHUP arrived
/// later, but has the lower number. On Linux the first signal had terminated the member before it
/// could check for the next signal.
#[test]
fn first_fatal_signal_determines_wait_status() {
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

/// Regression: on Linux, a thread began with the alternate stack of a few KiB that Rust's runtime
/// sets. A handler with `onstack` ran on that stack, and the process died of SIGSEGV.
#[test]
fn thread_starts_without_alternate_stack_on_linux() {
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

/// Regression: a thread stopped its own process by a signal that another thread, waiting at its
/// gate, took. On the virtual Unix the other thread took the signal when all threads were
/// quiescent, and by then the first thread had reported its call and reached its next gate. On
/// Linux a woken thread may run immediately, and stop the first thread within its call.
#[test]
fn thread_stopping_own_process_may_stop_within_call() {
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

/// Regression: a child killed its whole group, including its waiting parent. On the virtual Unix
/// the child completed its own exit before any other process could run. The parent therefore reaped
/// the child in its last check, and `init` was never notified. On Linux a process that a call has
/// woken may run before the caller handles its own signals.
#[test]
fn woken_process_may_run_before_caller_ends() {
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

/// Regression: several successive steps can each have two outcomes. Each attempt drew the schedule
/// of the whole run on the virtual Unix again from scratch until all steps matched Linux; after 64
/// attempts the two systems were reported as diverged.
#[test]
fn each_step_is_matched_separately() {
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

/// Regression: the stepper of real processes mistook a thread at a gate for one that sleeps in a
/// call of its handler. With SA_RESTART the kernel resumed the gate's sleep by itself, and the gate
/// still recorded the last state of the handler's own gate.
#[test]
fn handler_with_restart_leaves_thread_at_gate() {
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

/// Regression: all threads slept, and the next timer was an alarm in a hundred seconds. On the
/// virtual clock the alarm expired immediately; on Linux the run was abandoned before the alarm
/// expired.
#[test]
fn run_does_not_wait_for_distant_alarm() {
    is_the_same(
        "\
process main
  alarm 100
  pause
",
    );
}

/// Regression: a thread ended, and the virtual Unix made all others check for signals that it left
/// behind. The check restarted another thread's read, which looked up its descriptor again. By then
/// the descriptor belonged to another file.
#[test]
fn read_keeps_file_if_descriptor_is_reused() {
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

/// A stop signal does not stop a process in an orphaned group, but it still wakes the thread. On
/// Linux `sigtimedwait` ends with EINTR whenever anything but a signal of its set wakes it.
#[test]
fn ineffective_stop_signal_ends_sigwaitinfo() {
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

/// A thread slept in `sigsuspend`, whose mask blocked a signal pending for its process, and another
/// signal without a handler woke the thread. Linux then restarts the call, and the previous mask is
/// in effect for a moment. That mask admitted the pending signal, which terminated the process.
#[test]
fn spurious_wakeup_of_sigsuspend_exposes_old_mask() {
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

/// Regression: the Linux backend signalled group 0 while it held the lock of its table, which
/// blocks all signals. A signal that the caller ignores was then pending for a moment, and woke a
/// thread in `sigwaitinfo`.
#[test]
fn kill_of_group_0_blocks_no_signals_in_caller() {
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

/// A blocked signal that is ignored by default stays pending for the process. The other thread, in
/// `sigwaitinfo`, does not block the signal. On Linux that thread is woken and discards the signal,
/// and its call ends with EINTR.
#[test]
fn discarded_signal_ends_sigwaitinfo() {
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

/// Two threads admit a signal, the first thread does not, and two signals are sent in succession.
/// On Linux the second signal is delivered to the next thread in turn, not again to the thread that
/// already has a signal to handle.
#[test]
fn threads_receive_process_signals_in_turn() {
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

/// A thread forks a child that ends, and both threads admit SIGCHLD. Linux considers the forking
/// thread first, even if it is not the first thread of the process.
#[test]
fn sigchld_is_delivered_to_forking_thread() {
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

/// Regression: a thread ended while a signal that it blocked was pending. All other threads were
/// woken to handle the signal, including one that blocked it in `sigpause`. That thread's previous
/// mask was in effect for a moment and admitted the signal, which terminated the process.
#[test]
fn ending_thread_wakes_no_thread_for_blocked_signal() {
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

/// Regression: the Linux backend signalled a group while it held the lock of its table, which
/// blocks all signals in the calling thread. Another thread was therefore woken for a signal that
/// the calling thread handles, and its `sigwaitinfo` ended.
#[test]
fn group_signal_is_sent_with_mask_unchanged() {
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

/// Regression: a process was stopped while another of its threads slept in `read`. That thread
/// stayed in its call and consumed written bytes although it was stopped, so other readers did not
/// receive them.
#[test]
fn stopped_reader_consumes_no_bytes_from_pipe() {
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

/// Like [`stopped_reader_consumes_no_bytes_from_pipe`], but the reader's descriptor had been closed
/// in the meantime. The stopped call held the file, so the pipe still had a reader. On Linux a
/// thread stops outside the call, and the pipe is broken.
#[test]
fn stopped_reader_does_not_hold_closed_file() {
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

/// Regression: SIGCONT with a handler continued a process with two threads, and the first thread
/// took it. On Linux each thread checks for signals when it continues, and the first thread that
/// checks takes the signal.
#[test]
fn first_continued_thread_takes_sigcont() {
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

/// A handler signals itself endlessly. Another thread that admits the signal ends this loop if it
/// runs first. Regression: after one endless run the virtual Unix was not run again.
#[test]
fn schedule_search_continues_after_endless_run() {
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
