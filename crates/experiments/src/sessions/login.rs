//! Sessions of temporary users over a remote login: [`sessions`].
//!
//! A real sshd, with a host key and a configuration of its own, listens on a loopback port inside a
//! [`House`]; real ssh clients log in to it, each as another user, whose login shell is the script.
//! The elapsed time is that of the script, from its first line on the client's side to its last:
//! what the login itself takes is left out, since it is cryptography.

use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tontine_host::os::herd::Herd;
use tontine_host::os::program::{find, last_words};
use tontine_host::trouble::{During, Result, Trouble};

use super::house::{HIDDEN, House};
use super::script::{BEGINS, DONE};
use super::{Span, each_after_the_other, script_in, terminal};

/// How long the server may take until it listens.
const OPENING: Duration = Duration::from_secs(10);
/// The first user's id; the others follow. Below what systems give to containers and services,
/// above what they give to people.
const FIRST_ID: u32 = 58_100;
/// The user under whose name an sshd does what needs no rights.
const SEPARATED: &str = "sshd";

/// The programs of a login.
struct Programs {
    server: PathBuf,
    client: PathBuf,
    keys: PathBuf,
}

impl Programs {
    fn look() -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err(Trouble::skip("needs root: temporary users log in to a server run by us"));
        }
        let of = |name: &str| {
            find(name).ok_or_else(|| {
                Trouble::skip(format!(
                    "needs OpenSSH's server and client: {name} is missing; install them, nothing \
                     has to be configured or started"
                ))
            })
        };
        Ok(Self { server: of("sshd")?, client: of("ssh")?, keys: of("ssh-keygen")? })
    }
}

/// Logs a user in for each home and lets the script run; when each was at work.
///
/// # Errors
/// Skipped, with what is missing: root, a program, a namespace. Failed, where the server does not
/// come up or a session does not end well by `until`.
pub(super) fn sessions(folder: &Path, homes: &[PathBuf], until: Instant) -> Result<Vec<Span>> {
    let programs = Programs::look()?;
    open_to_others(folder)?;
    let users = Users::new(folder, homes)?;
    for (home, id) in homes.iter().zip(FIRST_ID..) {
        for path in [home.clone(), home.join("input")] {
            chown(path, Some(id), Some(id)).setting_up("chown of a home")?;
        }
    }
    for key in ["host_key", "user_key"] {
        make_key(&programs, folder, key)?;
    }
    readable(&folder.join("user_key.pub"))?;
    let port = free_port()?;
    let configuration = configure(folder, port)?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (server, configuration) = (text(&programs.server), text(&configuration));
    let log = folder.join("log");
    // Before any thread is made; and the house last, whose pipe no forked process may hold.
    let herd = Herd::new()?;
    let house = House::open(&users.passwd, &[&server, "-D", "-e", "-f", &configuration], &log)?;
    until_it_listens(port, &house, &log)?;
    let spans = each_after_the_other(homes, |home| {
        let name = name_of(home);
        let client = client(&programs, folder, port, &name);
        follow(client, &herd, until).map_err(|trouble| match trouble {
            Trouble::Failed(why) => {
                let log = last_words(&fs::read(&log).unwrap_or_default());
                Trouble::fail(format!("{why}; sshd: {log}"))
            }
            skipped => skipped,
        })
    });
    // Everybody is gone before the homes are.
    drop(house);
    spans
}

/// Whatever the umask is.
fn readable(path: &Path) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).setting_up("chmod")
}

/// The users reach their homes through every folder above them.
fn open_to_others(folder: &Path) -> Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).setting_up("chmod")?;
    if let Some(hidden) = HIDDEN.iter().find(|hidden| folder.starts_with(hidden)) {
        return Err(Trouble::skip(format!(
            "needs a temporary folder outside {hidden}, which it hides; set TMPDIR"
        )));
    }
    for above in folder.ancestors() {
        let mode = fs::metadata(above).setting_up("stat")?.permissions().mode();
        if mode & 0o001 == 0 {
            return Err(Trouble::skip(format!(
                "needs a temporary folder that other users may enter: {} is closed to them; set \
                 TMPDIR",
                above.display()
            )));
        }
    }
    Ok(())
}

/// A copy of `/etc/passwd` with our users.
struct Users {
    passwd: PathBuf,
}

impl Users {
    fn new(folder: &Path, homes: &[PathBuf]) -> Result<Self> {
        let real = fs::read_to_string("/etc/passwd").setting_up("reading /etc/passwd")?;
        let text = with_users(&real, &script_in(folder), homes)?;
        let passwd = folder.join("passwd");
        fs::write(&passwd, text).setting_up("writing a copy of /etc/passwd")?;
        readable(&passwd)?;
        Ok(Self { passwd })
    }
}

