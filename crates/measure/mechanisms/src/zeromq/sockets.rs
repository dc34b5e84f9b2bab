//! The ends of `zmq-inproc`, `zmq-ipc` and `zmq-ipc-monitored`.

use std::net::SocketAddrV4;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tontine_bench::error::{MeasureError, Result};
use tontine_bench::leftovers::Folder;

use super::{Inproc, Ipc, MonitoredIpc};
use crate::driver::{NamedDriver, PairDriver, PairHalves, StreamDriver, Traffic};
use crate::end::{Inlet, Outlet, Patient, Peers, Transfer, TransferError, TwoWay, check};
use crate::location::Location;

/// Maximum number of bytes in flight on either side of a stream, with a minimum of two
/// messages. ZeroMQ's default of a thousand messages would be a gibibyte of large messages.
const UNDER_WAY: usize = 16 << 20;
/// Interval between a sender's attempts to reach a receiver that may not exist yet.
const RECONNECT_MS: i32 = 1;
/// Like [`RECONNECT_MS`], for a process that is single-stepped.
const NAMED_RECONNECT_MS: i32 = 5;
/// The address of sockets between threads. Each context has its own address space.
const INPROC: &str = "inproc://tontine";
/// The address of a socket's monitor, in the context of its process.
const MONITOR: &str = "inproc://tontine-monitor";

/// A socket, which keeps its context alive.
pub struct ZeroMqSocket {
    socket: zmq::Socket,
    message: zmq::Message,
}

impl ZeroMqSocket {
    fn new(context: &zmq::Context, kind: zmq::SocketType) -> Result<Self> {
        let socket = context.socket(kind).map_err(set_up("zmq_socket"))?;
        Ok(Self { socket, message: zmq::Message::new() })
    }

    /// Discards unsent messages on close. At that time all have arrived, or a failure has
    /// occurred.
    fn without_linger(self) -> Result<Self> {
        self.socket.set_linger(0).map_err(set_up("zmq_setsockopt(ZMQ_LINGER)"))?;
        Ok(self)
    }

    fn bound(self, endpoint: &str) -> Result<Self> {
        self.socket.bind(endpoint).map_err(set_up("zmq_bind"))?;
        Ok(self)
    }

    fn connected(self, endpoint: &str, again_ms: i32) -> Result<Self> {
        let again = self.socket.set_reconnect_ivl(again_ms);
        again.map_err(set_up("zmq_setsockopt(ZMQ_RECONNECT_IVL)"))?;
        self.socket.connect(endpoint).map_err(set_up("zmq_connect"))?;
        Ok(self)
    }

    /// Creates a PAIR socket that listens at an address of this host. The calling process must
    /// not fork afterwards.
    pub fn listening(address: SocketAddrV4) -> Result<Self> {
        let socket = Self::new(&zmq::Context::new(), zmq::PAIR)?;
        socket.without_linger()?.bound(&format!("tcp://{address}"))
    }

    /// Creates a PAIR socket that connects to an address of another host.
    pub fn connecting(address: SocketAddrV4) -> Result<Self> {
        let socket = Self::new(&zmq::Context::new(), zmq::PAIR)?;
        socket.without_linger()?.connected(&format!("tcp://{address}"), RECONNECT_MS)
    }

    fn bounded(self, traffic: Traffic) -> Result<Self> {
        let mark = (UNDER_WAY / traffic.bytes).clamp(2, 1000) as i32;
        self.socket.set_sndhwm(mark).map_err(set_up("zmq_setsockopt(ZMQ_SNDHWM)"))?;
        self.socket.set_rcvhwm(mark).map_err(set_up("zmq_setsockopt(ZMQ_RCVHWM)"))?;
        self.without_linger()
    }
}

fn endpoint(folder: &Path) -> String {
    format!("ipc://{}", folder.join("socket").display())
}

fn set_up(call: &'static str) -> impl Fn(zmq::Error) -> MeasureError {
    move |error| {
        let error = std::io::Error::from_raw_os_error(error.to_raw());
        MeasureError::setting_up(call, error)
    }
}

impl Outlet for ZeroMqSocket {
    #[inline(always)]
    fn send(&mut self, message: &[u8], peers: Peers<'_>) -> Transfer<()> {
        loop {
            match self.socket.send(message, 0) {
                Ok(()) => return Ok(()),
                Err(zmq::Error::EINTR) => check(peers)?,
                Err(error) => {
                    return Err(MeasureError::fail(format!("zmq_send: {error}")).into());
                }
            }
        }
    }
}

