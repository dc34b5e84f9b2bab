//! `tontine recv`: prints messages as they arrive.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use tontine::Error;
use tontine::mailbox::{Address, Mailbox, MailboxOptions, Options, Order, activated_sockets};
use tontine_command::stop::StopRequest;
use tontine_command::{CommandFailure, FAILED, stopped_by};

use super::output::{MessageWriter, WriteResult};
use super::stdout::was_closed;
use super::{POLL_INTERVAL, address, refuse};
use crate::args::{OrderName, Recv};

/// Duration of the wait inside the library, which polls quickly and returns memory. After this wait
/// the command sleeps once, and a signal ends that sleep immediately.
const LIBRARY_WAIT: Duration = Duration::from_millis(100);

/// The reason why receiving ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopReason {
    /// `--count` messages were printed.
    Counted,
    /// No message arrived within `--timeout`.
    Quiet,
    /// The reader of standard output has ended.
    Unread,
    /// A signal arrived.
    Stopped,
}

/// Receives until there is a reason to end.
pub(crate) fn recv(args: &Recv) -> Result<ExitCode, CommandFailure> {
    let (at, socket) = match &args.address {
        Some(text) => (address(text)?, None),
        None => activated().map(|(at, socket)| (at, Some(socket)))?,
    };
    if was_closed() {
        // Checked before any message is received, because a received message would be acknowledged
        // and lost.
        return Err(CommandFailure::failed(
            "cannot print messages: standard output is closed; open it, or redirect it (`> FILE`, \
             `> /dev/null`)",
        ));
    }
    let stop =
        StopRequest::on_signals().map_err(CommandFailure::cannot("install signal handlers"))?;
    let opened = match socket {
        Some(socket) => in_order(args.order, |options| listen(&socket, &options))
            .map(Some)
            .map_err(|error| refuse(&at, &error))?,
        None => bind(&at, args, &stop)?,
    };
    let Some(mut mailbox) = opened else {
        return Ok(ended_by(&stop));
    };
    let mut count = 0;
    let end = receive(args, &mut mailbox, &stop, &mut count);
    print_errors(&mut mailbox);
    // Dropping the mailbox removes the socket in every case.
    drop(mailbox);
    let missing = args.count.filter(|most| count < *most);
    match (end.map_err(|failed| failed.into_refusal(&at))?, missing) {
        (StopReason::Stopped, _) => Ok(ended_by(&stop)),
        (_, None) => Ok(ExitCode::SUCCESS),
        (end, Some(most)) => {
            let why = match end {
                StopReason::Unread => "then the reader of standard output ended",
                _ => "no more arrived in time; raise --timeout, or start a sender",
            };
            Err(CommandFailure::failed(format!(
                "{at}: expected {most} messages, received {count}: {why}"
            )))
        }
    }
}

/// Returns the socket that a service manager passed, and its address.
fn activated() -> Result<(Address, OwnedFd), CommandFailure> {
    let mut sockets = activated_sockets().map_err(|error| {
        CommandFailure::failed(format!("the sockets of the service manager: {error}"))
    })?;
    let count = sockets.len();
    let (Some(activated), 1) = (sockets.pop(), count) else {
        return Err(CommandFailure::usage(format!(
            "expected a PATH, or one socket from a service manager (LISTEN_FDS), found no PATH and \
             {count} sockets; name a path, or @ and a name"
        )));
    };
    let name = rustix::net::getsockname(&activated.socket).and_then(SocketAddrUnix::try_from);
    let at = name.ok().and_then(|name| match name.abstract_name() {
        Some(name) => Some(Address::abstract_name(name)),
        None => Some(Address::path(OsStr::from_bytes(name.path_bytes()?))),
    });
    Ok((at.unwrap_or_else(|| Address::path("the socket of LISTEN_FDS")), activated.socket))
}

/// Returns the mailbox, or `None` if a signal ended the wait for it.
fn bind(at: &Address, args: &Recv, stop: &StopRequest) -> Result<Option<Mailbox>, CommandFailure> {
    while !stop.requested() {
        match in_order(args.order, |options| options.bind(at)) {
            Ok(mailbox) => return Ok(Some(mailbox)),
            Err(Error::AddrInUse { .. }) if args.wait => thread::sleep(POLL_INTERVAL),
            Err(error) => return Err(refuse(at, &error)),
        }
    }
    Ok(None)
}

