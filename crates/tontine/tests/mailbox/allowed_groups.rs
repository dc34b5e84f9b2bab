//! Senders that a mailbox accepts by their groups (`allow_gid`).

#![allow(unsafe_code, reason = "fork, and changes of users and groups")]

use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use tontine::Error;
use tontine::mailbox::{Mailbox, Options, Sender};

use crate::child::Child;
use crate::common::*;

/// The group that the mailbox allows.
const ALLOWED: u32 = 4711;

/// The user and the group of senders that the mailbox does not allow.
const OTHER: u32 = 65534;

/// Binds a mailbox that users other than root may reach, and that allows the group.
fn bound_for_group() -> Option<(Place, Mailbox)> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can change users and groups");
        return None;
    }
    let place = place();
    let folder = place.path.parent().expect("a folder");
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).expect("chmod");
    let mailbox = Options::new().mode(0o666).allow_gid(ALLOWED).bind(&place.path).expect("binds");
    Some((place, mailbox))
}

/// Gives this process, a child, another user and these groups.
fn become_other(gid: u32, groups: &[u32]) {
    // SAFETY: the calls take numbers, and a pointer to as many groups as they are told.
    unsafe {
        assert_eq!(libc::setgroups(groups.len(), groups.as_ptr()), 0);
        assert_eq!(libc::setresgid(gid, gid, gid), 0);
        assert_eq!(libc::setresuid(OTHER, OTHER, OTHER), 0);
    }
}

/// Sends a message, and waits until it was received.
fn send(sender: tontine::Result<Sender>) -> tontine::Result<()> {
    let mut sender = sender?;
    sender.send(b"hello")?;
    sender.wait_acked(Some(AMPLE))
}

/// Receives until the child has ended, and checks that it succeeded. Returns the number of messages
/// and the errors.
fn serve(mailbox: &mut Mailbox, child: i32) -> (usize, Vec<Error>) {
    let (started, mut received, mut errors) = (Instant::now(), 0, Vec::new());
    loop {
        let status = ended(child);
        received += usize::from(mailbox.recv_timeout(SHORT / 10).is_ok());
        mailbox.ack();
        errors.extend(mailbox.take_errors());
        if let Some(status) = status {
            assert_eq!(status, 0, "{errors:?}");
            return (received, errors);
        }
        assert!(started.elapsed() < AMPLE);
    }
}

#[test]
fn senders_of_allowed_group_are_accepted() {
    alone!();
    let Some((place, mut mailbox)) = bound_for_group() else { return };
    let mut many: Vec<u32> = (5000..5040).collect();
    many.push(ALLOWED);
    let cases: [(u32, &[u32], bool); 5] = [
        (ALLOWED, &[], true),
        (OTHER, &[ALLOWED], true),
        // More groups than the first attempt has space for.
        (OTHER, &many, true),
        (OTHER, &many[..40], false),
        (OTHER, &[], false),
    ];
    for (gid, groups, is_allowed) in cases {
        let child = fork(|| {
            become_other(gid, groups);
            match send(Options::new().allow_uid(0).connect(&place.path)) {
                Ok(()) => assert!(is_allowed),
                Err(error) => assert!(!is_allowed && error.errno() == libc::EACCES, "{error}"),
            }
        });
        let (received, errors) = serve(&mut mailbox, child);
        assert_eq!(received, usize::from(is_allowed), "{gid}, {groups:?}: {errors:?}");
        let texts: Vec<String> = errors.iter().map(Error::to_string).collect();
        let names_group = |text: &String| text.contains("expected uid 0 or gid 4711");
        assert!(texts.iter().all(names_group) && texts.is_empty() == is_allowed, "{texts:?}");
    }
}

/// Checks that a connection alone admits no other process: a member of the group passes it to a
/// process that is not one.
#[test]
fn connection_passed_to_other_process_is_refused() {
    alone!();
    let Some((place, mut mailbox)) = bound_for_group() else { return };
    let member = Child::fork(|pipe| {
        become_other(OTHER, &[ALLOWED]);
        pipe.send_descriptor(crate::raw::dial(&place.path).as_fd());
    });
    let socket = member.pipe.receive_descriptor();
    let stranger = fork(|| {
        become_other(OTHER, &[]);
        let sender = Options::new().allow_uid(0).connect_socket(socket);
        assert_eq!(send(sender).expect_err("refused").errno(), libc::EACCES);
    });
    let (received, errors) = serve(&mut mailbox, stranger);
    assert_eq!(received, 0);
    assert!(matches!(errors[..], [Error::Denied { .. }]), "{errors:?}");
}
