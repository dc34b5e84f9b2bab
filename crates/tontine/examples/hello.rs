//! Sends one message to a mailbox, in five lines: `cargo run -p tontine --example hello`.

use tontine::mailbox::{Mailbox, Sender};

pub(crate) fn main() -> tontine::Result<()> {
    let address = format!("@hello-{}", std::process::id());
    let mut mailbox = Mailbox::bind(&address)?;
    let mut sender = Sender::connect(&address)?; // from here or from any other process
    sender.send(b"hello")?;
    println!("{}", mailbox.recv()?.escape_ascii());
    Ok(())
}
