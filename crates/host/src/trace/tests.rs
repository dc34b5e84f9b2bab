//! Tests of the tracer with calls whose names, arguments and children are known in advance.

#![allow(unsafe_code, reason = "system calls to be seen")]

use std::ptr;

use super::*;
use crate::error::MeasureError;

/// Returns the events, or `None` if tracing is not permitted here.
fn traced(events: Result<Vec<TraceEvent>>) -> Option<Vec<TraceEvent>> {
    match events {
        Ok(events) => {
            eprintln!("{}", explained(&events));
            Some(events)
        }
        Err(MeasureError::Skipped(why)) => {
            eprintln!("skipped: {why}");
            None
        }
        Err(trouble) => panic!("{trouble}"),
    }
}

fn creation(events: &[TraceEvent]) -> (&Call, Creation) {
    let mut made = events.iter().filter_map(|event| {
        let call = event.call()?;
        Some((call, call.creates?))
    });
    let found = made.next().expect("a task was created");
    assert!(made.next().is_none(), "only one");
    found
}

#[test]
fn traced_thread_has_published_flags_and_ends() {
    let Some(events) = traced(pthread_create()) else { return };
    let (call, creation) = creation(&events);
    assert!(["clone3", "clone"].contains(&call.title().as_str()), "{call}");
    assert_eq!(
        creation.flag_names(),
        "CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_SIGHAND|CLONE_THREAD|CLONE_SYSVSEM|CLONE_SETTLS|\
         CLONE_PARENT_SETTID|CLONE_CHILD_CLEARTID"
    );
    assert_eq!(creation.exit_signal, 0);
    assert!(creation.stack != 0 && creation.tls != 0, "{creation}");
    let thread = call.returned.expect("it returned") as i32;
    let (before, after): (Vec<&Call>, Vec<&Call>) = events
        .iter()
        .filter_map(TraceEvent::call)
        .filter(|other| other.name == Some("rt_sigprocmask") && other.who == Who::Caller)
        .partition(|other| other.arguments[0] == "SIG_BLOCK");
    assert!(before.iter().any(|call| call.arguments[1] == "~[]"), "signals are blocked first");
    assert!(after.iter().any(|call| call.arguments[..2] == ["SIG_SETMASK", "[]"]), "and let in");
    assert!(
        events.contains(&TraceEvent::Ended(Who::Thread(thread), ExitKind::Exited(0))),
        "{thread} ended: {events:?}"
    );
    assert!(explained(&events).contains("one address space for both"));
}

/// The kernel wakes the joiner before the joined thread has closed its files; here, closing takes
/// long.
#[test]
fn trace_contains_a_thread_end_after_the_join() {
    extern "C" fn leaves_a_large_file(_: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: the name is static; the descriptor table becomes this thread's own.
        unsafe {
            libc::unshare(libc::CLONE_FILES);
            libc::fallocate(libc::memfd_create(c"large".as_ptr(), 0), 0, 0, 64 << 20);
        }
        ptr::null_mut()
    }
    let joins = || {
        let mut thread = 0;
        // SAFETY: the attributes are the defaults; the function is static; the thread, if it was
        // created, is joined once.
        unsafe {
            let made = libc::pthread_create(
                &raw mut thread,
                ptr::null(),
                leaves_a_large_file,
                ptr::null_mut(),
            );
            if made == 0 {
                libc::pthread_join(thread, ptr::null_mut());
            }
        }
    };
    let Some(events) = traced(events(joins)) else { return };
    let thread = creation(&events).0.returned.expect("it returned") as i32;
    assert!(
        events.contains(&TraceEvent::Ended(Who::Thread(thread), ExitKind::Exited(0))),
        "{thread} ended: {events:?}"
    );
}

