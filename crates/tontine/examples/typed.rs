//! Typed messages through any serialisation library, here postcard. The bytes come from another
//! process, so bytes that do not decode are an error, not a reason to panic.
//!
//! `cargo run -p tontine --example typed`

use std::error::Error;

use serde::{Deserialize, Serialize};
use tontine::mailbox::{Mailbox, Sender};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Job {
    Resize { file: String, width: u32, height: u32 },
    Stop,
}

/// Serialises the job into the lane, without a buffer in between.
fn send(sender: &mut Sender, job: &Job) -> Result<(), Box<dyn Error>> {
    let length = postcard::experimental::serialized_size(job)?;
    let mut space = sender.reserve(length)?;
    postcard::to_slice(job, &mut space)?;
    Ok(space.commit()?)
}

fn receive(mailbox: &mut Mailbox) -> Result<Job, Box<dyn Error>> {
    Ok(postcard::from_bytes(&mailbox.recv()?)?)
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let address = format!("@typed-{}", std::process::id());
    let mut mailbox = Mailbox::bind(&address)?;
    let mut sender = Sender::connect(&address)?;

    let job = Job::Resize { file: "otter.png".into(), width: 640, height: 480 };
    send(&mut sender, &job)?;
    send(&mut sender, &Job::Stop)?;
    assert_eq!(receive(&mut mailbox)?, job);
    assert_eq!(receive(&mut mailbox)?, Job::Stop);

    sender.send(b"\xffnot a job")?;
    let refused = receive(&mut mailbox).expect_err("it does not decode");
    println!("two jobs arrived; the third message is not a job: {refused}");
    Ok(())
}