impl Inlet for ZeroMqSocket {
    #[inline(always)]
    fn receive<R>(&mut self, peers: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
        loop {
            match self.socket.recv(&mut self.message, 0) {
                Ok(()) => return Ok(look(&self.message)),
                Err(zmq::Error::EINTR) => check(peers)?,
                Err(error) => {
                    return Err(MeasureError::fail(format!("zmq_recv: {error}")).into());
                }
            }
        }
    }
}

impl Patient for ZeroMqSocket {
    fn receive_within<R>(
        &mut self,
        time: Duration,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Transfer<Option<R>> {
        let wait = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        match self.socket.poll(zmq::POLLIN, wait) {
            Ok(0) => Ok(None),
            Ok(_) => self.receive(&[], look).map(Some),
            Err(error) => Err(MeasureError::fail(format!("zmq_poll: {error}")).into()),
        }
    }
}

impl TwoWay for ZeroMqSocket {}

impl PairDriver for Inproc {
    type Half = ZeroMqSocket;
    type End<const BYTES: usize> = ZeroMqSocket;

    fn pair(_: usize) -> Result<PairHalves<ZeroMqSocket>> {
        let context = zmq::Context::new();
        let one = ZeroMqSocket::new(&context, zmq::PAIR)?.bound(INPROC)?;
        let two = ZeroMqSocket::new(&context, zmq::PAIR)?.connected(INPROC, RECONNECT_MS)?;
        Ok(PairHalves::of((one, two)))
    }

    fn open<const BYTES: usize>(half: ZeroMqSocket, _: Peers<'_>) -> Result<ZeroMqSocket> {
        Ok(half)
    }
}

impl PairDriver for Ipc {
    /// The directory of the socket, and `true` if this end binds it.
    type Half = (Arc<Folder>, bool);
    type End<const BYTES: usize> = ZeroMqSocket;

    fn pair(_: usize) -> Result<PairHalves<Self::Half>> {
        let folder = Arc::new(Folder::new("zmq")?);
        let (one, two) = ((Arc::clone(&folder), true), (Arc::clone(&folder), false));
        Ok(PairHalves { first: one, second: two, kept: Some(Box::new(folder)) })
    }

    fn open<const BYTES: usize>((folder, binds): Self::Half, _: Peers<'_>) -> Result<ZeroMqSocket> {
        let socket = ZeroMqSocket::new(&zmq::Context::new(), zmq::PAIR)?;
        Self::joined(socket, &folder, binds)
    }
}

impl Ipc {
    fn joined(socket: ZeroMqSocket, folder: &Folder, binds: bool) -> Result<ZeroMqSocket> {
        let endpoint = endpoint(folder.path());
        if binds {
            socket.without_linger()?.bound(&endpoint)
        } else {
            // This end sends the last reply, which must not be lost.
            socket.connected(&endpoint, RECONNECT_MS)
        }
    }
}

/// A socket, and the socket at which the library reports the end of its connection.
pub struct MonitoredSocket {
    plain: ZeroMqSocket,
    monitor: zmq::Socket,
}

impl MonitoredSocket {
    /// Waits for one of these events, or until the connection has ended. Returns `true` if an
    /// event occurred; events take precedence, so that the last message of a dead peer arrives.
    fn wait(&self, events: zmq::PollEvents, peers: Peers<'_>) -> Result<bool> {
        loop {
            let socket = self.plain.socket.as_poll_item(events);
            let mut both = [socket, self.monitor.as_poll_item(zmq::POLLIN)];
            match zmq::poll(&mut both, -1) {
                // The monitor was asked for a single kind of event.
                Ok(_) if both[1].is_readable() => {
                    let ready = self.plain.socket.poll(events, 0);
                    return ready.map(|ready| ready > 0).map_err(failed("zmq_poll"));
                }
                Ok(_) => return Ok(true),
                Err(zmq::Error::EINTR) => check(peers)?,
                Err(error) => return Err(failed("zmq_poll")(error)),
            }
        }
    }
}

fn failed(call: &'static str) -> impl Fn(zmq::Error) -> MeasureError {
    move |error| MeasureError::fail(format!("{call}: {error}"))
}

impl Outlet for MonitoredSocket {
    #[inline(always)]
    fn send(&mut self, message: &[u8], peers: Peers<'_>) -> Transfer<()> {
        loop {
            match self.plain.socket.send(message, zmq::DONTWAIT) {
                Ok(()) => return Ok(()),
                Err(zmq::Error::EINTR) => check(peers)?,
                // A PAIR socket without a connection accepts no message.
                Err(zmq::Error::EAGAIN) => {
                    if !self.wait(zmq::POLLOUT, peers)? {
                        return Err(TransferError::Gone);
                    }
                }
                Err(error) => return Err(failed("zmq_send")(error).into()),
            }
        }
    }
}

impl Inlet for MonitoredSocket {
    #[inline(always)]
    fn receive<R>(&mut self, peers: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
        if self.wait(zmq::POLLIN, peers)? {
            self.plain.receive(peers, look)
        } else {
            Err(TransferError::Gone)
        }
    }
}

impl TwoWay for MonitoredSocket {}

impl PairDriver for MonitoredIpc {
    type Half = <Ipc as PairDriver>::Half;
    type End<const BYTES: usize> = MonitoredSocket;

