//! Programs of other projects and of `tontine-bridge-zenoh` on the hosts: [`start`], and
//! [`ServerCrossing`], in which the two programs meet at a message server on host B.

use std::fs::File;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_host::os::child::{Child, ends_within};
use tontine_host::os::program::{find, last_words};
use tontine_host::peer::ChildError;

use super::coded_tcp::{BUFFER, Codec, CodedTcp};
use super::crossing::{Crossing, HostSide};

/// Timeout for the start of a program.
const START: Duration = Duration::from_secs(20);
/// Interval of the attempts to reach a program that starts.
const RETRY: Duration = Duration::from_millis(5);

/// Starts a program that ends with this process, and waits until `reach` returns a value.
///
/// # Errors
/// Returns `Skipped` if the program is not installed, and `Failed`, with the last lines that it
/// printed, if it ends or cannot be reached.
pub(super) fn start<T>(
    name: &str,
    arguments: &[String],
    folder: &Path,
    mut reach: impl FnMut() -> Option<T>,
) -> Result<(Child, T)> {
    let program = find(name).ok_or_else(|| {
        MeasureError::skip(format!("needs {name}, and found none on PATH: install it"))
    })?;
    let printed = folder.join(format!("{name}-{}", std::process::id()));
    let log = File::create(&printed).setting_up("making a file")?;
    let errors = log.try_clone().setting_up("fcntl(F_DUPFD_CLOEXEC)")?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).stdout(log).stderr(errors);
    let child = Child::fork(|| {
        let _ = command.exec();
        1
    })?;
    let end = Instant::now() + START;
    loop {
        let ended = ends_within(child.pid(), RETRY)?;
        if !ended && let Some(reached) = reach() {
            return Ok((child, reached));
        }
        if ended || Instant::now() > end {
            let words = last_words(&std::fs::read(&printed).unwrap_or_default());
            let what = if ended { "ended" } else { "could not be reached" };
            return Err(MeasureError::fail(format!("{name} {what}: {words}")));
        }
    }
}

/// A message server, and the format in which programs talk to it.
pub(super) trait MessageServer: Codec + Sized {
    /// The server's program.
    const PROGRAM: &'static str;

    /// Returns the program's arguments. It may write into `folder`.
    fn arguments(folder: &Path) -> Result<Vec<String>>;

    /// Returns the format for the program on a host, the first bytes that it sends, and the
    /// server's answer to their end.
    fn greeting(side: HostSide) -> (Self, String, &'static str);
}

/// Two programs that meet at a message server on host B.
pub(super) struct ServerCrossing<'a, S> {
    folder: &'a Path,
    server: std::marker::PhantomData<S>,
}

impl<'a, S> ServerCrossing<'a, S> {
    pub(super) fn new(folder: &'a Path) -> Self {
        Self { folder, server: std::marker::PhantomData }
    }
}

impl<S: MessageServer> Crossing for ServerCrossing<'_, S> {
    /// A connection over which messages arrive already.
    type Half = CodedTcp<S>;
    type End = CodedTcp<S>;

    fn prepare(&self, side: HostSide, _: &ChildError) -> Result<CodedTcp<S>> {
        let (server, connection) = match side {
            HostSide::A => (None, TcpStream::connect(HostSide::listener()).during("connect")?),
            HostSide::B => {
                let reach = || TcpStream::connect(HostSide::listener()).ok();
                let arguments = S::arguments(self.folder)?;
                let (server, connection) = start(S::PROGRAM, &arguments, self.folder, reach)?;
                (Some(server), connection)
            }
        };
        let (codec, greeting, answer) = S::greeting(side);
        let mut end = CodedTcp::new(codec, connection, BUFFER)?.with_server(server);
        end.greet(greeting.as_bytes(), answer.as_bytes())?;
        Ok(end)
    }

    fn open(&self, _: HostSide, half: CodedTcp<S>) -> Result<CodedTcp<S>> {
        Ok(half)
    }
}
