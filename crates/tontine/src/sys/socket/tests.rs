//! Tests of the socket functions on real sockets.

#![allow(unsafe_code, reason = "words of a region")]

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use rustix::fs::{FlockOperation, flock};
use rustix::net::RecvFlags;
use rustix::process::{Resource, Rlimit, setrlimit};

use super::receive::MAX_PASSED;
use super::*;
use crate::life::PathLock;
use crate::sys::child::{in_child, no_children};
use crate::sys::region::OwnRegion;
use crate::sys::{doorbell, pidfd};

fn next(fd: &OwnedFd) -> Option<receive::ReceivedPacket> {
    receive(fd, &mut [0; 64]).expect("receive")
}

fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("pipe")
}

/// Receives the next message, with these expected descriptors.
fn next_passed(fd: &OwnedFd, expected: &[DescriptorKind]) -> Option<PassedMessage> {
    let expected = expected.to_vec();
    receive_passed(fd, 64, true, move |_| expected).expect("received")
}

#[test]
fn message_with_memory_and_doorbell_is_mapped() {
    let (ours, theirs) = pair().expect("pair");
    pass_credentials(&theirs).expect("pass credentials");
    assert!(next(&theirs).is_none());
    let (own, memory) = OwnRegion::new("test", 4096).expect("region");
    // SAFETY: the byte is inside this process's own mapping.
    unsafe { own.base().write(7) };
    let (ear, button) = doorbell::make().expect("bell");
    let sent = send(&ours, b"hello", &[memory.as_fd(), button.as_fd()]).expect("send");
    assert_eq!(sent, SendResult::Yes);
    drop((memory, button));

    let seen = next(&theirs).expect("a message");
    assert!(seen.has_descriptors && seen.len == 5 && !seen.hung_up);
    let passed = next_passed(&theirs, &[DescriptorKind::Memory(4096), DescriptorKind::Doorbell]);
    let passed = passed.expect("a message");
    assert_eq!((&passed.bytes[..], passed.count, passed.oversize), (&b"hello"[..], 2, false));
    let from = passed.from.expect("credentials");
    assert_eq!((from.pid, from.uid), (std::process::id(), rustix::process::getuid().as_raw()));
    assert_eq!(from.gid, rustix::process::getgid().as_raw());
    // Kernels before 6.5 attach no pidfd.
    if let Some(sender) = &passed.pidfd {
        assert!(!pidfd::has_ended(sender));
    }
    let doorbell = passed.doorbell.expect("a doorbell");
    for fd in [Some(doorbell.as_fd()), passed.pidfd.as_ref().map(AsFd::as_fd)] {
        let flags = fd.map(|fd| rustix::io::fcntl_getfd(fd).expect("flags"));
        assert!(flags.is_none_or(|flags| flags.contains(rustix::io::FdFlags::CLOEXEC)));
    }
    doorbell::ring(&doorbell);
    assert_eq!(rustix::net::recv(&ear, &mut [0_u8; 8], RecvFlags::DONTWAIT), Ok((1, 1)));
    let memory = passed.memory.expect("sealed memory");
    // SAFETY: the byte is inside the mapping.
    assert_eq!(unsafe { memory[0].base().read_volatile() }, 7);
    assert!(next(&theirs).is_none(), "the message was removed from the queue");
}

/// Regression: descriptors of the wrong kind were closed in the process's table. Such a close waits
/// for a FUSE server, and drops the process's record locks. They no longer enter that table.
#[test]
fn unexpected_descriptors_stay_queued_outside_table() {
    let (ours, theirs) = pair().expect("pair");
    pass_credentials(&theirs).expect("pass credentials");
    let (reader, writer) = pipe();
    let open = || std::fs::read_dir("/proc/self/fd").expect("a folder").count();
    assert!(in_child(|| {
        let before = open();
        for (count, fds) in [
            (MOST_DESCRIPTORS, vec![ours.as_fd(); MOST_DESCRIPTORS]),
            (2, vec![reader.as_fd(), writer.as_fd()]),
            (1, vec![ours.as_fd()]),
        ] {
            let (here, there) = pair().expect("pair");
            pass_credentials(&there).expect("pass credentials");
            assert_eq!(send(&here, b"many", &fds).expect("send"), SendResult::Yes);
            for expected in
                [&[][..], &[DescriptorKind::Memory(4096)], &[DescriptorKind::Memory(4096); 2]]
            {
                let passed = next_passed(&there, expected).expect("a message");
                assert!((count.min(MAX_PASSED)..=count).contains(&passed.count));
                assert!(passed.memory.map_or(true, |memory| memory.is_empty()));
            }
            assert!(next(&there).is_some_and(|seen| seen.has_descriptors), "it stays queued");
        }
        // One more descriptor is allowed: the socket that lends descriptors to threads.
        open() <= before + 1
    }));
}