#[test]
fn traced_fork_reports_child_by_sigchld() {
    let Some(events) = traced(fork()) else { return };
    let (call, creation) = creation(&events);
    assert_eq!(creation.flag_names(), "CLONE_CHILD_CLEARTID|CLONE_CHILD_SETTID");
    assert_eq!(creation.exit_signal, libc::SIGCHLD as u64);
    assert!(call.to_string().contains("|SIGCHLD") || call.name == Some("clone3"), "{call}");
    let child = call.returned.expect("it returned") as i32;
    let arrived = events.iter().find_map(|event| match event {
        TraceEvent::Signal(Who::Caller, arrived) => Some(*arrived),
        _ => None,
    });
    let arrived = arrived.expect("a signal");
    assert_eq!((arrived.signo, arrived.code_name().as_str()), (libc::SIGCHLD, "CLD_EXITED"));
    assert_eq!(arrived.sender.map(|sender| sender.pid), Some(child));
    assert_eq!(arrived.end.map(|end| end.status), Some(0));
    let waited = events.iter().filter_map(TraceEvent::call).find(|call| call.name == Some("wait4"));
    assert_eq!(waited.and_then(|call| call.returned), Some(child.into()));
    let ends = |who| events.contains(&TraceEvent::Ended(who, ExitKind::Exited(0)));
    assert!(ends(Who::Process(child)), "{events:?}");
}

#[test]
fn trace_lists_exactly_the_calls_with_arguments() {
    let asked = || {
        // SAFETY: neither call accesses memory; the second number is not a system call.
        unsafe {
            libc::syscall(libc::SYS_kill, libc::getpid(), 0);
            libc::syscall(4000, 1_u64, 2_u64, 3_u64, 4_u64, 5_u64, 6_u64);
        }
    };
    let calls = match system_calls(asked) {
        Ok(calls) => calls,
        Err(MeasureError::Skipped(why)) => return eprintln!("skipped: {why}"),
        Err(trouble) => panic!("{trouble}"),
    };
    let titles: Vec<_> = calls.iter().map(Call::title).collect();
    assert_eq!(titles, ["getpid", "kill", "syscall_4000"]);
    let pid = calls[0].returned.expect("a pid").to_string();
    assert_eq!(calls[1].arguments, [pid.as_str(), "0"]);
    assert_eq!(calls[2].arguments, ["0x1", "0x2", "0x3", "0x4", "0x5", "0x6"]);
    assert!(calls[2].to_string().contains("= -1 E"), "{}", calls[2]);
    assert!(system_calls(|| {}).is_ok_and(|none| none.is_empty()));
}

/// The structure of Linux 5.3 had eight fields. Bytes that follow a shorter structure do not belong
/// to it.
#[test]
fn short_clone3_structure_is_read_to_its_size() {
    const SHORT: usize = 64;
    let mut words = [0_u64; size_of::<Creation>() / 8];
    words[4] = libc::SIGCHLD as u64;
    // If the kernel read these words, they would be two pids at address 1 and a cgroup.
    words[SHORT / 8..].copy_from_slice(&[1, 2, 3]);
    let forks = move || {
        // SAFETY: without flags the child runs on copies, and it exits immediately; the pointer for
        // the status may be null.
        unsafe {
            match libc::syscall(libc::SYS_clone3, words.as_ptr(), SHORT) {
                0 => crate::os::child::exit_at_once(0),
                child if child > 0 => libc::waitpid(child as i32, ptr::null_mut(), 0),
                _ => 0,
            };
        }
    };
    let Some(events) = traced(events(forks)) else { return };
    let (call, creation) = creation(&events);
    assert_eq!(creation, Creation { exit_signal: libc::SIGCHLD as u64, ..Creation::default() });
    assert!(call.returned > Some(0), "{call}");
    assert_eq!(call.arguments, [creation.to_string(), SHORT.to_string()]);
    assert!(!call.to_string().contains("set_tid"), "{call}");
}

#[test]
fn trace_names_the_end_of_a_function_that_exits() {
    let ended = system_calls(|| crate::os::child::exit_at_once(7));
    match ended {
        Err(MeasureError::Failed(why)) => assert!(why.contains("Exited(7)"), "{why}"),
        Err(MeasureError::Skipped(why)) => eprintln!("skipped: {why}"),
        other => panic!("{other:?}"),
    }
}
