//! Addresses: relative and long paths, names that another process took, and leftover files.

#![allow(unsafe_code, reason = "fork")]

use crate::raw;
use std::env::set_current_dir;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::common::*;
use rustix::net::{SocketAddrUnix, SocketType};
use tontine::Error;
use tontine::mailbox::{Address, Mailbox, OnDeath, Options, Sender};

/// Creates two folders next to each other.
fn folders(place: &Place) -> [PathBuf; 2] {
    ["one", "two"].map(|name| {
        let folder = place.path.with_file_name(name);
        std::fs::create_dir(&folder).expect("a folder");
        folder
    })
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("read");
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("an entry").file_name();
    let mut names: Vec<_> =
        entries.map(|entry| name(entry).into_string().expect("a name")).collect();
    names.sort();
    names
}

/// Regression: a program bound a relative path, changed its folder and dropped the mailbox. The
/// drop removed the file of that name in the new folder, and left the socket in the old one.
#[test]
fn relative_mailbox_dropped_after_chdir_removes_own_socket() {
    alone!();
    let place = place();
    let [one, two] = folders(&place);
    std::fs::write(two.join("jobs"), "another program's").expect("written");
    let child = fork(|| {
        set_current_dir(&one).expect("the folder exists");
        let mailbox = Mailbox::bind("jobs").expect("binds");
        set_current_dir(&two).expect("the folder exists");
        drop(mailbox);
    });
    assert_eq!(reap(child), 0);
    assert_eq!(names(&two), ["jobs"]);
    assert_eq!(std::fs::read(two.join("jobs")).expect("read"), b"another program's");
    assert_eq!(names(&one), Vec::<String>::new());
}

/// Regression: a sender connected through a relative path, changed its folder and waited for its
/// receiver's successor. It looked for the successor in the new folder, and never found it.
#[test]
fn relative_sender_after_chdir_finds_successor() {
    alone!();
    let place = place();
    let [one, two] = folders(&place);
    let mut first = Mailbox::bind(one.join("jobs")).expect("binds");
    let connected = Signal::new();
    let child = fork(|| {
        set_current_dir(&one).expect("the folder exists");
        let options = Options::new().on_death(OnDeath::WaitThroughRestarts);
        let mut sender = options.connect("jobs").expect("connects");
        set_current_dir(&two).expect("the folder exists");
        sender.send(b"one").expect("sent");
        sender.wait_acked(Some(AMPLE)).expect("read");
        connected.give(0);
        sender.send(b"two").expect("sent");
        sender.wait_acked(Some(AMPLE)).expect("read by the successor");
    });
    assert_eq!(&*first.recv_timeout(AMPLE).expect("a message"), b"one");
    first.ack();
    connected.take();
    drop(first);
    let mut successor = Mailbox::bind(one.join("jobs")).expect("binds");
    assert_eq!(&*successor.recv_timeout(AMPLE).expect("the lane is handed over"), b"two");
    successor.ack();
    assert_eq!(reap(child), 0);
}

/// A socket's address holds 107 bytes. A longer folder path is the reason to use a relative path,
/// which must work even if the absolute path would be too long, at each end and after a `chdir`.
#[test]
fn long_folder_path_works_relative_and_absolute() {
    alone!();
    let place = place();
    let folder = place.path.with_file_name("x".repeat(150)).join("y".repeat(150));
    std::fs::create_dir_all(&folder).expect("folders");
    let child = fork(|| {
        set_current_dir(&folder).expect("the folder exists");
        let mut mailbox = Mailbox::bind("jobs").expect("binds");
        let mut relative = Sender::connect("jobs").expect("connects");
        set_current_dir("/").expect("the folder exists");
        let mut absolute = Sender::connect(folder.join("jobs")).expect("connects");
        for (sender, text) in [(&mut relative, b"one"), (&mut absolute, b"two")] {
            sender.send(text).expect("sent");
            assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), text);
        }
        let error = Mailbox::bind(folder.join("jobs")).expect_err("taken");
        assert!(matches!(error, Error::AddrInUse { .. }), "{error}");
    });
    assert_eq!(reap(child), 0);
    assert_eq!(names(&folder), Vec::<String>::new());
    let error = Sender::connect(folder.join("jobs")).expect_err("no socket");
    let address = folder.join("jobs").display().to_string();
    assert_eq!(error, Error::NoMailbox { address });
}

