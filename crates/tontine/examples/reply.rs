//! Requests and replies: a lane has one direction, so each side has its own mailbox, and the
//! request contains the address for the reply.
//!
//! The server connects to an address that a client names, so it limits what a client can do: it
//! accepts lanes only from its own user (the default), waits at most 100 ms for a client, and keeps
//! at most 256 lanes, for which its descriptors suffice.
//!
//! `cargo run -p tontine --example reply`

use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use tontine::Error;
use tontine::mailbox::{Mailbox, Options, Sender};

/// Maximum wait for free space in a client's lane, after which the client receives no reply.
const TIMEOUT: Duration = Duration::from_millis(100);

/// Maximum number of clients whose lanes are kept.
const MOST_CLIENTS: usize = 256;

/// Returns a request: the address for the reply, a zero byte, and the question.
fn request(reply_to: &str, question: &[u8]) -> Vec<u8> {
    [reply_to.as_bytes(), b"\0", question].concat()
}

/// Replies to `count` requests with their text in capitals.
fn serve(mailbox: &mut Mailbox, count: usize) -> tontine::Result<()> {
    let mut clients: HashMap<String, Sender> = HashMap::new();
    for _ in 0..count {
        let message = mailbox.recv()?;
        let Some(zero) = message.iter().position(|&byte| byte == 0) else { continue };
        let Ok(reply_to) = std::str::from_utf8(&message[..zero]) else { continue };
        let answer = message[zero + 1..].to_ascii_uppercase();
        if !clients.contains_key(reply_to) {
            // A client that has ended, or never existed, receives no reply.
            let options = Options::new().handshake_timeout(TIMEOUT);
            let Ok(sender) = options.connect(reply_to) else { continue };
            if clients.len() == MOST_CLIENTS {
                clients.clear();
            }
            clients.insert(reply_to.to_owned(), sender);
        }
        let Some(client) = clients.get_mut(reply_to) else { continue };
        if let Err(error) = client.send_timeout(&answer, TIMEOUT) {
            eprintln!("no reply to {reply_to}: {error}");
            clients.remove(reply_to);
        }
    }
    // Clients still receive the messages in lanes that the server drops.
    Ok(())
}

pub(crate) fn main() -> tontine::Result<()> {
    let server = format!("@reply-server-{}", std::process::id());
    let client = format!("@reply-client-{}", std::process::id());

    // Usually these are two processes; here they are two threads, so that one command shows both.
    let mut requests = Mailbox::bind(&server)?;
    let serving = thread::spawn(move || serve(&mut requests, 2));

    let mut replies = Mailbox::bind(&client)?;
    let mut sender = Sender::connect(&server)?;
    for question in ["hello", "are you there?"] {
        sender.send(&request(&client, question.as_bytes()))?;
        match replies.recv_timeout(Duration::from_secs(5)) {
            Ok(reply) => println!("{question} -> {}", reply.escape_ascii()),
            // If the server died, it may have acted on the request. Client and server must handle
            // that, for example by a number in each request.
            Err(Error::TimedOut) => println!("{question} -> no reply; ask the successor"),
            Err(error) => return Err(error),
        }
    }
    serving.join().unwrap_or(Ok(()))
}
