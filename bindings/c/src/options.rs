//! Settings of a mailbox or a sender: [`tontine_options`]. The program may have been compiled with
//! an older or a newer struct.

#![allow(unsafe_code, reason = "a struct of a program in C, of a size that it names")]

use std::time::Duration;

use tontine::mailbox::{
    Fences, MailboxOptions, OnDeath, Options, Order, SenderOptions, WaitStrategy,
};

use crate::border::{CError, CResult};

/// wait_strategy: poll continuously; lowest latency, but occupies a whole processor.
pub const TONTINE_WAIT_STRATEGY_SPIN: u32 = 1;
/// wait_strategy: sleep in the kernel immediately.
pub const TONTINE_WAIT_STRATEGY_SLEEP: u32 = 2;
/// wait_strategy: poll for spin_ns, then sleep.
pub const TONTINE_WAIT_STRATEGY_SPIN_THEN_SLEEP: u32 = 3;
/// wait_strategy: poll for up to 100 microseconds while that pays, then sleep.
pub const TONTINE_WAIT_STRATEGY_ADAPTIVE: u32 = 4;

/// fences: no memory fence in a send; an end that is about to sleep interrupts the other
/// processors.
pub const TONTINE_FENCES_ASYMMETRIC: u32 = 1;
/// fences: one memory fence in each send, about 5 ns.
pub const TONTINE_FENCES_SYMMETRIC: u32 = 2;

/// on_death: if the receiver dies, sends fail with EOWNERDEAD; tontine_sender_take_unread() returns
/// the messages that the receiver did not acknowledge.
pub const TONTINE_ON_DEATH_FAIL: u32 = 1;
/// on_death: if the receiver dies, the sender keeps the messages that the receiver did not
/// acknowledge, and hands them to the next owner of the address. If the receiver closes its
/// mailbox, sends fail with EPIPE.
pub const TONTINE_ON_DEATH_WAIT_FOR_SUCCESSOR: u32 = 2;
/// on_death: like TONTINE_ON_DEATH_WAIT_FOR_SUCCESSOR, but the sender waits even if the receiver
/// closes its mailbox.
pub const TONTINE_ON_DEATH_WAIT_THROUGH_RESTARTS: u32 = 3;

/// allow: only processes of this process's effective user.
pub const TONTINE_ALLOW_OWN_UID: u32 = 1;
/// allow: processes of the user allowed_uid as well.
pub const TONTINE_ALLOW_UID: u32 = 2;
/// allow: processes of any user.
pub const TONTINE_ALLOW_ANY_UID: u32 = 3;
/// allow: a mailbox also accepts senders whose effective or supplementary group is allowed_gid.
pub const TONTINE_ALLOW_GID: u32 = 4;

/// order: each sender's messages are received in the order in which it sent them.
pub const TONTINE_ORDER_BY_SENDER: u32 = 1;
/// order: a message that was sent after another, by a sender that could know this, is also received
/// after it. ENOSYS from tontine_mailbox_bind() and tontine_mailbox_unbound() if the kernel's clock
/// source is not the processor's counter.
pub const TONTINE_ORDER_CAUSAL: u32 = 2;

/// raise_descriptor_limit: a lack of descriptors doubles the process's soft limit (RLIMIT_NOFILE),
/// up to the hard limit.
pub const TONTINE_RAISE_DESCRIPTOR_LIMIT_YES: u32 = 1;
/// raise_descriptor_limit: the limit stays as it is.
pub const TONTINE_RAISE_DESCRIPTOR_LIMIT_NO: u32 = 2;

/// report_no_senders: receiving calls fail with ENOTCONN once every sender that had connected has
/// ended and its messages were received, until the next sender connects.
pub const TONTINE_REPORT_NO_SENDERS_YES: u32 = 1;
/// report_no_senders: receiving calls wait for the next sender.
pub const TONTINE_REPORT_NO_SENDERS_NO: u32 = 2;

