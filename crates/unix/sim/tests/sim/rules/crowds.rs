//! Large numbers of threads and children, and the reuse of process numbers.

use super::harness::*;

#[test]
fn hundreds_of_threads_make_calls_concurrently() {
    everywhere(|sys| {
        let (from, to) = sys.pipe().unwrap();
        let threads: Vec<Tid> = (0..200)
            .map(|_| {
                threaded(sys, move |sys| {
                    assert_eq!(sys.read(from, &mut [0]), Ok(0));
                    for _ in 0..20 {
                        assert_eq!(sys.close(Fd(-1)), Err(Errno::EBADF));
                    }
                })
            })
            .collect();
        sys.close(to).unwrap();
        for thread in threads {
            sys.join(thread).unwrap();
        }
    })
    .and_on_linux();
}

#[test]
fn computing_processes_do_not_starve_others() {
    everywhere(|sys| {
        let log = Log::default();
        let seen = log.clone();
        let thread = threaded(sys, move |sys| {
            while seen.len() == 0 {
                sys.poll();
            }
        });
        let child = forked(sys, |sys| {
            loop {
                sys.poll();
            }
        });
        rest(sys);
        log.note(1);
        sys.join(thread).unwrap();
        assert_eq!(sys.waitpid(child.into(), WaitOptions::NOHANG), Ok(None));
        kill(sys, child, Signal::KILL);
        assert_eq!(end_of(sys, child), WaitStatus::Signaled(Signal::KILL, false));
    })
    .and_on_linux();
}

#[test]
fn process_numbers_are_not_reused_immediately() {
    everywhere(|sys| {
        let (me, bell) = (sys.getpid(), sys.pipe().unwrap());
        let mut before = 0;
        for nth in 0..1000 {
            let child = forked(sys, move |sys| {
                let numbers = [sys.getpid(), sys.getppid()].map(|pid| pid.number().to_ne_bytes());
                assert_eq!(sys.write(bell.1, numbers.as_flattened()), Ok(8));
                nth
            });
            let mut numbers = [0; 8];
            assert_eq!(sys.read(bell.0, &mut numbers), Ok(8));
            let waited = sys.wait().unwrap();
            assert_eq!((waited.pid, waited.status), (child, WaitStatus::Exited(nth & 0xff)));
            let number = child.number();
            let expected = [number, me.number()].map(i32::to_ne_bytes);
            assert_eq!(numbers, expected.as_flattened());
            assert!(number > 1 && number != before, "{number} after {before}");
            before = number;
        }
        assert!(me.number() > 1 && sys.getppid().number() >= 0);
    })
    .and_on_linux();
}