    fn pair(bytes: usize) -> Result<PairHalves<Self::Half>> {
        Ipc::pair(bytes)
    }

    fn open<const BYTES: usize>(
        (folder, binds): Self::Half,
        _: Peers<'_>,
    ) -> Result<MonitoredSocket> {
        let context = zmq::Context::new();
        let plain = ZeroMqSocket::new(&context, zmq::PAIR)?;
        let disconnected = zmq::SocketEvent::DISCONNECTED as i32;
        let monitored = plain.socket.monitor(MONITOR, disconnected);
        monitored.map_err(set_up("zmq_socket_monitor"))?;
        let monitor = context.socket(zmq::PAIR).map_err(set_up("zmq_socket"))?;
        monitor.connect(MONITOR).map_err(set_up("zmq_connect"))?;
        let plain = Ipc::joined(plain, &folder, binds)?;
        Ok(MonitoredSocket { plain, monitor })
    }
}

/// A stream between threads before its ends are opened.
pub struct BoundPull {
    context: zmq::Context,
    pull: std::cell::Cell<Option<ZeroMqSocket>>,
    traffic: Traffic,
}

impl StreamDriver for Inproc {
    type Fixture = BoundPull;
    type Out = ZeroMqSocket;
    type In = ZeroMqSocket;

    fn set_up(traffic: Traffic) -> Result<BoundPull> {
        let context = zmq::Context::new();
        let pull = ZeroMqSocket::new(&context, zmq::PULL)?.bounded(traffic)?.bound(INPROC)?;
        Ok(BoundPull { context, pull: std::cell::Cell::new(Some(pull)), traffic })
    }

    fn outlet(fixture: &BoundPull, _: usize) -> Result<ZeroMqSocket> {
        let push = ZeroMqSocket::new(&fixture.context, zmq::PUSH)?.bounded(fixture.traffic)?;
        push.connected(INPROC, RECONNECT_MS)
    }

    fn inlet(fixture: &BoundPull, _: Peers<'_>) -> Result<ZeroMqSocket> {
        fixture.pull.take().ok_or_else(|| MeasureError::fail("the receiver was opened twice"))
    }
}

impl StreamDriver for Ipc {
    type Fixture = (Folder, Traffic);
    type Out = ZeroMqSocket;
    type In = ZeroMqSocket;

    fn set_up(traffic: Traffic) -> Result<Self::Fixture> {
        Ok((Folder::new("zmq")?, traffic))
    }

    fn outlet((folder, traffic): &Self::Fixture, _: usize) -> Result<ZeroMqSocket> {
        let push = ZeroMqSocket::new(&zmq::Context::new(), zmq::PUSH)?.bounded(*traffic)?;
        push.connected(&endpoint(folder.path()), RECONNECT_MS)
    }

    fn inlet((folder, traffic): &Self::Fixture, _: Peers<'_>) -> Result<ZeroMqSocket> {
        let pull = ZeroMqSocket::new(&zmq::Context::new(), zmq::PULL)?.bounded(*traffic)?;
        pull.bound(&endpoint(folder.path()))
    }
}

impl NamedDriver for Ipc {
    type Out = ZeroMqSocket;
    type In = ZeroMqSocket;

    fn sender(at: &Location) -> Result<ZeroMqSocket> {
        let push = ZeroMqSocket::new(&zmq::Context::new(), zmq::PUSH)?.without_linger()?;
        push.connected(&endpoint(at.folder()), NAMED_RECONNECT_MS)
    }

    fn receiver(at: &Location) -> Result<ZeroMqSocket> {
        let pull = ZeroMqSocket::new(&zmq::Context::new(), zmq::PULL)?.without_linger()?;
        pull.bound(&endpoint(at.folder()))
    }
}