/// Settings of a mailbox or a sender; each ignores the settings that only the other uses. Clear the
/// struct, set struct_size, then the settings that should differ from the defaults, in C by names,
/// or in C and in every C++ with an initialiser that sets struct_size alone:
///
///     tontine_options options = { .struct_size = sizeof options, .lane_cap = 1 << 20 };
///
///     tontine_options options = TONTINE_OPTIONS_INIT;
///     options.lane_cap = 1 << 20;
///
/// In every setting, 0 means the default. A program that was compiled with an older, smaller struct
/// keeps working. A program that was compiled with a newer, larger struct works if it uses no new
/// setting (otherwise: E2BIG).
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct tontine_options {
    /// sizeof(tontine_options).
    pub struct_size: usize,
    /// Maximum number of bytes of shared memory for the messages of one lane; default 64 MiB. If
    /// the two ends have different caps, the smaller one applies.
    pub lane_cap: u64,
    /// Maximum number of bytes of shared memory for all lanes of a mailbox together; default 1 GiB.
    pub mailbox_cap: u64,
    /// Maximum number of senders that a mailbox accepts at the same time; default 1024.
    pub max_lanes: u64,
    /// Number of bytes of shared memory with which a lane begins; default 4096. The lane grows up
    /// to lane_cap.
    pub first_chunk: u64,
    /// Time to poll before sleeping with SPIN_THEN_SLEEP, in nanoseconds; default 20000.
    pub spin_ns: u64,
    /// Maximum time that a peer may take, after it has connected, to send its first control
    /// message; default 5000.
    pub handshake_timeout_ms: u64,
    /// Time for which a lane that has grown must be empty before it shrinks; default 50.
    pub shrink_after_ms: u64,
    /// TONTINE_WAIT_STRATEGY_...; default SPIN_THEN_SLEEP if spin_ns is set, else ADAPTIVE.
    pub wait_strategy: u32,
    /// TONTINE_FENCES_...; default ASYMMETRIC.
    pub fences: u32,
    /// TONTINE_ON_DEATH_...; default FAIL.
    pub on_death: u32,
    /// TONTINE_ALLOW_...; default OWN_UID.
    pub allow: u32,
    /// User id for TONTINE_ALLOW_UID.
    pub allowed_uid: u32,
    /// Permissions of the socket in the file system; default 0600, at most 0777.
    pub mode: u32,
    /// TONTINE_RAISE_DESCRIPTOR_LIMIT_...; default YES. Programs that the process starts afterwards
    /// inherit the raised limit.
    pub raise_descriptor_limit: u32,
    /// TONTINE_ORDER_...; default BY_SENDER.
    pub order: u32,
    /// Group id for TONTINE_ALLOW_GID.
    pub allowed_gid: u32,
    /// TONTINE_REPORT_NO_SENDERS_...; default NO.
    pub report_no_senders: u32,
    /// Maximum time for which tontine_sender_connect() waits while the address has no owner;
    /// default 0: it fails with ECONNREFUSED at once.
    pub wait_for_owner_ms: u64,
}

/// Default time to poll before sleeping with `SPIN_THEN_SLEEP`, in nanoseconds.
const SPIN_NS: u64 = 20_000;

/// Maximum size of the struct in any version. A larger `struct_size` means that the program did not
/// set it.
const LARGEST: usize = 4096;

/// The assertion ensures that the struct has no padding, so the program initialises every byte that
/// is read.
const _: () = assert!(size_of::<tontine_options>() == size_of::<usize>() + 8 * 8 + 10 * 4);

/// Returns the default settings of a C program, in which a signal handler ends a blocking call, as
/// C programs expect.
fn defaults() -> Options {
    Options::new().interruptible(true)
}

/// Returns the options that a program gives for a mailbox, or the defaults if `given` is NULL.
///
/// # Safety
/// `given` is NULL, or points to a struct whose first field is its size.
pub(crate) unsafe fn read_for_mailbox(given: *const tontine_options) -> CResult<MailboxOptions> {
    // SAFETY: the caller upholds the same contract.
    Ok(unsafe { read(given) }?.0)
}

/// Like [`read_for_mailbox`], for a sender.
///
/// # Safety
/// As for [`read_for_mailbox`].
pub(crate) unsafe fn read_for_sender(given: *const tontine_options) -> CResult<SenderOptions> {
    // SAFETY: the caller upholds the same contract.
    Ok(unsafe { read(given) }?.1)
}

