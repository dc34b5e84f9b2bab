//! Descriptors that a hostile peer passes because closing them takes long or drops a lock. No call
//! of the receiving process waits for the close, and none of its locks is dropped.

#![allow(unsafe_code, reason = "record locks, users and numbers of descriptors")]

use crate::raw;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::common::*;
use crate::raw::fuse::Mount;
use crate::raw::hello;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tontine::mailbox::{Mailbox, Options, Sender};
use tontine::{Error, Peer};

/// A user whose only processes belong to these tests.
const STRANGER: u32 = 65534;

/// Longer than any call takes that waits for no peer, shorter than any wait that a test creates.
const AT_ONCE: Duration = Duration::from_secs(30);

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs `call` and returns its duration.
fn timed(call: impl FnOnce()) -> Duration {
    let started = Instant::now();
    call();
    started.elapsed()
}

/// Serves until an honest message has arrived. Returns the duration of the longest call.
fn serve_honest(mailbox: &mut Mailbox, sender: &mut Sender) -> Duration {
    let mut longest = Duration::ZERO;
    sender.send(b"honest").expect("sent");
    let end = Instant::now() + AMPLE;
    loop {
        assert!(Instant::now() < end, "the honest message did not arrive");
        let started = Instant::now();
        let came = mailbox.try_recv().is_ok_and(|message| *message == *b"honest");
        longest = longest.max(started.elapsed());
        if came {
            return longest;
        }
    }
}

/// Mounts a FUSE file system for a test, or prints why the test is skipped.
fn fuse(folder: &std::path::Path) -> Option<Mount> {
    match Mount::new(&folder.join("fuse")) {
        Ok(mount) => Some(mount),
        Err(why) => {
            println!("skipped: {why}");
            None
        }
    }
}

/// Returns `true` if a pipe has no writer any more.
fn has_hung_up(pipe: &std::io::PipeReader) -> bool {
    let mut polled = [rustix::event::PollFd::new(pipe, rustix::event::PollFlags::IN)];
    let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&at_once)).expect("polled") > 0
        && polled[0].revents().contains(rustix::event::PollFlags::HUP)
}

/// Forks a process that opens the file of `mount` and attacks with it. The process cannot end
/// before the server has ended.
fn attacker(mount: &Mount, attack: impl FnOnce(&File)) -> i32 {
    fork(|| attack(&std::mem::ManuallyDrop::new(mount.open().expect("opens"))))
}

/// Regression: a peer passed files of its own FUSE file system with a message. Files for which the
/// receiver's table had no space were closed there, and `close` waited for the peer's file system:
/// the receiver hung for as long as the peer chose. Five messages sufficed at a limit of 1,024
/// descriptors.
#[test]
fn passed_fuse_files_do_not_block_receiver() {
    alone!();
    const ROUNDS: u32 = 20;
    let place = place();
    let Some(mount) = fuse(place.path.parent().expect("a folder")) else { return };
    let done = Signal::new();
    let over = Signal::new();
    let receiver = fork(|| {
        let limits = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(256), ..limits }).expect("lowered");
        let options = Options::new().handshake_timeout(Duration::from_millis(50));
        let mut mailbox = options.bind(&place.path).expect("binds");
        let mut sender = Sender::connect(&place.path).expect("connects");
        let mut longest = serve_honest(&mut mailbox, &mut sender);
        let (descriptors, tasks) = (open_descriptors(), threads());
        done.give(1);
        let mut refused = 0;
        let own = place.path.with_extension("own");
        while !over.is_given() {
            // A file that the program closes is soon closed in the threads' tables too, although
            // the peer's files block the threads.
            let lock = || {
                let file = std::fs::File::create(&own).expect("a file");
                flock(&file, FlockOperation::NonBlockingLockExclusive).map(|()| file)
            };
            let mut locked = lock();
            until("the program's own lock is released", || {
                if locked.is_err() {
                    locked = lock();
                }
                locked.is_ok()
            });
            longest = longest.max(serve_honest(&mut mailbox, &mut sender));
            drop(locked);
            let faults = mailbox.take_errors();
            // While files occupy eight threads, a connection waits for a free thread, and is
            // temporarily refused.
            let known = |fault: &Error| [libc::EPROTO, libc::EAGAIN].contains(&fault.errno());
            assert!(faults.iter().all(known), "{faults:?}");
            refused += faults.len();
        }
        println!("{refused} refused; longest call: {longest:?}");
        assert!(refused >= 8, "{refused}");
        assert!(longest < AT_ONCE, "a call took {longest:?}");
        // One socket serves the threads, another is a pending connection.
        let now = open_descriptors();
        assert!(now < descriptors + 80, "{now} descriptors, {descriptors} before");
        assert!(threads() <= tasks + 40, "{} threads, {tasks} before", threads());
        drop((mailbox, sender));
        done.give(2);
    });
    done.take();
    let attacker = attacker(&mount, |file| {
        for round in 0..ROUNDS {
            let chunk = raw::chunk(12);
            let fds = vec![file.as_fd(); if round % 2 == 0 { 253 } else { 2 }];
            // On a busy machine, the receiver may drop a connection before its HELLO is sent.
            let dial = |fds: &[BorrowedFd<'_>]| {
                let mut dialled = raw::dial(&place.path);
                until("a connection lives long enough", || {
                    let is_sent = raw::send(&dialled, &hello(1 << 20, &[12]), fds);
                    if !is_sent {
                        dialled = raw::dial(&place.path);
                    }
                    is_sent
                });
                dialled
            };
            match round % 4 {
                // The lane is admitted first, and the descriptors are passed later.
                3 => {
                    let socket = dial(&[raw::life(), chunk.fd.as_fd()]);
                    // The receiver may have refused the lane, because its threads are busy.
                    raw::send(&socket, &raw::chunk_note(12, 1), &[file.as_fd()]);
                    while raw::receive(&socket).0 != 0 {}
                }
                _ => drop(raw::receive(&dial(&fds))),
            }
        }
        over.give(0);
    });
    done.take();
    // When the FUSE server exits, the attacker and the receiver's threads, which wait for its
    // replies, continue.
    drop(mount);
    assert_eq!((reap(attacker), reap(receiver)), (0, 0));
}

