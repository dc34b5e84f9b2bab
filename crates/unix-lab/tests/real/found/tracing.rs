//! Tracers and tracees: stops that one hears of, and what the end of one means for the other.

use super::is_the_same;

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

/// A process traced, whichever of its threads had asked. On Linux a thread traces: another one
/// executed, and what the first had traced was let go with it.
#[test]
fn what_a_thread_traced_goes_on_when_another_executes() {
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
  note \"goes on\"
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

/// The same of a thread that ended alone: its process was the tracer still.
#[test]
fn a_thread_that_ends_lets_go_whom_it_traced() {
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

/// Another thread than the one that traced let the tracee go on. On Linux it has no such tracee,
/// though it may wait for it.
#[test]
fn a_tracee_goes_on_as_its_own_tracing_thread_says() {
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

/// A stopped child was attached, and its parent was told of the stop twice: as its tracer, and as
/// its parent. Linux tells a parent that traces of nothing but what it has trapped.
#[test]
fn a_parent_that_traces_is_told_of_a_stop_once() {
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

/// A tracee stopped for its tracer with a stop, which SIGCONT took back before the tracer ended. On
/// Linux nothing comes of that stop any more; here it counted as one that the tracer had chosen.
#[test]
fn a_stop_that_is_taken_back_in_the_tracers_hand_stops_nobody() {
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

/// The same, and the tracer let the tracee go on with that stop.
#[test]
fn a_stop_that_was_taken_back_is_none_for_the_tracer_to_go_on_with() {
    is_the_same(&continued_in_hand("STOP", ""));
}

/// A tracee was in its tracer's hand with another signal when SIGCONT came, and then its tracer had
/// it go on with a stop. On Linux SIGCONT takes back whatever is about to be delivered.
#[test]
fn a_continuation_takes_back_a_stop_that_the_tracer_chooses_after_it() {
    is_the_same(&continued_in_hand("USR1", " -> anything"));
}

/// A tracee stops for its tracer with this signal, has SIGCONT, and is let go on with a stop; and
/// what is then found of it.
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

/// A tracee that waits is stopped for its tracer by the SIGCHLD of the child that it waits for, and
/// killed. On Linux it has taken the child before; the Linux backend had only looked at it, so that
/// the first process found it once more.
#[test]
fn a_tracee_that_waits_has_taken_its_child_before_it_stops_for_the_signal() {
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

/// A tracer that is the parent ends while its tracee is stopped. On Linux whoever adopts the tracee
/// finds that stop if it asks for stops; here only the tracer had heard of it. Then it was found,
/// but not behind an elder child that runs: that one was looked at first, and what came behind it
/// counted as unchanged.
#[test]
fn a_stop_that_a_tracer_heard_of_is_there_for_the_next_parent() {
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

/// `wait` found a tracee before a child that had ended. Linux looks at the children first, then at
/// the tracees that are not children, of which the one that was attached last comes first.
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

/// SIGCHLD of a tracee that `ptrace kill` ended was not ignored, because the Linux backend had all
/// signals blocked meanwhile. It woke the other thread, whose `read` began again, of a file that
/// had been closed.
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
