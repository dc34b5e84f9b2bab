//! ZeroMQ: PAIR sockets, and PUSH to PULL sockets, over `inproc` between threads (`zmq-inproc`) and
//! over `ipc` between processes (`zmq-ipc`). `zmq-ipc-monitored` also waits for the events of
//! `zmq_socket_monitor(3)`, by which ZeroMQ reports that a connection has ended.
//!
//! `zmq_send` returns when the message is in the library's own queue inside the process. A context
//! cannot be used across a fork, so each process creates its own context after the fork.

use crate::about::{AfterKill, Between, Death, Explored, Listing, Mechanism, RowKind};
use crate::operation::Operation;
use tontine_bench::about::Idling;

pub struct Inproc;

pub struct Ipc;

pub struct MonitoredIpc;

pub const INPROC: Mechanism = Mechanism {
    idle: Idling::Mediated,
    between: Between::Threads,
    is_peer: true,
    shared_up_to: usize::MAX,
    ..Mechanism::new(
        "zmq-inproc",
        Death::TakesBoth,
        &[
            Listing::new(RowKind::RoundTrip, "ZeroMQ PAIR sockets over inproc; two threads"),
            Listing::new(RowKind::Throughput, "ZeroMQ PUSH to PULL over inproc; threads"),
        ],
    )
};

pub const IPC: Mechanism = Mechanism {
    idle: Idling::Mediated,
    is_peer: true,
    shared_up_to: usize::MAX,
    explored: Some(Explored {
        caveat: "Unread messages are in the receiver's memory, messages in flight in the \
                 sender's: either vanish with the process, and ZeroMQ promises nothing else",
        // ZeroMQ's I/O threads continue to transmit a message after `send` has returned.
        settles: std::time::Duration::from_millis(20),
        ..Explored::new(
            "zeromq",
            "ZeroMQ, PUSH to PULL over ipc",
            &[Operation::Connect, Operation::Send, Operation::Receive, Operation::ReceiveEmpty],
            || 1_000,
        )
    }),
    ..Mechanism::new(
        "zmq-ipc",
        Death::LeavesOne { row: "zmq-ipc", survivor: AfterKill::Wedged },
        &[
            Listing::new(RowKind::RoundTrip, "ZeroMQ PAIR sockets over ipc; two processes"),
            Listing::new(RowKind::Throughput, "ZeroMQ PUSH to PULL over ipc; processes"),
            Listing::new(
                RowKind::Survival,
                "ZeroMQ PAIR sockets over ipc; waits for messages, asks no liveness API",
            ),
            Listing::new(RowKind::WakeUp, "ZeroMQ PAIR sockets over ipc"),
        ],
    )
};

pub const MONITORED_IPC: Mechanism = Mechanism {
    idle: Idling::Mediated,
    is_peer: true,
    ..Mechanism::new(
        "zmq-ipc-monitored",
        Death::LeavesOne { row: "zmq-ipc-monitored", survivor: AfterKill::Notified },
        &[Listing::new(
            RowKind::Survival,
            "the same; also waits for DISCONNECTED of the socket monitor, in the same zmq_poll",
        )
        .calling("poll, by zmq_poll on the socket and its monitor")],
    )
};

#[cfg(feature = "peers")]
pub use sockets::ZeroMqSocket;

#[cfg(feature = "peers")]
mod sockets;