/// Regression: a receiver passed such files with its WELCOME, and the sender's `send_timeout` hung.
#[test]
fn passed_fuse_files_do_not_block_sender() {
    alone!();
    let place = place();
    let Some(mount) = fuse(place.path.parent().expect("a folder")) else { return };
    let done = Signal::new();
    let counts = [1, 3, 253];
    let listener = raw::listen(&place.path);
    let attacker = attacker(&mount, |file| {
        for count in counts {
            let socket = raw::accept(&listener);
            let fds = vec![file.as_fd(); count];
            assert!(raw::send(&socket, &raw::note(raw::WELCOME, &[0, 0]), &fds));
            drop(raw::receive(&socket));
            while raw::receive(&socket).0 != 0 {}
        }
    });
    let sender = fork(|| {
        for count in counts {
            let mut sender = Sender::connect(&place.path).expect("connects");
            let mut longest = Duration::ZERO;
            let ended = loop {
                let mut sent = Ok(());
                let limit = Duration::from_millis(100);
                longest = longest.max(timed(|| sent = sender.send_timeout(&[1; 1000], limit)));
                match sent {
                    Ok(()) | Err(Error::TimedOut) => {}
                    Err(error) => break error,
                }
            };
            assert!(matches!(ended, Error::Protocol { .. }), "{ended}");
            longest = longest.max(timed(|| drop(sender)));
            println!("{count} descriptors: longest call {longest:?}");
            assert!(longest < AT_ONCE, "{count} descriptors: {longest:?}");
        }
        done.give(1);
    });
    done.take();
    drop((mount, listener));
    assert_eq!((reap(attacker), reap(sender)), (0, 0));
}

