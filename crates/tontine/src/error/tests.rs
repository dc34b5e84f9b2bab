//! The numbers, texts and conversions of [`Error`].

use super::*;

const PEER: Peer = Peer { pid: Some(4711), uid: 1000 };

fn each() -> Vec<Error> {
    vec![
        Error::OwnerDied { peer: PEER },
        Error::Closed { peer: PEER },
        Error::Unreachable { peer: PEER },
        Error::InvalidPosition { position: 12, from: 8, to: 16 },
        Error::WouldBlock,
        Error::TimedOut,
        Error::Interrupted,
        Error::NoSenders,
        Error::Woken,
        Error::TooLarge { len: 70, max: 64, set_by: None },
        Error::Forked,
        Error::AddrInUse { address: "/run/a".into(), holder: Some(4711) },
        Error::NameLost { address: "/run/a".into(), what: "its lock file" },
        Error::NoMailbox { address: "@a".into() },
        Error::Denied { peer: PEER, allowed: [0].into(), allowed_groups: [].into() },
        Error::Refused { errno: libc::ENOSPC },
        Error::VersionMismatch { ours: 1, theirs: 2 },
        Error::Protocol { peer: PEER, what: "expected a, found b" },
        Error::CannotRegister { reason: "made by a bare clone" },
        Error::InvalidAddress { address: "/x".into(), reason: "too long" },
        Error::InvalidSocket { reason: "expected a, found b" },
        Error::NoSharedClock { found: "hpet".into() },
        Error::InvalidOption { option: "max_lanes", value: 0, reason: "allow one" },
        Error::Full { what: "mailboxes", max: 1024 },
        Error::ChunksHeld { held: 4096, cap: 8192, is_unknown: true },
        Error::FileTooLarge { requested: 8192, limit: 4096 },
    ]
}

#[test]
fn errno_of_each_variant_is_unique() {
    let mut seen = std::collections::BTreeMap::new();
    for error in each() {
        assert!(error.errno() > 0, "{error:?}");
        if let Some(other) = seen.insert(error.errno(), error.clone()) {
            panic!("{other:?} and {error:?} have the same number");
        }
    }
    assert_eq!(Error::system("mmap", Errno::NOMEM).errno(), libc::ENOMEM);
}

#[test]
fn error_text_names_peer_and_remedy() {
    let texts: Vec<String> = each().iter().map(Error::to_string).collect();
    assert_eq!(texts, each().iter().map(|error| format!("{error:?}")).collect::<Vec<_>>());
    let expected = [
        "pid 4711 (uid 1000) died; take the unread messages back, or connect to its successor",
        "pid 4711 (uid 1000) has closed its mailbox or this lane, and accepts no more \
         messages; take the unread ones back",
        "pid 4711 (uid 1000) could not reach the receiver's host; take the unread messages \
         back, or connect again",
        "position 12 is not the end of a record from 8 to 16; use a position that a record \
         reported",
        "the call would block; wait for the descriptor, or use the blocking call",
        "the timeout expired and nothing was sent or received; retry, or allow more time",
        "a signal handler ran while the call slept; call again, or stop",
        "every sender has ended and all messages were received; stop, or receive again to wait \
         for another sender",
        "another thread woke the call; call again, or stop",
        "a message of 70 bytes exceeds the lane's maximum of 64 bytes, a cap set by this end; \
         split the message, or raise that cap (the other end's counts too)",
        "this handle belongs to the process that forked this one; make a new one in the child \
         (first of all its life, by Life::register)",
        "/run/a is in use by pid 4711; wait until its owner ends, or choose another address",
        "its lock file at /run/a was removed or replaced; close the mailbox and bind it again",
        "no process listens at @a; start the receiver, or retry until it has started",
        "pid 4711 (uid 1000) was refused: expected uid 0; if the connection is intended, \
         allow its uid",
        "the receiver refused the lane: No space left on device (os error 28); its process is \
         short of this resource at present: connect again later",
        "expected protocol version 1, found version 2 at the peer; build both programs from \
         releases with the same version",
        "pid 4711 (uid 1000) violated the protocol: expected a, found b; its lane is closed",
        "this thread cannot hold the process's life: made by a bare clone",
        "/x is not a valid address: too long",
        "this socket cannot carry a lane: expected a, found b",
        "a mailbox in causal order needs the processor's counter as the kernel's clock source \
         (tsc or arch_sys_counter), found 'hpet'; use Order::BySender",
        "option max_lanes cannot be 0 (0o0): allow one",
        "this process has reached its limit of 1024 mailboxes; free some first",
        "4096 bytes of a lane with a cap of 8192 are still in use: their release cannot be \
         observed; mount /proc, raise fs.inotify.max_user_instances, or raise lane_cap",
        "a memory file of 8192 bytes exceeds this process's limit of 4096 bytes for a file; \
         raise the limit (RLIMIT_FSIZE, `ulimit -f`), or send smaller messages",
    ];
    assert_eq!(texts, expected);
}

