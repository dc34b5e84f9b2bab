//! The container rows: two processes that are connected only by a network, or by a directory that
//! both see.
//!
//! The code inside is the same for all rows. An [`EndRequest`] states which end of a connection the
//! process is, [`serve`] executes the request, and the client's samples leave as an [`answer`].
//! `engine` starts the two ends with a real engine (`container-tcp`, `container-unix`); `bare` puts
//! two forked processes into their own namespaces (`container-netns`).
//!
//! An end that waits inside gives up after [`EndRequest::within`], so that no process outlives a
//! killed invocation.

mod answer;
mod bare;
mod engine;

pub(super) use bare::run as namespaces;
pub(super) use engine::{ContainerLink, run as engine};

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tontine_bench::machine::topology::Placement;
use tontine_host::clock::Clock;
use tontine_host::error::{ErrorContext, Result};
use tontine_host::os::child::exit_at_once;
use tontine_host::os::pin;
use tontine_host::peer::PeerHandle;
use tontine_mechanisms::descriptor::{StreamEnd, again};

use super::StampMode;
use super::harness::{self, RoundPlan};
use super::opened::Adapted;

/// The hidden command by which the program starts itself inside a container.
pub const COMMAND: &str = "__container";

/// The server's port. The server has its own network namespace, so the number is free.
const PORT: u16 = 7_004;
/// The mount point of the volume that two containers share.
const VOLUME: &str = "/shared";
/// The server's socket on that volume.
const SOCKET: &str = "/shared/socket";
/// Timeout for a client to connect to a server that starts at the same time.
const CONNECT: Duration = Duration::from_secs(10);
/// Timeout for one attempt.
const TRY: Duration = Duration::from_millis(200);
/// Time between two attempts.
const AGAIN: Duration = Duration::from_millis(5);
/// Exit status of an end that gave up.
const GAVE_UP: i32 = 124;

/// The task of an end inside a container; passed as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct EndRequest {
    role: EndRole,
    rounds: usize,
    warm_up: usize,
    /// The processor to run on.
    cpu: usize,
    /// Seconds after which the end gives up.
    within: u64,
}

/// One end of one kind of connection.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum EndRole {
    TcpServer,
    /// The client of the server at this address.
    TcpClient(Ipv4Addr),
    UnixServer,
    UnixClient,
}

impl EndRequest {
    /// Creates a request for an end. The servers run on the plan's second processor.
    fn new(plan: &RoundPlan, role: EndRole) -> Self {
        let cpu = match role {
            EndRole::TcpServer | EndRole::UnixServer => plan.placement.there,
            EndRole::TcpClient(_) | EndRole::UnixClient => plan.placement.here,
        };
        let within = patience(plan).as_secs();
        Self { role, rounds: plan.rounds, warm_up: plan.warm_up, cpu, within }
    }

    fn plan(&self) -> RoundPlan<'static> {
        let placement = Placement { name: "container", here: self.cpu, there: self.cpu };
        RoundPlan {
            rounds: self.rounds,
            warm_up: self.warm_up,
            stamps: StampMode::EveryRound,
            placement,
            clock: Clock::calibrated(),
            paced: None,
        }
    }
}

/// Returns the timeout for the rounds of a plan. On a busy machine each round can take a hundred
/// times longer than usual. A run abandons an invocation much earlier; this timeout is for ends
/// whose invocation has already ended.
fn patience(plan: &RoundPlan) -> Duration {
    Duration::from_secs(60) + Duration::from_millis(3) * plan.answers() as u32
}

/// Executes a request inside a container. A client writes its answer to standard output.
///
/// # Errors
/// Returns an error if the request cannot be parsed, the server cannot serve, or the answer cannot
/// be written.
pub fn serve(order: &str) -> io::Result<()> {
    let order: EndRequest = serde_json::from_str(order)?;
    obey(&order, &mut io::stdout().lock()).map_err(io::Error::other)
}

fn obey(order: &EndRequest, out: &mut impl Write) -> Result<()> {
    give_up_after(Duration::from_secs(order.within))?;
    if matches!(order.role, EndRole::TcpServer | EndRole::UnixServer) {
        let mut end = connected(order)?;
        return harness::answer(&order.plan(), &mut end);
    }
    let timed = connected(order).and_then(|mut end| harness::time(&order.plan(), &mut end));
    answer::write(out, &timed).during("writing the samples")
}

/// Starts a thread that ends this process after `time`. A timer's signal would not work, because
/// the first process of a PID namespace ignores a signal that it does not catch.
fn give_up_after(time: Duration) -> Result<()> {
    let wait = move || {
        thread::sleep(time);
        let seconds = time.as_secs();
        let _ =
            writeln!(io::stderr(), "gave up after {seconds} s: the other end has ended or is slow");
        exit_at_once(GAVE_UP)
    };
    thread::Builder::new().spawn(wait).map(drop).setting_up("clone of a thread")
}

/// Pins this process and connects its end to the other one, which is not our child. The connection
/// is closed when that process ends.
fn connected(order: &EndRequest) -> Result<Adapted<'static, StreamEnd<1>, 1>> {
    pin::pin_to(order.cpu)?;
    let read: OwnedFd = match order.role {
        EndRole::TcpServer => {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).during("bind")?;
            without_delay(listener.accept().during("accept")?.0)?.into()
        }
        EndRole::TcpClient(server) => {
            let server = SocketAddrV4::new(server, PORT).into();
            let connection = repeat(|| TcpStream::connect_timeout(&server, TRY));
            without_delay(connection.during("connect to the server")?)?.into()
        }
        EndRole::UnixServer => {
            let listener = UnixListener::bind(SOCKET).during("bind")?;
            listener.accept().during("accept")?.0.into()
        }
        EndRole::UnixClient => {
            repeat(|| UnixStream::connect(SOCKET)).during("connect to the server")?.into()
        }
    };
    let write = again(&read)?;
    Ok(Adapted::new(StreamEnd::new(read, write), PeerHandle::Parent))
}

fn without_delay(connection: TcpStream) -> Result<TcpStream> {
    connection.set_nodelay(true).during("setsockopt(TCP_NODELAY)")?;
    Ok(connection)
}

/// Tries to connect to a server that may not have started yet.
fn repeat<C>(connect: impl Fn() -> io::Result<C>) -> io::Result<C> {
    let began = Instant::now();
    loop {
        match connect() {
            Err(error) if began.elapsed() > CONNECT => return Err(error),
            Err(_) => thread::sleep(AGAIN),
            connected => return connected,
        }
    }
}
