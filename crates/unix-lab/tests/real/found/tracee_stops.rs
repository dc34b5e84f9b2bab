//! Tests of the stops of tracees: the event that ends a stop, its reports, and its visibility to
//! the parent.

use super::is_the_same;

/// Regression: PTRACE_KILL of a running tracee had no effect. Linux kills the tracee in any state.
#[test]
fn ptrace_kill_terminates_running_tracee() {
    is_the_same(
        "\
process main
  child = fork tracee
  other = fork tracee
  ptrace attach child
  wait child
  ptrace continue child
  wait child
  ptrace continue child
  t = thread other
  join t
  ptrace kill other -> anything
  ptrace kill child
  wait child
  ptrace kill child -> anything
  kill other KILL

process tracee
  raise USR1
  pause

thread other
  ptrace kill child -> anything
",
    );
}

/// Regression: PTRACE_KILL continued a tracee that its tracer's signal had stopped. Linux kills the
/// tracee.
#[test]
fn ptrace_kill_terminates_tracee_in_group_stop() {
    is_the_same(&stopped_by_tracer("ptrace kill child", ""));
}

/// Regression: a parent continued its tracee with a stop signal, and detached from the tracee
/// before waiting for it. On Linux the parent's `wait` then reports that stop. On the virtual Unix
/// only a tracer's `wait` reported it, and the parent's `wait` never returned.
#[test]
fn parent_finds_stop_of_detached_tracee() {
    is_the_same(&stopped_by_tracer("ptrace detach child", "wait child stopped"));
    is_the_same(&stopped_by_tracer("wait child; ptrace detach child", "wait child stopped"));
}

/// After a parent detaches from its tracee, `wait` reports the tracee's stop, but a thread of the
/// parent that already waits is not woken.
#[test]
fn detach_wakes_no_waiting_thread_of_parent() {
    is_the_same(
        "\
process main
  child = fork tracee
  wait child
  ptrace continue child STOP
  t = thread waits
  ptrace detach child
  kill child KILL
  join t

process tracee
  ptrace traceme
  raise WINCH

thread waits
  wait child stopped
  wait child stopped
",
    );
}

/// Regression: a stopped tracee that its tracer had continued raised SIGCONT. Linux still considers
/// the tracee stopped, so a wait reports that it continued. On the virtual Unix the tracer had
/// ended the stop.
#[test]
fn sigcont_raised_by_stopped_tracee_counts_as_continue() {
    is_the_same(&stopped_by_tracer(
        "wait child; ptrace continue child",
        "\
wait child continued
  wait child nohang continued -> anything
  ptrace continue child
  wait child nohang continued -> anything",
    ));
}

/// Like [`sigcont_raised_by_stopped_tracee_counts_as_continue`], but with a tracer that is not the
/// parent. On Linux both receive SIGCHLD for the continuation.
#[test]
fn tracer_and_parent_receive_sigchld_when_tracee_continues() {
    is_the_same(
        "\
process main
  on CHLD siginfo restart
    note \"the parent: {code} {status}\"
  child = fork tracee
  tracer = fork tracer
  wait child stopped
  wait child continued
  wait tracer
  wait child

process tracer
  on CHLD siginfo restart
    note \"the tracer: {code} {status}\"
  ptrace attach child
  wait child
  ptrace continue child STOP
  wait child
  ptrace continue child
  kill child CONT
  wait child
  ptrace continue child
  wait child nohang continued -> anything
  wait child nohang continued -> anything
  ptrace kill child

process tracee
  pause
",
    );
}

/// Regression: a stopped process was attached, continued, and detached. On Linux it stops again
/// immediately, because no SIGCONT has cancelled its stop. On the virtual Unix it kept running.
#[test]
fn process_stopped_before_attach_stops_when_detached() {
    is_the_same(
        "\
process main
  child = fork stopped
  waitid child stopped nowait
  ptrace attach child
  wait child
  ptrace continue child
  wait child
  ptrace continue child
  wait child
  ptrace detach child
  wait child nohang stopped -> anything
  wait child nohang stopped -> anything
  kill child CONT
  wait child

process stopped
  raise STOP
  raise WINCH
  note \"continues\"
",
    );
}

