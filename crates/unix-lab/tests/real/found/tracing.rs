//! Tests of tracers and tracees: the stops that each is notified of, and the effect of the exit of
//! either on the other.

use super::is_the_same;

/// Regression: a tracer with SA_NOCLDWAIT had waited for none of its children. Its ended tracee
/// stays a zombie, but only until the tracer ends. Then Linux discards the tracee; on the virtual
/// Unix `init` adopted it.
#[test]
fn ended_tracee_of_nocldwait_tracer_vanishes_with_tracer() {
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

/// Regression: a tracer continued its tracee with SIGSTOP instead of another signal. On the virtual
/// Unix a stop counted only if the process itself had taken the signal from its pending signals.
#[test]
fn tracer_may_continue_tracee_with_stop_signal() {
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

/// Regression: a tracer continued its tracee with SIGSTOP, and the tracee stopped. SIGCHLD reported
/// a trap, as it does before each signal, although this was a stop.
#[test]
fn tracee_stopped_by_tracer_reports_stop() {
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

/// Regression: a whole process was the tracer, regardless of which of its threads had attached. On
/// Linux the thread is the tracer: when another thread called exec, the tracees of the first thread
/// were released with that thread.
#[test]
fn tracees_of_thread_are_released_by_exec_in_other_thread() {
    is_the_same(
        "\
process main
  child = fork tracer
  wait child

process tracer
  thread executes
  child = fork tracee
  ptrace attach child
  wait child
  pause

process tracee
  note \"continues\"
  getpid

process program
  pause

thread executes
  yield
  yield
  yield
  exec program
",
    );
}

/// Like [`tracees_of_thread_are_released_by_exec_in_other_thread`], but for a thread that ended
/// alone. On the virtual Unix its process remained the tracer.
#[test]
fn ending_thread_releases_tracees() {
    is_the_same(
        "\
process main
  child = fork tracee
  t = thread tracer
  join t
  ptrace continue child -> anything
  wait child -> anything

process tracee
  pause

thread tracer
  ptrace attach child
  wait child
",
    );
}

/// Regression: a thread other than the tracing one continued the tracee. On Linux that thread does
/// not trace the tracee, although it may wait for it.
#[test]
fn tracee_is_continued_only_by_tracing_thread() {
    is_the_same(
        "\
process main
  child = fork tracee
  ptrace attach child
  wait child
  t = thread other
  join t
  ptrace continue child -> anything

process tracee
  pause

thread other
  ptrace continue child -> anything
  ptrace kill child -> anything
  wait child nohang -> anything
",
    );
}

/// Regression: a stopped child was attached, and its parent was notified of the stop twice, as
/// tracer and as parent. Linux notifies a tracing parent only of the traps.
#[test]
fn tracing_parent_is_notified_of_stop_once() {
    is_the_same(
        "\
process main
  child = fork stopped
  waitid child stopped nowait
  ptrace attach child
  wait child
  wait stopped nohang -> anything
  ptrace detach child
  wait stopped nohang -> anything

process stopped
  raise STOP
",
    );
}

/// Regression: a tracee stopped for its tracer with a stop signal, which SIGCONT cancelled before
/// the tracer ended. On Linux that stop no longer has an effect. On the virtual Unix it was treated
/// as chosen by the tracer.
#[test]
fn stop_cancelled_during_trap_has_no_effect() {
    is_the_same(
        "\
process main
  child = fork tracer
  wait child

process tracer
  child = fork tracee
  ptrace attach child
  kill child USR1
  kill child CONT
  exit 0

process tracee
  pause
",
    );
}

/// Like [`stop_cancelled_during_trap_has_no_effect`], but the tracer continued the tracee with
/// that stop signal.
#[test]
fn cancelled_stop_cannot_be_chosen_by_tracer() {
    is_the_same(&continued_in_hand("STOP", ""));
}

/// Regression: a tracee was trapped for another signal when SIGCONT arrived, and its tracer then
/// continued it with a stop signal. On Linux SIGCONT cancels any stop that is about to be
/// delivered.
#[test]
fn sigcont_cancels_stop_chosen_later_by_tracer() {
    is_the_same(&continued_in_hand("USR1", " -> anything"));
}

/// Returns a scenario in which a tracee traps for `signal`, receives SIGCONT, and is continued with
/// a stop signal. `found` is the expected result of the next wait.
fn continued_in_hand(signal: &str, found: &str) -> String {
    format!(
        "\
process main
  child = fork tracee
  wait child
  kill child CONT
  ptrace continue child STOP
  wait child nohang{found}
  kill child KILL
  wait child

process tracee
  ptrace traceme
  raise {signal}
  pause
"
    )
}

/// Regression: a waiting tracee trapped for the SIGCHLD of the child that it waited for, and was
/// killed. On Linux it has reaped the child before the trap. The Linux backend had only checked the
/// child, so the first process reaped it again.
#[test]
fn waiting_tracee_reaps_child_before_trap() {
    is_the_same(
        "\
process main
  child = fork tracee
  wait child -> anything
  kill child KILL
  wait child

process tracee
  ptrace traceme
  child = fork worker
  waitid child exited

process worker
",
    );
}

/// Regression: a tracer that is the parent ended while its tracee was stopped. On Linux the process
/// that adopts the tracee finds that stop if it waits for stops. On the virtual Unix the stop had
/// been reported only to the tracer. In a later version it was found, but not if an older child was
/// running: that child was checked first, and the stop after it counted as unchanged.
#[test]
fn stop_reported_to_tracer_is_visible_to_next_parent() {
    is_the_same(
        "\
process main
  subreaper 1
  elder = fork elder
  child = fork tracer
  wait child
  wait stopped nohang -> anything
  kill elder KILL

process elder
  pause

process tracer
  child = fork tracee
  wait child
  ptrace continue child STOP
  wait child
  exit 0

process tracee
  ptrace traceme
  raise USR1
",
    );
}

/// Regression: `wait` found a tracee before a child that had ended. Linux first checks the
/// children, then the tracees that are not children, most recently attached first.
#[test]
fn wait_finds_children_before_tracees() {
    is_the_same(
        "\
process main
  fork other
  ptrace attach parent
  wait
  wait
  ptrace detach parent

process other
  getpid
",
    );
    is_the_same(
        "\
process main
  first = fork sleeper
  second = fork sleeper
  tracer = fork tracer
  wait tracer
  kill first KILL
  kill second KILL
  wait
  wait

process tracer
  ptrace attach first
  ptrace attach second
  wait -> anything
  wait -> anything
  ptrace detach first
  ptrace detach second

process sleeper
  pause
",
    );
}

/// Regression: `ptrace kill` ended a tracee, and the resulting SIGCHLD was not ignored, because the
/// Linux backend blocked all signals at the time. The signal woke the other thread, whose `read`
/// restarted on a closed file.
#[test]
fn sigchld_of_killed_tracee_wakes_no_other_thread() {
    is_the_same(
        "\
process main
  pipe r w
  thread reader
  close r
  child = fork child
  ptrace attach child
  ptrace kill child

process child

thread reader
  read r 4
",
    );
}
