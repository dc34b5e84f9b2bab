//! Hostile receivers: raw sockets and memory against an honest sender. The sender does not crash,
//! and a call with a deadline meets it, whatever the receiver does.

#![allow(unsafe_code, reason = "setuid in a forked child, and a kill")]

use crate::raw;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::asleep::until_asleep;
use crate::common::*;
use crate::raw::Memory;
use rustix::net::SocketAddrUnix;
use tontine::Error;
use tontine::mailbox::{Mailbox, OnDeath, Options, Sender};

/// A timeout that expires.
const SHORT: Duration = Duration::from_millis(50);

/// Creates a lane to a receiver that has been honest so far.
fn open_lane(options: &Options) -> raw::Receiver {
    raw::receiver(&place().path, options, 4096)
}

/// Fills the lane until a send times out, and checks that it does so in time.
fn fill(sender: &mut Sender) {
    let started = Instant::now();
    let filled = loop {
        match sender.send_timeout(&[7; 1000], SHORT) {
            Ok(()) => assert!(started.elapsed() < AMPLE, "the lane never fills"),
            Err(error) => break error,
        }
    };
    assert_eq!(filled, Error::TimedOut);
    let started = Instant::now();
    assert_eq!(sender.send_timeout(&[7; 1000], SHORT), Err(Error::TimedOut));
    assert_eq!(sender.wait_acked(Some(SHORT)), Err(Error::TimedOut));
    assert!(started.elapsed() < AMPLE / 2, "{:?}", started.elapsed());
}

#[test]
fn silent_receiver_does_not_delay_past_deadline() {
    alone!();
    let place = place();
    let listener = raw::listen(&place.path);
    let mut sender = Sender::connect(&place.path).expect("connects");
    fill(&mut sender);
    drop(listener);
    let mut lane = open_lane(&Options::new());
    fill(&mut lane.sender);
}

#[test]
fn garbled_welcome_is_protocol_error() {
    alone!();
    let (good_page, good, bell) = (raw::process_page(1), raw::control(0, 4096), raw::pair());
    let no_page = Memory::new(4096);
    let stray = raw::process_page(1);
    stray.half(12).store(2000, Ordering::Relaxed);
    let odd = raw::control(0, 4096);
    odd.half(8).store(9, Ordering::Relaxed);
    let unsealed = raw::memfd(4096);
    let (pipe, _) = rustix::pipe::pipe().expect("a pipe");
    let folder = tempfile::tempdir().expect("a folder");
    let service = UnixDatagram::bind(folder.path().join("service")).expect("binds");
    let datagrams = UnixDatagram::unbound().expect("a socket");
    datagrams.connect(folder.path().join("service")).expect("connects");
    let (page, control, ring) = (good_page.fd.as_fd(), good.fd.as_fd(), bell.1.as_fd());
    let welcome = raw::note(raw::WELCOME, &[0, 0]);
    let cases = [
        ("no descriptors", welcome.clone(), vec![]),
        ("four", welcome.clone(), vec![page, control, ring, ring]),
        ("no page", welcome.clone(), vec![no_page.fd.as_fd(), control, ring]),
        ("a stray liveness word", welcome.clone(), vec![stray.fd.as_fd(), control, ring]),
        ("no control page", welcome.clone(), vec![page, no_page.fd.as_fd(), ring]),
        ("another version", welcome.clone(), vec![page, odd.fd.as_fd(), ring]),
        ("unsealed", welcome.clone(), vec![page, unsealed.as_fd(), ring]),
        ("a blocking doorbell", welcome.clone(), vec![page, control, pipe.as_fd()]),
        ("a doorbell elsewhere", welcome.clone(), vec![page, control, datagrams.as_fd()]),
        ("slot 1024", raw::note(raw::WELCOME, &[0, 1024]), vec![page, control, ring]),
        ("undefined fences", raw::note(raw::WELCOME, &[2, 0]), vec![page, control, ring]),
        ("cut off", welcome[..12].to_vec(), vec![page, control, ring]),
        ("too long", [welcome.as_slice(), &[0; 100]].concat(), vec![page, control, ring]),
        ("a sender's message", raw::note(raw::WANT, &[0, 0]), vec![]),
        ("nothing", vec![], vec![page]),
    ];
    for (name, bytes, fds) in cases {
        let place = place();
        let listener = raw::listen(&place.path);
        let mut sender = Sender::connect(&place.path).expect("connects");
        sender.send(b"unread").expect("space in the first chunk");
        let socket = raw::accept(&listener);
        assert!(raw::send(&socket, &bytes, &fds));
        let error = sender.send(b"more").expect_err(name);
        assert_eq!(error.errno(), libc::EPROTO, "{name}: {error}");
        assert_eq!(sender.take_unread().expect("the connection has ended"), [b"unread"], "{name}");
    }
    service.set_nonblocking(true).expect("set");
    service.recv(&mut [0]).expect_err("no ring reaches the service");
}

