//! What a child begins without.

use super::harness::*;

#[test]
fn a_child_has_one_thread_whatever_its_parent_has() {
    everywhere(|sys| {
        let bell = Bell::new(sys);
        let thread = sys.thread(move |sys| bell.heard(sys)).unwrap();
        let end = end_as(sys, move |sys| {
            assert_eq!(sys.join(thread), Err(Errno::ESRCH));
            assert_eq!(sys.tgkill(sys.getpid(), thread, None), Err(Errno::ESRCH));
            assert_eq!(sys.gettid().0, sys.getpid().number());
            0
        });
        assert_eq!(end, Status::Exited(0));
        bell.ring(sys);
        sys.join(thread).unwrap();
    })
    .and_on_linux();
}

#[test]
fn a_child_begins_with_no_time_used() {
    everywhere(|sys| {
        let before = use_up(sys, Duration::from_millis(50));
        let child = sys
            .fork(move |sys| {
                let own = sys.getrusage();
                i32::from(own.user + own.system < before)
            })
            .unwrap();
        let waited = sys.waitpid(child.into(), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(waited.status, Status::Exited(1));
        assert!(waited.usage.user + waited.usage.system < before, "{:?}", waited.usage);
    })
    .and_on_linux();
}

/// Computes until the process has used so much time; what it has used then.
fn use_up(sys: &dyn Sys, time: Duration) -> Duration {
    loop {
        let used = sys.getrusage();
        if used.user + used.system >= time {
            return used.user + used.system;
        }
        sys.poll();
    }
}
