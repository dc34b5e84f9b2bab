//! iceoryx2, publish-subscribe of messages as byte arrays, both ends polling.

use std::any::Any;
use std::rc::Rc;
use std::time::{Duration, Instant};

use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use tontine_host::trouble::{Result, Trouble};
use tontine_mechanisms::iceoryx::{PATIENCE, Room, failed, refused};

use super::message::{Claim, Message, claim};
use super::player::{End, Ended};

/// Both ends.
pub(super) fn pair() -> Result<(Polled, Polled)> {
    let room = Rc::new(Room::new()?);
    let other = Polled { room: Rc::clone(&room), names: ("answer", "ask"), port: None };
    Ok((Polled { room, names: ("ask", "answer"), port: None }, other))
}

pub(super) struct Polled {
    room: Rc<Room>,
    /// What it publishes and what it subscribes to.
    names: (&'static str, &'static str),
    port: Option<Port>,
}

struct Port {
    out: Publisher<ipc::Service, Message, ()>,
    back: Subscriber<ipc::Service, Message, ()>,
    _node: Node<ipc::Service>,
}

impl Polled {
    fn port(&self) -> std::result::Result<&Port, Ended> {
        self.port.as_ref().ok_or_else(|| Trouble::fail("the port is not open").into())
    }
}

impl End for Polled {
    /// Opens both services, after the fork, and waits until the other end has opened both too.
    fn open(&mut self) -> Result<()> {
        let node = self.room.node()?;
        let service = |name: &str| {
            let name = name.try_into().map_err(failed("service name"))?;
            node.service_builder(&name)
                .publish_subscribe::<Message>()
                .open_or_create()
                .map_err(refused("opening a service"))
        };
        let (out, back) = (service(self.names.0)?, service(self.names.1)?);
        let subscriber =
            back.subscriber_builder().create().map_err(refused("creating a subscriber"))?;
        let publisher =
            out.publisher_builder().create().map_err(refused("creating a publisher"))?;
        let began = Instant::now();
        while out.dynamic_config().number_of_subscribers() == 0
            || back.dynamic_config().number_of_publishers() == 0
        {
            if began.elapsed() > PATIENCE {
                return Err(Trouble::fail("iceoryx2: the two ends did not find each other"));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        self.port = Some(Port { out: publisher, back: subscriber, _node: node });
        Ok(())
    }

    fn belongings(&self) -> Option<Rc<dyn Any>> {
        Some(Rc::clone(&self.room) as Rc<dyn Any>)
    }

    fn send(&mut self, _: u64, message: &Message) -> std::result::Result<(), Ended> {
        self.port()?.out.send_copy(*message).map_err(failed("send"))?;
        Ok(())
    }

    fn receive(&mut self) -> std::result::Result<Claim, Ended> {
        let port = self.port()?;
        loop {
            if let Some(sample) = port.back.receive().map_err(failed("receive"))? {
                return Ok(claim(&*sample));
            }
        }
    }
}