/// Regression: the kernel chose the name of a sender's socket from 2^20 automatic names. While
/// another user occupied 95,000 of them, `connect` took up to 9.7 s.
#[test]
fn sockets_of_lanes_have_no_automatic_names() {
    alone!();
    let place = place();
    let listener = raw::listen(&place.path);
    let _sender = Sender::connect(&place.path).expect("connects");
    let connected = raw::accept(&listener);
    let (ours, theirs) = raw::pair();
    let _second = Sender::from_socket(ours).expect("a lane");
    for socket in [connected, theirs] {
        let name = rustix::net::getpeername(&socket).expect("a connection").expect("a name");
        let name = SocketAddrUnix::try_from(name).expect("a Unix socket");
        assert_eq!(name.abstract_name().expect("a random name").len(), 16);
    }
}

/// Regression: a receiver passed a socket of a third process as its doorbell, and the sender rang
/// there with its own credentials.
#[test]
fn doorbell_made_by_third_process_is_refused() {
    alone!();
    let place = place();
    let listener = raw::listen(&place.path);
    let mut sender = Sender::connect(&place.path).expect("connects");
    let socket = raw::accept(&listener);
    // This process has made the pair, and another one sends WELCOME.
    let bell = raw::pair();
    let receiver = fork(|| {
        let (page, control) = (raw::process_page(1), raw::control(0, 4096));
        raw::welcome(&socket, page.fd.as_fd(), &control, bell.1.as_fd());
    });
    assert_eq!(reap(receiver), 0);
    let error = sender.send(b"x").expect_err("refused");
    assert_eq!(error.errno(), libc::EPROTO, "{error}");
    assert!(!raw::is_readable(&bell.0), "a ring reached another process");
}

#[test]
fn refusal_and_version_mismatch_reach_sender() {
    alone!();
    for (bytes, expected) in [
        (raw::note(raw::REFUSED, &[libc::ENOSPC as u32]), libc::ECONNABORTED),
        (raw::note(raw::REFUSED, &[libc::EACCES as u32]), libc::EACCES),
        (raw::note(raw::REFUSED, &[u32::MAX]), libc::ECONNABORTED),
        ([[9, 0, 0, 0], [5, 0, 0, 0]].concat(), libc::EPROTONOSUPPORT),
    ] {
        let place = place();
        let listener = raw::listen(&place.path);
        let mut sender = Sender::connect(&place.path).expect("connects");
        assert!(raw::send(&raw::accept(&listener), &bytes, &[]));
        let error = sender.send(b"more").expect_err("refused");
        assert_eq!(error.errno(), expected, "{error}");
    }
}

