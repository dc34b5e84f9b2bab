//! Two processes of `tontine-bridge-zenoh` carry messages between mailboxes over `quic/`.

mod common;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{new_endpoint, own_address, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use tontine::mailbox::{Mailbox, Sender};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tontine-bridge-zenoh");

/// A process of the program, killed when it is dropped.
struct BridgeProcess(Child);

impl BridgeProcess {
    fn start(folder: &Path, name: &str) -> Self {
        let file = folder.join(format!("{name}.toml"));
        let mut command = Command::new(PROGRAM);
        command.arg("--config").arg(file).args(["--log", "warn"]);
        Self(command.spawn().expect("a gateway"))
    }

    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for BridgeProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

fn write_config(folder: &Path, name: &str, rest: &str) {
    let at = folder.display();
    let text = format!(
        "name = \"{name}\"\nrealm = \"plant\"\nstatus = \"{at}/{name}.status\"\n{rest}\n\
         [zenoh]\nca = \"{at}/plant-ca.pem\"\ncertificate = \"{at}/{name}.pem\"\n\
         private_key = \"{at}/{name}.key\"\n"
    );
    std::fs::write(folder.join(format!("{name}.toml")), text).expect("written");
}

#[test]
fn messages_cross_two_gateways() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let mut command = Command::new(PROGRAM);
    command.args(["certificates", "--realm", "plant", "--out"]).arg(folder);
    let hosts = ["near", "far"].map(|name| format!("{name}={}", own_address()));
    command.args(hosts).stdout(Stdio::null());
    assert!(command.status().expect("a process").success());
    let endpoint = new_endpoint("quic").replace("quic/", "");
    let (jobs, import) = (folder.join("jobs"), folder.join("far-jobs"));
    let far = format!(
        "listen = [\"{endpoint}\"]\n[peers.near]\n[exports]\njobs = \"{}\"",
        jobs.display()
    );
    write_config(folder, "far", &far);
    let near = format!(
        "[peers.far]\nconnect = \"{endpoint}\"\n[imports]\n\"far/jobs\" = \"{}\"",
        import.display()
    );
    write_config(folder, "near", &near);
    let mut mailbox = Mailbox::bind(&jobs).expect("a mailbox");
    let _far = BridgeProcess::start(folder, "far");
    let mut near = BridgeProcess::start(folder, "near");
    let mut sender = None;
    wait_until("the import is bound", || {
        sender = Sender::connect(&import).ok();
        sender.is_some()
    });
    let mut sender = sender.expect("connected");
    let mut expect = |message: &[u8]| {
        let received = mailbox.recv_timeout(Duration::from_secs(30)).expect("timed out");
        assert_eq!(*received, *message);
    };
    sender.send(b"first").expect("sent");
    expect(b"first");
    for number in 0..1_000_u32 {
        sender.send(&number.to_le_bytes()).expect("sent");
    }
    (0..1_000_u32).for_each(|number| expect(&number.to_le_bytes()));
    // SIGTERM ends a gateway in order.
    kill_process(Pid::from_child(&near.0), Signal::TERM).expect("kill");
    assert!(near.0.wait().expect("an end").success());
}

#[test]
fn invalid_configuration_ends_with_status_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("gateway.toml");
    let status = folder.path().join("status");
    let valid = format!("name = \"a\"\nstatus = {status:?}\n");
    for (text, expected) in [
        (valid.clone() + "listen = [\"0.0.0.0:1\"]\n[peers.b]\n", "--plaintext"),
        (valid.clone() + "liste = 1\n", "liste"),
        (String::new(), "name"),
    ] {
        std::fs::write(&file, text).expect("written");
        let output = Command::new(PROGRAM).arg("--config").arg(&file).output().expect("a process");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(expected) && error.contains("gateway.toml"), "{error}");
    }
}
