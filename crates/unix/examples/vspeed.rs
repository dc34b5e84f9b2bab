use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tontine_unix::*;
fn pair(sys: &dyn Sys, n: u64, place: Option<usize>) -> (Pid, Pid) {
    sys.place(place).unwrap();
    let receiver = sys
        .fork(move |sys| {
            let count = Arc::new(AtomicU64::new(0));
            let c = Arc::clone(&count);
            sys.sigprocmask(Some((How::Block, SigSet::of(&[Signal::USR1])))).unwrap();
            sys.sigaction(
                Signal::USR1,
                Some(SigAction::handler(move |_, _| {
                    c.fetch_add(1, Ordering::Relaxed);
                })),
            )
            .unwrap();
            while count.load(Ordering::Relaxed) < n {
                sys.sigsuspend(SigSet::EMPTY);
            }
            0
        })
        .unwrap();
    let sender = sys
        .fork(move |sys| {
            while sys.kill(receiver.into(), Some(Signal::USR1)).is_ok() {}
            0
        })
        .unwrap();
    (receiver, sender)
}
const N: usize = 20_000;
fn main() {
    let what: Vec<String> = std::env::args().collect();
    let modes: Vec<Mode> = if what.len() > 2 {
        Mode::ALL.into_iter().filter(|m| m.to_string() == what[2]).collect()
    } else {
        Mode::ALL.to_vec()
    };
    for mode in modes {
        for p in 1..=std::env::var("P").map_or(2, |p| p.parse().unwrap()) {
            if mode == Mode::Uniprocessor && p > 1 {
                continue;
            }
            let unix = Virtual::builder().mode(mode).processors(p).build().unwrap();
            if what[1] == "signals" {
                let n = 5_000_000u64;
                let t = Instant::now();
                let r = unix.run(move |sys| {
                    let pairs: Vec<_> = (0..p).map(|i| pair(sys, n, Some(i))).collect();
                    for (r, s) in pairs {
                        sys.waitpid(r.into(), WaitOptions::empty()).unwrap();
                        sys.waitpid(s.into(), WaitOptions::empty()).unwrap();
                    }
                    0
                });
                let e = t.elapsed();
                println!(
                    "{mode} {p}: {:.0} ns a signal a pair, {:?}",
                    e.as_nanos() as f64 / n as f64,
                    r.ending
                );
            }
            if what[1] == "fork" {
                let n = 300_000u64;
                let t = Instant::now();
                let r = unix.run(move |sys| {
                    for _ in 0..n {
                        sys.fork(|_| 0).unwrap();
                        sys.wait().unwrap();
                    }
                    0
                });
                println!(
                    "{mode} {p}: {:.0} ns a fork+exit+wait, {:?}",
                    t.elapsed().as_nanos() as f64 / n as f64,
                    r.ending
                );
            }
        }
    }
    if what[1] == "many" {
        let unix = Virtual::builder().build().unwrap();
        unix.run(|sys| {
            let t = Instant::now();
            for _ in 0..N {
                sys.fork(|sys| {
                    sys.pause();
                    0
                })
                .unwrap();
            }
            sys.sched_yield();
            let made = t.elapsed();
            let rss = std::fs::read_to_string("/proc/self/status")
                .unwrap()
                .lines()
                .find(|l| l.starts_with("VmRSS"))
                .unwrap()
                .to_owned();
            let t = Instant::now();
            sys.sigaction(Signal::TERM, Some(SigAction::IGNORE)).unwrap();
            sys.kill(Target::OwnGroup, Some(Signal::TERM)).unwrap();
            let k = t.elapsed();
            for _ in 0..N {
                sys.wait().unwrap();
            }
            println!("made {made:?}, {rss}, kill {k:?}, reaped {:?}", t.elapsed());
            0
        });
    }
    if what[1] == "sim" {
        let unix = Virtual::builder().executor(Executor::Simulated { seed: 1 }).build().unwrap();
        let n = 300_000u64;
        let t = Instant::now();
        let r = unix.run(move |sys| {
            let (r, s) = pair(sys, n, None);
            sys.waitpid(r.into(), WaitOptions::empty()).unwrap();
            sys.waitpid(s.into(), WaitOptions::empty()).unwrap();
            0
        });
        println!(
            "sim: {:.0} ns a signal, steps {} digest {:x}",
            t.elapsed().as_nanos() as f64 / n as f64,
            r.steps,
            r.digest
        );
    }
}
