//! Threads that work at the same time: [`all`], and [`together`], which starts them at once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use tontine_bench::error::{MeasureError, Result};

/// Runs `work` in `count` threads, each with its number. Returns their results in order, or the
/// first error once all threads have ended.
pub fn all<T: Send>(count: usize, work: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    together(count, |_| Ok(()), |number, ()| work(number))
}

/// Like [`all`], but each thread first runs `prepare`, and none works before all are prepared. If
/// one cannot be started or prepared, none works.
pub fn together<P, T: Send>(
    count: usize,
    prepare: impl Fn(usize) -> Result<P> + Sync,
    work: impl Fn(usize, P) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let (arrived, incomplete) = (AtomicUsize::new(0), AtomicBool::new(false));
    let one = |number: usize| {
        let prepared = prepare(number);
        if prepared.is_err() {
            incomplete.store(true, Ordering::Relaxed);
        }
        // SYNC threads-arrived: pairs with the load below; `incomplete` is already stored.
        arrived.fetch_add(1, Ordering::Release);
        // A thread may need the processor of one that waits.
        // SYNC threads-arrived: pairs with the additions.
        while arrived.load(Ordering::Acquire) < count {
            thread::yield_now();
        }
        let prepared = prepared?;
        if incomplete.load(Ordering::Relaxed) { Ok(None) } else { work(number, prepared).map(Some) }
    };
    let results: Vec<Result<Option<T>>> = thread::scope(|scope| {
        let one = &one;
        let start = |number| {
            let started = thread::Builder::new().spawn_scoped(scope, move || one(number));
            if started.is_err() {
                incomplete.store(true, Ordering::Relaxed);
                // SYNC threads-arrived: pairs with the load of the threads that wait.
                arrived.fetch_add(1, Ordering::Release);
            }
            started
        };
        let threads: Vec<_> = (0..count).map(start).collect();
        let end = |thread: std::io::Result<thread::ScopedJoinHandle<'_, _>>| match thread {
            Err(error) => Err(MeasureError::setting_up("starting a thread", error)),
            Ok(thread) => {
                thread.join().unwrap_or_else(|_| Err(MeasureError::fail("a thread panicked")))
            }
        };
        threads.into_iter().map(end).collect()
    });
    let done: Vec<Option<T>> = results.into_iter().collect::<Result<_>>()?;
    Ok(done.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_thread_works_if_one_is_not_prepared() {
        let worked = AtomicBool::new(false);
        let prepare = |number| if number == 1 { Err(MeasureError::skip("no")) } else { Ok(number) };
        let found = together(3, prepare, |_, _| {
            worked.store(true, Ordering::Relaxed);
            Ok(())
        });
        assert_eq!(found, Err(MeasureError::skip("no")));
        assert!(!worked.load(Ordering::Relaxed));
        assert_eq!(all(3, |number| Ok(10 * number)), Ok(vec![0, 10, 20]));
    }
}
