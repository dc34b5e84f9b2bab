//! Seats workers, lets them work and counts: [`Plan::in_threads`], [`Plan::in_processes`].
//!
//! The keeper, this process, sleeps beside them. Where kills are wanted, it kills a worker drawn at
//! random at a random moment of each second, reaps it, and seats another one in its place. Where
//! nobody gets any further for [`STILL`] after a kill, the heap is wedged: the keeper says since
//! when, and ends it.

use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::thread;
use std::time::{Duration, Instant};

use tontine_bench::heap_map::HeapMap;
use tontine_host::os::child::{self, Child};
use tontine_host::os::deadline;
use tontine_host::os::pin::Pinned;
use tontine_host::os::shared::Shared;
use tontine_host::peer::{LastWords, Peer};
use tontine_host::trouble::{Result, Trouble};

use super::benchmark::Benchmark;
use super::board::{Board, SEATS};
use super::heap::World;
use super::picture;
use super::worker::Worker;

/// Into how many parts the time is cut at least, each a sample.
const PARTS: u32 = 10;
/// None is longer than this.
const PART_MS: u128 = 100;
/// The share of the time for which workers warm up before it begins.
const WARM_UP: u32 = 4;
/// So long without a block freed by anybody is no bad luck.
const STILL: Duration = Duration::from_millis(400);
/// Each second has a kill, somewhere in its middle.
const KILL_EVERY: Duration = Duration::from_secs(1);
const KILL_WITHIN: Range<f64> = 0.1..0.9;
/// How long workers may take to sit down, and to come to their end.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks.
pub(super) const LOOK: Duration = Duration::from_micros(100);

/// What to do, and where.
#[derive(Debug, Clone)]
pub(super) struct Plan<'a> {
    pub(super) benchmark: Benchmark,
    pub(super) workers: usize,
    pub(super) time: Duration,
    /// Worker number i works on processor i, and so round.
    pub(super) processors: &'a [usize],
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Blocks a second, by all workers, in each part of the time.
    pub(super) rates: Vec<f64>,
    pub(super) kills: u32,
    /// When nobody got any further, and after how many kills.
    pub(super) wedged: Option<(Duration, u32)>,
    /// How the heap looked behind all that is timed, when one more had been killed: before anybody
    /// looked after it, and then.
    pub(super) maps: Vec<HeapMap>,
}

impl Plan<'_> {
    /// Runs it with a thread a worker.
    ///
    /// # Errors
    /// The first trouble of a worker.
    pub(super) fn in_threads<W: World>(&self, world: &W) -> Result<Seen> {
        let board = self.board()?;
        let work = |seat| self.work(world, &board, seat);
        let seen = thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> =
                (0..self.workers).map(|seat| scope.spawn(move || work(seat))).collect();
            let seen = until_ready(&board, || Ok(())).and_then(|()| self.watch(&board, |_| Ok(0)));
            // Whoever still waits may begin, and finds that it is over.
            board.stop();
            board.go();
            let ended = threads.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|_| Err(Trouble::fail("a thread panicked")))
            });
            // All are joined, whichever had trouble first.
            ended.collect::<Vec<_>>().into_iter().collect::<Result<()>>().and(seen)
        })?;
        world.close()?;
        Ok(seen)
    }

    /// Runs it with a process a worker, of which one is killed each second, if so wanted.
    ///
    /// # Errors
    /// The first trouble of a worker, or of what is left behind them. A wedged heap is none.
    pub(super) fn in_processes<W: World>(&self, world: &W, kills: bool) -> Result<Seen> {
        let board = self.board()?;
        let mut house = House { plan: self, world, board: &board, seats: Vec::new() };
        for seat in 0..self.workers {
            let words = LastWords::new()?;
            let child = house.seat(seat, &words)?;
            house.seats.push((child, words));
        }
        until_ready(&board, || house.check())?;
        let mut due = if kills { moments(self.time) } else { Vec::new() }.into_iter().peekable();
        let mut killed = 0;
        let mut seen = self.watch(&board, |span| {
            while let Some(at) = due.next_if(|at| *at < span.end) {
                sleep_until(span.start + at);
                house.kill_one()?;
                killed += 1;
            }
            house.check()?;
            Ok(killed)
        })?;
        seen.kills = killed;
        if seen.wedged.is_none() {
            if kills {
                seen.maps = picture::pair(&mut house)?;
            }
            house.close()?;
            world.close()?;
        }
        Ok(seen)
    }

    fn board(&self) -> Result<Shared<Board>> {
        if !(1..=SEATS).contains(&self.workers) {
            let found = self.workers;
            return Err(Trouble::fail(format!("expected 1 to {SEATS} workers, found {found}")));
        }
        let board = Shared::<Board>::anonymous()?;
        board.set_workers(self.workers);
        Ok(board)
    }

    /// What a worker does, from its beginning to its end.
    fn work<W: World>(&self, world: &W, board: &Board, seat: usize) -> Result<()> {
        let work = || {
            let _pinned = Pinned::to(self.processors[seat % self.processors.len()])?;
            let heap = world.join()?;
            self.benchmark.run(Worker::new(&heap, board, seat))
        };
        let worked = std::panic::catch_unwind(AssertUnwindSafe(work))
            .unwrap_or_else(|_| Err(Trouble::fail("a worker panicked")));
        if worked.is_err() {
            // Nobody shall wait for it.
            board.stop();
            board.sit(seat, 0);
            board.finish(seat);
        }
        worked
    }

    /// Lets them begin, and counts. In each part of the time `meanwhile` has its turn first, with
    /// when the whole began and how far this part goes; it returns how many were killed so far.
    fn watch(&self, board: &Board, mut meanwhile: impl FnMut(Span) -> Result<u32>) -> Result<Seen> {
        board.go();
        thread::sleep(self.time.min(KILL_EVERY) / WARM_UP);
        let parts = PARTS.max((self.time.as_millis() / PART_MS) as u32);
        let mut seen = Seen::default();
        let start = Instant::now();
        let mut last = (start, board.freed());
        let (mut got_on, mut kills) = (start, 0);
        for part in 1.. {
            let end = self.time * part / parts;
            let before = kills;
            kills = meanwhile(Span { start, end })?;
            if kills > before {
                seen.wedged = None;
            }
            sleep_until(start + end);
            let now = (Instant::now(), board.freed());
            let (time, freed) = (now.0 - last.0, now.1 - last.1);
            if freed > 0 {
                got_on = now.0;
            }
            if part <= parts {
                seen.rates.push(freed as f64 / time.as_secs_f64());
            }
            let still = kills > 0 && now.0 - got_on > STILL;
            if still {
                seen.wedged = Some((got_on - start, kills));
                seen.rates.resize(parts as usize, 0.0);
            }
            // One that has just stopped is looked at until it is clear why.
            let unclear = kills > 0 && freed == 0;
            if still || board.stopped() || part >= parts && !unclear {
                break;
            }
            last = now;
        }
        Ok(seen)
    }
}

