//! Sessions of temporary users over a remote login: [`sessions`].
//!
//! A real sshd, with its own host key and configuration, listens on a loopback port inside a
//! [`LoginSandbox`]. Real ssh clients log in, each as a different user, whose login shell is the
//! script. The measured time runs from the script's first line to its last, as the client sees
//! them: the login itself is excluded, because it is mostly cryptography.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use std::fmt::Write as _;
use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};

use tontine_bench::os::process_group::ProcessGroup;
use tontine_bench::os::program::{find, last_lines};

use super::login_sandbox::{HIDDEN, LoginSandbox};
use super::script::{BEGINS, DONE};
use super::{SessionSpan, each_after_the_other, script_in, terminal};
use crate::prelude::*;

const OPENING: Duration = Duration::from_secs(10);
/// The first user's id; the other users' ids follow it. The ids are below those that systems assign
/// to containers and services, and above those of people.
const FIRST_ID: u32 = 58_100;
/// The user under which an sshd does its unprivileged work.
const SEPARATED: &str = "sshd";

fn programs() -> Result<[PathBuf; 3]> {
    if !rustix::process::geteuid().is_root() {
        skip!("needs root: temporary users log in to a server that this program starts");
    }
    let [server, client, keys] = ["sshd", "ssh", "ssh-keygen"].map(|name| {
        find(name).ok_or_else(|| {
            MeasureError::skip(format!(
                "needs OpenSSH's server and client: {name} is missing; install them, without \
                 configuring or starting anything"
            ))
        })
    });
    Ok([server?, client?, keys?])
}

/// Logs in a user for each home and runs the script. Returns the time in which each user was at
/// work.
pub(super) fn sessions(
    folder: &Path,
    homes: &[PathBuf],
    until: Instant,
) -> Result<Vec<SessionSpan>> {
    let [server, ssh, keys] = programs()?;
    open_to_others(folder)?;
    let passwd = passwd_with_users(folder, homes)?;
    for (home, id) in homes.iter().zip(FIRST_ID..) {
        for path in [home.clone(), home.join("input")] {
            chown(path, Some(id), Some(id)).setting_up("chown of a home")?;
        }
    }
    for key in ["host_key", "user_key"] {
        make_key(&keys, folder, key)?;
    }
    readable(&folder.join("user_key.pub"))?;
    let port = free_port()?;
    let configuration = configure(folder, port)?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (server, configuration) = (text(&server), text(&configuration));
    let log = folder.join("log");
    // Created before any thread is started. The sandbox comes last: no forked process may hold its
    // pipe.
    let processes = ProcessGroup::new()?;
    let sandbox = LoginSandbox::open(&passwd, &[&server, "-D", "-e", "-f", &configuration], &log)?;
    until_it_listens(port, &sandbox, &log)?;
    let spans = each_after_the_other(homes, |home| {
        let name = name_of(home);
        let client = client(&ssh, folder, port, &name);
        follow(client, &processes, until).map_err(|error| match error {
            MeasureError::Failed(why) => {
                let log = last_lines(&fs::read(&log).unwrap_or_default());
                MeasureError::fail(format!("{why}; sshd: {log}"))
            }
            skipped => skipped,
        })
    });
    // The processes of all users end before the homes are removed.
    drop(sandbox);
    spans
}

fn readable(path: &Path) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).setting_up("chmod")
}

/// Opens the folder to other users, and checks that they can enter the folders above it on the way
/// to their homes.
fn open_to_others(folder: &Path) -> Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).setting_up("chmod")?;
    if let Some(hidden) = HIDDEN.iter().find(|hidden| folder.starts_with(hidden)) {
        skip!("needs a temporary folder outside {hidden}, which this variant hides; set TMPDIR");
    }
    for above in folder.ancestors() {
        let mode = fs::metadata(above).setting_up("stat")?.permissions().mode();
        if mode & 0o001 == 0 {
            skip!(
                "needs a temporary folder that other users may enter: they may not enter {}; set \
                 TMPDIR",
                above.display()
            );
        }
    }
    Ok(())
}

fn passwd_with_users(folder: &Path, homes: &[PathBuf]) -> Result<PathBuf> {
    let real = fs::read_to_string("/etc/passwd").setting_up("reading /etc/passwd")?;
    let text = with_users(&real, &script_in(folder), homes)?;
    let passwd = folder.join("passwd");
    fs::write(&passwd, text).setting_up("writing a copy of /etc/passwd")?;
    readable(&passwd)?;
    Ok(passwd)
}

/// Returns `real` with a line added for each home. The `*` means that there is no password, because
/// the users log in with a key.
fn with_users(real: &str, shell: &Path, homes: &[PathBuf]) -> Result<String> {
    let mut text = real.to_owned();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let has = |which: usize, what: &str| {
        real.lines().any(|line| line.split(':').nth(which) == Some(what))
    };
    let last = FIRST_ID + homes.len() as u32;
    for (home, id) in homes.iter().zip(FIRST_ID..) {
        let name = name_of(home);
        if has(0, &name) || has(2, &id.to_string()) {
            skip!("needs a free user id: /etc/passwd has {name} or {id} already");
        }
        let (home, shell) = (home.display(), shell.display());
        let _ = writeln!(text, "{name}:*:{id}:{id}:pseudo-user:{home}:{shell}");
    }
    if !has(0, SEPARATED) {
        let _ = writeln!(text, "{SEPARATED}:*:{last}:{last}::/run/sshd:/bin/false");
    }
    Ok(text)
}

fn name_of(home: &Path) -> String {
    let number = home.file_name().map(|name| name.to_string_lossy().into_owned());
    format!("tontine-{}", number.unwrap_or_default())
}

