//! ZeroMQ, PAIR to PAIR, one char a message: `inproc` between threads, `ipc` between processes.

use tontine_host::leftovers::Folder;
use tontine_host::peer::Peer;
use tontine_host::trouble::{Result, Trouble};
use tontine_mechanisms::zeromq::{endpoint_in, set_up, socket};

use super::harness::{self, End, Plan, Timed};

/// Between two threads of this process.
pub(super) fn inproc(plan: &Plan) -> Result<Timed> {
    let context = zmq::Context::new();
    let here = pair(&context)?;
    here.bind("inproc://round-trip").map_err(set_up("zmq_bind"))?;
    let there = pair(&context)?;
    there.connect("inproc://round-trip").map_err(set_up("zmq_connect"))?;
    harness::between_threads(
        plan,
        move |peer| harness::time(plan, &mut Pair { socket: here, peer }),
        move |peer| harness::answer(plan, &mut Pair { socket: there, peer }),
    )
}

/// Between two processes. The contexts are made after the fork: one cannot cross it.
pub(super) fn ipc(plan: &Plan) -> Result<Timed> {
    let folder = Folder::new("zmq")?;
    let endpoint = endpoint_in(&folder);
    harness::between_processes(
        plan,
        |peer| {
            let socket = pair(&zmq::Context::new())?;
            socket.set_linger(0).map_err(set_up("zmq_setsockopt(ZMQ_LINGER)"))?;
            socket.bind(&endpoint).map_err(set_up("zmq_bind"))?;
            harness::time(plan, &mut Pair { socket, peer })
        },
        |peer| {
            let socket = pair(&zmq::Context::new())?;
            socket.connect(&endpoint).map_err(set_up("zmq_connect"))?;
            harness::answer(plan, &mut Pair { socket, peer })
        },
    )
}

fn pair(context: &zmq::Context) -> Result<zmq::Socket> {
    socket(context, zmq::PAIR)
}

struct Pair<'a> {
    socket: zmq::Socket,
    peer: Peer<'a>,
}

impl End for Pair<'_> {
    #[inline(always)]
    fn send(&mut self) -> Result<()> {
        loop {
            match self.socket.send(&b"a"[..], 0) {
                Ok(()) => return Ok(()),
                Err(zmq::Error::EINTR) => self.peer.check()?,
                Err(error) => return Err(Trouble::fail(format!("zmq_send: {error}"))),
            }
        }
    }

    #[inline(always)]
    fn wait(&mut self) -> Result<()> {
        let mut message = [0_u8; 1];
        loop {
            match self.socket.recv_into(&mut message, 0) {
                Ok(_) => return Ok(()),
                Err(zmq::Error::EINTR) => self.peer.check()?,
                Err(error) => return Err(Trouble::fail(format!("zmq_recv: {error}"))),
            }
        }
    }
}