/// Returns the options of both ends, which are checked whichever end is opened.
///
/// # Safety
/// As for [`read_for_mailbox`].
unsafe fn read(given: *const tontine_options) -> CResult<(MailboxOptions, SenderOptions)> {
    if given.is_null() {
        return Ok((defaults().into(), defaults().into()));
    }
    // SAFETY: the struct of every version begins with its size.
    let size = unsafe { given.cast::<usize>().read_unaligned() };
    let refuse = |errno, text| Err(CError::new(errno, text));
    if size < size_of::<usize>() {
        return refuse(libc::EINVAL, "struct_size is not set; set it to sizeof(tontine_options)");
    }
    if size > LARGEST {
        let text = "struct_size is larger than any tontine_options; set it to its sizeof";
        return refuse(libc::E2BIG, text);
    }
    let known = size.min(size_of::<tontine_options>());
    // SAFETY: the caller's struct has `size` bytes.
    let theirs = unsafe { std::slice::from_raw_parts(given.cast::<u8>(), size) };
    if theirs[known..].iter().any(|byte| *byte != 0) {
        let text =
            "this library does not have a setting that is not 0; clear it, or use a newer one";
        return refuse(libc::E2BIG, text);
    }
    let mut options = tontine_options::default();
    // SAFETY: any bytes are valid integers; `known` is at most the size of either struct.
    unsafe {
        std::ptr::copy_nonoverlapping(given.cast::<u8>(), (&raw mut options).cast(), known);
    }
    options.translate()
}

impl tontine_options {
    fn translate(self) -> CResult<(MailboxOptions, SenderOptions)> {
        let both = self.of_both_ends()?;
        let mut mailbox = MailboxOptions::from(both.clone());
        if self.mailbox_cap != 0 {
            mailbox = mailbox.mailbox_cap(self.mailbox_cap);
        }
        if self.max_lanes != 0 {
            mailbox = mailbox.max_lanes(usize::try_from(self.max_lanes).unwrap_or(usize::MAX));
        }
        if self.shrink_after_ms != 0 {
            mailbox = mailbox.shrink_after(Duration::from_millis(self.shrink_after_ms));
        }
        mailbox = match self.mode {
            0 => mailbox,
            mode if mode <= 0o777 => mailbox.mode(mode),
            mode => {
                let text = format!("mode is {mode:#o}; set at most 0777");
                return Err(CError::new(libc::EINVAL, text));
            }
        };
        mailbox = match self.order {
            0 | TONTINE_ORDER_BY_SENDER => mailbox.order(Order::BySender),
            TONTINE_ORDER_CAUSAL => mailbox.order(Order::Causal),
            _ => return unknown("order"),
        };
        mailbox = match self.report_no_senders {
            0 => mailbox,
            TONTINE_REPORT_NO_SENDERS_YES => mailbox.report_no_senders(true),
            TONTINE_REPORT_NO_SENDERS_NO => mailbox.report_no_senders(false),
            _ => return unknown("report_no_senders"),
        };
        if self.allow == TONTINE_ALLOW_GID {
            mailbox = mailbox.allow_gid(self.allowed_gid);
        }
        let mut sender = SenderOptions::from(both);
        if self.first_chunk != 0 {
            sender = sender.first_chunk(self.first_chunk);
        }
        if self.wait_for_owner_ms != 0 {
            sender = sender.wait_for_owner(Duration::from_millis(self.wait_for_owner_ms));
        }
        sender = match self.on_death {
            0 => sender,
            TONTINE_ON_DEATH_FAIL => sender.on_death(OnDeath::Fail),
            TONTINE_ON_DEATH_WAIT_FOR_SUCCESSOR => sender.on_death(OnDeath::WaitForSuccessor),
            TONTINE_ON_DEATH_WAIT_THROUGH_RESTARTS => sender.on_death(OnDeath::WaitThroughRestarts),
            _ => return unknown("on_death"),
        };
        Ok((mailbox, sender))
    }

