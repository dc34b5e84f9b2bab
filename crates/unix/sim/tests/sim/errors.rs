//! Errors for arguments that no scenario can express. The scenarios in `examples/unix/errors` show
//! the others.

use crate::children::{forked, sleeper, threaded};
use crate::rules::harness::*;
use crate::systems::{CAT, with_cat};

/// An option of `wait` that is not defined.
const UNKNOWN: WaitOptions = WaitOptions::from_bits_retain(1 << 20);
/// Length in bytes of an argument that, with its terminating NUL, exceeds the maximum.
const LONG: usize = 128 << 10;

#[test]
fn undefined_wait_options_are_refused() {
    everywhere(|sys| {
        let child = forked(sys, |_| 0);
        sys.waitid(child.into(), WaitOptions::EXITED | WaitOptions::NOWAIT).unwrap();
        let refused = Err(Errno::EINVAL);
        assert_eq!(sys.waitid(child.into(), WaitOptions::EXITED | UNKNOWN), refused);
        assert_eq!(sys.waitpid(child.into(), UNKNOWN), refused);
        assert_eq!(sys.wait3(UNKNOWN), refused);
        assert_eq!(sys.wait4(child.into(), UNKNOWN), refused);
        assert_eq!(sys.waitpid(Children::of(i32::MIN), UNKNOWN), refused, "before the number");
        end_of(sys, child);
    })
    .and_on_linux();
}

#[test]
fn long_arguments_and_zero_bytes_are_refused() {
    everywhere_with(with_cat, |sys| {
        let long = "x".repeat(LONG);
        let half = "x".repeat(LONG / 2);
        let cases = [
            (CAT, vec!["cat", &long], Errno::E2BIG),
            (CAT, vec![half.as_str(); 100], Errno::E2BIG),
            (CAT, vec!["cat", "a\0b"], Errno::EINVAL),
            ("/no/such/program", vec![long.as_str()], Errno::ENOENT),
        ];
        for (path, arguments, errno) in cases {
            assert_eq!(sys.exec(path, &arguments), Err(errno), "{path}");
            assert_eq!(sys.spawn(&SpawnRequest::new(path, &arguments)), Err(errno), "{path}");
        }
        assert_eq!(sys.wait(), Err(Errno::ECHILD), "a failed spawn leaves no child");
    })
    .and_on_linux();
}

#[test]
fn largest_values_and_unknown_flags_are_judged_like_linux() {
    everywhere(|sys| {
        let stack = SigStack { size: usize::MAX, on_stack: false };
        assert_eq!(sys.sigstack(Some(stack)), Err(Errno::ENOMEM));
        assert_eq!(sys.place(Some(usize::MAX)), Err(Errno::EINVAL));
        let action = SigAction::IGNORE.with_flags(ActionFlags::from_bits_retain(1 << 30));
        assert!(sys.sigaction(Signal::USR1, Some(action.with_mask(SigSet::ALL))).is_ok());
        let (_, terminal) = sys.openpty().unwrap();
        let all = 0xff;
        let termios = Termios {
            modes: Modes::from_bits_retain(u32::MAX),
            interrupt: all,
            quit: all,
            suspend: all,
            end: all,
            erase: all,
            kill: all,
        };
        assert_eq!(sys.tcsetattr(terminal, &termios), Ok(()));
        for limited in Resource::ALL {
            assert_eq!(sys.setrlimit(limited, sys.getrlimit(limited)), Ok(()), "the same limit");
        }
    })
    .and_on_linux();
}

/// On Linux a thread's number in place of its process's finds the process, which no manual page
/// promises.
#[test]
fn thread_number_names_no_process_of_getpgid_and_setpgid() {
    everywhere(|sys| {
        let child = sleeper(sys);
        let gate = Gate::new(sys);
        let thread = threaded(sys, move |sys| gate.pass(sys));
        let named = Pid::number_only(thread.0);
        assert_eq!(sys.getpgid(named), Err(Errno::ESRCH));
        assert_eq!(sys.setpgid(named, child), Err(Errno::ESRCH));
        gate.open(sys);
        sys.join(thread).unwrap();
        kill(sys, child, Signal::KILL);
        end_of(sys, child);
    });
}
