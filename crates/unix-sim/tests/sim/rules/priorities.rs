//! `getpriority` and `setpriority`.

use super::harness::*;

const ME: PriorityScope = PriorityScope::Process(Pid::number_only(0));

#[test]
fn nice_value_is_clamped_to_its_range() {
    everywhere(|sys| {
        for (asked, got) in [(5, 5), (100, 19), (-100, -20), (i32::MAX, 19), (i32::MIN, -20)] {
            assert_eq!(sys.setpriority(ME, asked), Ok(()));
            assert_eq!(sys.getpriority(ME), Ok(got), "{asked}");
        }
    })
    .and_on_linux();
}

#[test]
fn priority_of_missing_targets_returns_esrch() {
    everywhere(|sys| {
        for whose in [
            PriorityScope::Process(Pid::number_only(999_999)),
            PriorityScope::Process(Pid::number_only(-1)),
            PriorityScope::Group(Pid::number_only(999_999)),
            PriorityScope::Group(Pid::number_only(-1)),
            PriorityScope::User(59_999),
        ] {
            assert_eq!(sys.getpriority(whose), Err(Errno::ESRCH), "{whose:?}");
            assert_eq!(sys.setpriority(whose, 1), Err(Errno::ESRCH), "{whose:?}");
        }
    })
    .and_on_linux();
}

#[test]
fn nice_value_is_lowered_only_with_privilege() {
    everywhere(|sys| {
        let end = end_as(sys, |sys| {
            sys.setpriority(ME, 4).unwrap();
            sys.setuid(54_321).unwrap();
            assert_eq!(sys.setpriority(ME, 3), Err(Errno::EACCES));
            assert_eq!(sys.setpriority(ME, 4), Ok(()));
            assert_eq!(sys.setpriority(ME, 6), Ok(()));
            assert_eq!(sys.setpriority(ME, 4), Err(Errno::EACCES));
            assert_eq!(sys.getpriority(ME), Ok(6));
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
    })
    .and_on_linux();
}

#[test]
fn priority_of_another_user_is_read_only() {
    everywhere(|sys| {
        let other = sys.fork(sleep_on).unwrap();
        sys.setpriority(PriorityScope::Process(other), 2).unwrap();
        let whose = PriorityScope::Process(bare(other));
        let end = end_as(sys, move |sys| {
            sys.setuid(54_321).unwrap();
            assert_eq!(sys.getpriority(whose), Ok(2));
            assert_eq!(sys.setpriority(whose, 9), Err(Errno::EPERM));
            assert_eq!(sys.setpriority(whose, 1), Err(Errno::EPERM));
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
        assert_eq!(sys.getpriority(PriorityScope::Process(other)), Ok(2));
        kill(sys, other, Signal::KILL);
        end_of(sys, other);
    })
    .and_on_linux();
}

#[test]
fn group_priority_is_the_lowest_nice_value_and_set_for_all() {
    everywhere(|sys| {
        let group = PriorityScope::Group(Pid::number_only(0));
        let child = sys.fork(sleep_on).unwrap();
        sys.setpriority(ME, 7).unwrap();
        sys.setpriority(PriorityScope::Process(child), 3).unwrap();
        assert_eq!(sys.getpriority(group), Ok(3));
        assert_eq!(sys.setpriority(group, 8), Ok(()));
        assert_eq!(sys.getpriority(ME), Ok(8));
        assert_eq!(sys.getpriority(PriorityScope::Process(child)), Ok(8));
        kill(sys, child, Signal::KILL);
        end_of(sys, child);
    })
    .and_on_linux();
}

#[test]
fn user_priority_covers_all_its_processes() {
    everywhere(|sys| {
        let end = end_as(sys, |sys| {
            sys.setpriority(ME, 1).unwrap();
            sys.setuid(54_321).unwrap();
            let child = sys.fork(sleep_on).unwrap();
            sys.setpriority(ME, 5).unwrap();
            assert_eq!(sys.getpriority(PriorityScope::User(54_321)), Ok(1));
            assert_eq!(sys.getpriority(PriorityScope::User(0)), Ok(1), "0 names the caller's user");
            assert_eq!(sys.setpriority(PriorityScope::User(0), 6), Ok(()));
            assert_eq!(sys.getpriority(PriorityScope::Process(child)), Ok(6));
            assert_eq!(sys.getpriority(PriorityScope::User(54_321)), Ok(6));
            kill(sys, child, Signal::KILL);
            end_of(sys, child);
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
    })
    .and_on_linux();
}

#[test]
fn setpriority_of_group_returns_eperm_after_partial_change() {
    everywhere(|sys| {
        let bell = Bell::new(sys);
        let end = end_as(sys, move |sys| {
            sys.setpgid(Pid::number_only(0), Pid::number_only(0)).unwrap();
            let other = sys.fork(sleep_on).unwrap();
            sys.setuid(54_321).unwrap();
            bell.ring(sys);
            let group = PriorityScope::Group(Pid::number_only(0));
            assert_eq!(sys.setpriority(group, 5), Err(Errno::EPERM));
            assert_eq!(sys.getpriority(ME), Ok(5));
            assert_eq!(sys.getpriority(PriorityScope::Process(other)), Ok(0));
            0
        });
        bell.heard(sys);
        assert_eq!(end, WaitStatus::Exited(0));
        let _ = sys.kill(SignalTarget::Everyone, Some(Signal::KILL));
    });
}
