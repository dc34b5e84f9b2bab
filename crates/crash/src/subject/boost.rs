//! `boost-message-queue`: Boost.Interprocess's `message_queue`, driven by a C++ actor of its own.
//!
//! The actor's text is `boost/message_queue.cpp`; it is compiled when the subject is asked for,
//! with the machine's `c++` and its Boost headers.

use std::io;
use std::process::Command;

use super::{End, Endpoint, Kind, Operation, Prepared, Queue, Subject};
use crate::place::Place;
use crate::trouble::{During, Result, Trouble};

const SOURCE: &str = include_str!("../../boost/message_queue.cpp");

pub(super) struct MessageQueue;

impl Subject for MessageQueue {
    fn name(&self) -> &'static str {
        "boost-message-queue"
    }

    fn summary(&self) -> &'static str {
        "Boost.Interprocess, message_queue"
    }

    fn caveat(&self) -> &'static str {
        "Its mutex and condition variables are process-shared and not robust"
    }

    fn operations(&self) -> &'static [Operation] {
        &Operation::OF_A_BOUNDED_QUEUE
    }

    fn prepare(&self) -> Result<Prepared> {
        let folder = tempfile::tempdir().setting_up("mkdir of a temporary folder")?;
        let source = folder.path().join("message_queue.cpp");
        let program = folder.path().join("message_queue");
        std::fs::write(&source, SOURCE).setting_up("writing the C++ actor's text")?;
        let compiled = Command::new("c++")
            .args(["-std=c++17", "-O2", "-o"])
            .arg(&program)
            .arg(&source)
            .args(["-pthread", "-lrt"])
            .output()
            .setting_up("c++")?;
        if compiled.status.success() {
            return Ok(Prepared { program: Some(program), folder: Some(folder) });
        }
        let said = String::from_utf8_lossy(&compiled.stderr);
        let first = said.lines().find(|line| line.contains("error")).unwrap_or("no reason given");
        Err(if first.contains("boost/") && first.contains("No such file") {
            Trouble::skip("no Boost headers (Debian: libboost-dev)")
        } else {
            Trouble::fail(format!("c++ refuses the actor's text: {first}"))
        })
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Queue(self)
    }
}

impl Queue for MessageQueue {
    /// As many as the C++ actor makes room for.
    fn capacity(&self) -> u32 {
        4
    }

    fn open(&self, _place: &Place, _end: End) -> io::Result<Box<dyn Endpoint>> {
        Err(io::Error::other("its ends are opened by the C++ actor"))
    }
}
