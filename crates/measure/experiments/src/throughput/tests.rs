//! Tests of every stream for a few milliseconds, and of errors about lost and oversized messages.

use std::time::Duration;

use tontine_bench::peer::PeerHandle;
use tontine_mechanisms::end::{Inlet, Outlet, TransferError, check};

use super::*;

const BUDGET: Duration = Duration::from_millis(2);

#[test]
fn every_variant_streams_every_listed_size_and_sender_count() {
    let is_stream = |name: &str| !many_senders::has(name) && checked_queue::method(name).is_none();
    for variant in Throughput.variants().iter().filter(|variant| is_stream(variant.name)) {
        for params in Throughput.params(variant.name, &Topology::of_this_machine(), Size::Default) {
            let [bytes, senders] = ["size", "senders"].map(|name| params[name].parse().unwrap());
            let found = measure(variant.name, bytes, senders, BUDGET);
            let Some(observed) = unless_skipped(found, (variant, &params)) else { continue };
            assert_eq!(metrics(&observed), ["message", "rate", "bandwidth"]);
            let [message, rate, bandwidth] = &observed.series[..] else { unreachable!() };
            let units = ["ns", "messages/s", "bytes/s"];
            assert_eq!([&message.unit, &rate.unit, &bandwidth.unit], units);
            let timed = message.samples.len() >= 2 && message.samples.iter().all(|&ns| ns > 0.0);
            assert!(timed, "{} {params:?}", variant.name);
            assert_eq!(rate.batch, message.samples.len() * message.batch);
            assert_eq!(bandwidth.samples, [rate.samples[0] * bytes as f64]);
        }
    }
}

#[test]
fn checked_stream_delivers_messages() {
    let streams = beside_kill("mailbox", 64, BUDGET, 2);
    for each in streams.expect("the mailbox streams between processes") {
        assert!(each.len() == 2 && each.iter().all(|&ns| ns > 0.0), "{each:?}");
    }
}

/// The median of these batches is a microsecond per message, but half of the time was spent in one
/// batch.
#[test]
fn bursts_are_weighted_by_their_time() {
    let message_ns = vec![1_000.0, 1_000.0, 4_000.0, 1_000.0, 1_000.0];
    let series = series(Batches { message_ns, batch: 10 }, 8);
    assert_eq!(series[0].statistic, tontine_bench::observe::Statistic::Mean);
    assert_eq!((series[1].samples[0], series[1].batch), (625_000.0, 50));
    assert_eq!(series[2].samples, [5_000_000.0]);
}

#[test]
fn quick_run_has_extreme_sizes_and_allowed_sender_counts() {
    let topology = Topology::of_this_machine();
    let cells = |variant, size| Throughput.params(variant, &topology, size);
    assert_eq!(cells("tcp-loopback", Size::Quick).len(), 2);
    assert_eq!(cells("zmq-ipc", Size::Quick).len(), 4);
    assert_eq!(cells("memcpy", Size::Default).len(), SIZES.len());
    let shared = cells("pipe", Size::Default);
    let shared = shared.iter().filter(|params| params["senders"] == "2");
    assert!(shared.clone().all(|params| params["size"].parse::<usize>().unwrap() <= 4096));
    assert_eq!(shared.count(), 3);
}

#[test]
fn oversized_message_skips_with_reason() {
    for (variant, named) in [("unix-seqpacket", "does not fit"), ("posix-mq", "mq_open")] {
        let found = measure(variant, 1 << 30, 1, BUDGET);
        let Err(MeasureError::Skipped(why)) = found else {
            panic!("{variant}, a message of a gibibyte: {found:?}")
        };
        assert!(why.contains(named), "{why}");
    }
}

#[test]
fn message_without_space_for_its_label_fails() {
    let found = measure("pipe", 12, 1, BUDGET).expect_err("half a label");
    assert!(found.why().contains("label"), "{found}");
}

/// An end that drops every hundredth message.
struct Leaky(std::os::fd::OwnedFd, u64);

impl Outlet for Leaky {
    fn send(&mut self, message: &[u8], peers: &[PeerHandle<'_>]) -> Result<(), TransferError> {
        self.1 += 1;
        while !self.1.is_multiple_of(100) {
            match rustix::io::write(&self.0, message) {
                Err(rustix::io::Errno::INTR) => check(peers)?,
                other => {
                    let failed = |error: rustix::io::Errno| MeasureError::fail(error.to_string());
                    return Ok(other.map(|_| ()).map_err(failed)?);
                }
            }
        }
        Ok(())
    }
}

struct Sink(std::fs::File);

impl Inlet for Sink {
    fn receive<R>(
        &mut self,
        _: &[PeerHandle<'_>],
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, TransferError> {
        use std::io::Read;
        let mut message = [0; 8];
        self.0.read_exact(&mut message).map_err(|error| MeasureError::fail(error.to_string()))?;
        Ok(look(&message))
    }
}

#[test]
fn lost_message_fails_the_row() {
    let (read, write) = tontine_mechanisms::descriptor::pipe().expect("pipe");
    let allowed = pin::allowed().expect("affinity");
    let plan = StreamPlan::new(Traffic { bytes: 8, senders: 1 }, BUDGET, &allowed);
    let found = harness::from_threads(&plan, vec![Leaky(write, 0)], Sink(read.into()));
    let why = found.expect_err("one in a hundred is missing").to_string();
    assert!(why.contains("lost messages 99 to 99 of sender 0"), "{why}");
}