    fn of_both_ends(self) -> CResult<Options> {
        let mut options = defaults();
        if self.lane_cap != 0 {
            options = options.lane_cap(self.lane_cap);
        }
        if self.handshake_timeout_ms != 0 {
            let timeout = Duration::from_millis(self.handshake_timeout_ms);
            options = options.handshake_timeout(timeout);
        }
        options = match (self.wait_strategy, self.spin_ns) {
            (0, 0) | (TONTINE_WAIT_STRATEGY_ADAPTIVE, _) => {
                options.wait_strategy(WaitStrategy::Adaptive)
            }
            (0 | TONTINE_WAIT_STRATEGY_SPIN_THEN_SLEEP, spin_ns) => {
                let spin_ns = if spin_ns == 0 { SPIN_NS } else { spin_ns };
                options.wait_strategy(WaitStrategy::SpinThenSleep(Duration::from_nanos(spin_ns)))
            }
            (TONTINE_WAIT_STRATEGY_SPIN, _) => options.wait_strategy(WaitStrategy::Spin),
            (TONTINE_WAIT_STRATEGY_SLEEP, _) => options.wait_strategy(WaitStrategy::Sleep),
            _ => return unknown("wait_strategy"),
        };
        options = match self.fences {
            0 => options,
            TONTINE_FENCES_ASYMMETRIC => options.fences(Fences::Asymmetric),
            TONTINE_FENCES_SYMMETRIC => options.fences(Fences::Symmetric),
            _ => return unknown("fences"),
        };
        options = match self.allow {
            // Groups are those of senders.
            0 | TONTINE_ALLOW_OWN_UID | TONTINE_ALLOW_GID => options,
            TONTINE_ALLOW_UID => options.allow_uid(self.allowed_uid),
            TONTINE_ALLOW_ANY_UID => options.allow_any_uid(),
            _ => return unknown("allow"),
        };
        match self.raise_descriptor_limit {
            0 => Ok(options),
            TONTINE_RAISE_DESCRIPTOR_LIMIT_YES => Ok(options.raise_descriptor_limit(true)),
            TONTINE_RAISE_DESCRIPTOR_LIMIT_NO => Ok(options.raise_descriptor_limit(false)),
            _ => unknown("raise_descriptor_limit"),
        }
    }
}

