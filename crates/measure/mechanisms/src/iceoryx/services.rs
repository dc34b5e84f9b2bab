//! The ends of `iceoryx2` and `iceoryx2-monitored`.

use std::fmt::Debug;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use iceoryx2::node::DeadNodeView;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::publish_subscribe as factory;
use tontine_bench::error::{ErrorContext, MeasureError, Result};
use tontine_bench::leftovers::{self, Folder, MEMORY, SHARED_MEMORY, remove_all};
use tontine_bench::peer::SPINS;

use super::{Iceoryx, MonitoredIceoryx, NAMED_BYTES, NAMED_DEPTH, NODE_CHECK};
use crate::driver::{NamedDriver, PairDriver, PairHalves, StreamDriver, Traffic};
use crate::end::{Duplex, Inlet, Outlet, Patient, Peers, Transfer, TransferError, TwoWay, check};
use crate::location::Location;

/// Timeout for two ends to find each other.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between two checks that they have found each other.
const LOOK: Duration = Duration::from_micros(200);
/// Number of polls between two readings of the clock.
const POLLS_PER_READING: u32 = 1_000;
/// Size in bytes of a stream's buffer, within the two limits below, because `/dev/shm` may be
/// small.
const BUFFER_BYTES: usize = 8 << 20;
/// Minimum and maximum number of messages in the buffer.
const DEPTH: (usize, usize) = (4, 64);
/// Number of ports of each kind of a named service, including those of dead processes that were
/// not cleaned up.
const NAMED_PORTS: usize = 8;

/// Returns a configuration that stores all files in this directory, and all shared memory under
/// this prefix.
fn configuration(folder: &Path, prefix: &str) -> Result<Config> {
    set_log_level(LogLevel::Fatal);
    let mut config = Config::default();
    let path = folder.as_os_str().as_encoded_bytes();
    let path = iceoryx2::prelude::Path::new(path).map_err(failed("root folder"))?;
    config.global.set_root_path(&path);
    config.global.prefix = FileName::new(prefix.as_bytes()).map_err(failed("prefix"))?;
    Ok(config)
}

fn node(config: &Config) -> Result<Node<ipc::Service>> {
    NodeBuilder::new()
        .config(config)
        .signal_handling_mode(SignalHandlingMode::Disabled)
        .create::<ipc::Service>()
        .map_err(refused("creating a node"))
}

/// A private location for services, emptied when dropped in the process that created it.
#[derive(Debug)]
pub struct ServiceDir {
    config: Config,
    prefix: String,
    folder: Folder,
}

impl ServiceDir {
    fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        std::fs::metadata(SHARED_MEMORY)
            .setting_up("stat of /dev/shm, where iceoryx2 keeps its data")?;
        let folder = Folder::new("ice")?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("{MEMORY}{}_{number}_", leftovers::maker());
        let config = configuration(folder.path(), &prefix)?;
        Ok(Self { config, prefix, folder })
    }
}

impl Drop for ServiceDir {
    fn drop(&mut self) {
        if self.folder.is_ours() {
            remove_all(Path::new(SHARED_MEMORY), &self.prefix);
        }
    }
}

/// Converts an error that is not due to the machine.
fn failed<E: Debug>(what: &'static str) -> impl Fn(E) -> MeasureError {
    move |error| MeasureError::fail(format!("iceoryx2, {what}: {error:?}"))
}

/// Converts an error of a creation. iceoryx2 does not return the errno, and the usual causes
/// are limits of the machine (no descriptors; no space or permission in `/dev/shm` or the
/// directory).
fn refused<E: Debug>(what: &'static str) -> impl Fn(E) -> MeasureError {
    move |error| MeasureError::skip(format!("iceoryx2, {what}: {error:?}"))
}

