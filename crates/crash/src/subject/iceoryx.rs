//! `iceoryx2`: publish-subscribe between two processes, both ends polling.

use std::fmt::Debug;
use std::io;
use std::time::{Duration, Instant};

use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;

use super::{End, Endpoint, Kind, Operation, Queue, Subject, Wait};
use crate::message::{LENGTH, Message};
use crate::place::Place;

/// Messages that a subscriber's buffer takes; more than any script sends.
const BUFFER: usize = 16;

/// Ports of each kind, dead ones that nobody has cleaned up yet included.
const PORTS: usize = 8;

/// Between two looks of a receiver that has a deadline.
const PAUSE: Duration = Duration::from_micros(200);

pub(super) struct PublishSubscribe;

impl Subject for PublishSubscribe {
    fn name(&self) -> &'static str {
        "iceoryx2"
    }

    fn summary(&self) -> &'static str {
        "iceoryx2, publish-subscribe, both ends polling"
    }

    fn caveat(&self) -> &'static str {
        "A subscriber that comes later has no claim to what an earlier one did \
         not read"
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::Connect, Operation::Send, Operation::Receive, Operation::Close]
    }

    /// It waits a second for what another process has begun to create.
    fn patience(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Queue(self)
    }
}

impl Queue for PublishSubscribe {
    fn capacity(&self) -> u32 {
        BUFFER as u32
    }

    fn open(&self, place: &Place, end: End) -> io::Result<Box<dyn Endpoint>> {
        set_log_level(LogLevel::Fatal);
        let node = NodeBuilder::new()
            .config(&configuration(place)?)
            .signal_handling_mode(SignalHandlingMode::Disabled)
            .create::<ipc::Service>()
            .map_err(failed("creating a node"))?;
        let service = node
            .service_builder(&"messages".try_into().map_err(failed("service name"))?)
            .publish_subscribe::<Message>()
            .enable_safe_overflow(false)
            .subscriber_max_buffer_size(BUFFER)
            .max_publishers(PORTS)
            .max_subscribers(PORTS)
            .open_or_create()
            .map_err(failed("opening a service"))?;
        Ok(match end {
            End::Sender => {
                let publisher =
                    service.publisher_builder().create().map_err(failed("creating a publisher"))?;
                Box::new(Sender { publisher, _node: node })
            }
            End::Receiver => {
                let subscriber = service
                    .subscriber_builder()
                    .create()
                    .map_err(failed("creating a subscriber"))?;
                Box::new(Receiver { subscriber, _node: node })
            }
        })
    }
}

fn configuration(place: &Place) -> io::Result<Config> {
    let mut config = Config::default();
    let path = place.folder().as_os_str().as_encoded_bytes();
    config.global.set_root_path(&Path::new(path).map_err(failed("root folder"))?);
    let prefix = format!("{}-", place.name());
    config.global.prefix = FileName::new(prefix.as_bytes()).map_err(failed("prefix"))?;
    Ok(config)
}

fn failed<E: Debug>(what: &'static str) -> impl Fn(E) -> io::Error {
    move |error| io::Error::other(format!("iceoryx2, {what}: {error:?}"))
}

struct Sender {
    publisher: Publisher<ipc::Service, Message, ()>,
    _node: Node<ipc::Service>,
}

impl Endpoint for Sender {
    fn send(&mut self, message: &Message) -> io::Result<()> {
        let reached = self.publisher.send_copy(*message).map_err(failed("send"))?;
        if reached == 0 {
            return Err(io::Error::other("iceoryx2, send: no subscriber"));
        }
        Ok(())
    }

    fn receive(&mut self, _into: &mut Message, _wait: Wait) -> io::Result<Option<usize>> {
        Err(io::Error::other("a publisher receives nothing"))
    }
}

struct Receiver {
    subscriber: Subscriber<ipc::Service, Message, ()>,
    _node: Node<ipc::Service>,
}

impl Endpoint for Receiver {
    fn send(&mut self, _message: &Message) -> io::Result<()> {
        Err(io::Error::other("a subscriber sends nothing"))
    }

    fn receive(&mut self, into: &mut Message, wait: Wait) -> io::Result<Option<usize>> {
        let began = Instant::now();
        loop {
            if let Some(sample) = self.subscriber.receive().map_err(failed("receive"))? {
                *into = *sample;
                return Ok(Some(LENGTH));
            }
            match wait {
                Wait::Ever => std::hint::spin_loop(),
                Wait::AtMost(wait) if began.elapsed() >= wait => return Ok(None),
                Wait::AtMost(_) => std::thread::sleep(PAUSE),
            }
        }
    }
}
