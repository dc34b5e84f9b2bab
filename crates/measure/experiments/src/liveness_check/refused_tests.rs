//! Threads for which the system refuses a call, for tests: [`skips`], [`must_skip`].

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

use super::methods::{self, CheckMethod};
use crate::prelude::*;

const FACCESSAT: &[i64] = &[libc::SYS_faccessat, libc::SYS_faccessat2];

/// A method, the refused calls, and the call that the skip must name.
const CASES: [(&str, &[i64], &str); 4] = [
    ("kill-0", &[libc::SYS_kill], "kill: "),
    ("pidfd-signal-0", &[libc::SYS_pidfd_send_signal], "pidfd_send_signal: "),
    ("procfs-faccessat", FACCESSAT, "faccessat: "),
    ("polling-thread", FACCESSAT, "faccessat: "),
];

/// Asserts that `measure` skips each method whose call is refused, and names the call.
pub(crate) fn must_skip(measure: impl Fn(&'static CheckMethod) -> Result<()> + Sync) {
    for (name, refused, start) in CASES {
        let method = methods::find(name).expect("a method");
        skips(refused, start, || measure(method));
    }
}

/// Asserts that `body`, in a thread of its own in which `calls` fail with EPERM, is skipped for a
/// reason with this start. Children that the thread cannot kill end with the thread.
pub(crate) fn skips(calls: &[i64], start: &str, body: impl FnOnce() -> Result<()> + Send) {
    let arch = TargetArch::try_from(std::env::consts::ARCH).expect("a known processor");
    let rules = calls.iter().map(|call| (*call, Vec::new())).collect();
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch);
    let filter: BpfProgram = filter.expect("a filter").try_into().expect("a program");
    let found = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            seccompiler::apply_filter(&filter).ok()?;
            Some(body())
        });
        thread.join().expect("the thread ends")
    });
    match found {
        Some(Err(MeasureError::Skipped(why))) => assert!(why.starts_with(start), "{start}{why}"),
        Some(other) => panic!("{start}{other:?}"),
        None => eprintln!("skipped: no seccomp filters here"),
    }
}
