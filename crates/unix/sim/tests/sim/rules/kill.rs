//! The targets of `kill` and related calls.

use super::harness::*;

#[test]
fn kill_of_everyone_spares_the_caller_and_init() {
    everywhere(|sys| {
        let log = Log::default();
        act(sys, Signal::TERM, log.signals());
        assert_eq!(sys.kill(SignalTarget::Everyone, Some(Signal::TERM)), Err(Errno::ESRCH));
        let children = [leader(sys), forked(sys, sleep_on)];
        assert_eq!(sys.kill(SignalTarget::Everyone, Some(Signal::KILL)), Ok(()));
        for child in children {
            assert_eq!(end_of(sys, child), WaitStatus::Signaled(Signal::KILL, false));
        }
        assert_eq!(log.len(), 0);
    });
}

#[test]
fn kill_accepts_bare_numbers_and_thread_ids() {
    everywhere(|sys| {
        let own = Pid::number_only(sys.getpid().number());
        assert_eq!(sys.kill(own.into(), None), Ok(()));
        assert_eq!(sys.kill(SignalTarget::OwnGroup, None), Ok(()));
        let log = Log::default();
        act(sys, Signal::USR1, log.signals());
        let gate = Gate::new(sys);
        let thread = threaded(sys, move |sys| {
            let itself = Pid::number_only(sys.gettid().0);
            assert_eq!(sys.kill(itself.into(), None), Ok(()));
            gate.pass(sys);
        });
        let named = Pid::number_only(thread.0);
        assert_eq!(sys.kill(named.into(), None), Ok(()));
        kill(sys, named, Signal::USR1);
        until(sys, || log.len() == 1);
        gate.open(sys);
        sys.join(thread).unwrap();
        assert_eq!(sys.kill(named.into(), None), Err(Errno::ESRCH));
    })
    .and_on_linux();
}
