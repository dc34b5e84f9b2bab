//! iceoryx2, publish-subscribe of byte slices between processes, all ends polling.
//!
//! A full buffer makes the publisher wait: by default the oldest message would give way, which is
//! right for sensors and loses messages here.

use std::time::{Duration, Instant};

use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::publish_subscribe as factory;
use tontine_host::peer::{Peer, SPINS};
use tontine_host::trouble::{Result, Trouble};
use tontine_mechanisms::iceoryx::{PATIENCE, Room, failed, refused};

use super::harness::{self, Batches, Inlet, Outlet, Plan, check};

/// Bytes in the subscriber's buffer, as far as the two limits below allow: `/dev/shm` may be small.
const BUFFER_BYTES: usize = 8 << 20;
/// Messages in the buffer, at least and at most.
const DEPTH: (usize, usize) = (4, 64);

/// Times it between processes. The nodes are made after the forks.
pub(super) fn run(plan: &Plan) -> Result<Batches> {
    let room = Room::new()?;
    harness::from_processes(
        plan,
        |_| Sending::new(&room, plan),
        |senders| Receiving::new(&room, plan, senders),
    )
}

type Service = factory::PortFactory<ipc::Service, [u8], ()>;

/// The node has to be kept.
fn service(room: &Room, plan: &Plan) -> Result<(Node<ipc::Service>, Service)> {
    let node = room.node()?;
    let name = "throughput".try_into().map_err(failed("service name"))?;
    let service = node
        .service_builder(&name)
        .publish_subscribe::<[u8]>()
        .enable_safe_overflow(false)
        .history_size(0)
        .max_publishers(plan.senders)
        .max_subscribers(1)
        .subscriber_max_buffer_size((BUFFER_BYTES / plan.bytes).clamp(DEPTH.0, DEPTH.1))
        .open_or_create()
        .map_err(refused("opening a service"))?;
    Ok((node, service))
}

/// Waits until `met`, within bounds.
fn until_met(senders: &[Peer<'_>], met: impl Fn() -> bool) -> Result<()> {
    let began = Instant::now();
    while !met() {
        check(senders)?;
        if began.elapsed() > PATIENCE {
            return Err(Trouble::fail("iceoryx2: the ends did not find each other"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

struct Sending {
    publisher: Publisher<ipc::Service, [u8], ()>,
    _node: Node<ipc::Service>,
}

impl Sending {
    fn new(room: &Room, plan: &Plan) -> Result<Self> {
        let (node, service) = service(room, plan)?;
        let publisher = service
            .publisher_builder()
            .initial_max_slice_len(plan.bytes)
            .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
            .create()
            .map_err(refused("creating a publisher"))?;
        until_met(&[], || service.dynamic_config().number_of_subscribers() == 1)?;
        Ok(Self { publisher, _node: node })
    }
}

impl Outlet for Sending {
    #[inline(always)]
    fn send(&mut self, message: &[u8], receiver: Peer<'_>) -> Result<()> {
        loop {
            let room = self.publisher.loan_slice_uninit(message.len()).map_err(failed("loan"))?;
            // Delivered to nobody: the subscriber is there and has not opened this connection yet;
            // its buffer is full, and the message is dropped without an error.
            if room.write_from_slice(message).send().map_err(failed("send"))? > 0 {
                return Ok(());
            }
            receiver.check()?;
            std::thread::yield_now();
        }
    }
}

struct Receiving {
    subscriber: Subscriber<ipc::Service, [u8], ()>,
    _node: Node<ipc::Service>,
}

impl Receiving {
    fn new(room: &Room, plan: &Plan, senders: &[Peer<'_>]) -> Result<Self> {
        let (node, service) = service(room, plan)?;
        let subscriber =
            service.subscriber_builder().create().map_err(refused("creating a subscriber"))?;
        until_met(senders, || service.dynamic_config().number_of_publishers() == plan.senders)?;
        Ok(Self { subscriber, _node: node })
    }
}

impl Inlet for Receiving {
    #[inline(always)]
    fn receive<R>(&mut self, senders: &[Peer<'_>], look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        loop {
            for _ in 0..SPINS {
                if let Some(sample) = self.subscriber.receive().map_err(failed("receive"))? {
                    return Ok(look(sample.payload()));
                }
            }
            check(senders)?;
        }
    }
}
