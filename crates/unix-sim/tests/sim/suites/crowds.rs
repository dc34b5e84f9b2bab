//! Large numbers of threads, children, groups and readers, and the reuse of process numbers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::rules::harness::*;

#[test]
fn hundreds_of_threads_make_calls_concurrently() {
    everywhere(|sys| {
        let (from, to) = sys.pipe().unwrap();
        let threads: Vec<Tid> = (0..200)
            .map(|_| {
                sys.thread(move |sys| {
                    assert_eq!(sys.read(from, &mut [0]), Ok(0));
                    for _ in 0..20 {
                        assert_eq!(sys.close(Fd(-1)), Err(Errno::EBADF));
                    }
                })
                .unwrap()
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
        let thread = sys
            .thread(move |sys| {
                while seen.len() == 0 {
                    sys.poll();
                }
            })
            .unwrap();
        let child = sys
            .fork(|sys| {
                loop {
                    sys.poll();
                }
            })
            .unwrap();
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
fn sched_yield_runs_other_threads() {
    everywhere(|sys| {
        let log = Log::default();
        let seen = log.clone();
        let other = sys
            .thread(move |sys| {
                seen.note(1);
                until(sys, || seen.len() == 2);
            })
            .unwrap();
        sys.sched_yield();
        sys.sched_yield();
        until(sys, || log.len() == 1);
        log.note(2);
        sys.join(other).unwrap();
    })
    .and_on_linux();
}

#[test]
fn group_signal_reaches_every_member_of_several_groups() {
    everywhere(|sys| {
        let (ready, told) = (Bell::new(sys), Bell::new(sys));
        let mut groups = Vec::new();
        for _ in 0..3 {
            let mut members = Vec::new();
            for _ in 0..4 {
                let member = sys
                    .fork(move |sys| {
                        act(sys, Signal::USR1, SigAction::handler(move |sys, _| told.ring(sys)));
                        ready.ring(sys);
                        sleep_on(sys)
                    })
                    .unwrap();
                members.push(member);
                sys.setpgid(member, members[0]).unwrap();
                ready.heard(sys);
            }
            groups.push(members);
        }
        for _ in 0..2 {
            for group in &groups {
                sys.kill(SignalTarget::Group(group[0]), Some(Signal::USR1)).unwrap();
            }
            (0..12).for_each(|_| told.heard(sys));
        }
        for member in groups.concat() {
            kill(sys, member, Signal::KILL);
            assert_eq!(end_of(sys, member), WaitStatus::Signaled(Signal::KILL, false));
        }
    })
    .and_on_linux();
}

#[test]
fn each_of_ten_threads_handles_its_own_signal() {
    everywhere(|sys| {
        let log = Log::default();
        let noted = log.clone();
        let handler = SigAction::handler(move |sys, _| noted.note(sys.gettid().0));
        act(sys, Signal::USR1, handler.with_flags(ActionFlags::RESTART));
        let bell = Bell::new(sys);
        let threads = [0; 10].map(|_| sys.thread(move |sys| bell.heard(sys)).unwrap());
        for (nth, thread) in threads.into_iter().enumerate() {
            sys.tgkill(sys.getpid(), thread, Some(Signal::USR1)).unwrap();
            until(sys, || log.len() == nth + 1);
        }
        assert_eq!(log.all(), threads.map(|thread| thread.0));
        let numbers: BTreeSet<i32> = log.all().into_iter().collect();
        assert_eq!(numbers.len(), 10);
        assert!(!numbers.contains(&sys.gettid().0));
        for thread in threads {
            bell.ring(sys);
            let _ = thread;
        }
        for thread in threads {
            sys.join(thread).unwrap();
        }
    })
    .and_on_linux();
}

#[test]
fn process_numbers_are_not_reused_immediately() {
    everywhere(|sys| {
        let (me, bell) = (sys.getpid(), sys.pipe().unwrap());
        let mut before = 0;
        for nth in 0..1000 {
            let child = sys
                .fork(move |sys| {
                    let told = [sys.getpid(), sys.getppid()].map(|pid| pid.number().to_ne_bytes());
                    assert_eq!(sys.write(bell.1, told.as_flattened()), Ok(8));
                    nth
                })
                .unwrap();
            let mut told = [0; 8];
            assert_eq!(sys.read(bell.0, &mut told), Ok(8));
            let waited = sys.wait().unwrap();
            assert_eq!((waited.pid, waited.status), (child, WaitStatus::Exited(nth & 0xff)));
            let number = child.number();
            let expected = [number, me.number()].map(i32::to_ne_bytes);
            assert_eq!(told, expected.as_flattened());
            assert!(number > 1 && number != before, "{number} after {before}");
            before = number;
        }
        assert!(me.number() > 1 && sys.getppid().number() >= 0);
    })
    .and_on_linux();
}

#[test]
fn many_children_share_one_descriptor() {
    everywhere(|sys| {
        let (from, to) = sys.pipe().unwrap();
        let bytes: Vec<u8> = (0..80).collect();
        assert_eq!(sys.write(to, &bytes), Ok(80));
        let children = [0; 10].map(|_| {
            sys.fork(move |sys| {
                let mut part = [0; 8];
                assert_eq!(sys.read(from, &mut part), Ok(8));
                let first = part[0];
                assert_eq!(part, std::array::from_fn(|at| first + at as u8));
                first.into()
            })
            .unwrap()
        });
        let mut parts =
            children.map(|child| end_of(sys, child).exited().expect("the child has read"));
        parts.sort_unstable();
        assert_eq!(parts, std::array::from_fn(|nth| 8 * nth as i32));
        sys.close(to).unwrap();
        assert_eq!(sys.read(from, &mut [0]), Ok(0));
    })
    .and_on_linux();
}

#[test]
fn child_closes_every_possible_descriptor() {
    everywhere(|sys| {
        let end = end_as(sys, |sys| {
            const MOST: i32 = 64;
            sys.setrlimit(Resource::Descriptors, Rlimit::of(MOST as u64)).unwrap();
            let open = (0..MOST).filter(|&n| sys.dup2(Fd(n), Fd(n)).is_ok()).count() as i32;
            let mut pipes = Vec::new();
            let refused = loop {
                match sys.pipe() {
                    Ok(pipe) => pipes.push(pipe),
                    Err(errno) => break errno,
                }
            };
            assert_eq!(refused, Errno::EMFILE);
            assert_eq!(pipes.len() as i32, (MOST - open) / 2);
            // On Linux, a fork needs a free descriptor for the child's handle.
            let (from, to) = pipes.pop().expect("a pipe is open");
            sys.close(from).and(sys.close(to)).unwrap();
            let inherited = pipes.clone();
            let end = end_as(sys, move |sys| {
                for (from, to) in inherited {
                    for end in [from, to] {
                        assert_eq!(sys.close(end), Ok(()));
                        assert_eq!(sys.close(end), Err(Errno::EBADF));
                    }
                }
                0
            });
            assert_eq!(end, WaitStatus::Exited(0));
            for (from, to) in pipes {
                assert_eq!(sys.write(to, b"x"), Ok(1), "the parent's descriptors are open");
                assert_eq!(sys.read(from, &mut [0]), Ok(1));
            }
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
    })
    .and_on_linux();
}

#[test]
fn no_thread_runs_after_exit() {
    // Parent and child share this memory on `Virtual` only.
    everywhere(|sys| {
        let count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&count);
        let end = end_as(sys, move |sys| {
            for _ in 0..3 {
                let counted = Arc::clone(&counted);
                sys.thread(move |sys| {
                    loop {
                        counted.fetch_add(1, Ordering::Relaxed);
                        sys.sched_yield();
                    }
                })
                .unwrap();
            }
            until(sys, || counted.load(Ordering::Relaxed) > 3);
            sys.exit(4)
        });
        assert_eq!(end, WaitStatus::Exited(4));
        let now = count.load(Ordering::Relaxed);
        rest(sys);
        assert_eq!(count.load(Ordering::Relaxed), now);
    });
}

#[test]
fn blocked_pipe_writers_can_be_killed() {
    everywhere(|sys| {
        let (from, to) = sys.pipe().unwrap();
        let writers = [b'a', b'b'].map(|byte| {
            sys.fork(move |sys| {
                loop {
                    let _ = sys.write(to, &[byte; 4096]);
                }
            })
            .unwrap()
        });
        assert!(sys.read(from, &mut [0; 512]).unwrap() > 0);
        rest(sys);
        for writer in writers {
            kill(sys, writer, Signal::KILL);
            assert_eq!(end_of(sys, writer), WaitStatus::Signaled(Signal::KILL, false));
        }
    })
    .and_on_linux();
}

#[test]
fn closing_a_pipe_wakes_all_its_readers() {
    everywhere(|sys| {
        for readers in [2, 10, 27] {
            let (from, to) = sys.pipe().unwrap();
            let children: Vec<Pid> = (0..readers)
                .map(|_| {
                    let reader = sys.fork(move |sys| {
                        sys.close(to).unwrap();
                        let mut total = 0;
                        loop {
                            match sys.read(from, &mut [0; 4]).unwrap() {
                                0 => return total,
                                read => total += read as i32,
                            }
                        }
                    });
                    reader.unwrap()
                })
                .collect();
            rest(sys);
            assert_eq!(sys.waitpid(Children::Any, WaitOptions::NOHANG), Ok(None));
            sys.write(to, b"what is left").unwrap();
            sys.close(from).unwrap();
            sys.close(to).unwrap();
            let ends = children.into_iter().map(|child| end_of(sys, child).exited().unwrap());
            assert_eq!(ends.sum::<i32>(), 12);
        }
    })
    .and_on_linux();
}
