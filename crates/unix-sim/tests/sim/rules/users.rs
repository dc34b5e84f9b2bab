//! `setuid`.

use super::harness::*;

#[test]
fn the_privileged_become_whoever_they_want_and_do_not_return() {
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
fn a_user_is_the_processs_and_not_a_threads() {
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
fn wait_tells_the_childs_user() {
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