/// Regression: a process of another user connected to an abstract name, which has no permissions,
/// and the receiver received the descriptors that it passed before it checked the user.
#[test]
fn other_users_connection_is_refused_before_any_receive() {
    alone!();
    if !is_root() {
        return println!("skipped: only root can become another user");
    }
    let place = place();
    let name = format!("tontine-stranger-{}", std::process::id());
    let Some(mount) = fuse(place.path.parent().expect("a folder")) else { return };
    let done = Signal::new();
    let receiver = fork(|| {
        let address = format!("@{name}");
        let mut mailbox = Mailbox::bind(address.as_str()).expect("binds");
        let mut sender = Sender::connect(address.as_str()).expect("connects");
        // The second message opens what a lane opens late: an end of a doorbell and, before Linux
        // 6.5, a pidfd.
        for _ in 0..2 {
            serve_honest(&mut mailbox, &mut sender);
        }
        let before = open_descriptors();
        done.give(1);
        let mut faults = Vec::new();
        until("both connections are refused", || {
            let took = timed(|| drop(mailbox.try_recv().map(drop)));
            assert!(took < AT_ONCE, "a call took {took:?}");
            faults.extend(mailbox.take_errors());
            faults.len() == 2
        });
        let denied =
            |fault: &Error| matches!(fault, Error::Denied { peer: Peer { uid: STRANGER, .. }, .. });
        assert!(faults.iter().all(denied), "{faults:?}");
        serve_honest(&mut mailbox, &mut sender);
        until("both connections are closed", || open_descriptors() <= before + 1);
        // No thread is occupied: the queued descriptors were in no descriptor table, so their close
        // flushes nothing.
        until("no extra thread is left", || threads() <= 2);
        drop((mailbox, sender));
        done.give(2);
    });
    done.take();
    let attacker = attacker(&mount, |file| {
        // SAFETY: `setuid` only takes a number.
        assert_eq!(unsafe { libc::setuid(STRANGER) }, 0);
        let chunk = raw::chunk(12);
        for fds in [vec![file.as_fd(); 253], vec![raw::life(), chunk.fd.as_fd()]] {
            let socket = raw::dial_abstract(&name);
            raw::send(&socket, &hello(1 << 20, &[12]), &fds);
            assert_eq!(raw::refusal(&socket), libc::EACCES);
        }
    });
    done.take();
    drop(mount);
    assert_eq!((reap(attacker), reap(receiver)), (0, 0));
}

/// The admitted process is the process that connected, but it can pass the socket to another
/// process. The kernel names the sender of each message.
#[test]
fn hello_from_other_user_than_connecting_user_is_refused() {
    alone!();
    if !is_root() {
        return println!("skipped: only root can become another user");
    }
    let (place, mut mailbox) = bound();
    let socket = raw::dial(&place.path);
    let sender = fork(|| {
        let chunk = raw::chunk(12);
        // SAFETY: `setuid` only takes a number.
        assert_eq!(unsafe { libc::setuid(STRANGER) }, 0);
        assert!(raw::send(&socket, &hello(1 << 20, &[12]), &[raw::life(), chunk.fd.as_fd()]));
    });
    assert_eq!(reap(sender), 0);
    assert_eq!(mailbox.try_recv().expect_err("refused"), Error::WouldBlock);
    let faults = mailbox.take_errors();
    assert!(
        matches!(&faults[..], [Error::Denied { peer: Peer { uid: STRANGER, .. }, .. }]),
        "{faults:?}"
    );
    assert_eq!(raw::refusal(&socket), libc::EACCES);
    assert_eq!(mailbox.sender_count(), 0);
}

/// Regression: a peer passed a read-only descriptor of the receiver's `PATH.lock`, or of a database
/// on which the receiver's program held a record lock. When the receiver closed it, the lock was
/// dropped, and a second process took over the living owner's address.
#[test]
fn passed_descriptors_drop_no_record_locks() {
    alone!();
    let place = place();
    let database = place.path.with_file_name("database");
    let go = Signal::new();
    let bound = Signal::new();
    let receiver = fork(|| {
        let file = File::create(&database).expect("a file");
        assert!(record_lock(&file, 0));
        let mut mailbox = Mailbox::bind(&place.path).expect("binds");
        bound.give(0);
        while !go.is_given() {
            let _ = mailbox.recv_timeout(Duration::from_millis(1)).map(drop);
        }
        drop(mailbox);
    });
    bound.take();
    let files = ["mailbox.lock", "database"]
        .map(|name| File::open(place.path.with_file_name(name)).expect("readable"));
    let fds: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    for bytes in [hello(1 << 20, &[12]), raw::note(77, &[])] {
        let socket = raw::dial(&place.path);
        assert!(raw::send(&socket, &bytes, &fds));
        assert_ne!(raw::refusal(&socket), 0);
    }
    let (socket, _chunk) = raw::lane(&place.path);
    assert_eq!(raw::receive(&socket).0, raw::WELCOME);
    for fd in fds {
        raw::send(&socket, &raw::chunk_note(12, 1), &[fd]);
    }
    until("the lane is closed", || raw::receive(&socket).0 == 0);
    // The receiver has dropped the passed descriptors, and its threads have closed them.
    let threads = || std::fs::read_dir(format!("/proc/{receiver}/task")).map_or(0, Iterator::count);
    until("the threads have ended", || threads() == 1);
    let taken = Mailbox::bind(&place.path).expect_err("the address has a living owner");
    assert!(matches!(taken, Error::AddrInUse { .. }), "{taken}");
    assert!(!record_lock(&File::options().write(true).open(&database).expect("opens"), 0));
    go.give(0);
    assert_eq!(reap(receiver), 0);
}

