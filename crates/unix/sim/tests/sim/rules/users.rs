//! Users and their processes.

use super::harness::*;

#[test]
fn wait_reports_the_uid_of_the_child() {
    everywhere(|sys| {
        let child = forked(sys, |sys| {
            sys.setuid(54_321).unwrap();
            0
        });
        let waited = sys.waitpid(child.into(), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(waited.uid, 54_321);
    })
    .and_on_linux();
}

#[test]
fn processes_start_with_priority_zero() {
    // On Linux, the priority is that of the tests' user.
    everywhere(|sys| {
        let own = Pid::number_only(0);
        let scopes =
            [PriorityScope::Process(own), PriorityScope::Group(own), PriorityScope::User(0)];
        for whose in scopes {
            assert_eq!(sys.getpriority(whose), Ok(0));
        }
    });
}
