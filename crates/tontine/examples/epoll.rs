//! A mailbox in a program's own event loop, together with another descriptor that the program waits
//! on, here a pipe.
//!
//! `cargo run -p tontine --example epoll`

use std::io;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use tontine::Error;
use tontine::mailbox::{Mailbox, Sender};

const MAIL: u64 = 1;
const OTHER: u64 = 2;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = format!("@epoll-{}", std::process::id());
    let mut mailbox = Mailbox::bind(&address)?;
    let (stop, say_stop) = rustix::pipe::pipe()?;

    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let (mail, other) = (epoll::EventData::new_u64(MAIL), epoll::EventData::new_u64(OTHER));
    epoll::add(&set, &mailbox, mail, epoll::EventFlags::IN)?;
    epoll::add(&set, stop.as_fd(), other, epoll::EventFlags::IN)?;

    let sending = thread::spawn(move || -> io::Result<()> {
        let mut sender = Sender::connect(&address)?;
        for number in 0..3_u8 {
            thread::sleep(Duration::from_millis(5));
            sender.send(&[b'a' + number])?;
        }
        // Waits until the receiver has acknowledged all messages.
        sender.wait_acked(Some(Duration::from_secs(5)))?;
        rustix::io::write(&say_stop, b"stop")?;
        Ok(())
    });

    let mut events: Vec<epoll::Event> = Vec::with_capacity(8);
    'waiting: loop {
        // Receives until no message is left.
        loop {
            match mailbox.try_recv() {
                Ok(message) => println!("message: {}", message.escape_ascii()),
                Err(Error::WouldBlock) => break,
                Err(error) => return Err(error.into()),
            }
        }
        // Announces the wait and checks once more: `false` means that a message may have arrived.
        if !mailbox.arm()? {
            continue;
        }
        events.clear();
        // The wait needs a timeout, because only receiving calls drop senders that connect and send
        // nothing.
        let longest = Timespec { tv_sec: 5, tv_nsec: 0 };
        match epoll::wait(&set, spare_capacity(&mut events), Some(&longest)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        for event in &events {
            // The next iteration receives in any case.
            if event.data.u64() == OTHER {
                println!("the other descriptor says stop");
                break 'waiting;
            }
        }
    }
    sending.join().map_err(|_| "the sender panicked")??;
    Ok(())
}