#[test]
fn messages_are_received_before_hang_up() {
    let _alone = no_children();
    let (ours, theirs) = pair().expect("pair");
    pass_credentials(&theirs).expect("pass credentials");
    // An unread message in the other direction makes the kernel return ECONNRESET first.
    assert_eq!(send(&theirs, b"unread", &[]).expect("send"), SendResult::Yes);
    assert_eq!(send(&ours, b"first", &[]).expect("send"), SendResult::Yes);
    assert_eq!(send(&ours, b"second", &[]).expect("send"), SendResult::Yes);
    drop(ours);
    assert_eq!(next(&theirs).map(|got| (got.len, got.hung_up)), Some((5, false)));
    assert_eq!(next(&theirs).map(|got| (got.len, got.hung_up)), Some((6, false)));
    assert!(next(&theirs).is_some_and(|got| got.hung_up));
    assert!(next(&theirs).is_some_and(|got| got.hung_up), "the hang-up is permanent");
    assert_eq!(send(&theirs, b"late", &[]).expect("send"), SendResult::Gone);
}

#[test]
fn empty_message_with_credentials_is_not_hang_up() {
    let (ours, theirs) = pair().expect("pair");
    pass_credentials(&theirs).expect("pass credentials");
    assert_eq!(send(&ours, b"", &[]).expect("send"), SendResult::Yes);
    let got = next(&theirs).expect("a message");
    assert!(got.len == 0 && !got.hung_up && got.from.is_some());
    assert!(next(&theirs).is_none());
}

#[test]
fn message_longer_than_buffer_is_oversize() {
    let (ours, theirs) = pair().expect("pair");
    pass_credentials(&theirs).expect("pass credentials");
    assert_eq!(send(&ours, &[7; 100], &[]).expect("send"), SendResult::Yes);
    let mut bytes = [0; 64];
    let got = receive(&theirs, &mut bytes).expect("receive").expect("a message");
    assert!(got.oversize && got.len == 64 && bytes == [7; 64]);
    assert!(next(&theirs).is_none());
}

#[test]
fn send_to_full_queue_does_not_wait() {
    let (ours, theirs) = pair().expect("pair");
    let mut sent = 0;
    while send(&ours, &[0; 1000], &[]).expect("send") == SendResult::Yes {
        sent += 1;
        assert!(sent < 1_000_000, "the queue is never full");
    }
    assert!(next(&theirs).is_some());
    assert_eq!(send(&ours, &[0; 1000], &[]).expect("send"), SendResult::Yes);
}

#[test]
fn full_descriptor_table_keeps_message_queued() {
    // The kernel closes passed descriptors for which the table has no space, so a chunk would be
    // lost permanently. The test runs in a child, because it fills the descriptor table.
    assert!(in_child(|| {
        let (ours, theirs) = pair().expect("pair");
        pass_credentials(&theirs).expect("pass credentials");
        let (_own, memory) = OwnRegion::new("test", 4096).expect("region");
        let fds = [memory.as_fd(), memory.as_fd(), memory.as_fd()];
        assert_eq!(send(&ours, b"three", &fds).expect("send"), SendResult::Yes);

        let limit = Rlimit { current: Some(64), maximum: Some(64) };
        setrlimit(Resource::Nofile, limit).expect("setrlimit");
        let mut fillers: Vec<OwnedFd> = Vec::new();
        while let Ok(filler) = rustix::io::fcntl_dupfd_cloexec(&ours, 0) {
            fillers.push(filler);
        }
        let take = || receive_passed(&theirs, 64, true, |_| vec![DescriptorKind::Memory(4096); 3]);
        // The call needs one entry for the thread's socket, two for the pair, one for the pidfd.
        for _free in 0..=2 {
            let lack = take().expect_err("no free entry");
            assert_eq!(lack.errno(), libc::EMFILE);
            assert!(next(&theirs).is_some_and(|seen| seen.has_descriptors));
            fillers.pop();
        }
        fillers.clear();
        let passed = take().expect("free entries").expect("the same message");
        assert!(passed.memory.is_ok_and(|memory| memory.len() == 3));
        next(&theirs).is_none()
    }));
}