/// Regression: a cleaner of old files removed the socket and the lock of a living mailbox, and
/// another process bound the path. When the first mailbox was dropped, it removed the second
/// mailbox's socket.
#[test]
fn drop_after_second_bind_keeps_new_socket() {
    alone!();
    let place = place();
    let first = Mailbox::bind(&place.path).expect("binds");
    std::fs::remove_file(&place.path).expect("removed");
    std::fs::remove_file(place.path.with_file_name("mailbox.lock")).expect("removed");
    let _second = Mailbox::bind(&place.path).expect("binds, as there is no lock any more");
    drop(first);
    Sender::connect(&place.path).expect("the second socket exists");
}

/// Regression: the thread that received a HELLO had a copy of each listener of its process. After
/// `close`, the address was in use until the thread had ended.
#[test]
fn abstract_name_is_free_when_mailbox_is_closed() {
    alone!();
    let name = |number: u32| format!("@tontine-closed-{}-{number}", std::process::id());
    // Several mailboxes of this process accept lanes at the same time.
    thread::scope(|threads| {
        for number in 0..4 {
            threads.spawn(move || {
                for _ in 0..200 {
                    let mut mailbox = Mailbox::bind(name(number).as_str()).expect("a free name");
                    let mut sender = Sender::connect(name(number).as_str()).expect("connects");
                    sender.send(b"x").expect("sent");
                    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"x");
                    drop(mailbox);
                }
            });
        }
    });
}

/// Regression: `bind` replaced the live socket of another program, and removed the path at its end.
#[test]
fn live_socket_of_another_program_is_not_replaced() {
    alone!();
    let place = place();
    for kind in [SocketType::STREAM, SocketType::DGRAM, SocketType::SEQPACKET] {
        let socket = raw::unbound(kind);
        let name = SocketAddrUnix::new(&place.path).expect("a path");
        rustix::net::bind(&socket, &name).expect("binds");
        if kind != SocketType::DGRAM {
            rustix::net::listen(&socket, 1).expect("listens");
        }
        // A queue that is full tells nothing.
        for _ in 0..3 {
            let error = Mailbox::bind(&place.path).expect_err("another program listens");
            let refused = matches!(error, Error::AddrInUse { .. } | Error::InvalidAddress { .. });
            assert!(refused, "{kind:?}: {error}");
            assert_eq!(names(place.path.parent().expect("a folder")), ["mailbox"]);
        }
        drop(socket);
        drop(Mailbox::bind(&place.path).expect("no process listens any more"));
        assert_eq!(names(place.path.parent().expect("a folder")), Vec::<String>::new());
    }
}

/// A program that listened at the path, not an owner, has ended, and a child that it forked holds
/// its listener. Then the path is free. Until then the error names the program.
#[test]
fn path_of_dead_program_is_free_though_child_holds_listener() {
    alone!();
    let place = place();
    let made = Signal::new();
    let program = fork(|| {
        let _listener = raw::listen(&place.path);
        made.give(fork(sleep_indefinitely));
        sleep_indefinitely();
    });
    let child = made.take();
    let error = Mailbox::bind(&place.path).expect_err("the program lives");
    let holder = Some(program.cast_unsigned());
    let address = place.path.display().to_string();
    assert_eq!(error, Error::AddrInUse { address, holder });
    kill(program);
    let bound = Mailbox::bind(&place.path);
    // SAFETY: the child was forked by the program, and this test alone ends it.
    unsafe { libc::kill(child, libc::SIGKILL) };
    bound.expect("the program has ended");
}

/// Regression: if a cleaner of old files removed `PATH.lock` alone, a second owner bound the path
/// while the first lived. The first owner reports that the name is lost.
#[test]
fn removed_lock_file_admits_no_second_owner_and_is_reported() {
    alone!();
    let (place, mut mailbox) = bound();
    let lock = place.path.with_file_name("mailbox.lock");
    std::fs::remove_file(&lock).expect("removed");
    let error = Mailbox::bind(&place.path).expect_err("the first owner lives");
    let holder = Some(std::process::id());
    let address = place.path.display().to_string();
    assert_eq!(error, Error::AddrInUse { address: address.clone(), holder });
    let reported = |mailbox: &mut Mailbox, what: &'static str| {
        let mut found = Vec::new();
        until("the loss is reported", || {
            assert_eq!(
                mailbox.recv_timeout(Duration::from_millis(20)).err(),
                Some(Error::TimedOut)
            );
            found = mailbox.take_errors();
            // The second `bind` has looked at the listener, and its connection has ended.
            !found.is_empty()
        });
        assert_eq!(found, [Error::NameLost { address: address.clone(), what }]);
    };
    reported(&mut mailbox, "its lock file");
    drop(mailbox);
    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    std::fs::remove_file(&place.path).expect("removed");
    reported(&mut mailbox, "its socket");
}

