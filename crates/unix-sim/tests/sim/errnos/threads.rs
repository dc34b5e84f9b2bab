//! Errors of calls on threads.

use std::sync::{Arc, Mutex};

use tontine_unix::{Errno, Resource, Result, Sys, Tid};

use crate::errnos::place::hold;
use crate::errnos::row::{Row, refused};
use crate::errnos::scene::{demote, limit, sleeper};

pub(crate) const ROWS: &[Row] = &[
    refused("thread_boxed()", "the user is at the process limit", Errno::EAGAIN, |sys| {
        demote(sys);
        limit(sys, Resource::Processes, 1);
        sys.thread(|_| {}).map(drop)
    })
    .as_root(),
    refused("join(thread)", "no thread has the number", Errno::ESRCH, |sys| {
        sys.join(Tid(i32::MAX))
    }),
    refused("join(thread)", "0", Errno::ESRCH, |sys| sys.join(Tid(0))),
    refused("join(thread)", "−1", Errno::ESRCH, |sys| sys.join(Tid(-1))),
    refused("join(thread)", "the lowest number", Errno::ESRCH, |sys| sys.join(Tid(i32::MIN))),
    refused("join(thread)", "the caller", Errno::EDEADLK, |sys| sys.join(sys.gettid())),
    refused("join(thread)", "a thread of another process", Errno::ESRCH, |sys| {
        let other = Tid(sleeper(sys).number());
        sys.join(other)
    }),
    refused("join(thread)", "already joined", Errno::ESRCH, |sys| {
        let thread = sys.thread(|_| {})?;
        sys.join(thread)?;
        sys.join(thread)
    }),
    refused("join(thread)", "another thread joins it", Errno::EINVAL, |sys| {
        let (from, to) = sys.pipe()?;
        let joined = sys.thread(move |sys| {
            let _ = sys.read(from, &mut [0]);
        })?;
        // The second join fails, and the thread that made it then lets the first join return.
        let join = move |sys: &dyn Sys| {
            let answer = sys.join(joined);
            if answer.is_err() {
                assert_eq!(sys.write(to, b"."), Ok(1));
            }
            answer
        };
        let answer = Arc::new(Mutex::new(Ok(())));
        let told = Arc::clone(&answer);
        let other = sys.thread(move |sys| {
            let answer = join(sys);
            *told.lock().expect("no panic") = answer;
        })?;
        let mine = join(sys);
        sys.join(other)?;
        let other: Result<()> = *answer.lock().expect("no panic");
        mine.and(other)
    }),
    refused("join(thread)", "the first thread", Errno::ESRCH, |sys| {
        let first = sys.gettid();
        let answer = Arc::new(Mutex::new(Ok(())));
        let told = Arc::clone(&answer);
        let other = sys.thread(move |sys| {
            let answer = sys.join(first);
            *told.lock().expect("no panic") = answer;
        })?;
        sys.join(other)?;
        let answer: Result<()> = *answer.lock().expect("no panic");
        answer
    })
    .on_linux("it has no handle there; Virtual waits until the process ends"),
];

#[test]
fn thread_errors_match_linux() {
    hold(ROWS);
}
