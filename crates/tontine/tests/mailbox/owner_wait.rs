//! Senders that connect before their address has an owner: `Options::wait_for_owner`.

#![allow(unsafe_code, reason = "signals")]

use std::os::unix::thread::JoinHandleExt;
use std::path::Path;
use std::thread;
use std::time::Instant;

use crate::common::*;
use tontine::Error;
use tontine::mailbox::{Address, Mailbox, Options, Sender, SenderOptions};

fn patient() -> SenderOptions {
    Options::new().wait_for_owner(AMPLE)
}

/// Connects in another thread, makes the owner with `bind`, and returns both ends.
fn connect_first(at: impl Into<Address>, bind: impl FnOnce() -> Mailbox) -> (Mailbox, Sender) {
    let at = at.into();
    let sender = thread::spawn(move || patient().connect(at));
    thread::sleep(SHORT);
    assert!(!sender.is_finished(), "there is no owner yet");
    let mailbox = bind();
    (mailbox, sender.join().expect("no panic").expect("connects"))
}

fn assert_arrives(mut mailbox: Mailbox, mut sender: Sender) {
    sender.send(b"hello").expect("sent");
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"hello");
}

fn bind(path: &Path) -> Mailbox {
    Mailbox::bind(path).expect("binds")
}

#[test]
fn connect_waits_for_first_owner_of_path() {
    alone!();
    let place = place();
    let (mailbox, sender) = connect_first(&*place.path, || bind(&place.path));
    assert_arrives(mailbox, sender);
}

#[test]
fn connect_waits_for_successor_of_dead_owner() {
    alone!();
    let place = place();
    let (path, done) = (place.path.clone(), Signal::new());
    let owner = fork(|| {
        let _mailbox = bind(&path);
        // The child keeps the listener open, and accepts nothing.
        done.give(bare_fork(sleep_indefinitely));
        sleep_indefinitely();
    });
    let child = done.take();
    kill(owner);
    let (mailbox, sender) = connect_first(&*place.path, || bind(&place.path));
    assert_arrives(mailbox, sender);
    signal(child, libc::SIGKILL);
}

#[test]
fn connect_waits_for_folder_and_abstract_name() {
    alone!();
    let place = place();
    let folder = place.path.with_extension("later");
    let inside = folder.join("mailbox");
    let (mailbox, sender) = connect_first(&*inside, || {
        std::fs::create_dir(&folder).expect("a folder");
        bind(&inside)
    });
    assert_arrives(mailbox, sender);
    let name = format!("@tontine-owner-wait-{}", std::process::id());
    let (mailbox, sender) = connect_first(&*name, || Mailbox::bind(&*name).expect("binds"));
    assert_arrives(mailbox, sender);
}

#[test]
fn connect_without_owner_fails_after_timeout() {
    alone!();
    let place = place();
    let began = Instant::now();
    let error = Options::new().wait_for_owner(SHORT).connect(&place.path).expect_err("no owner");
    assert!(matches!(error, Error::NoMailbox { .. }), "{error:?}");
    assert!(began.elapsed() >= SHORT);
    // The call returns another error at once.
    let began = Instant::now();
    let long = "x".repeat(300);
    patient().connect(&*format!("/{long}")).expect_err("no mailbox can have this address");
    assert!(began.elapsed() < AMPLE);
}

#[test]
fn handler_ends_interruptible_wait_for_owner() {
    alone!();
    extern "C" fn ignore(_: libc::c_int) {}
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGUSR1, ignore as *const () as libc::sighandler_t) };
    let place = place();
    let path = place.path.clone();
    let sender = thread::spawn(move || patient().interruptible(true).connect(&path).err());
    until("the wait is interrupted", || {
        // SAFETY: the thread is not joined yet.
        unsafe { libc::pthread_kill(sender.as_pthread_t(), libc::SIGUSR1) };
        sender.is_finished()
    });
    assert_eq!(sender.join().expect("no panic"), Some(Error::Interrupted));
}