/// Closing a socket with unsent data and SO_LINGER waits. Here a peer's socket of this kind is in
/// the queue of a socket of this process, which is its last holder.
#[test]
fn queued_lingering_socket_does_not_delay_close() {
    let _alone = no_children();
    let listener = TcpListener::bind("127.0.0.1:0").expect("listener");
    let stream = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    let _silent = listener.accept().expect("accept");
    stream.set_nonblocking(true).expect("nonblocking");
    while std::io::Write::write(&mut &stream, &[0; 65536]).is_ok() {}
    stream.set_nonblocking(false).expect("blocking");
    let long = Duration::from_secs(40);
    sockopt::set_socket_linger(&stream, Some(long)).expect("linger");

    let (ours, theirs) = pair().expect("pair");
    assert_eq!(send(&ours, b"linger", &[stream.as_fd()]).expect("send"), SendResult::Yes);
    drop((stream, ours));
    let start = Instant::now();
    drop(PeerSocket::new(theirs).expect("socket"));
    assert!(start.elapsed() < long / 2, "closing took {:?}", start.elapsed());
}

/// Closing even a read-only descriptor of a file drops the record lock that the process holds on
/// that file. A peer could thereby cause a live receiver's address to be taken over.
#[test]
fn received_descriptor_drops_no_record_lock() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("address");
    let lock_path = folder.path().join("address.lock");
    let claimed = || {
        let path = path.clone();
        in_child(move || PathLock::acquire(&path).is_err())
    };
    assert!(in_child(|| {
        let _lock = PathLock::acquire(&path).expect("free");
        let (ours, theirs) = pair().expect("pair");
        pass_credentials(&theirs).expect("pass credentials");
        let file = std::fs::File::open(&lock_path).expect("readable");
        assert_eq!(send(&ours, b"lock", &[file.as_fd()]).expect("send"), SendResult::Yes);
        // The test's own descriptor must stay open until the process ends.
        std::mem::forget(file);
        assert!(claimed(), "before");
        let passed = next_passed(&theirs, &[DescriptorKind::Memory(4096)]).expect("a message");
        assert!(passed.memory.is_err());
        drop(passed);
        drop(PeerSocket::new(theirs).expect("socket"));
        std::thread::sleep(Duration::from_millis(50));
        claimed()
    }));
}

#[test]
fn abstract_name_binds_exclusively_and_connects() {
    let name = format!("tontine-test-{}", std::process::id());
    let deadline = Instant::now() + Duration::from_secs(60);
    let early = seqpacket().expect("socket");
    let error = connect_abstract(&early, &name, deadline).expect_err("no listener");
    assert_eq!(error, Error::NoMailbox { address: format!("@{name}") });

    let listener = seqpacket().expect("socket");
    bind_abstract(&listener, &name).expect("bind");
    pass_credentials(&listener).expect("pass credentials");
    listen(&listener, 4).expect("listen");
    assert!(accept(&listener).expect("accept").is_none());
    let rival = bind_abstract(seqpacket().expect("socket"), &name).expect_err("taken");
    assert_eq!(rival.errno(), libc::EADDRINUSE);

    connect_abstract(&early, &name, deadline).expect("connect");
    assert_eq!(send(&early, b"before", &[]).expect("send"), SendResult::Yes);
    let connection = accept(&listener).expect("accept").expect("a connection");
    let got = next(&connection).expect("a message");
    let from = got.from.expect("an option inherited from the listener");
    assert_eq!(from.pid, std::process::id());
}

