//! The definition of the command line, for parsing, `--help`, the manual page and the completions.

mod bridge;

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tontine_command::{Documentation, WIDTH};

pub(crate) use bridge::{Bridge, BridgeCommand, BridgeStatus, CarrierName, RunGateway};

/// Pass messages that survive `kill -9`.
#[derive(Debug, Parser)]
#[command(name = "tontine", version, max_term_width = WIDTH, arg_required_else_help = true)]
#[command(after_help = "\
Start with:
  tontine recv @jobs                  receive messages; in another terminal:
  echo hello | tontine send @jobs     send one message

Commands of other programs, which are installed separately:
  tontine measure, compare, explain, list, doctor, crash
                                      tontine-measure: measure this machine
  tontine unix                        tontine-unix: a virtual Unix

Examples and exit statuses of a command: tontine help COMMAND")]
pub(crate) struct TontineArguments {
    #[command(subcommand)]
    pub(crate) command: TontineCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TontineCommand {
    /// Receive messages at a path and print them, one per line.
    Recv(Recv),
    /// Send standard input to a path, each line as a message.
    Send(Send),
    /// Carry mailboxes to other hosts, as a gateway.
    Bridge(Bridge),
    #[command(flatten)]
    Documentation(Documentation),
    /// Run another program of Tontine: its name and its arguments.
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

#[derive(Debug, Args)]
#[command(after_help = "\
A message is acknowledged when its line is on standard output. If the receiver \
dies before that, its successor gets the message: none is lost, and a line may \
be printed twice.

Ctrl-C, SIGTERM, SIGHUP and the end of the process that reads standard output \
close the mailbox and remove the socket. Senders keep what was not \
acknowledged. PATH.lock stays: it keeps two receivers apart.

Examples:
  tontine recv /run/user/1000/jobs           prints messages until stopped
  tontine recv --count 1 --timeout 5 @jobs   waits 5 seconds for one message
  tontine recv --wait /run/user/1000/jobs    takes over when the receiver dies
  tontine recv                               in a systemd unit with a socket
  tontine recv --framing length @jobs > log  keeps messages of any bytes; again:
  tontine send --framing length @jobs < log

Exit status:
  0        --count messages were printed; or, without --count, --timeout
           passed or standard output lost its reader
  1        any other failure: PATH has a live receiver, fewer than --count
           messages arrived, …
  2        wrong usage
  128 + N  stopped by signal N")]
pub(crate) struct Recv {
    /// Path to receive at, or @ and a name that needs no directory; without it, the socket that a
    /// service manager passed (ListenSequentialPacket= of a systemd unit).
    #[arg(value_name = "PATH")]
    pub(crate) address: Option<OsString>,

    #[command(flatten)]
    pub(crate) framing: FramingArguments,

    /// End after N messages.
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,

    /// End when no message has arrived for this long.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) timeout: Option<Duration>,

    /// Order of messages of different senders. By default causal, if this machine has the clock for
    /// it, else by-sender; with --order causal, the lack of the clock is an error.
    #[arg(long, value_name = "ORDER", value_enum)]
    pub(crate) order: Option<OrderName>,

    /// If PATH has a live receiver, wait until it ends.
    #[arg(long)]
    pub(crate) wait: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The command ends when the receiver has acknowledged every message. If the \
receiver ends or dies first, the command fails and reports how many messages \
are unread.

Examples:
  seq 3 | tontine send /run/user/1000/jobs
  seq 3 | tontine send --wait @jobs          survives the receiver's death
  seq 3 | tontine send --timeout 5 @jobs     waits 5 seconds at most
  find . -print0 | tontine send --framing nul @jobs
  tontine send --unread @jobs < todo > left  `left`: what a dead receiver left

Exit status:
  0        the receiver has acknowledged every message
  1        any other failure: PATH has no receiver, the receiver died, --timeout
           passed, …
  2        wrong usage")]
pub(crate) struct Send {
    /// Path to send to, or @ and a name that needs no directory.
    #[arg(value_name = "PATH")]
    pub(crate) address: OsString,

    #[command(flatten)]
    pub(crate) framing: FramingArguments,

    /// Wait for a receiver; if it ends or dies, wait for the next one, which gets the messages that
    /// were not acknowledged.
    #[arg(long)]
    pub(crate) wait: bool,

    /// If the receiver ends or dies, print the messages that it did not acknowledge on standard
    /// output.
    #[arg(long, conflicts_with = "wait")]
    pub(crate) unread: bool,

    /// Wait at most this long for a receiver, for space for one message, and at the end for
    /// acknowledgements.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct FramingArguments {
    /// Format of the messages in standard input or output.
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "line")]
    framing: Framing,

    /// Short for --framing nul.
    #[arg(short = '0', long, conflicts_with = "framing")]
    null: bool,
}

impl FramingArguments {
    /// Returns the chosen format.
    pub(crate) fn get(&self) -> Framing {
        if self.null { Framing::Nul } else { self.framing }
    }
}

/// The order of messages of different senders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderName {
    /// A message that was sent after another is received after it.
    Causal,
    /// Each sender's own order only.
    BySender,
}

/// The format of messages in a stream of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Framing {
    /// A newline ends each message.
    Line,
    /// NUL ends each message, as with find -print0 and xargs -0.
    Nul,
    /// The length in bytes precedes each message: 4 bytes, most significant first. For messages
    /// of any bytes.
    Length,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "expected a number of seconds, like 0.5".into())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatusFormat {
    /// Text for a terminal.
    Text,
    /// JSON, for programs.
    Json,
}