/// `real`, and a line for each home. `*` is no password: they have a key.
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
            return Err(Trouble::skip(format!(
                "needs a free user id: /etc/passwd has {name} or {id} already"
            )));
        }
        let (home, shell) = (home.display(), shell.display());
        let _ = writeln!(text, "{name}:*:{id}:{id}:pseudo-user:{home}:{shell}");
    }
    if !has(0, SEPARATED) {
        let _ = writeln!(text, "{SEPARATED}:*:{last}:{last}::/run/sshd:/bin/false");
    }
    Ok(text)
}

/// The user who lives there.
fn name_of(home: &Path) -> String {
    let number = home.file_name().map(|name| name.to_string_lossy().into_owned());
    format!("tontine-{}", number.unwrap_or_default())
}

fn make_key(programs: &Programs, folder: &Path, name: &str) -> Result<()> {
    let made = Command::new(&programs.keys)
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f", name])
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .setting_up("ssh-keygen")?;
    if made.status.success() {
        Ok(())
    } else {
        Err(Trouble::fail(format!("ssh-keygen: {}: {}", made.status, last_words(&made.stderr))))
    }
}

/// A loopback port that nobody has now. Should somebody take it before the server does, the server
/// says so.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).setting_up("bind to loopback")?;
    Ok(listener.local_addr().during("getsockname")?.port())
}

/// Only our users, only our key, nothing of the machine's own configuration.
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

fn until_it_listens(port: u16, house: &House, log: &Path) -> Result<()> {
    let until = Instant::now() + OPENING;
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        if let Some(trouble) = house.trouble() {
            return Err(trouble);
        }
        if Instant::now() > until {
            let log = last_words(&fs::read(log).unwrap_or_default());
            return Err(Trouble::fail(format!("sshd does not listen on port {port}: {log}")));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn client(programs: &Programs, folder: &Path, port: u16, user: &str) -> Command {
    let mut client = Command::new(&programs.client);
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

/// Reads what the user sees; the time from the script's first line to its last.
fn follow(mut client: Command, herd: &Herd, until: Instant) -> Result<Span> {
    // Its input stays open and silent: a user who types nothing.
    client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = herd.spawn(&mut client)?;
    let mut seen = Seen::default();
    let drained = match &running.stdout {
        Some(printed) => terminal::drain(printed, until, |piece| seen.more(piece)),
        None => Err(Trouble::fail("ssh has no standard output")),
    };
    if drained.is_err() {
        let _ = running.kill();
    }
    let mut complaints = Vec::new();
    if let Some(mut said) = running.stderr.take() {
        let _ = said.read_to_end(&mut complaints);
    }
    let status = running.wait().during("waitpid")?;
    drained?;
    match (seen.began, seen.done) {
        (Some(began), Some(ended)) if status.success() => Ok(Span { began, ended }),
        _ => Err(Trouble::fail(format!(
            "a session ended with {status}, after {}; ssh: {}",
            last_words(&seen.text),
            last_words(&complaints)
        ))),
    }
}

/// What came from a session, and when its first and its last line did.
#[derive(Debug, Default)]
struct Seen {
    text: Vec<u8>,
    began: Option<Instant>,
    done: Option<Instant>,
}

impl Seen {
    fn more(&mut self, piece: &[u8]) {
        let now = Instant::now();
        // A line may have come in two pieces.
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
    fn users_are_added_to_a_copy_and_never_replace_one() {
        let homes = [PathBuf::from("/x/home-1"), PathBuf::from("/x/home-2")];
        let text = with_users("root:x:0:0::/root:/bin/sh", Path::new("/x/script"), &homes);
        let text = text.expect("nobody has these");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "root:x:0:0::/root:/bin/sh");
        assert_eq!(lines[2], "tontine-home-2:*:58101:58101:pseudo-user:/x/home-2:/x/script");
        assert!(lines[3].starts_with("sshd:*:58102:"), "{text}");
        let taken = "somebody:x:58101:1::/:/bin/sh\n";
        let found = with_users(taken, Path::new("/x/script"), &homes).expect_err("taken");
        assert!(matches!(&found, Trouble::Skipped(why) if why.contains("58101")), "{found}");
    }

    #[test]
    fn lines_that_come_in_pieces_are_seen() {
        let mut seen = Seen::default();
        for piece in ["pseudo-user: be", "gins\r\n1 signal\r\n", "pseudo-user: don"] {
            seen.more(piece.as_bytes());
        }
        assert!(seen.began.is_some() && seen.done.is_none(), "{seen:?}");
        seen.more(b"e\r\n");
        assert!(seen.done >= seen.began, "{seen:?}");
    }
}