#[test]
fn path_within_length_limits_binds_and_connects() {
    let _alone = no_children();
    let path = std::env::temp_dir().join(format!("tontine-socket-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = seqpacket().expect("socket");
    let absent = connect_path(&listener, &path, None).expect_err("no file");
    assert_eq!(absent.errno(), libc::ECONNREFUSED);
    bind_path(&listener, &SocketPath::new(&path).expect("short")).expect("bind");
    listen(&listener, 1).expect("listen");
    connect_path(seqpacket().expect("socket"), &path, None).expect("connect");
    drop(listener);
    let dead = connect_path(seqpacket().expect("socket"), &path, None).expect_err("dead");
    assert_eq!(dead, Error::NoMailbox { address: path.display().to_string() });
    std::fs::remove_file(&path).expect("remove");

    let unfit = |path: &str| SocketPath::new(path.as_ref()).expect_err("unfit");
    let fits = "/tmp/".to_owned() + &"x".repeat(102);
    assert!(SocketPath::new(fits.as_ref()).is_ok());
    let error = unfit(&format!("{fits}x"));
    assert!(error.errno() == libc::EINVAL && error.to_string().contains("107 bytes"), "{error}");
    for text in ["", "a\0b"] {
        assert_eq!(unfit(text).errno(), libc::EINVAL);
    }
    // The name is in a folder whose own path is too long for a socket.
    let (long, name) = ("/.".repeat(60) + "/tmp/", "x".repeat(82));
    assert!(SocketPath::new(format!("{long}{name}").as_ref()).is_ok());
    assert_eq!(unfit(&format!("{long}{name}x")).errno(), libc::EINVAL);
    assert!(SocketName::abstracted(&[b'x'; 107]).is_ok());
    assert!(SocketName::abstracted(&[b'x'; 108]).is_err() && SocketName::abstracted(b"").is_err());
}

#[test]
fn connect_to_full_backlog_fails_at_deadline() {
    let name = format!("tontine-full-{}", std::process::id());
    let listener = seqpacket().expect("socket");
    bind_abstract(&listener, &name).expect("bind");
    listen(&listener, 0).expect("listen");
    let mut waiting = Vec::new();
    for _ in 0..100 {
        let socket = seqpacket().expect("socket");
        let deadline = Instant::now() + Duration::from_millis(20);
        match connect_abstract(&socket, &name, deadline) {
            Ok(()) => waiting.push(socket),
            Err(error) => {
                assert_eq!(error, Error::TimedOut);
                return;
            }
        }
    }
    panic!("{} connections fit into a backlog of 0", waiting.len());
}

#[test]
fn sockets_are_close_on_exec() {
    let (one, _other) = pair().expect("pair");
    for fd in [&one, &seqpacket().expect("socket")] {
        let flags = rustix::io::fcntl_getfd(fd).expect("flags");
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC), "{}", fd.as_raw_fd());
    }
}

#[test]
fn queued_file_is_closed_after_socket_drop() {
    let _alone = no_children();
    let path = std::env::temp_dir().join(format!("tontine-closed-{}", std::process::id()));
    let locked = std::fs::File::create(&path).expect("file");
    let probe = std::fs::File::open(&path).expect("file");
    std::fs::remove_file(&path).expect("remove");
    // This lock belongs to the open file, and ends with the file's last holder.
    flock(&locked, FlockOperation::LockExclusive).expect("lock");
    let is_open = || flock(&probe, FlockOperation::NonBlockingLockExclusive).is_err();
    let (ours, theirs) = pair().expect("pair");
    assert_eq!(send(&ours, b"file", &[locked.as_fd()]).expect("send"), SendResult::Yes);
    drop(locked);
    assert!(is_open());
    drop(PeerSocket::new(theirs).expect("socket"));
    let deadline = Instant::now() + Duration::from_secs(60);
    while is_open() {
        assert!(Instant::now() < deadline, "the file is still open");
        std::thread::sleep(Duration::from_millis(1));
    }
}
