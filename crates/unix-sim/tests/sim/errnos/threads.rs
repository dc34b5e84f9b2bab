//! Threads.

use std::sync::{Arc, Mutex};

use tontine_unix::{Errno, Resource, Result, Sys, Tid};

use crate::errnos::place::hold;
use crate::errnos::row::{Row, refused};
use crate::errnos::scene::{demote, limit, sleeper};

pub(crate) const ROWS: &[Row] = &[
    refused("thread_boxed()", "the user has as many as the limit allows", Errno::EAGAIN, |sys| {
        demote(sys);
        limit(sys, Resource::Processes, 1);
        sys.thread(|_| {}).map(drop)
    })
    .as_root(),
    refused("join(thread)", "nobody has the number", Errno::ESRCH, |sys| sys.join(Tid(i32::MAX))),
    refused("join(thread)", "0", Errno::ESRCH, |sys| sys.join(Tid(0))),
    refused("join(thread)", "−1", Errno::ESRCH, |sys| sys.join(Tid(-1))),
    refused("join(thread)", "the lowest number", Errno::ESRCH, |sys| sys.join(Tid(i32::MIN))),
    refused("join(thread)", "the caller", Errno::EDEADLK, |sys| sys.join(sys.gettid())),
    refused("join(thread)", "another process's", Errno::ESRCH, |sys| {
        let other = Tid(sleeper(sys).number());
        sys.join(other)
    }),
    refused("join(thread)", "joined already", Errno::ESRCH, |sys| {
        let thread = sys.thread(|_| {})?;
        sys.join(thread)?;
        sys.join(thread)
    }),
    refused("join(thread)", "somebody joins it", Errno::EINVAL, |sys| {
        let (from, to) = sys.pipe()?;
        let joined = sys.thread(move |sys| {
            let _ = sys.read(from, &mut [0]);
        })?;
        // Whoever of the two comes second is refused, and lets the other one go on.
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
            *told.lock().expect("nobody panics") = answer;
        })?;
        let mine = join(sys);
        sys.join(other)?;
        let other: Result<()> = *answer.lock().expect("nobody panics");
        mine.and(other)
    }),
    refused("join(thread)", "the process's first", Errno::ESRCH, |sys| {
        let first = sys.gettid();
        let answer = Arc::new(Mutex::new(Ok(())));
        let told = Arc::clone(&answer);
        let other = sys.thread(move |sys| {
            let answer = sys.join(first);
            *told.lock().expect("nobody panics") = answer;
        })?;
        sys.join(other)?;
        let answer: Result<()> = *answer.lock().expect("nobody panics");
        answer
    })
    .on_linux("it has no handle there; Virtual waits for it, for ever if nothing ends the process"),
];

#[test]
fn a_wrong_thread_is_refused_as_it_is_on_linux() {
    hold(ROWS);
}