#[test]
fn impossible_positions_are_protocol_errors() {
    alone!();
    for position in [1 << 20, 1024, 20, u64::MAX, u64::MAX - 7] {
        let mut lane = open_lane(&Options::new().lane_cap(8192));
        for number in 0..10_u8 {
            lane.sender.send(&[number; 8]).expect("sent");
        }
        lane.control.put(128, 32);
        lane.sender.service().expect("two messages are read");
        lane.control.put(128, position);
        let error = lane.sender.wait_acked(Some(AMPLE)).expect_err("an invalid position");
        assert_eq!(error.errno(), libc::EPROTO, "{position}: {error}");
        assert_eq!(
            lane.sender.take_unread().expect("the connection has ended").len(),
            8,
            "{position}"
        );
    }
    // The notification of free space has an impossible position.
    let mut lane = open_lane(&Options::new().lane_cap(8192));
    lane.control.put(192, 1 << 20);
    let error = loop {
        if let Err(error) = lane.sender.send_timeout(&[1; 500], AMPLE) {
            break error;
        }
    };
    assert_eq!(error.errno(), libc::EPROTO, "{error}");
    drop(lane);
    // The position moves backwards.
    let mut lane = open_lane(&Options::new());
    lane.sender.send(&[1; 24]).expect("sent");
    lane.control.put(128, 32);
    lane.sender.wait_acked(Some(AMPLE)).expect("the receiver acknowledges");
    lane.control.put(128, 8);
    assert_eq!(lane.sender.service().expect_err("an invalid position").errno(), libc::EPROTO);
}

/// Regression: a receiver that stopped in the middle of a message made its sender read headers from
/// the message's bytes. One of these headers was a `next`, which led to a chunk that begins later,
/// and to an overflow.
#[test]
fn position_inside_message_loses_only_messages() {
    alone!();
    let mut lane = open_lane(&Options::new());
    lane.control.put(72, 1 << 20);
    let fake = [raw::header(3, 13), raw::header(2, 1 << 31), raw::header(1, 1 << 20)];
    for word in fake {
        lane.sender.send(&word.to_le_bytes().repeat(100)).expect("sent");
    }
    while lane.sender.try_send(&[7; 900]).is_ok() {}
    lane.control.put(128, 16);
    lane.sender.wait_acked(Some(SHORT)).expect_err("unread messages remain");
    lane.page.half(64).store(1 << 30, Ordering::Relaxed);
    let unread = lane.sender.take_unread().expect("the receiver appears dead");
    assert!(unread.iter().all(|message| message.len() <= 1 << 20), "{}", unread.len());
}

#[test]
fn excessive_grants_do_not_exceed_sender_cap() {
    alone!();
    let mut lane = open_lane(&Options::new().lane_cap(1 << 16));
    lane.control.put(72, u64::MAX);
    fill(&mut lane.sender);
    assert!(lane.sender.unread_bytes() <= 1 << 16);
    lane.control.put(72, 0);
    fill(&mut lane.sender);
    // The receiver sets undefined state bits, and permanently requests memory back.
    lane.control.half(64).store(!1, Ordering::Relaxed);
    fill(&mut lane.sender);
    lane.control.half(64).store(1, Ordering::Relaxed);
    assert_eq!(lane.sender.send(b"x").expect_err("closed").errno(), libc::EPIPE);
}

/// Regression: the doorbell was an eventfd. A receiver that filled it, cleared `O_NONBLOCK` and
/// claimed to sleep blocked every `send` indefinitely, even a call that must not wait.
#[test]
fn full_or_closed_doorbell_does_not_block_sends() {
    alone!();
    for drop_listen_end in [false, true] {
        let mut lane = open_lane(&Options::new());
        let (listen_end, ring_end) = &lane.bell;
        rustix::io::ioctl_fionbio(ring_end, false).expect("made blocking");
        let flags = rustix::net::SendFlags::DONTWAIT;
        while rustix::net::send(ring_end, &[1; 1000], flags).is_ok() {}
        if drop_listen_end {
            rustix::net::shutdown(listen_end, rustix::net::Shutdown::Both).expect("shut");
        }
        lane.page.half(128).store(1, Ordering::Relaxed);
        for _ in 0..50 {
            lane.sender.try_send(b"wake up").expect("the lane has space");
        }
    }
}

