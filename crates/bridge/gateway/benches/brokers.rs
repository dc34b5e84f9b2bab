//! Message brokers over loopback, measured by their own programs, for comparison with the gateways
//! that `tontine-measure across-machines` measures: `cargo bench -p tontine-gateway --bench
//! brokers`. Messages have 64 bytes. Neither broker writes to a disk, and core NATS forgets a
//! message that it has forwarded, so both promise less than a mailbox.

use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const REDIS: &str = "17779";
const NATS: &str = "17780";
const MESSAGES: &str = "200000";

fn main() {
    // `cargo test --all-targets` runs benches without this argument.
    if std::env::args().any(|argument| argument == "--bench") {
        for (broker, done) in [("redis-stream", redis()), ("nats", nats())] {
            if let Err(why) = done {
                println!("{broker}: {why}");
            }
        }
    }
}

/// Appends to a stream by one client: each entry after the answer to the one before it, then 64
/// entries per write.
fn redis() -> Result<(), String> {
    let server = ["--port", REDIS, "--bind", "127.0.0.1", "--appendonly", "no", "--save", ""];
    let _server = Server::start("redis-server", &server, REDIS)?;
    let message = "m".repeat(64);
    for (what, pipelined) in [("one by one", "1"), ("stream", "64")] {
        let client = ["-p", REDIS, "-n", MESSAGES, "-c", "1", "-P", pipelined, "--csv"];
        let append = ["XADD", "stream", "*", "m", &message];
        let out = finished("redis-benchmark", &[&client[..], &append].concat())?;
        let figures =
            out.lines().last().and_then(|line| line.split_once("\",")).unwrap_or_default();
        let names = "entries/s, then ms of the round trip: mean, min, p50, p95, p99, max";
        println!("redis-stream {what}: {names}: {}", figures.1);
    }
    Ok(())
}

/// Publishes by one client to one subscriber, core NATS.
fn nats() -> Result<(), String> {
    let server = ["--addr", "127.0.0.1", "--port", NATS];
    let _server = Server::start("nats-server", &server, NATS)?;
    let url = format!("nats://127.0.0.1:{NATS}");
    let of = |role| {
        let bench = ["--server", &url, "bench", role, "stream", "--msgs", MESSAGES];
        [&bench[..], &["--size", "64", "--no-progress"]].concat()
    };
    let subscriber = started("nats", &of("sub"))?;
    std::thread::sleep(Duration::from_secs(1));
    print!("nats: {}", finished("nats", &of("pub"))?);
    let received = subscriber.wait_with_output().map_err(|error| error.to_string())?;
    print!("nats: {}", printed(&received));
    Ok(())
}

/// A server that is killed when its handle is dropped.
struct Server(Child);

impl Server {
    fn start(program: &str, arguments: &[&str], port: &str) -> Result<Self, String> {
        let mut server = Self(started(program, arguments)?);
        let end = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(format!("127.0.0.1:{port}")).is_err() {
            if Instant::now() > end || server.0.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Err(format!("{program} does not listen on port {port}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn started(program: &str, arguments: &[&str]) -> Result<Child, String> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(std::env::temp_dir());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map_err(|error| format!("skipped: needs {program}: {error}"))
}

fn finished(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = started(program, arguments)?.wait_with_output();
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() { Ok(printed(&output)) } else { Err(printed(&output)) }
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}
