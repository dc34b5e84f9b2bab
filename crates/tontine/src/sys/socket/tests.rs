//! What the helpers promise, tried on real sockets.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use rustix::process::{Resource, Rlimit, setrlimit};

use super::*;
use crate::sys::child::in_child;
use crate::sys::pidfd;

fn next(fd: &OwnedFd) -> Option<Received> {
    receive(fd, &mut [0; 64]).expect("receive")
}

fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("pipe")
}

#[test]
fn a_message_arrives_with_descriptors_and_sender() {
    let (ours, theirs) = pair().expect("pair");
    pass_credentials(&theirs).expect("pass credentials");
    assert!(next(&theirs).is_none());
    let (reader, writer) = pipe();
    let sent = send(&ours, b"hello", &[reader.as_fd(), writer.as_fd()]).expect("send");
    assert_eq!(sent, Sent::Yes);
    drop((reader, writer));

    let mut bytes = [0; 64];
    let got = receive(&theirs, &mut bytes).expect("receive").expect("a message");
    assert_eq!(&bytes[..got.len], b"hello");
    assert!(!got.hung_up && !got.truncated && !got.oversize);
    let from = got.from.expect("credentials");
    assert_eq!((from.pid, from.uid), (std::process::id(), rustix::process::getuid().as_raw()));
    assert_eq!(from.gid, rustix::process::getgid().as_raw());
    // Kernels before 6.5 attach none.
    if let Some(sender) = &got.pidfd {
        assert!(!pidfd::has_ended(sender));
    }
    let [reader, writer] = &got.fds[..] else { panic!("{} descriptors", got.fds.len()) };
    for fd in [reader, writer] {
        let flags = rustix::io::fcntl_getfd(fd).expect("flags");
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
    rustix::io::write(writer, b"x").expect("write");
    assert_eq!(rustix::io::read(reader, &mut [0; 8][..]), Ok(1));
    assert!(next(&theirs).is_none(), "it was taken from the queue");
}

#[test]
fn the_most_descriptors_fit() {
    let (ours, theirs) = pair().expect("pair");
    pass_credentials(&theirs).expect("pass credentials");
    let fds = vec![ours.as_fd(); MOST_DESCRIPTORS];
    assert_eq!(send(&ours, b"many", &fds).expect("send"), Sent::Yes);
    let got = next(&theirs).expect("a message");
    assert!(got.fds.len() == MOST_DESCRIPTORS && !got.truncated && got.from.is_some());
}

#[test]
fn what_was_sent_is_received_before_the_hang_up() {
    for with_credentials in [false, true] {
        let (ours, theirs) = pair().expect("pair");
        if with_credentials {
            pass_credentials(&theirs).expect("pass credentials");
        }
        // Mail in the other direction that is never read makes the kernel say ECONNRESET first.
        assert_eq!(send(&theirs, b"unread", &[]).expect("send"), Sent::Yes);
        assert_eq!(send(&ours, b"first", &[]).expect("send"), Sent::Yes);
        assert_eq!(send(&ours, b"second", &[]).expect("send"), Sent::Yes);
        drop(ours);
        assert_eq!(next(&theirs).map(|got| (got.len, got.hung_up)), Some((5, false)));
        assert_eq!(next(&theirs).map(|got| (got.len, got.hung_up)), Some((6, false)));
        assert!(next(&theirs).is_some_and(|got| got.hung_up));
        assert!(next(&theirs).is_some_and(|got| got.hung_up), "and so it stays");
        assert_eq!(send(&theirs, b"late", &[]).expect("send"), Sent::Gone);
    }
}

#[test]
fn an_empty_message_with_credentials_is_no_hang_up() {
    let (ours, theirs) = pair().expect("pair");
    pass_credentials(&theirs).expect("pass credentials");
    assert_eq!(send(&ours, b"", &[]).expect("send"), Sent::Yes);
    let got = next(&theirs).expect("a message");
    assert!(got.len == 0 && !got.hung_up && got.from.is_some());
    assert!(next(&theirs).is_none());
}

#[test]
fn a_message_that_is_too_long_is_said_to_be() {
    let (ours, theirs) = pair().expect("pair");
    assert_eq!(send(&ours, &[7; 100], &[]).expect("send"), Sent::Yes);
    let mut bytes = [0; 64];
    let got = receive(&theirs, &mut bytes).expect("receive").expect("a message");
    assert!(got.oversize && got.len == 64 && bytes == [7; 64]);
    assert!(next(&theirs).is_none());
}

#[test]
fn a_full_queue_is_not_waited_for() {
    let (ours, theirs) = pair().expect("pair");
    let mut sent = 0;
    while send(&ours, &[0; 1000], &[]).expect("send") == Sent::Yes {
        sent += 1;
        assert!(sent < 1_000_000, "the queue has no end");
    }
    assert!(next(&theirs).is_some());
    assert_eq!(send(&ours, &[0; 1000], &[]).expect("send"), Sent::Yes);
}

#[test]
fn a_full_descriptor_table_loses_nothing() {
    // The kernel closes passed descriptors for which the table has no room: a chunk announced so
    // would be lost for ever. In a child, whose table may be filled.
    assert!(in_child(|| {
        let (ours, theirs) = pair().expect("pair");
        pass_credentials(&theirs).expect("pass credentials");
        let (reader, writer) = pipe();
        let fds = [reader.as_fd(), writer.as_fd(), ours.as_fd()];
        assert_eq!(send(&ours, b"three", &fds).expect("send"), Sent::Yes);

        let limit = Rlimit { current: Some(64), maximum: Some(64) };
        setrlimit(Resource::Nofile, limit).expect("setrlimit");
        let mut fillers: Vec<OwnedFd> = Vec::new();
        while let Ok(filler) = rustix::io::fcntl_dupfd_cloexec(&ours, 0) {
            fillers.push(filler);
        }
        for _free in 0..=2 {
            let got = next(&theirs).expect("a message");
            assert!(got.truncated && got.fds.is_empty() && got.pidfd.is_none() && !got.hung_up);
            fillers.pop();
        }
        fillers.clear();
        let got = next(&theirs).expect("the same message");
        assert!(!got.truncated && got.len == 5 && got.fds.len() == 3);
        next(&theirs).is_none()
    }));
}

#[test]
fn what_lingers_is_closed_at_once() {
    // A socket with unsent data that was told to linger keeps close() waiting; a hostile peer
    // passes one.
    let listener = TcpListener::bind("127.0.0.1:0").expect("listener");
    let stream = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    let _silent = listener.accept().expect("accept");
    stream.set_nonblocking(true).expect("nonblocking");
    while std::io::Write::write(&mut &stream, &[0; 65536]).is_ok() {}
    stream.set_nonblocking(false).expect("blocking");
    let long = Duration::from_secs(40);
    sockopt::set_socket_linger(&stream, Some(long)).expect("linger");

    let (reader, _writer) = pipe();
    let start = Instant::now();
    close_hostile([OwnedFd::from(stream), reader]);
    assert!(start.elapsed() < long / 2, "closing took {:?}", start.elapsed());
}

#[test]
fn names_are_bound_found_and_refused() {
    let name = format!("tontine-test-{}", std::process::id());
    let deadline = Instant::now() + Duration::from_secs(20);
    let early = seqpacket().expect("socket");
    let nobody = connect_abstract(&early, &name, deadline).expect_err("nobody is there");
    assert_eq!(nobody, Error::NoMailbox { address: format!("@{name}") });

    let listener = seqpacket().expect("socket");
    bind_abstract(&listener, &name).expect("bind");
    pass_credentials(&listener).expect("pass credentials");
    listen(&listener, 4).expect("listen");
    assert!(accept(&listener).expect("accept").is_none());
    let rival = bind_abstract(seqpacket().expect("socket"), &name).expect_err("taken");
    assert_eq!(rival.errno(), libc::EADDRINUSE);

    connect_abstract(&early, &name, deadline).expect("connect");
    assert_eq!(send(&early, b"before", &[]).expect("send"), Sent::Yes);
    let connection = accept(&listener).expect("accept").expect("a connection");
    let got = next(&connection).expect("a message");
    let from = got.from.expect("handed down by the listener");
    assert_eq!(from.pid, std::process::id());
}

#[test]
fn a_path_is_bound_found_and_may_be_too_long() {
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
    // Behind a folder whose own path is too long for a socket.
    let (long, name) = ("/.".repeat(60) + "/tmp/", "x".repeat(82));
    assert!(SocketPath::new(format!("{long}{name}").as_ref()).is_ok());
    assert_eq!(unfit(&format!("{long}{name}x")).errno(), libc::EINVAL);
    assert!(Name::abstracted(&[b'x'; 107]).is_ok());
    assert!(Name::abstracted(&[b'x'; 108]).is_err() && Name::abstracted(b"").is_err());
}

#[test]
fn a_full_backlog_ends_at_the_deadline() {
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
fn whatever_kind_is_closed_in_the_end() {
    let file = std::fs::File::open("/proc/self/exe").expect("file");
    let folder = std::fs::File::open("/proc/self").expect("folder");
    let device = std::fs::File::open("/dev/null").expect("device");
    let (reader, writer) = pipe();
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("eventfd");
    let this = pidfd::open(std::process::id()).expect("pidfd");
    let (_own, memory) = crate::sys::region::OwnRegion::new("test", 4096).expect("region");
    let (socket, _other) = pair().expect("pair");
    // A thread may close the regular file: its lock is seen to go.
    let path = std::env::temp_dir().join(format!("tontine-closed-{}", std::process::id()));
    let locked = std::fs::File::create(&path).expect("file");
    let probe = std::fs::File::open(&path).expect("file");
    std::fs::remove_file(&path).expect("remove");
    locked.lock().expect("lock");
    assert!(probe.try_lock().is_err());
    let files = [file, folder, device, locked].map(OwnedFd::from);
    close_hostile(files.into_iter().chain([reader, writer, event, this, memory, socket]));
    let deadline = Instant::now() + Duration::from_secs(30);
    while probe.try_lock().is_err() {
        assert!(Instant::now() < deadline, "the file is open still");
        std::thread::sleep(Duration::from_millis(1));
    }
}