/// Regression: a sender reads its receiver's control messages until the queue is empty. If the
/// receiver sent them faster, the call never returned.
#[test]
fn flood_of_control_messages_does_not_block_sender() {
    alone!();
    let mut lane = open_lane(&Options::new());
    let (socket, stop) = (&lane.socket, AtomicBool::new(false));
    thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    raw::send(socket, &raw::note(raw::SPACE, &[]), &[]);
                }
            });
        }
        fill(&mut lane.sender);
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn false_liveness_word_is_overruled_by_end_or_hang_up() {
    alone!();
    let place = place();
    for hold_connection in [false, true] {
        let _ = std::fs::remove_file(&place.path);
        let listener = raw::listen(&place.path);
        // The forked process's child keeps the connection open, so only the pidfd reports the end.
        let (holder, sending) = (Signal::new(), std::process::id().cast_signed());
        let child = fork(|| {
            let socket = raw::accept(&listener);
            assert_eq!(raw::receive(&socket).0, raw::HELLO);
            let (page, control, bell) = (raw::process_page(1), raw::control(0, 4096), raw::pair());
            raw::welcome(&socket, page.fd.as_fd(), &control, bell.1.as_fd());
            if hold_connection {
                holder.give(fork(sleep_indefinitely));
            }
            until_asleep(sending);
        });
        let mut sender = Sender::connect(&place.path).expect("connects");
        let error = loop {
            if let Err(error) = sender.send_timeout(&[1; 1000], AMPLE) {
                break error;
            }
        };
        assert_eq!(error.errno(), libc::EOWNERDEAD, "{error}");
        assert_eq!(reap(child), 0);
        if hold_connection {
            // SAFETY: the child started this process, which no process of the test reaps.
            unsafe { libc::kill(holder.take(), libc::SIGKILL) };
        }
    }
}

/// Regression: the search for a successor used the timeout of a first connection, and reported an
/// absent successor as an error even to senders that wait.
#[test]
fn silent_successor_does_not_delay_past_deadline() {
    alone!();
    let options = Options::new().on_death(OnDeath::WaitForSuccessor);
    let place = place();
    let path = &place.path;
    let mut lane = raw::receiver(path, &options.handshake_timeout(10 * AMPLE), 4096);
    let socket = raw::socket();
    let address = SocketAddrUnix::new(path).expect("a path");
    rustix::net::bind(&socket, &address).expect("bind");
    rustix::net::listen(&socket, 0).expect("listen");
    let _first = raw::dial(path);
    lane.page.half(64).store(1 << 30, Ordering::Relaxed);
    let started = Instant::now();
    for _ in 0..3 {
        match lane.sender.send_timeout(&[1; 3000], SHORT) {
            Ok(()) | Err(Error::TimedOut) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(started.elapsed() < AMPLE, "{:?}", started.elapsed());
}

#[test]
fn other_user_is_refused_unless_allowed() {
    alone!();
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can change the user");
        return;
    }
    let place = place();
    let folder = place.path.parent().expect("a folder");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder, open).expect("chmod");
    for allowed in [false, true] {
        let mut options = Options::new().mode(0o666);
        if allowed {
            options = options.allow_uid(NOBODY);
        }
        let mut mailbox = options.bind(&place.path).expect("binds");
        let child = fork(|| {
            // SAFETY: the child is single-threaded, and only drops its privilege.
            assert_eq!(unsafe { libc::setuid(NOBODY) }, 0);
            let refused = Sender::connect(&place.path).and_then(|mut sender| {
                sender.send(b"hello")?;
                sender.wait_acked(Some(AMPLE))
            });
            assert_eq!(refused.expect_err("the owner is another user").errno(), libc::EACCES);
            let answer = Options::new().allow_uid(0).connect(&place.path).and_then(|mut sender| {
                sender.send(b"hello")?;
                sender.wait_acked(Some(AMPLE))
            });
            match answer {
                Ok(()) => assert!(allowed),
                Err(error) => assert!(!allowed && error.errno() == libc::EACCES, "{error}"),
            }
        });
        let started = Instant::now();
        let mut got = 0;
        let status = loop {
            if let Some(status) = ended(child) {
                break status;
            }
            got += usize::from(mailbox.recv_timeout(Duration::from_millis(5)).is_ok());
            mailbox.ack();
            assert!(started.elapsed() < AMPLE);
        };
        assert_eq!(status, 0, "allowed: {allowed}, {got} received, {:?}", mailbox.take_errors());
        if !allowed {
            assert_eq!(got, 0);
        }
        Mailbox::close(mailbox);
    }
}