/// Returns the time that the last holder of the descriptors of `make` takes to close them.
fn price(make: &dyn Fn() -> Vec<OwnedFd>) -> Duration {
    let made = make();
    timed(|| drop(made))
}

/// Passes descriptors of `make` to the mailbox before and after a lane is admitted, and keeps none
/// of them. Returns `true` if each call that refused them returned before all of them were closed.
fn refuses_before_close(make: &dyn Fn() -> Vec<OwnedFd>) -> bool {
    let (place, mut mailbox, mut sender) = channel();
    let (lane, _chunk) = raw::lane(&place.path);
    serve_honest(&mut mailbox, &mut sender);
    let stranger = raw::dial(&place.path);
    let mut are_open = true;
    for (socket, bytes) in [(&stranger, hello(1 << 20, &[12])), (&lane, raw::chunk_note(12, 1))] {
        // The pipe has a writer at each end of the others, so its last writer is not closed before
        // them, in whichever order they are closed.
        let (pipe, writer) = std::io::pipe().expect("a pipe");
        let made = make();
        let fds = made.iter().map(AsFd::as_fd);
        let fds: Vec<_> = [writer.as_fd()].into_iter().chain(fds).chain([writer.as_fd()]).collect();
        assert!(raw::send(socket, &bytes, &fds), "the kernel passes the descriptors");
        drop((made, writer));
        until("the descriptors are refused", || {
            drop(mailbox.try_recv().map(drop));
            let is_closed = has_hung_up(&pipe);
            let is_refused = !mailbox.take_errors().is_empty();
            are_open &= !(is_refused && is_closed);
            is_refused
        });
    }
    are_open
}

/// Passes all descriptors of `make` to the mailbox, keeps none of them, and returns the duration of
/// the mailbox's longest call during that time.
fn longest_call(make: &dyn Fn() -> Vec<OwnedFd>) -> Duration {
    let (place, mut mailbox, mut sender) = channel();
    serve_honest(&mut mailbox, &mut sender);
    let (socket, _chunk) = raw::lane(&place.path);
    let stranger = raw::dial(&place.path);
    let made = make();
    let (later, first) = made.split_at(made.len() / 2);
    let borrow = |fds: &[OwnedFd]| -> Vec<std::os::fd::RawFd> {
        fds.iter().map(AsRawFd::as_raw_fd).collect()
    };
    let mut passed = true;
    for (socket, bytes, fds) in [
        (&stranger, hello(1 << 20, &[12]), borrow(first)),
        (&socket, raw::chunk_note(12, 1), borrow(later)),
    ] {
        for fds in fds.chunks(200) {
            // SAFETY: the descriptors stay open as long as `made`.
            let fds: Vec<_> =
                fds.iter().map(|&fd| unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) }).collect();
            passed &= raw::send(socket, &bytes, &fds);
        }
    }
    assert!(passed, "the kernel passes the descriptors");
    drop(made);
    let mut longest = Duration::ZERO;
    let mut faults = Vec::new();
    until("both connections are refused", || {
        longest = longest.max(serve_honest(&mut mailbox, &mut sender));
        faults.extend(mailbox.take_errors());
        faults.len() == 2
    });
    drop((socket, stranger));
    longest.max(timed(|| drop((mailbox, sender))))
}

/// Regression: the kernel takes long to close these descriptors, and the receiver closed them
/// synchronously: 128 inotify instances held it for 1.7 s per message, 60 epoll sets for 1.3 s, a
/// memfd of 6 GiB for 1.9 s.
#[test]
fn slow_to_close_descriptors_do_not_delay_calls() {
    alone!();
    type Make = Box<dyn Fn() -> Vec<OwnedFd>>;
    let kinds: [(&str, Make); 3] = [
        ("inotify instances", Box::new(|| (0..6).map(|_| inotify()).collect())),
        ("epoll sets", Box::new(|| (0..4).map(|_| epoll(15_000)).collect())),
        ("memory", Box::new(|| vec![memory(1 << 27), memory(1 << 27)])),
    ];
    for (name, make) in kinds {
        let price = price(&*make);
        println!("{name}: closing all of it takes {price:?}");
        // Another thread may close these before the call returns.
        if price < Duration::from_millis(10) {
            continue;
        }
        // A receiver that closed the descriptors itself would in no attempt return before they are
        // closed.
        assert!((0..50).any(|_| refuses_before_close(&*make)), "{name}: each call closed them");
    }
}

