//! Two gateways: records of a mailbox's sender in one process to the owner in another.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use tontine::mailbox::{Options, Sender, WaitStrategy};

use crate::{DURATION, SHORT, median_round_trip, megabytes};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tontine-bridge-zenoh");
/// Maximum wait for the gateways to connect, or for what is left in the lanes.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of messages that the owner takes at once.
const BATCH: usize = 256;

/// Both gateways, which are killed when this is dropped, and the sender.
struct GatewayPair {
    gateways: Vec<Child>,
    folder: PathBuf,
}

impl GatewayPair {
    fn start(endpoint: &str) -> (Self, Sender) {
        let folder = folder(endpoint);
        let at = folder.display();
        let endpoint = endpoint.strip_prefix("tcp/").expect("tcp");
        let far =
            format!("listen = [\"{endpoint}\"]\n[peers.near]\n[exports]\njobs = \"{at}/jobs\"");
        let near = format!(
            "[peers.far]\nconnect = \"{endpoint}\"\n[imports]\n\"far/jobs\" = \"{at}/import\""
        );
        let gateways = vec![gateway(&folder, "far", &far), gateway(&folder, "near", &near)];
        let import = folder.join("import");
        let pair = Self { gateways, folder };
        let end = Instant::now() + TIMEOUT;
        let mut sender = loop {
            match options().connect(&import) {
                Ok(sender) => break sender,
                Err(error) if Instant::now() > end => panic!("{error}"),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        sender.send(&[0]).expect("sent");
        sender.wait_acked(Some(TIMEOUT)).expect("acknowledged");
        (pair, sender)
    }
}

impl Drop for GatewayPair {
    fn drop(&mut self) {
        for gateway in &mut self.gateways {
            let _ = gateway.kill();
            let _ = gateway.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn gateway(folder: &Path, name: &str, rest: &str) -> Child {
    let file = folder.join(format!("{name}.toml"));
    let status = folder.join(format!("{name}.status"));
    let text = format!("name = \"{name}\"\nstatus = {status:?}\n{rest}\n");
    std::fs::write(&file, text).expect("written");
    let mut command = Command::new(PROGRAM);
    command.arg("--config").arg(file).args(["--log", "error"]);
    command.spawn().expect("a gateway")
}

/// Returns the options of both programs: the other host does not answer within the microseconds for
/// which they would otherwise spin.
fn options() -> Options {
    Options::new().wait_strategy(WaitStrategy::Sleep)
}

/// Returns a folder that both processes know.
fn folder(endpoint: &str) -> PathBuf {
    let port = endpoint.rsplit(':').next().expect("a port");
    std::env::temp_dir().join(format!("tontine-bench-{port}"))
}

/// Returns the rate of the records' bytes, from the first record sent to the last acknowledged.
pub(crate) fn throughput(endpoint: &str) -> f64 {
    let (_pair, mut sender) = GatewayPair::start(endpoint);
    let start = Instant::now();
    let mut records = 0_u64;
    while start.elapsed() < DURATION {
        for _ in 0..BATCH {
            sender.send(&[7; SHORT]).expect("sent");
        }
        records += BATCH as u64;
    }
    sender.wait_acked(Some(TIMEOUT)).expect("acknowledged");
    megabytes(records * SHORT as u64, start)
}

/// Returns the median duration from a record sent to the same record acknowledged.
pub(crate) fn round_trip(endpoint: &str) -> f64 {
    let (_pair, mut sender) = GatewayPair::start(endpoint);
    median_round_trip(|| {
        sender.send(&[7; SHORT]).expect("sent");
        sender.wait_acked(Some(TIMEOUT)).expect("acknowledged");
    })
}

/// Receives all messages.
pub(crate) fn owner(endpoint: &str) {
    let folder = folder(endpoint);
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut mailbox = options().bind(folder.join("jobs")).expect("a mailbox");
    println!("ready");
    loop {
        let _ = mailbox.recv_batch(BATCH, |_| {});
    }
}
