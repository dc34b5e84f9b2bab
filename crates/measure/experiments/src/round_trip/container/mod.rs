//! The container rows: two processes that are connected only by a network, or by a directory that
//! both see.
//!
//! An [`EndRequest`] states which end of a connection a process inside is, [`serve`] executes the
//! request, and the client's samples leave as an [`EndAnswer`]. `engine` starts the two ends in
//! containers of a real engine. An end gives up after [`EndRequest::within`], so that no process
//! outlives a killed invocation.

mod engine;

pub(super) use engine::{ContainerLink, run as engine};

use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};

use tontine_mechanisms::descriptor::{StreamEnd, again};

use super::StampMode;
use super::end::Timed;
use super::harness::{Adapted, RoundPlan, RoundRunner};
use crate::prelude::*;

/// The hidden command by which the program starts itself inside a container.
pub const COMMAND: &str = "__container";

/// The server's port. The server has its own network namespace, so the number is free.
const PORT: u16 = 7_004;
const VOLUME: &str = "/shared";
/// The server's socket on that volume.
const SOCKET: &str = "/shared/socket";
/// Timeout for a client to connect to a server that starts at the same time.
const CONNECT: Duration = Duration::from_secs(10);
const TRY: Duration = Duration::from_millis(200);
/// Time between two attempts.
const AGAIN: Duration = Duration::from_millis(5);
const GAVE_UP: i32 = 124;

/// The task of an end inside a container; passed as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct EndRequest {
    role: EndRole,
    rounds: usize,
    warm_up: usize,
    cpu: usize,
    /// Seconds after which the end gives up.
    within: u64,
}

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
    fn new(plan: &RoundPlan<'_>, role: EndRole) -> Self {
        let cpu = match role {
            EndRole::TcpServer | EndRole::UnixServer => plan.placement.there,
            EndRole::TcpClient(_) | EndRole::UnixClient => plan.placement.here,
        };
        let within = timeout(plan).as_secs();
        Self { role, rounds: plan.rounds, warm_up: plan.warm_up, cpu, within }
    }

    fn plan(&self) -> RoundPlan<'static> {
        let placement = Placement { name: "container", here: self.cpu, there: self.cpu };
        RoundPlan::new(self.rounds, self.warm_up, placement, StampMode::EveryRound)
    }
}

/// The result of a client. The bytes from a container are untrusted until they are decoded.
#[derive(Debug, Serialize, Deserialize)]
enum EndAnswer {
    /// The samples of the one-way latency, in ns.
    Samples(Vec<f64>),
    Skipped(String),
    Failed(String),
}

impl From<Result<Timed>> for EndAnswer {
    fn from(measured: Result<Timed>) -> Self {
        match measured {
            Ok(timed) => Self::Samples(timed.one_way),
            Err(MeasureError::Skipped(why)) => Self::Skipped(why),
            Err(MeasureError::Failed(why)) => Self::Failed(why),
        }
    }
}

impl EndAnswer {
    fn read(bytes: &[u8]) -> Result<Timed> {
        match serde_json::from_slice(bytes) {
            Ok(Self::Samples(one_way)) => Ok(Timed { one_way, batch: 1, single: Vec::new() }),
            Ok(Self::Skipped(why)) => Err(MeasureError::Skipped(why)),
            Ok(Self::Failed(why)) => Err(MeasureError::Failed(why)),
            Err(error) => {
                let start: String = String::from_utf8_lossy(bytes).chars().take(60).collect();
                let why = format!("the client's answer is invalid ({error}): {start:?}");
                Err(MeasureError::fail(why))
            }
        }
    }
}

/// Returns the timeout for the rounds of a plan. On a busy machine each round can take a hundred
/// times longer than usual. A run abandons an invocation much earlier; this timeout is for ends
/// whose invocation has already ended.
fn timeout(plan: &RoundPlan<'_>) -> Duration {
    Duration::from_secs(60) + Duration::from_millis(3) * plan.answers() as u32
}

/// Executes a request inside a container. A client writes its answer to standard output.
pub fn serve(request: &str) -> io::Result<()> {
    let request: EndRequest = serde_json::from_str(request)?;
    execute(&request, &mut io::stdout().lock()).map_err(io::Error::other)
}

fn execute(request: &EndRequest, out: &mut impl Write) -> Result<()> {
    give_up_after(Duration::from_secs(request.within))?;
    if matches!(request.role, EndRole::TcpServer | EndRole::UnixServer) {
        return connected(request)?.answer(&request.plan());
    }
    let timed = connected(request).and_then(|mut end| end.time(&request.plan()));
    let answer = serde_json::to_vec(&EndAnswer::from(timed)).map_err(io::Error::from);
    answer.and_then(|answer| out.write_all(&answer)).during("writing the samples")
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
fn connected(request: &EndRequest) -> Result<Adapted<'static, StreamEnd<1>, 1>> {
    pin::pin_to(request.cpu)?;
    let read: OwnedFd = match request.role {
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
    Ok(Adapted { end: StreamEnd::over(read, write), peers: [PeerHandle::Parent] })
}

fn without_delay(connection: TcpStream) -> Result<TcpStream> {
    connection.set_nodelay(true).during("setsockopt(TCP_NODELAY)")?;
    Ok(connection)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_answer_round_trips_and_truncation_fails() {
        let one_way = vec![1.5, -0.25, 1e9];
        let sent = Timed { one_way: one_way.clone(), batch: 1, single: Vec::new() };
        let written = |measured| serde_json::to_vec(&EndAnswer::from(measured)).expect("JSON");
        let whole = written(Ok(sent));
        assert_eq!(EndAnswer::read(&whole).expect("samples").one_way, one_way);
        for error in [MeasureError::skip("no\nprocessor"), MeasureError::fail("broke \"off\"")] {
            assert_eq!(EndAnswer::read(&written(Err(error.clone()))).err(), Some(error));
        }
        let cut = (0..whole.len()).map(|length| &whole[..length]);
        for invalid in cut.chain([&b"exec format error\n"[..]]) {
            assert!(matches!(EndAnswer::read(invalid), Err(MeasureError::Failed(_))));
        }
    }
}
