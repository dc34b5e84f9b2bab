//! The stack of handlers.

use super::harness::*;

const STACK: SigStack = SigStack { size: 65_536, on_stack: false };

/// Returns a handler that logs 1 if it runs on the alternate stack, and 0 otherwise.
fn looks_at_its_stack(log: &Log) -> SigAction {
    let log = log.clone();
    SigAction::handler(move |sys, _| log.note(sys.sigstack(None).unwrap().on_stack.into()))
}

#[test]
fn handler_uses_the_alternate_stack_only_with_onstack() {
    everywhere(|sys| {
        for (flags, stack, on_it) in [
            (ActionFlags::ONSTACK, STACK, 1),
            (ActionFlags::empty(), STACK, 0),
            (ActionFlags::ONSTACK, SigStack::default(), 0),
        ] {
            let log = Log::default();
            sys.sigstack(Some(stack)).unwrap();
            act(sys, Signal::USR1, looks_at_its_stack(&log).with_flags(flags));
            sys.raise(Signal::USR1).unwrap();
            assert_eq!(log.all(), [on_it], "{flags:?} {stack:?}");
            assert_eq!(sys.sigstack(None), Ok(stack), "the stack is still in use");
        }
    })
    .and_on_linux();
}

/// Regression: the stack overflowed in the call in which the handler signalled itself. The overflow
/// was mistaken for a bug in the system itself, and aborted the host.
#[test]
fn endlessly_recursive_handler_raises_sigsegv() {
    everywhere(|sys| {
        let end = end_as(sys, |sys| {
            let again = SigAction::handler(|sys, _| sys.raise(Signal::USR1).unwrap());
            act(sys, Signal::USR1, again.with_flags(ActionFlags::NODEFER));
            sys.raise(Signal::USR1).unwrap();
            0
        });
        assert_eq!(end, WaitStatus::Signaled(Signal::SEGV, true));
    });
}

#[test]
fn sigstack_is_in_use_while_an_onstack_handler_runs() {
    everywhere(|sys| {
        let (none, stack) = (SigStack::default(), STACK);
        sys.sigstack(Some(none)).unwrap();
        assert_eq!(sys.sigstack(Some(stack)), Ok(none));
        assert_eq!(sys.sigstack(None), Ok(stack));
        let log = Log::default();
        let noted = log.clone();
        let handler = SigAction::handler(move |sys, _| {
            let now = sys.sigstack(None).unwrap();
            noted.note(now.on_stack.into());
            noted.note((sys.sigstack(Some(SigStack::default())) == Err(Errno::EPERM)).into());
        });
        act(sys, Signal::USR1, handler.with_flags(ActionFlags::ONSTACK));
        sys.raise(Signal::USR1).unwrap();
        assert_eq!(log.all(), [1, 1]);
        assert_eq!(sys.sigstack(Some(none)), Ok(stack), "the stack is still in use");
        assert_eq!(sys.sigstack(None), Ok(none));
    })
    .and_on_linux();
}

#[test]
fn alternate_stack_is_inherited_by_child_not_thread() {
    everywhere(|sys| {
        sys.sigstack(Some(STACK)).unwrap();
        let pages = |sys: &dyn Sys| (sys.sigstack(None).unwrap().size / 4096) as i32;
        assert_eq!(end_as(sys, pages), WaitStatus::Exited(16));
        let log = Log::default();
        let noted = log.clone();
        let thread = threaded(sys, move |sys| noted.note(pages(sys)));
        sys.join(thread).unwrap();
        assert_ne!(log.all(), [16]);
    })
    .and_on_linux();
}
