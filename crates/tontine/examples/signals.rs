//! A program that takes its signals as values: it reads its configuration again at SIGHUP, counts
//! the children that end, and ends by SIGTERM, of which it says who sent it. Here it sends them to
//! itself.
//!
//! `cargo run -p tontine --example signals`

use std::process::{Command, id};
use std::time::Duration;

use tontine::signal::{Blocked, Channel, Child, Signal};

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    // First of all: threads inherit what is blocked, and a runtime starts some.
    let blocked = Blocked::new([Signal::HUP, Signal::TERM, Signal::CHLD])?;
    let signals = blocked.channel(16)?;

    // What is started gets the mask of before, or SIGTERM would not end it.
    let kill = format!("kill -HUP {0}; kill -TERM {0}; exit 3", id());
    let mut child = blocked.unblock_in(Command::new("sh").args(["-c", &kill])).spawn()?;
    serve(&signals)?;
    // A standard signal is one, however many children have ended: each is waited for.
    println!("the child has ended: {}", child.wait()?);
    Ok(())
}

fn serve(signals: &Channel<'_>) -> Result<(), Box<dyn std::error::Error>> {
    let (mut told_to_end, mut child_ended) = (false, false);
    while !(told_to_end && child_ended) {
        let one = signals.recv_timeout(Duration::from_secs(60))?.ok_or("nothing came")?;
        match one.signal() {
            Signal::HUP => println!("the configuration is read again"),
            Signal::TERM => {
                println!("pid {:?} of uid {:?} says: end", one.pid(), one.uid());
                told_to_end = true;
            }
            _ => {
                assert_eq!(one.child(), Some(Child::Exited(3)));
                child_ended = true;
            }
        }
    }
    Ok(())
}
