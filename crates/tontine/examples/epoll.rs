//! A mailbox in a program's own event loop, beside its other descriptors: here a pipe that stands
//! for whatever else the program waits for.
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
    epoll::add(&set, mailbox.descriptor(), mail, epoll::EventFlags::IN)?;
    epoll::add(&set, stop.as_fd(), other, epoll::EventFlags::IN)?;

    let sending = thread::spawn(move || -> io::Result<()> {
        let mut sender = Sender::connect(&address)?;
        for number in 0..3_u8 {
            thread::sleep(Duration::from_millis(5));
            sender.send(&[b'a' + number])?;
        }
        // Until then the lane keeps the messages; so does a lane whose sender has ended.
        sender.wait_read(Some(Duration::from_secs(5)))?;
        rustix::io::write(&say_stop, b"stop")?;
        Ok(())
    });

    let mut events: Vec<epoll::Event> = Vec::with_capacity(8);
    'waiting: loop {
        // Everything that is there, until there is nothing.
        loop {
            match mailbox.try_recv() {
                Ok(message) => println!("mail: {}", message.escape_ascii()),
                Err(Error::WouldBlock) => break,
                Err(error) => return Err(error.into()),
            }
        }
        // Says that we are about to sleep, and looks once more: `false` means that mail has come.
        if !mailbox.arm()? {
            continue;
        }
        events.clear();
        // Not for ever: newcomers who say nothing are dropped only when somebody looks.
        let longest = Timespec { tv_sec: 5, tv_nsec: 0 };
        match epoll::wait(&set, spare_capacity(&mut events), Some(&longest)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        for event in &events {
            // Mail is looked for in any case, at the top.
            if event.data.u64() == OTHER {
                println!("the other descriptor says stop");
                break 'waiting;
            }
        }
    }
    sending.join().map_err(|_| "the sender panicked")??;
    Ok(())
}
