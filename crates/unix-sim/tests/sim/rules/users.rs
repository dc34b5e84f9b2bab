//! `setuid`.

use super::harness::*;

#[test]
fn privileged_setuid_to_any_user_is_irrevocable() {
    everywhere(|sys| {
        let end = end_as(sys, |sys| {
            assert_eq!((sys.getuid(), sys.geteuid()), (0, 0));
            assert_eq!(sys.setuid(54_321), Ok(()));
            assert_eq!((sys.getuid(), sys.geteuid()), (54_321, 54_321));
            assert_eq!(sys.setuid(54_321), Ok(()));
            assert_eq!(sys.setuid(0), Err(Errno::EPERM));
            assert_eq!(sys.setuid(54_322), Err(Errno::EPERM));
            assert_eq!((sys.getuid(), sys.geteuid()), (54_321, 54_321));
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
        assert_eq!(sys.getuid(), 0);
    })
    .and_on_linux();
}

#[test]
fn setuid_in_one_thread_changes_the_whole_process() {
    everywhere(|sys| {
        let end = end_as(sys, |sys| {
            let thread = sys.thread(|sys| sys.setuid(54_321).unwrap()).unwrap();
            sys.join(thread).unwrap();
            i32::from(sys.getuid() == 54_321 && sys.geteuid() == 54_321)
        });
        assert_eq!(end, WaitStatus::Exited(1));
    })
    .and_on_linux();
}

#[test]
fn wait_reports_the_uid_of_the_child() {
    everywhere(|sys| {
        let child = sys
            .fork(|sys| {
                sys.setuid(54_321).unwrap();
                0
            })
            .unwrap();
        let waited = sys.waitpid(child.into(), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(waited.uid, 54_321);
    })
    .and_on_linux();
}
