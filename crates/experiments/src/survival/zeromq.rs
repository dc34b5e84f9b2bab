//! ZeroMQ PAIR sockets over `ipc`. `zmq_send` returns when the message is in the library's own
//! queue, inside the process.

use std::any::Any;
use std::rc::Rc;

use tontine_host::leftovers::Folder;
use tontine_host::trouble::{Result, Trouble};
use tontine_mechanisms::zeromq::{endpoint_in, set_up, socket};

use super::message::{Claim, Message, claim};
use super::player::{End, Ended};

/// Both ends.
pub(super) fn pair() -> Result<(Pair, Pair)> {
    let folder = Rc::new(Folder::new("zmq")?);
    let other = Rc::clone(&folder);
    Ok((
        Pair { folder, binds: true, socket: None },
        Pair { folder: other, binds: false, socket: None },
    ))
}

pub(super) struct Pair {
    folder: Rc<Folder>,
    binds: bool,
    socket: Option<zmq::Socket>,
}

impl Pair {
    fn socket(&self) -> std::result::Result<&zmq::Socket, Ended> {
        self.socket.as_ref().ok_or_else(|| Trouble::fail("the socket is not open").into())
    }
}

impl End for Pair {
    /// The context is made after the fork: one cannot cross it.
    fn open(&mut self) -> Result<()> {
        let socket = socket(&zmq::Context::new(), zmq::PAIR)?;
        socket.set_linger(0).map_err(set_up("zmq_setsockopt(ZMQ_LINGER)"))?;
        let endpoint = endpoint_in(&self.folder);
        if self.binds {
            socket.bind(&endpoint).map_err(set_up("zmq_bind"))?;
        } else {
            // The other end may not have bound yet.
            socket.set_reconnect_ivl(1).map_err(set_up("zmq_setsockopt(ZMQ_RECONNECT_IVL)"))?;
            socket.connect(&endpoint).map_err(set_up("zmq_connect"))?;
        }
        self.socket = Some(socket);
        Ok(())
    }

    fn belongings(&self) -> Option<Rc<dyn Any>> {
        Some(Rc::clone(&self.folder) as Rc<dyn Any>)
    }

    fn send(&mut self, _: u64, message: &Message) -> std::result::Result<(), Ended> {
        loop {
            match self.socket()?.send(&message[..], 0) {
                Ok(()) => return Ok(()),
                Err(zmq::Error::EINTR) => {}
                Err(error) => return Err(Trouble::fail(format!("zmq_send: {error}")).into()),
            }
        }
    }

    fn receive(&mut self) -> std::result::Result<Claim, Ended> {
        loop {
            match self.socket()?.recv_bytes(0) {
                Ok(message) => return Ok(claim(&message)),
                Err(zmq::Error::EINTR) => {}
                Err(error) => return Err(Trouble::fail(format!("zmq_recv: {error}")).into()),
            }
        }
    }
}
