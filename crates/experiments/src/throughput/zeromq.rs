//! ZeroMQ, PUSH to PULL: `inproc` between threads, `ipc` between processes.
//!
//! High-water marks bound what is under way by bytes: ZeroMQ's own thousand messages would be a
//! gibibyte of large ones.

use tontine_host::leftovers::Folder;
use tontine_host::peer::Peer;
use tontine_host::trouble::{Result, Trouble};
use tontine_mechanisms::zeromq::{endpoint_in, set_up, socket};

use super::harness::{self, Batches, Inlet, Outlet, Plan, check};
use super::threads;

/// Bytes under way on either side, at most, as far as two messages allow.
const UNDER_WAY: usize = 16 << 20;

/// Between threads of this process.
pub(super) fn inproc(plan: &Plan) -> Result<Batches> {
    const ENDPOINT: &str = "inproc://throughput";
    let context = zmq::Context::new();
    let pull = bounded(&context, zmq::PULL, plan)?;
    pull.bind(ENDPOINT).map_err(set_up("zmq_bind"))?;
    let push = |_| {
        let push = bounded(&context, zmq::PUSH, plan)?;
        push.connect(ENDPOINT).map_err(set_up("zmq_connect"))?;
        Ok(Push(push))
    };
    let outlets = (0..plan.senders).map(push).collect::<Result<Vec<_>>>()?;
    threads::from_threads(plan, outlets, Pull { socket: pull, message: zmq::Message::new() })
}

/// Between processes. The contexts are made after the forks: one cannot cross it.
pub(super) fn ipc(plan: &Plan) -> Result<Batches> {
    let folder = Folder::new("zmq")?;
    let endpoint = endpoint_in(&folder);
    harness::from_processes(
        plan,
        |_| {
            let push = bounded(&zmq::Context::new(), zmq::PUSH, plan)?;
            // The receiver may not be there yet.
            push.set_reconnect_ivl(1).map_err(set_up("zmq_setsockopt(ZMQ_RECONNECT_IVL)"))?;
            push.connect(&endpoint).map_err(set_up("zmq_connect"))?;
            Ok(Push(push))
        },
        |_| {
            let pull = bounded(&zmq::Context::new(), zmq::PULL, plan)?;
            pull.bind(&endpoint).map_err(set_up("zmq_bind"))?;
            Ok(Pull { socket: pull, message: zmq::Message::new() })
        },
    )
}

/// A socket with high-water marks that keeps nothing back when it is closed: by then everything has
/// come, or something has failed.
fn bounded(context: &zmq::Context, kind: zmq::SocketType, plan: &Plan) -> Result<zmq::Socket> {
    let socket = socket(context, kind)?;
    let mark = (UNDER_WAY / plan.bytes).clamp(2, 1000) as i32;
    socket.set_sndhwm(mark).map_err(set_up("zmq_setsockopt(ZMQ_SNDHWM)"))?;
    socket.set_rcvhwm(mark).map_err(set_up("zmq_setsockopt(ZMQ_RCVHWM)"))?;
    socket.set_linger(0).map_err(set_up("zmq_setsockopt(ZMQ_LINGER)"))?;
    Ok(socket)
}

struct Push(zmq::Socket);

impl Outlet for Push {
    #[inline(always)]
    fn send(&mut self, message: &[u8], receiver: Peer<'_>) -> Result<()> {
        loop {
            match self.0.send(message, 0) {
                Ok(()) => return Ok(()),
                Err(zmq::Error::EINTR) => receiver.check()?,
                Err(error) => return Err(Trouble::fail(format!("zmq_send: {error}"))),
            }
        }
    }
}

struct Pull {
    socket: zmq::Socket,
    message: zmq::Message,
}

impl Inlet for Pull {
    #[inline(always)]
    fn receive<R>(&mut self, senders: &[Peer<'_>], look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        loop {
            match self.socket.recv(&mut self.message, 0) {
                Ok(()) => return Ok(look(&self.message)),
                Err(zmq::Error::EINTR) => check(senders)?,
                Err(error) => return Err(Trouble::fail(format!("zmq_recv: {error}"))),
            }
        }
    }
}
