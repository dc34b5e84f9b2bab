//! Two processes of `tontine-bridge-zenoh` carry messages between mailboxes over `quic/`.

mod common;

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::hosts::program::Program;
use common::{new_endpoint, own_address, until};
use rustix::process::Signal;
use tontine::mailbox::{Mailbox, Sender};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tontine-bridge-zenoh");

fn start(folder: &Path, name: &str) -> Program {
    let mut command = Command::new(PROGRAM);
    command.arg("--config").arg(folder.join(format!("{name}.toml"))).args(["--log", "warn"]);
    Program::spawn(command, None)
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
    let _far = start(folder, "far");
    let near = start(folder, "near");
    let mut sender = None;
    until("the import is bound", || {
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
    near.signal(Signal::TERM);
    near.finish();
}

/// Writes a configuration, and runs the program with it to its end.
fn run(folder: &Path, text: &str, options: &[&str]) -> (Output, String) {
    let file = folder.join("gateway.toml");
    std::fs::write(&file, text).expect("written");
    let mut command = Command::new(PROGRAM);
    let output = command.arg("--config").arg(&file).args(options).output().expect("a process");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let start = format!("tontine-bridge-zenoh: {}", file.display());
    assert!(error.lines().all(|line| line.starts_with(&start)), "{error}");
    (output, error)
}

fn named(folder: &Path, rest: &str) -> String {
    format!("name = \"a\"\nstatus = {:?}\n{rest}", folder.join("status"))
}

#[test]
fn invalid_configuration_ends_with_status_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    for (text, expected) in [
        (named(folder, "listen = [\"0.0.0.0:1\"]\n[peers.b]\n"), "--plaintext"),
        (named(folder, "liste = 1\n"), "liste"),
        (named(folder, "liste = 1\nmode = 1\n"), "mode"),
        (String::new(), "name"),
    ] {
        let (output, error) = run(folder, &text, &[]);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn errors_that_may_be_transient_end_with_status_1() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let address = new_endpoint("tcp").replace("tcp/", "");
    let _listener = TcpListener::bind(&address).expect("bound");
    let used = named(folder, &format!("listen = [{address:?}]\n[peers.b]\n"));
    let missing = "[peers.b]\nconnect = \"127.0.0.1:1\"\n[zenoh]\nca = \"/none/ca.pem\"\n\
                   certificate = \"/none/a.pem\"\nprivate_key = \"/none/a.key\"\n";
    for (text, expected) in [(used, address.as_str()), (named(folder, missing), "/none/a.key")] {
        let (output, error) = run(folder, &text, &["--log", "off"]);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn check_reports_validity_or_every_mistake() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let valid = named(folder, "realm = \"plant\"\n[peers.b]\nconnect = \"127.0.0.1:1\"\n");
    let (output, error) = run(folder, &valid, &["--check"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected = "valid: host a of realm plant with 1 peer, 0 exports and 0 imports\n";
    assert!(output.status.success() && text.ends_with(expected), "{text}{error}");
    assert!(error.contains("warning: neither [exports]"), "{error}");
    let check = |text: &str, mistakes: &[&str]| {
        let (output, error) = run(folder, &named(folder, text), &["--check"]);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{error}");
        assert_eq!(error.lines().count(), mistakes.len(), "{error}");
        for (line, mistake) in error.lines().zip(mistakes) {
            assert!(line.contains("gateway.toml:") && line.contains(mistake), "{line}: {mistake}");
        }
    };
    let hosts = "listen = \"10.0.0.9:1\"\n[peers.b]\nconnect = \"10.0.0.8:1\"\n";
    // The file itself, then the carrier, then the files that it names.
    let routers = "[zenoh.routers]\na = \"10.0.0.7:1\"\n";
    let of_file = ["expected no `listen`", "expected no `connect`", "expected a name of its own"];
    check(&(hosts.to_owned() + routers), &of_file);
    let addresses = ["tcp/10.0.0.8:1: not a loopback", "tcp/10.0.0.9:1: not a loopback"];
    check(hosts, &addresses);
    let files = "[zenoh]\nca = \"/none/ca.pem\"\ncertificate = \"/none/a.pem\"\n\
                 private_key = \"/none/a.key\"\n";
    check(&(hosts.to_owned() + files), &["/none/ca.pem", "/none/a.pem", "/none/a.key"]);
}