/// Regression: `bind` set the mode of `PATH.tmp` by its name. A user who could write to the folder
/// put a symbolic link there in between, and a file of the owner became readable for all.
#[test]
fn mode_is_exact_and_reaches_no_other_file() {
    alone!();
    let place = place();
    let mode = |path: &Path| std::fs::metadata(path).expect("a file").permissions().mode() & 0o777;
    let secret = place.path.with_file_name("secret");
    std::fs::write(&secret, b"secret").expect("written");
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).expect("set");
    let child = fork(|| {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        for exact in [0o600, 0o666, 0o640] {
            let mailbox = Options::new().mode(exact).bind(&place.path).expect("binds");
            assert_eq!(mode(&place.path), exact);
            drop(mailbox);
        }
    });
    assert_eq!(reap(child), 0);
    // A rival exchanges the temporary file for a link, over and over.
    let (temporary, link) =
        (place.path.with_file_name("mailbox.tmp"), place.path.with_file_name("link"));
    let rival = fork(|| {
        loop {
            let _ = std::fs::remove_file(&link);
            let _ = std::os::unix::fs::symlink(&secret, &link);
            let (cwd, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
            let exchange = || rustix::fs::renameat_with(cwd, &link, cwd, &temporary, flags);
            let _ = (0..10_000).find(|_| exchange().is_ok());
        }
    });
    let victim = fork(|| {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        until("the rival has exchanged the file in time", || {
            let _ = std::fs::remove_file(&place.path);
            let bound = Options::new().mode(0o666).bind(&place.path);
            assert_eq!(mode(&secret), 0o600);
            bound.is_err_and(|error| error.errno() == libc::ELOOP || error.errno() == libc::ESTALE)
        });
    });
    let found = reap(victim);
    kill(rival);
    assert_eq!(found, 0);
}

/// Regression: a process binds at most 1,024 mailboxes. The next one was refused after its socket
/// had been created, and the socket stayed in the folder.
#[test]
fn refused_bind_leaves_no_file() {
    alone!();
    let place = place();
    let folder = place.path.parent().expect("a folder");
    let child = fork(|| {
        let _mailboxes: Vec<_> =
            (0..1024).map(|_| Mailbox::unbound().expect("a free address")).collect();
        let error = Mailbox::bind(&place.path).expect_err("all are taken");
        assert_eq!(error, Error::Full { what: "mailboxes", max: 1024 });
    });
    assert_eq!(reap(child), 0);
    assert_eq!(names(folder), Vec::<String>::new());
}

/// Regression: if a folder had the name under which the socket is first created, `bind` reported
/// that a process used that name.
#[test]
fn folder_at_temporary_name_is_reported_as_folder() {
    alone!();
    let place = place();
    let folder = place.path.with_file_name("mailbox.tmp");
    std::fs::create_dir(&folder).expect("a folder");
    let error = Mailbox::bind(&place.path).expect_err("the first name is in use");
    let Error::InvalidAddress { address, reason } = &error else { panic!("{error}") };
    assert_eq!(*address, folder.display().to_string());
    assert!(reason.contains("a folder"), "{error}");
}

/// The limit that [`Address`] documents: a forked child of a killed owner also holds the listener,
/// so an abstract name stays in use until the child has ended. A path is free immediately.
#[test]
fn abstract_name_of_killed_owner_is_free_after_child_ends() {
    alone!();
    let place = place();
    let name = Address::abstract_name(place.path.as_os_str().as_encoded_bytes());
    let bound = Signal::new();
    let owner = fork(|| {
        let _mailboxes = [Mailbox::bind(&name), Mailbox::bind(&place.path)];
        bound.give(fork(sleep_indefinitely));
        sleep_indefinitely();
    });
    let child = bound.take();
    kill(owner);
    assert!(matches!(Sender::connect(&name), Err(Error::NoMailbox { .. })));
    assert!(matches!(Mailbox::bind(&name), Err(Error::AddrInUse { holder: None, .. })));
    until("the path is free", || Mailbox::bind(&place.path).is_ok());
    signal(child, libc::SIGKILL);
    until("the name is free", || Mailbox::bind(&name).is_ok());
}
