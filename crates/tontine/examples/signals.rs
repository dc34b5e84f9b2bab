//! A program that takes its signals as values: SIGHUP reloads its configuration, SIGCHLD reports
//! the end of a child, and SIGTERM ends the program, which prints the signal's sender. In this
//! example the child sends the signals.
//!
//! `cargo run -p tontine --example signals`

use std::process::{Command, id};
use std::time::Duration;

use tontine::signal::{Blocked, ChildStatus, Signal, SignalChannel};

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    // This call must be the first in `main`: threads inherit the signal mask, and a runtime starts
    // threads.
    let blocked = Blocked::new([Signal::HUP, Signal::TERM, Signal::CHLD])?;
    let signals = blocked.channel(16)?;

    // The child receives the earlier mask; otherwise SIGTERM would not end it.
    let kill = format!("kill -HUP {0}; kill -TERM {0}; exit 3", id());
    let mut child = blocked.unblock_in(Command::new("sh").args(["-c", &kill])).spawn()?;
    serve(&signals)?;
    // SIGCHLD coalesces: one signal may represent several children, so wait for each child.
    println!("the child has ended: {}", child.wait()?);
    Ok(())
}

fn serve(signals: &SignalChannel<'_>) -> Result<(), Box<dyn std::error::Error>> {
    let (mut end_requested, mut child_ended) = (false, false);
    while !(end_requested && child_ended) {
        let info = signals.recv_timeout(Duration::from_secs(60))?.ok_or("no signal arrived")?;
        match info.signal() {
            Signal::HUP => println!("the configuration is reloaded"),
            Signal::TERM => {
                println!("pid {:?} of uid {:?} requests the end", info.pid(), info.uid());
                end_requested = true;
            }
            _ => {
                assert_eq!(info.child_status(), Some(ChildStatus::Exited(3)));
                child_ended = true;
            }
        }
    }
    Ok(())
}