/// When the time that is measured began, and how far a part of it goes.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: Instant,
    end: Duration,
}

/// One kill in each second that the time has, each at a random moment of its own.
fn moments(time: Duration) -> Vec<Duration> {
    let seconds = time.as_secs().max(1) as u32;
    let within = |second| KILL_EVERY * second + KILL_EVERY.mul_f64(rand::random_range(KILL_WITHIN));
    (0..seconds).map(within).collect()
}

fn sleep_until(moment: Instant) {
    thread::sleep(moment.saturating_duration_since(Instant::now()));
}

/// Waits until all have sat down.
fn until_ready(board: &Board, check: impl Fn() -> Result<()>) -> Result<()> {
    let began = Instant::now();
    while !board.all_ready() && !board.stopped() {
        check()?;
        if began.elapsed() > deadline::within(PATIENCE) {
            return Err(Trouble::fail(format!("the workers did not sit down in {PATIENCE:?}")));
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Worker processes, and who looks after them. Dropped, all are killed.
pub(super) struct House<'h, W> {
    plan: &'h Plan<'h>,
    pub(super) world: &'h W,
    board: &'h Board,
    pub(super) seats: Vec<(Child, Shared<LastWords>)>,
}

impl<W: World> House<'_, W> {
    fn seat(&self, seat: usize, words: &LastWords) -> Result<Child> {
        Child::fork(|| match self.plan.work(self.world, self.board, seat) {
            Ok(()) => 0,
            Err(trouble) => {
                words.say(&trouble);
                1
            }
        })
    }

    /// Whether all are still at work.
    fn check(&self) -> Result<()> {
        self.said()?;
        self.seats.iter().try_for_each(|(child, _)| Peer::Child(child.pid()).check()).map_err(
            // It may have said why in the meantime.
            |trouble| self.said().err().unwrap_or(trouble),
        )
    }

    fn said(&self) -> Result<()> {
        self.seats.iter().find_map(|(_, words)| words.heard()).map_or(Ok(()), Err)
    }

    /// Kills one, whatever it is doing, and seats another in its place.
    fn kill_one(&mut self) -> Result<()> {
        let seat = rand::random_range(0..self.seats.len());
        self.kill(seat)?;
        self.replace(seat)
    }

    /// Kills this one.
    pub(super) fn kill(&mut self, seat: usize) -> Result<()> {
        let status = self.seats[seat].0.kill()?;
        if status.terminating_signal() != Some(libc::SIGKILL) {
            self.said()?;
            return Err(Trouble::fail(format!("a worker ended before it was killed: {status:?}")));
        }
        Ok(())
    }

    /// Tells the others of its end, and seats another in its place.
    pub(super) fn replace(&mut self, seat: usize) -> Result<()> {
        self.board.died();
        self.seats[seat].0 = self.seat(seat, &self.seats[seat].1)?;
        Ok(())
    }

    /// Waits until all have come to their end.
    fn close(&mut self) -> Result<()> {
        self.board.stop();
        for at in 0..self.seats.len() {
            let ended = child::ends_within(self.seats[at].0.pid(), deadline::within(PATIENCE))?;
            self.said()?;
            if !ended {
                return Err(Trouble::fail("a worker did not come to its end"));
            }
            let status = self.seats[at].0.wait()?;
            if status.exit_status() != Some(0) {
                self.said()?;
                return Err(Trouble::fail(format!("a worker ended with {status:?}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_kill_in_each_second() {
        let all = moments(Duration::from_secs(5));
        let seconds: Vec<u64> = all.iter().map(Duration::as_secs).collect();
        assert_eq!(seconds, [0, 1, 2, 3, 4]);
        assert_eq!(moments(Duration::from_millis(40)).len(), 1);
    }
}