/// Opens a mailbox in the chosen order; by default in causal order, if the machine has the clock
/// for it.
fn in_order(
    chosen: Option<OrderName>,
    open: impl Fn(MailboxOptions) -> Result<Mailbox, Error>,
) -> Result<Mailbox, Error> {
    let open = |order| open(Options::new().order(order));
    match chosen {
        Some(OrderName::Causal) => open(Order::Causal),
        Some(OrderName::BySender) => open(Order::BySender),
        None => match open(Order::Causal) {
            Err(Error::NoSharedClock { .. }) => open(Order::BySender),
            opened => opened,
        },
    }
}

/// Opens a mailbox at a passed socket.
fn listen(socket: &OwnedFd, options: &MailboxOptions) -> Result<Mailbox, Error> {
    let copy = socket.try_clone().map_err(|error| Error::System {
        call: "fcntl(F_DUPFD_CLOEXEC)",
        errno: error.raw_os_error().unwrap_or_default(),
    })?;
    options.listen(copy)
}

fn ended_by(stop: &StopRequest) -> ExitCode {
    stop.signal().map_or(ExitCode::from(FAILED), stopped_by)
}

/// An error with its origin.
#[derive(Debug)]
enum RecvFailure {
    Mailbox(Error),
    Poll(io::Error),
    Output(io::Error),
}

impl RecvFailure {
    fn into_refusal(self, at: &Address) -> CommandFailure {
        match self {
            Self::Mailbox(error) => refuse(at, &error),
            Self::Poll(error) => CommandFailure::failed(format!("{at}: poll failed: {error}")),
            Self::Output(error) => CommandFailure::failed(format!(
                "cannot write to standard output: {error}; the message goes to the next receiver"
            )),
        }
    }
}

impl From<Error> for RecvFailure {
    fn from(error: Error) -> Self {
        Self::Mailbox(error)
    }
}

fn receive(
    args: &Recv,
    mailbox: &mut Mailbox,
    stop: &StopRequest,
    count: &mut u64,
) -> Result<StopReason, RecvFailure> {
    let mut output = MessageWriter::new(args.framing.get());
    let mut last = Instant::now();
    while args.count.is_none_or(|most| *count < most) {
        if stop.requested() {
            return Ok(StopReason::Stopped);
        }
        let written = match mailbox.try_recv() {
            Ok(message) => output.write(&message, stop),
            Err(Error::WouldBlock) => {
                print_errors(mailbox);
                let until = args.timeout.and_then(|timeout| last.checked_add(timeout));
                match wait(mailbox, &output, stop, until)? {
                    None => continue,
                    Some(end) => return Ok(end),
                }
            }
            Err(error) => return Err(error.into()),
        };
        match written {
            Ok(WriteResult::Whole) => mailbox.ack(),
            not_written => {
                // The next receiver gets the message.
                mailbox.requeue();
                return match not_written.map_err(RecvFailure::Output)? {
                    WriteResult::Stopped => Ok(StopReason::Stopped),
                    _ => Ok(StopReason::Unread),
                };
            }
        }
        *count += 1;
        last = Instant::now();
    }
    Ok(StopReason::Counted)
}

/// Waits until there may be a message. Returns the reason to end, if any.
fn wait(
    mailbox: &mut Mailbox,
    output: &MessageWriter,
    stop: &StopRequest,
    until: Option<Instant>,
) -> Result<Option<StopReason>, RecvFailure> {
    let left = || until.map(|until| until.saturating_duration_since(Instant::now()));
    match mailbox.recv_timeout(left().unwrap_or(LIBRARY_WAIT).min(LIBRARY_WAIT)) {
        Ok(_) => {
            mailbox.requeue();
            return Ok(None);
        }
        Err(Error::TimedOut) if left() == Some(Duration::ZERO) => {
            return Ok(Some(StopReason::Quiet));
        }
        Err(Error::TimedOut) => {}
        Err(error) => return Err(error.into()),
    }
    if stop.requested() || !mailbox.arm()? {
        return Ok(None);
    }
    let timeout = left().map(|left| Timespec {
        tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    });
    let mut polled = [
        PollFd::new(&*mailbox, PollFlags::IN),
        PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
        // No events are requested, so that only an error of standard output is reported.
        PollFd::new(output.stdout(), PollFlags::empty()),
    ];
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) if !polled[2].revents().is_empty() => Ok(Some(StopReason::Unread)),
        Ok(_) | Err(Errno::INTR) => Ok(None),
        Err(errno) => Err(RecvFailure::Poll(errno.into())),
    }
}

/// Prints the senders that were refused, with the reasons. A failure to print is ignored.
fn print_errors(mailbox: &mut Mailbox) {
    for fault in mailbox.take_errors() {
        let _ = writeln!(io::stderr(), "tontine: {fault}");
    }
}