/// A lingering socket is one with SO_LINGER, whose last close waits for a network that never
/// answers.
#[test]
fn passed_lingering_sockets_do_not_delay_calls() {
    alone!();
    let silent = std::cell::RefCell::new(Vec::new());
    let make = || {
        let all = (0..4).map(|_| raw::lingering());
        all.map(|(socket, other)| {
            silent.borrow_mut().push(other);
            socket
        })
        .collect()
    };
    let longest = longest_call(&make);
    assert!(longest < AT_ONCE, "{longest:?}");
}

/// Closing an io_uring instance also takes long. Kernels since 6.8 refuse to pass such an instance;
/// on older kernels only the receiver's closing thread waits.
#[test]
fn passed_io_uring_instances_do_not_delay_calls() {
    alone!();
    let mut parameters = [0_u32; 30];
    // SAFETY: the kernel fills in 120 bytes, and returns a new descriptor.
    let ring = unsafe {
        let fd = libc::syscall(libc::SYS_io_uring_setup, 8, parameters.as_mut_ptr());
        if fd < 0 {
            return println!("skipped: the machine offers no io_uring");
        }
        OwnedFd::from_raw_fd(fd as i32)
    };
    let (ours, _theirs) = raw::pair();
    if !raw::send(&ours, b"ring", &[ring.as_fd()]) {
        // This is correct: the kernel refuses to pass the instance.
        return;
    }
    drop((ring, ours));
    let make = || {
        let mut parameters = [0_u32; 30];
        // SAFETY: as above.
        let one = |_| unsafe {
            let fd = libc::syscall(libc::SYS_io_uring_setup, 8, parameters.as_mut_ptr());
            assert!(fd >= 0, "io_uring_setup");
            OwnedFd::from_raw_fd(fd as i32)
        };
        (0..40).map(one).collect::<Vec<_>>()
    };
    let longest = longest_call(&|| make());
    assert!(longest < AT_ONCE, "{longest:?}");
}

/// Creates an inotify instance with some watches. A user may have 128 instances, some of which may
/// still be closing.
fn inotify() -> OwnedFd {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    let mut made = None;
    until("an inotify instance is free", || {
        made = init(CreateFlags::CLOEXEC).ok();
        made.is_some()
    });
    let fd = made.expect("made");
    for path in ["/", "/proc", "/dev", "/etc", "/usr", "/tmp"] {
        let _ = add_watch(&fd, path, WatchFlags::ATTRIB);
    }
    fd
}

/// Creates an epoll set with many entries, all copies of one eventfd.
fn epoll(entries: usize) -> OwnedFd {
    use rustix::event::epoll::{CreateFlags, EventData, EventFlags, add, create};
    let set = create(CreateFlags::CLOEXEC).expect("epoll");
    let flags = rustix::event::EventfdFlags::CLOEXEC;
    let event = rustix::event::eventfd(0, flags).expect("eventfd");
    let limits = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits });
    let mut copies = Vec::new();
    for number in 0..entries {
        let Ok(copy) = rustix::io::fcntl_dupfd_cloexec(&event, 0) else { break };
        let data = EventData::new_u64(number as u64);
        let _ = add(&set, &copy, data, EventFlags::IN);
        copies.push(copy);
    }
    // The entries stay, because the forgotten descriptor keeps their file open.
    std::mem::forget(event);
    set
}

fn memory(size: usize) -> OwnedFd {
    let fd = raw::memfd(size);
    let none = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(&fd, none, 0, size as u64).expect("memory is available");
    fd
}

/// Sends a HELLO that names many chunks of the largest size, each of which would be checked page by
/// page.
#[test]
fn announced_memory_beyond_cap_is_not_mapped() {
    alone!();
    let options = Options::new().lane_cap(1 << 20);
    let (place, mut mailbox) = bound_with(&options);
    let mut sender = Sender::connect(&place.path).expect("connects");
    serve_honest(&mut mailbox, &mut sender);
    let large = raw::Memory::new(1 << 22);
    let socket = raw::dial(&place.path);
    let fds = [raw::life(), large.fd.as_fd(), large.fd.as_fd()];
    assert!(raw::send(&socket, &hello(1 << 30, &[22, 22]), &fds));
    until("the lane is refused", || {
        serve_honest(&mut mailbox, &mut sender);
        !mailbox.take_errors().is_empty()
    });
    assert_eq!(raw::refusal(&socket), libc::ENOBUFS);
    // No other test creates memory of that size.
    let maps = mappings("");
    let mapped = maps.iter().filter(|[base, end]| end - base == 1 << 22).count();
    assert_eq!(mapped, 1, "only this test's own: {maps:x?}");
}
