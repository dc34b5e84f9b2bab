//! Threads for which the system refuses a call, for tests: [`inside`].

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use tontine_host::error::Result;

/// A variant, the refused calls, and the call that the skip must name.
pub const CASES: [(&str, &[i64], &str); 4] = [
    ("kill-0", &[libc::SYS_kill], "kill"),
    ("pidfd-signal-0", &[libc::SYS_pidfd_send_signal], "pidfd_send_signal"),
    ("procfs-faccessat", &[libc::SYS_faccessat, libc::SYS_faccessat2], "faccessat"),
    ("polling-thread", &[libc::SYS_faccessat, libc::SYS_faccessat2], "faccessat"),
];

/// Runs `body` in its own thread, in which `calls` fail with EPERM. Returns `None` if the system
/// has no filters. Children that the thread cannot kill end with the thread.
pub fn inside(calls: &[i64], body: impl FnOnce() -> Result<()> + Send) -> Option<Result<()>> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).expect("a known processor");
    let rules = calls.iter().map(|call| (*call, Vec::new())).collect();
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch);
    let filter: BpfProgram = filter.expect("a filter").try_into().expect("a program");
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            seccompiler::apply_filter(&filter).ok()?;
            Some(body())
        });
        thread.join().expect("the thread ends")
    })
}