#[test]
fn error_text_includes_optional_parts() {
    let text = Error::AddrInUse { address: "/run/a".into(), holder: None }.to_string();
    assert!(text.starts_with("/run/a is in use by a process whose id is not known"), "{text}");
    let text = Error::TooLarge { len: 70, max: 64, set_by: Some(PEER) }.to_string();
    assert!(text.contains("a cap set by pid 4711 (uid 1000); split"), "{text}");
    let max = LONGEST_MESSAGE;
    let text = Error::TooLarge { len: max + 1, max, set_by: None }.to_string();
    assert!(text.ends_with("the longest that any lane carries; split the message"), "{text}");
    let text = Error::ChunksHeld { held: 1, cap: 2, is_unknown: false }.to_string();
    assert!(text.contains("a process maps them; end the processes"), "{text}");
    let text = Error::NoMailbox { address: "/a\u{1b}[2J\n".into() }.to_string();
    assert!(text.starts_with("no process listens at /a\\u{1b}[2J\\n; "), "{text}");
    let text =
        Error::Denied { peer: PEER, allowed: [0, 7].into(), allowed_groups: [].into() }.to_string();
    assert!(text.contains("refused: expected uid 0 or 7;"), "{text}");
    let allowed_groups = [27, 28].into();
    let text = Error::Denied { peer: PEER, allowed: [0].into(), allowed_groups }.to_string();
    assert!(text.contains("refused: expected uid 0 or gid 27 or gid 28; if"), "{text}");
    let text =
        Error::Denied { peer: PEER, allowed: [1000].into(), allowed_groups: [].into() }.to_string();
    assert!(text.contains("refused: this uid stands for every user"), "{text}");
    let text =
        Error::Denied { peer: PEER, allowed: [].into(), allowed_groups: [].into() }.to_string();
    assert!(text.contains("refused by the other end, which allows other users"), "{text}");
    assert_eq!(Peer { pid: None, uid: 7 }.to_string(), "a process of uid 7");
    assert_eq!(Peer::UNKNOWN.to_string(), "an unidentified process");
    let error = Error::system("chmod", Errno::PERM).at("/run/a");
    let text = "chmod failed at /run/a: Operation not permitted (os error 1)";
    assert_eq!((error.to_string().as_str(), error.errno()), (text, libc::EPERM));
}

#[test]
fn io_error_keeps_kind_text_and_source() {
    use io::ErrorKind;
    let kinds = [
        (Error::Closed { peer: PEER }, ErrorKind::BrokenPipe),
        (Error::WouldBlock, ErrorKind::WouldBlock),
        (Error::TimedOut, ErrorKind::TimedOut),
        (Error::Interrupted, ErrorKind::Interrupted),
        (Error::AddrInUse { address: "@a".into(), holder: None }, ErrorKind::AddrInUse),
        (Error::NoMailbox { address: "@a".into() }, ErrorKind::ConnectionRefused),
        (
            Error::Denied { peer: PEER, allowed: [].into(), allowed_groups: [].into() },
            ErrorKind::PermissionDenied,
        ),
        (Error::Refused { errno: libc::ENOSPC }, ErrorKind::ConnectionAborted),
        (Error::InvalidAddress { address: "/x".into(), reason: "" }, ErrorKind::InvalidInput),
        (Error::system("mmap", Errno::NOMEM), ErrorKind::OutOfMemory),
        (Error::system("bind", Errno::NOENT).at("/run/a"), ErrorKind::NotFound),
    ];
    for (error, kind) in kinds {
        assert_eq!(io::Error::from(error.clone()).kind(), kind, "{error:?}");
    }
    for error in each() {
        let converted = io::Error::from(error.clone());
        assert_eq!(converted.to_string(), error.to_string());
        assert_eq!(converted.kind(), io::Error::from_raw_os_error(error.errno()).kind());
        assert_eq!(converted.downcast::<Error>().ok(), Some(error));
    }
}

#[test]
fn shortage_error_differs_from_final_refusal() {
    for (errno, lack) in [(libc::EMFILE, true), (libc::ENOMEM, true), (libc::ENOBUFS, false)] {
        let refused = Error::Refused { errno };
        let text = refused.to_string();
        assert_eq!(text.contains("connect again later"), lack, "{text}");
        assert_eq!(text.contains("raise its limits"), !lack, "{text}");
        assert_eq!(refused.is_refusal_for_now(), lack);
        let here = Error::system("mmap", Errno::from_raw_os_error(errno));
        assert_eq!(here.is_shortage(), lack, "{here}");
    }
    assert!(!Error::WouldBlock.is_shortage() && !Error::WouldBlock.is_refusal_for_now());
}