fn make_key(keys: &Path, folder: &Path, name: &str) -> Result<()> {
    let made = Command::new(keys)
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f", name])
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .setting_up("ssh-keygen")?;
    if made.status.success() {
        return Ok(());
    }
    let error = last_lines(&made.stderr);
    Err(MeasureError::fail(format!("ssh-keygen: {}: {error}", made.status)))
}

/// Returns a free loopback port. If another process binds it before the server does, the server
/// reports an error.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).setting_up("bind to loopback")?;
    Ok(listener.local_addr().during("getsockname")?.port())
}

/// Writes a configuration that accepts only our users and our key, and ignores the machine's own
/// configuration.
fn configure(folder: &Path, port: u16) -> Result<PathBuf> {
    let path = folder.join("configuration");
    let folder = folder.display();
    let text = format!(
        "ListenAddress 127.0.0.1:{port}\nHostKey {folder}/host_key\nPidFile none\n\
         AuthorizedKeysFile {folder}/user_key.pub\nAllowUsers tontine-*\nPermitRootLogin no\n\
         StrictModes no\nUsePAM no\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nUseDNS no\nPrintMotd no\nPrintLastLog no\n\
         X11Forwarding no\nAllowTcpForwarding no\nMaxStartups 64\nLogLevel ERROR\n"
    );
    fs::write(&path, text).setting_up("writing sshd's configuration")?;
    Ok(path)
}

fn until_it_listens(port: u16, sandbox: &LoginSandbox, log: &Path) -> Result<()> {
    let listens = poll_for(OPENING, Duration::from_millis(10), || {
        sandbox.error().map_or(Ok(()), Err)?;
        Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok())
    })?;
    let log = || last_lines(&fs::read(log).unwrap_or_default());
    ensure!(listens, "expected sshd to listen on port {port}, found no listener: {}", log());
    Ok(())
}

fn client(ssh: &Path, folder: &Path, port: u16, user: &str) -> Command {
    let mut client = Command::new(ssh);
    client.current_dir(folder).args(["-tt", "-F", "none", "-i", "user_key"]);
    client.args(["-p", &port.to_string()]);
    for option in [
        "BatchMode=yes",
        "IdentitiesOnly=yes",
        "IdentityAgent=none",
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
        "GlobalKnownHostsFile=/dev/null",
        "LogLevel=ERROR",
    ] {
        client.args(["-o", option]);
    }
    client.arg(format!("{user}@127.0.0.1")).env("TERM", "dumb").env("LC_ALL", "C");
    client
}

fn follow(mut client: Command, processes: &ProcessGroup, until: Instant) -> Result<SessionSpan> {
    // The input stays open without data, as with a user who types nothing.
    client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = processes.spawn(&mut client)?;
    let mut seen = SessionOutput::default();
    let drained = match &running.stdout {
        Some(printed) => terminal::drain(printed, until, |piece| seen.more(piece)),
        None => Err(MeasureError::fail("ssh has no standard output")),
    };
    if drained.is_err() {
        let _ = running.kill();
    }
    let mut complaints = Vec::new();
    if let Some(mut errors) = running.stderr.take() {
        let _ = errors.read_to_end(&mut complaints);
    }
    let status = running.wait().during("waitpid")?;
    drained?;
    match (seen.began, seen.done) {
        (Some(began), Some(ended)) if status.success() => Ok(SessionSpan { began, ended }),
        _ => Err(MeasureError::fail(format!(
            "a session ended with {status}, after {}; ssh: {}",
            last_lines(&seen.text),
            last_lines(&complaints)
        ))),
    }
}

#[derive(Debug, Default)]
struct SessionOutput {
    text: Vec<u8>,
    began: Option<Instant>,
    done: Option<Instant>,
}

impl SessionOutput {
    fn more(&mut self, piece: &[u8]) {
        let now = Instant::now();
        // A line may arrive in two pieces.
        let from = self.text.len().saturating_sub(BEGINS.len().max(DONE.len()));
        self.text.extend_from_slice(piece);
        let new = &self.text[from..];
        let has = |line: &str| new.windows(line.len()).any(|window| window == line.as_bytes());
        if self.began.is_none() && has(BEGINS) {
            self.began = Some(now);
        }
        if has(DONE) {
            self.done = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_users_are_added_and_never_replace_existing() {
        let homes = [PathBuf::from("/x/home-1"), PathBuf::from("/x/home-2")];
        let text = with_users("root:x:0:0::/root:/bin/sh", Path::new("/x/script"), &homes);
        let text = text.expect("names and ids are free");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "root:x:0:0::/root:/bin/sh");
        assert_eq!(lines[2], "tontine-home-2:*:58101:58101:pseudo-user:/x/home-2:/x/script");
        assert!(lines[3].starts_with("sshd:*:58102:"), "{text}");
        let taken = "somebody:x:58101:1::/:/bin/sh\n";
        let found = with_users(taken, Path::new("/x/script"), &homes).expect_err("taken");
        assert!(matches!(&found, MeasureError::Skipped(why) if why.contains("58101")), "{found}");
    }

    #[test]
    fn first_and_last_lines_split_into_pieces_are_detected() {
        let mut seen = SessionOutput::default();
        for piece in ["pseudo-user: be", "gins\r\n1 signal\r\n", "pseudo-user: don"] {
            seen.more(piece.as_bytes());
        }
        assert!(seen.began.is_some() && seen.done.is_none(), "{seen:?}");
        seen.more(b"e\r\n");
        assert!(seen.done >= seen.began, "{seen:?}");
    }
}
