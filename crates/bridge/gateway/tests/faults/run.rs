//! A run over the carrier in memory: [`FaultRun`].

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tempfile::TempDir;
use tontine_gateway::memory::Faults;

use crate::hosts::gateways::MemoryGateways;
use crate::hosts::program::{
    OwnerTask, OwnerThread, SenderReport, SenderTask, empty_log, logged, now_ms, read_log,
};
use crate::hosts::{resources, until};

/// Bytes of a lane, so that a flood passes slow links.
const FLOOD_CAP: u64 = 4 << 20;

/// Kinds of traffic: length of the messages, and pause between them; `None` sends nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traffic {
    Idle,
    Paced,
    Flooded,
}

impl Traffic {
    pub(crate) const ALL: [Self; 3] = [Self::Idle, Self::Paced, Self::Flooded];

    pub(crate) fn task(self, path: &Path) -> SenderTask {
        let (count, length, pause_us) = match self {
            Self::Idle => (1, 64, 0),
            Self::Paced => (u64::MAX, 64, 1000),
            Self::Flooded => (u64::MAX, 2000, 0),
        };
        let lane_cap = Some(FLOOD_CAP);
        let task = SenderTask::new(path, 1, count);
        SenderTask { length, pause_us, lane_cap, lingers: true, ..task }
    }

    /// Returns a number of messages that keeps the network busy for some 10 ms.
    pub(crate) fn messages(self) -> u64 {
        match self {
            Self::Idle => 0,
            Self::Paced => 30,
            Self::Flooded => 100,
        }
    }
}

/// A sender on a thread.
pub(crate) struct SenderThread {
    stop: Arc<AtomicBool>,
    suspects: Arc<AtomicBool>,
    thread: JoinHandle<SenderReport>,
}

impl SenderThread {
    pub(crate) fn start(task: SenderTask) -> Self {
        let flag = || Arc::new(AtomicBool::new(false));
        let (stop, suspects) = (flag(), flag());
        let (stops, suspected) = (stop.clone(), suspects.clone());
        let report = move |line: &str| {
            suspected.fetch_or(line == "suspected", Ordering::Relaxed);
        };
        Self { stop, suspects, thread: thread::spawn(move || task.run(&stops, report)) }
    }

    /// Waits until the sender learns that the other host is silent, or that the lane has ended.
    pub(crate) fn wait_until_suspecting(&self) {
        until("the other host is suspected", || {
            self.suspects.load(Ordering::Relaxed) || self.thread.is_finished()
        });
    }

    /// Asks the sender to end, and returns its report once everything is acknowledged.
    pub(crate) fn finish(self) -> SenderReport {
        self.stop.store(true, Ordering::Relaxed);
        self.report()
    }

    /// Waits until the lane has ended.
    pub(crate) fn report(self) -> SenderReport {
        until("the sender ends", || self.thread.is_finished());
        self.thread.join().expect("no panic")
    }
}

/// Two gateways, an owner and a sender.
pub(crate) struct FaultRun {
    pub(crate) gateways: MemoryGateways,
    owner: Option<OwnerThread>,
    sender: Option<SenderThread>,
    name: String,
    /// Removed last: an owner would report that its socket is lost.
    folder: TempDir,
}

impl FaultRun {
    pub(crate) fn new(name: String, faults: Faults, unreachable: Option<Duration>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let log = empty_log(folder.path());
        let gateways = MemoryGateways::with_timeout(folder.path(), faults, unreachable);
        let owner = OwnerThread::start(OwnerTask::new(&folder.path().join("jobs"), &log));
        Self { gateways, owner: Some(owner), sender: None, name, folder }
    }

    pub(crate) fn address(&self) -> PathBuf {
        self.folder.path().join("B-jobs")
    }

    pub(crate) fn sender(&self) -> &SenderThread {
        self.sender.as_ref().expect("started")
    }

    fn received(&self) -> Vec<u64> {
        read_log(&self.folder.path().join("received"), 1)
    }

    /// Waits until the owner has received `count` further messages.
    #[track_caller]
    pub(crate) fn wait_for_messages(&self, count: u64) {
        let log = self.folder.path().join("received");
        let before = logged(&log);
        until("messages arrive", || logged(&log) >= before + count);
    }

    /// Starts a sender, and waits until its lane is open.
    pub(crate) fn send(&mut self, traffic: Traffic) {
        self.send_task(traffic.task(&self.address()));
        self.wait_until_open();
    }

    pub(crate) fn wait_until_open(&self) {
        until("a message arrives", || !self.received().is_empty());
    }

    pub(crate) fn send_task(&mut self, task: SenderTask) {
        self.sender = Some(SenderThread::start(task));
    }

    /// Ends the sender: all messages must be acknowledged, in order.
    #[track_caller]
    pub(crate) fn finish(mut self) -> SenderReport {
        let report = self.sender.take().expect("started").finish();
        println!("{}: {}", self.name, report.summary());
        report.check_all_received(&self.received());
        report
    }

    /// Closes the mailbox under traffic: the sender must learn it after `before` has run, and all
    /// messages must be accounted for.
    #[track_caller]
    pub(crate) fn close(mut self, before: impl FnOnce(&Self)) -> SenderReport {
        drop(self.owner.take());
        before(&self);
        let closed = now_ms();
        let report = self.sender.take().expect("started").report();
        let notice = Duration::from_millis(report.ended_ms.saturating_sub(closed));
        let received = self.received();
        println!(
            "{}: {}; {} received; notice after {notice:?}",
            self.name,
            report.summary(),
            received.len()
        );
        assert!(report.error.is_some(), "{}", self.name);
        report.check();
        // In order, and not more than what may have left this host.
        assert!(received.iter().copied().eq(0..received.len() as u64), "{}: order", self.name);
        let known = report.acked + report.in_doubt.len() as u64;
        assert!((report.acked..=known).contains(&(received.len() as u64)), "{}", self.name);
        report
    }
}

/// Compares descriptors and memory before and after several runs.
pub(crate) struct Growth {
    descriptors: usize,
    private: u64,
}

impl Growth {
    /// Begins after a run, because the library holds a few descriptors per process.
    pub(crate) fn begin() -> Self {
        let mut run = FaultRun::new("first".into(), Faults::default(), None);
        let task = Traffic::Flooded.task(&run.address());
        run.send_task(SenderTask { count: 500, ..task });
        run.wait_for_messages(500);
        run.finish();
        let pid = std::process::id();
        Self { descriptors: resources::descriptors(pid), private: resources::memory(pid).1 }
    }

    #[track_caller]
    pub(crate) fn check(&self, max_bytes: u64) {
        let pid = std::process::id();
        until("no descriptor is left", || resources::descriptors(pid) <= self.descriptors);
        let grown = resources::memory(pid).1.saturating_sub(self.private);
        println!("private memory grew by {} KiB", grown >> 10);
        assert!(grown < max_bytes, "memory grew by {grown} bytes");
    }
}