fn unknown<T>(field: &str) -> CResult<T> {
    let text = format!("{field} has an unknown value; use a constant of tontine.h, or 0");
    Err(CError::new(libc::EINVAL, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: usize = size_of::<tontine_options>();

    fn both(options: Options) -> (MailboxOptions, SenderOptions) {
        (options.clone().into(), options.into())
    }

    fn of(given: &tontine_options) -> Result<String, i32> {
        // SAFETY: in these tests, the struct is at least as large as its first field says.
        let read = unsafe { read(given) };
        read.map(|options| format!("{options:?}")).map_err(|refusal| refusal.errno)
    }

    #[test]
    fn null_and_zeroed_options_mean_defaults() {
        let expected = format!("{:?}", both(defaults()));
        // SAFETY: the pointer is NULL.
        assert_eq!(format!("{:?}", unsafe { read(std::ptr::null()) }.expect("NULL")), expected);
        let zeros = tontine_options { struct_size: WHOLE, ..Default::default() };
        assert_eq!(of(&zeros), Ok(expected));
    }

    #[test]
    fn every_option_field_reaches_library() {
        let all = tontine_options {
            struct_size: WHOLE,
            lane_cap: 1 << 21,
            mailbox_cap: 1 << 22,
            max_lanes: 3,
            first_chunk: 1 << 13,
            spin_ns: 77,
            handshake_timeout_ms: 78,
            shrink_after_ms: 79,
            wait_strategy: TONTINE_WAIT_STRATEGY_SPIN_THEN_SLEEP,
            fences: TONTINE_FENCES_SYMMETRIC,
            on_death: TONTINE_ON_DEATH_WAIT_FOR_SUCCESSOR,
            allow: TONTINE_ALLOW_UID,
            allowed_uid: 4711,
            mode: 0o660,
            raise_descriptor_limit: TONTINE_RAISE_DESCRIPTOR_LIMIT_NO,
            order: TONTINE_ORDER_CAUSAL,
            allowed_gid: 4712,
            report_no_senders: TONTINE_REPORT_NO_SENDERS_YES,
            wait_for_owner_ms: 80,
        };
        let expected = defaults()
            .lane_cap(1 << 21)
            .wait_strategy(WaitStrategy::SpinThenSleep(Duration::from_nanos(77)))
            .handshake_timeout(Duration::from_millis(78))
            .fences(Fences::Symmetric)
            .allow_uid(4711)
            .raise_descriptor_limit(false);
        let expected = (
            expected
                .clone()
                .mailbox_cap(1 << 22)
                .max_lanes(3)
                .shrink_after(Duration::from_millis(79))
                .mode(0o660)
                .order(Order::Causal)
                .report_no_senders(true),
            expected
                .first_chunk(1 << 13)
                .on_death(OnDeath::WaitForSuccessor)
                .wait_for_owner(Duration::from_millis(80)),
        );
        assert_eq!(of(&all), Ok(format!("{expected:?}")));
        let group = tontine_options {
            struct_size: WHOLE,
            allow: TONTINE_ALLOW_GID,
            allowed_gid: 4712,
            ..Default::default()
        };
        let expected = (defaults().allow_gid(4712), SenderOptions::from(defaults()));
        assert_eq!(of(&group), Ok(format!("{expected:?}")));
    }

    #[test]
    fn smaller_options_of_older_program_are_accepted() {
        // The older struct ended after `lane_cap`; the bytes after that are not part of it.
        let older = tontine_options {
            struct_size: size_of::<usize>() + 8,
            lane_cap: 1 << 20,
            wait_strategy: 99,
            ..Default::default()
        };
        assert_eq!(of(&older), Ok(format!("{:?}", both(defaults().lane_cap(1 << 20)))));
        for size in 0..size_of::<usize>() {
            let unset = tontine_options { struct_size: size, ..Default::default() };
            assert_eq!(of(&unset), Err(libc::EINVAL), "{size}");
        }
    }

    #[test]
    fn larger_options_are_accepted_if_new_fields_are_zero() {
        #[repr(C)]
        struct Newer {
            known: tontine_options,
            new: u64,
        }
        let newer = |new| {
            let struct_size = size_of::<Newer>();
            let known = tontine_options { struct_size, lane_cap: 1 << 20, ..Default::default() };
            let newer = Newer { known, new };
            // SAFETY: the struct is as large as its first field says.
            unsafe { read((&raw const newer).cast()) }.map_err(|refusal| refusal.errno)
        };
        assert!(newer(0).is_ok());
        assert_eq!(newer(1).expect_err("unknown"), libc::E2BIG);
        let rubbish = tontine_options { struct_size: LARGEST + 1, ..Default::default() };
        assert_eq!(of(&rubbish), Err(libc::E2BIG));
    }

    #[test]
    fn wait_strategy_without_spin_time_has_its_default() {
        let strategy = |wait_strategy, spin_ns| {
            let given = tontine_options { struct_size: WHOLE, ..Default::default() };
            of(&tontine_options { wait_strategy, spin_ns, ..given })
        };
        let expected = |strategy| Ok(format!("{:?}", both(defaults().wait_strategy(strategy))));
        let spin = |ns| expected(WaitStrategy::SpinThenSleep(Duration::from_nanos(ns)));
        assert_eq!(strategy(TONTINE_WAIT_STRATEGY_SPIN_THEN_SLEEP, 0), spin(20_000));
        assert_eq!(strategy(0, 77), spin(77));
        assert_eq!(strategy(TONTINE_WAIT_STRATEGY_ADAPTIVE, 0), expected(WaitStrategy::Adaptive));
    }

    #[test]
    fn unknown_values_are_refused() {
        let set: [fn(&mut tontine_options); 8] = [
            |options| options.wait_strategy = 5,
            |options| options.fences = 3,
            |options| options.on_death = 4,
            |options| options.allow = 5,
            |options| options.order = 3,
            |options| options.mode = 0o1777,
            |options| options.raise_descriptor_limit = 3,
            |options| options.report_no_senders = 3,
        ];
        for set in set {
            let mut options = tontine_options { struct_size: WHOLE, ..Default::default() };
            set(&mut options);
            assert_eq!(of(&options), Err(libc::EINVAL), "{options:?}");
        }
    }
}
