//! Priorities: cases from other test suites.

use crate::rules::harness::*;

const ME: PriorityScope = PriorityScope::Process(Pid::number_only(0));
const MINE: PriorityScope = PriorityScope::Group(Pid::number_only(0));

#[test]
fn processes_start_with_priority_zero() {
    // On Linux, the priority is that of the tests' user.
    everywhere(|sys| {
        for whose in [ME, MINE, PriorityScope::User(0)] {
            assert_eq!(sys.getpriority(whose), Ok(0));
        }
    });
}

#[test]
fn nice_value_is_set_and_read_by_number() {
    everywhere(|sys| {
        let by_number = PriorityScope::Process(Pid::number_only(sys.getpid().number()));
        let before = sys.getpriority(by_number).unwrap();
        assert_eq!(sys.setpriority(by_number, before), Ok(()));
        assert_eq!(sys.getpriority(ME), Ok(before), "setting the same value changed it");
        for nice in [16, 12, -12] {
            assert_eq!(sys.setpriority(by_number, nice), Ok(()));
            assert_eq!(sys.getpriority(by_number), Ok(nice));
            assert_eq!(sys.getpriority(ME), Ok(nice));
        }
    })
    .and_on_linux();
}

#[test]
fn every_nice_value_can_be_set_and_read() {
    everywhere(|sys| {
        sys.setpgid(Pid::number_only(0), Pid::number_only(0)).ok();
        for whose in [ME, MINE] {
            for nice in (-20..=19).rev() {
                assert_eq!(sys.setpriority(whose, nice), Ok(()));
                assert_eq!(sys.getpriority(whose), Ok(nice));
            }
        }
    })
    .and_on_linux();
}

#[test]
fn group_nice_value_is_lowered_only_with_privilege() {
    everywhere(|sys| {
        let end = end_as(sys, |sys| {
            sys.setpgid(Pid::number_only(0), Pid::number_only(0)).unwrap();
            sys.setpriority(MINE, 6).unwrap();
            sys.setuid(54_321).unwrap();
            assert_eq!(sys.setpriority(MINE, 5), Err(Errno::EACCES));
            assert_eq!(sys.setpriority(MINE, 7), Ok(()));
            assert_eq!(sys.getpriority(MINE), Ok(7));
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
    })
    .and_on_linux();
}