/// Like [`process_stopped_before_attach_stops_when_detached`], but the tracer ends, once with a
/// tracee in a trap and once with a tracee that sleeps.
#[test]
fn process_stopped_before_attach_stops_when_tracer_ends() {
    is_the_same(&stopped_before_attach("raise WINCH", "wait child"));
    is_the_same(&stopped_before_attach("pause", ""));
}

/// Regression: a tracee that was already stopped was stopped once more by its tracer's signal, and
/// SIGCHLD named that signal. On Linux SIGCHLD names the signal that `wait` would return for the
/// stop. No such signal exists, because the parent has already waited for the stop.
#[test]
fn sigchld_of_already_reported_stop_names_no_signal() {
    is_the_same(
        "\
process main
  on CHLD siginfo restart
    note \"the parent: {code} {status}\"
  child = fork stopped
  wait child stopped
  tracer = fork tracer
  wait tracer
  wait child nohang stopped -> anything
  kill child KILL
  wait child

process tracer
  on CHLD siginfo restart
    note \"the tracer: {code} {status}\"
  ptrace attach child
  wait child
  ptrace continue child
  wait child
  ptrace continue child STOP
  wait child
  ptrace continue child
  wait child
  ptrace detach child TSTP

process stopped
  raise STOP
  raise WINCH
",
    );
}

/// An attached process handles the SIGSTOP of the attach before any other signal, even one with a
/// lower number, because Linux sends the stop to a thread and the other signal to the process.
#[test]
fn stop_of_attached_process_precedes_other_signals() {
    is_the_same(
        "\
process main
  child = fork stopped
  waitid child stopped nowait
  ptrace attach child
  wait child
  kill child USR1
  ptrace continue child
  wait child
  ptrace detach child USR2
  kill child CONT
  wait child

process stopped
  on USR1
    note \"one\"
  on USR2
    note \"two\"
  raise STOP
",
    );
}

/// Returns a scenario in which a parent stops its tracee, then does `does`, and then `then`.
fn stopped_by_tracer(does: &str, then: &str) -> String {
    let does = does.replace("; ", "\n  ");
    format!(
        "\
process main
  child = fork tracee
  wait child
  ptrace continue child STOP
  {does}
  {then}
  kill child KILL -> anything
  wait child

process tracee
  ptrace traceme
  raise WINCH
  raise CONT
  note \"continues\"
"
    )
}

/// Returns a scenario in which a process other than the parent attaches to a stopped process and
/// continues it until it does `does`. The tracer then does `then`, and ends.
fn stopped_before_attach(does: &str, then: &str) -> String {
    format!(
        "\
process main
  child = fork stopped
  waitid child stopped nowait
  tracer = fork tracer
  wait tracer
  wait child nohang stopped -> anything
  wait child nohang stopped -> anything
  kill child CONT
  kill child USR1
  wait child

process tracer
  ptrace attach child
  wait child
  ptrace continue child
  wait child
  ptrace continue child
  {then}

process stopped
  on USR1
    note \"handled\"
  raise STOP
  {does}
  note \"continues\"
"
    )
}

/// Regression: a tracee ended while its parent ignored and blocked SIGCHLD. Linux keeps the signal
/// pending, and a handler that is set later runs. On the virtual Unix the parent received no
/// signal.
#[test]
fn sigchld_of_tracee_stays_pending_if_ignored_and_blocked() {
    is_the_same(
        "\
process main
  block CHLD
  ignore CHLD
  pipe r w
  child = fork tracee
  close w
  read r 1
  on CHLD
    note \"handled\"
  unblock CHLD
  wait child

process tracee
  ptrace traceme
",
    );
}

/// Regression: a stopped tracee that its tracer had continued raised SIGCONT, which it blocked. On
/// Linux its parent receives SIGCHLD for the continuation only when the tracee next takes a signal.
/// On the virtual Unix the parent received SIGCHLD immediately.
#[test]
fn running_tracee_reports_continue_with_next_signal() {
    for next in ["", "  raise USR1\n"] {
        is_the_same(&format!(
            "\
process main
  on CHLD siginfo restart
    note \"{{code}} {{status}}\"
  child = fork stopped
  wait child
  ptrace continue child STOP
  wait child
  ptrace continue child
  wait child
  ptrace continue child -> anything
  wait child -> anything

process stopped
  block {{CONT}}
  ptrace traceme
  raise WINCH
  raise CONT
{next}"
        ));
    }
}