/// Waits until `met` returns `true`, up to a timeout.
fn until_met(peers: Peers<'_>, met: impl Fn() -> bool) -> Result<()> {
    let began = Instant::now();
    while !met() {
        check(peers)?;
        if began.elapsed() > TIMEOUT {
            return Err(MeasureError::fail("iceoryx2: the ends did not find each other"));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

type Factory<P> = factory::PortFactory<ipc::Service, P, ()>;

/// A publisher of arrays. It must keep the node.
pub struct Publishing<const BYTES: usize> {
    publisher: Publisher<ipc::Service, [u8; BYTES], ()>,
    /// `true` if it is an error when no subscriber gets a message.
    must_arrive: bool,
    _node: Rc<Node<ipc::Service>>,
}

impl<const BYTES: usize> Outlet for Publishing<BYTES> {
    #[inline(always)]
    fn send(&mut self, message: &[u8], _: Peers<'_>) -> Transfer<()> {
        let message = message.try_into().map_err(failed("length"))?;
        let reached = self.publisher.send_copy(message).map_err(failed("send"))?;
        if self.must_arrive && reached == 0 {
            return Err(MeasureError::fail("iceoryx2, send: no subscriber").into());
        }
        Ok(())
    }
}

/// A subscriber to arrays.
pub struct Subscribing<const BYTES: usize> {
    subscriber: Subscriber<ipc::Service, [u8; BYTES], ()>,
    _node: Rc<Node<ipc::Service>>,
}

impl<const BYTES: usize> Inlet for Subscribing<BYTES> {
    #[inline(always)]
    fn receive<R>(&mut self, peers: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
        loop {
            for _ in 0..SPINS {
                if let Some(sample) = self.subscriber.receive().map_err(failed("receive"))? {
                    return Ok(look(&sample[..]));
                }
            }
            check(peers)?;
        }
    }
}

impl<const BYTES: usize> Patient for Subscribing<BYTES> {
    fn receive_within<R>(
        &mut self,
        time: Duration,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Transfer<Option<R>> {
        let began = Instant::now();
        loop {
            if let Some(sample) = self.subscriber.receive().map_err(failed("receive"))? {
                return Ok(Some(look(&sample[..])));
            }
            if began.elapsed() >= time {
                return Ok(None);
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl PairDriver for Iceoryx {
    /// The directory, the service that the end publishes, and the service that it subscribes
    /// to.
    type Half = (Arc<ServiceDir>, [&'static str; 2]);
    type End<const BYTES: usize> = Duplex<Publishing<BYTES>, Subscribing<BYTES>>;

    fn pair(_: usize) -> Result<PairHalves<Self::Half>> {
        let folder = Arc::new(ServiceDir::new()?);
        let one = (Arc::clone(&folder), ["ask", "answer"]);
        let two = (Arc::clone(&folder), ["answer", "ask"]);
        Ok(PairHalves { first: one, second: two, kept: Some(Box::new(folder)) })
    }

    /// Opens both services and waits until the other end has opened them too.
    fn open<const BYTES: usize>(
        (folder, names): Self::Half,
        peers: Peers<'_>,
    ) -> Result<Self::End<BYTES>> {
        let node = Rc::new(node(&folder.config)?);
        let service = |name: &str| {
            let name = name.try_into().map_err(failed("service name"))?;
            let builder = node.service_builder(&name).publish_subscribe::<[u8; BYTES]>();
            builder.open_or_create().map_err(refused("opening a service"))
        };
        let [out, back] = [service(names[0])?, service(names[1])?];
        let subscribing = subscribing(&back, &node)?;
        let publishing = publishing(&out, &node, false)?;
        until_met(peers, || {
            out.dynamic_config().number_of_subscribers() > 0
                && back.dynamic_config().number_of_publishers() > 0
        })?;
        Ok(Duplex::new(publishing, subscribing))
    }
}

/// An end that also checks the node list.
pub struct MonitoredPubSub<const BYTES: usize> {
    plain: Duplex<Publishing<BYTES>, Subscribing<BYTES>>,
    config: Config,
}

impl<const BYTES: usize> MonitoredPubSub<BYTES> {
    /// Returns the dead nodes. The list contains this pair's nodes only, because the directory
    /// of the nodes is private.
    fn dead_nodes(&self) -> Result<Vec<DeadNodeView<ipc::Service>>> {
        let mut dead = Vec::new();
        Node::<ipc::Service>::list(&self.config, |state| {
            if let NodeState::Dead(node) = state {
                dead.push(node);
            }
            CallbackProgression::Continue
        })
        .map_err(failed("listing the nodes"))?;
        Ok(dead)
    }
}

impl<const BYTES: usize> Outlet for MonitoredPubSub<BYTES> {
    #[inline(always)]
    fn send(&mut self, message: &[u8], peers: Peers<'_>) -> Transfer<()> {
        self.plain.send(message, peers)
    }
}

impl<const BYTES: usize> Inlet for MonitoredPubSub<BYTES> {
    #[inline(always)]
    fn receive<R>(&mut self, peers: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
        let subscriber = &self.plain.back.subscriber;
        let mut last_check = None;
        loop {
            for _ in 0..POLLS_PER_READING {
                if let Some(sample) = subscriber.receive().map_err(failed("receive"))? {
                    return Ok(look(&sample[..]));
                }
            }
            if last_check.get_or_insert_with(Instant::now).elapsed() < NODE_CHECK {
                continue;
            }
            check(peers)?;
            let dead = self.dead_nodes()?;
            if dead.is_empty() {
                last_check = None;
                continue;
            }
            // Its last message may have arrived after the last poll.
            if let Some(sample) = subscriber.receive().map_err(failed("receive"))? {
                return Ok(look(&sample[..]));
            }
            for node in dead {
                node.try_remove_stale_resources().map_err(failed("removing a dead node"))?;
            }
            return Err(TransferError::Gone);
        }
    }
}

impl<const BYTES: usize> TwoWay for MonitoredPubSub<BYTES> {}

impl PairDriver for MonitoredIceoryx {
    type Half = <Iceoryx as PairDriver>::Half;
    type End<const BYTES: usize> = MonitoredPubSub<BYTES>;

    fn pair(bytes: usize) -> Result<PairHalves<Self::Half>> {
        Iceoryx::pair(bytes)
    }

    fn open<const BYTES: usize>(half: Self::Half, peers: Peers<'_>) -> Result<Self::End<BYTES>> {
        let config = half.0.config.clone();
        let plain = Iceoryx::open(half, peers)?;
        Ok(MonitoredPubSub { plain, config })
    }
}

fn publishing<const BYTES: usize>(
    service: &Factory<[u8; BYTES]>,
    node: &Rc<Node<ipc::Service>>,
    must_arrive: bool,
) -> Result<Publishing<BYTES>> {
    let publisher = service.publisher_builder().create();
    let publisher = publisher.map_err(refused("creating a publisher"))?;
    Ok(Publishing { publisher, must_arrive, _node: Rc::clone(node) })
}

fn subscribing<const BYTES: usize>(
    service: &Factory<[u8; BYTES]>,
    node: &Rc<Node<ipc::Service>>,
) -> Result<Subscribing<BYTES>> {
    let subscriber = service.subscriber_builder().create();
    let subscriber = subscriber.map_err(refused("creating a subscriber"))?;
    Ok(Subscribing { subscriber, _node: Rc::clone(node) })
}

impl NamedDriver for Iceoryx {
    type Out = Publishing<NAMED_BYTES>;
    type In = Subscribing<NAMED_BYTES>;

    fn sender(at: &Location) -> Result<Self::Out> {
        let (node, service) = by_name(at)?;
        publishing(&service, &node, true)
    }

    fn receiver(at: &Location) -> Result<Self::In> {
        let (node, service) = by_name(at)?;
        subscribing(&service, &node)
    }
}

type Service<P> = (Rc<Node<ipc::Service>>, Factory<P>);

fn by_name(at: &Location) -> Result<Service<[u8; NAMED_BYTES]>> {
    let config = configuration(at.folder(), &format!("{}-", at.name()))?;
    let node = Rc::new(node(&config)?);
    let name = "messages".try_into().map_err(failed("service name"))?;
    let service = node
        .service_builder(&name)
        .publish_subscribe::<[u8; NAMED_BYTES]>()
        .enable_safe_overflow(false)
        .subscriber_max_buffer_size(NAMED_DEPTH)
        .max_publishers(NAMED_PORTS)
        .max_subscribers(NAMED_PORTS)
        .open_or_create()
        .map_err(refused("opening a service"))?;
    Ok((node, service))
}

/// Opens the service of a stream of byte slices. If the buffer is full, the publisher waits.
/// The default would discard the oldest message, which suits sensors but would lose messages
/// here.
fn stream((folder, traffic): &(ServiceDir, Traffic)) -> Result<Service<[u8]>> {
    let node = Rc::new(node(&folder.config)?);
    let name = "throughput".try_into().map_err(failed("service name"))?;
    let service = node
        .service_builder(&name)
        .publish_subscribe::<[u8]>()
        .enable_safe_overflow(false)
        .history_size(0)
        .max_publishers(traffic.senders)
        .max_subscribers(1)
        .subscriber_max_buffer_size((BUFFER_BYTES / traffic.bytes).clamp(DEPTH.0, DEPTH.1))
        .open_or_create()
        .map_err(refused("opening a service"))?;
    Ok((node, service))
}

impl StreamDriver for Iceoryx {
    type Fixture = (ServiceDir, Traffic);
    type Out = PublishingSlices;
    type In = SubscribingSlices;

    fn set_up(traffic: Traffic) -> Result<Self::Fixture> {
        Ok((ServiceDir::new()?, traffic))
    }

    fn outlet(fixture: &Self::Fixture, _: usize) -> Result<Self::Out> {
        let (node, service) = stream(fixture)?;
        let publisher = service
            .publisher_builder()
            .initial_max_slice_len(fixture.1.bytes)
            .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
            .create()
            .map_err(refused("creating a publisher"))?;
        until_met(&[], || service.dynamic_config().number_of_subscribers() == 1)?;
        Ok(PublishingSlices { publisher, _node: node })
    }

    fn inlet(fixture: &Self::Fixture, senders: Peers<'_>) -> Result<Self::In> {
        let (node, service) = stream(fixture)?;
        let subscriber = service.subscriber_builder().create();
        let subscriber = subscriber.map_err(refused("creating a subscriber"))?;
        let met = || service.dynamic_config().number_of_publishers() == fixture.1.senders;
        until_met(senders, met)?;
        Ok(SubscribingSlices { subscriber, _node: node })
    }
}

pub struct PublishingSlices {
    publisher: Publisher<ipc::Service, [u8], ()>,
    _node: Rc<Node<ipc::Service>>,
}

impl Outlet for PublishingSlices {
    #[inline(always)]
    fn send(&mut self, message: &[u8], peers: Peers<'_>) -> Transfer<()> {
        loop {
            let slot = self.publisher.loan_slice_uninit(message.len()).map_err(failed("loan"))?;
            // Not delivered. Either the subscriber exists and has not opened this connection
            // yet, or its buffer is full and the message is dropped without an error.
            if slot.write_from_slice(message).send().map_err(failed("send"))? > 0 {
                return Ok(());
            }
            check(peers)?;
            std::thread::yield_now();
        }
    }
}

pub struct SubscribingSlices {
    subscriber: Subscriber<ipc::Service, [u8], ()>,
    _node: Rc<Node<ipc::Service>>,
}

impl Inlet for SubscribingSlices {
    #[inline(always)]
    fn receive<R>(&mut self, peers: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
        loop {
            for _ in 0..SPINS {
                if let Some(sample) = self.subscriber.receive().map_err(failed("receive"))? {
                    return Ok(look(sample.payload()));
                }
            }
            check(peers)?;
        }
    }
}
