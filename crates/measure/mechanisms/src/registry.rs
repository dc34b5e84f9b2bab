//! The registry of mechanisms: [`ALL`], and access to a mechanism's ends by its name.

use tontine_bench::error::{MeasureError, Result};

use crate::about::{Listing, Mechanism, RowKind};
use crate::driver::{NamedUser, PairUser, StreamUser, Traffic};
use crate::spinlock::SpinlockEnd;
use crate::{
    boost_queue, cloudtoid, condvar, crossbeam, elsewhere, eventfd, futex, iceoryx, mailbox, pipe,
    posix_mq, ring, robust_monitored, robust_ring, rtrb, semaphore, semaphore_ring, signal, socket,
    spinlock, zeromq,
};

/// Size in bytes of the message of a round trip that passes a word.
const WORD: usize = size_of::<u64>();

/// Defines the registry: each mechanism with the types that implement its shapes. Two ends are
/// those of `threads` or of `processes`; a number is the size of a round trip's message. The type
/// after `words` opens the streams whose messages are a word.
macro_rules! registry {
    ($(
        $(#[$gate:meta])?
        $mechanism:path => {
            $(pairs: $pairs:ident($pair:ty, $bytes:expr),)?
            $(words: $words:ident($word:ty),)?
            $(streams: $streams:ident($stream:ty),)?
            $(named: $named:ty,)?
        }
    )*) => {
        /// All mechanisms, in the order of the rows.
        pub static ALL: &[Mechanism] = &[$($mechanism),*];

        pub fn pairs<U: PairUser>(name: &str, user: U) -> Result<U::Out> {
            $($(#[$gate])? {
                $(if $mechanism.name == name {
                    return Ok(user.$pairs::<$pair, { $bytes }>());
                })?
            })*
            Err(lacking(name))
        }

        #[cfg_attr(
            not(feature = "peers"),
            allow(unused_variables, reason = "only peers have a stream of words of its own")
        )]
        pub fn streams<U: StreamUser>(name: &str, traffic: Traffic, user: U) -> Result<U::Out> {
            $($(#[$gate])? {
                $(if $mechanism.name == name && traffic.bytes == WORD {
                    return Ok(user.$words::<$word>());
                })?
                $(if $mechanism.name == name {
                    return Ok(user.$streams::<$stream>());
                })?
            })*
            Err(lacking(name))
        }

        /// Lets one user each open the named ends of every mechanism that offers them, in the order
        /// of the rows.
        pub fn named<U: NamedUser>(mut user: impl FnMut() -> U) -> Vec<U::Out> {
            let mut all = Vec::new();
            $($(#[$gate])? {
                $(all.push(user().named::<$named>($mechanism));)?
            })*
            all
        }
    };
}

registry! {
    elsewhere::FLAG_IN_ONE_LINE => {}
    elsewhere::FLAG_IN_TWO_LINES => {}
    spinlock::TAS => { pairs: threads(SpinlockEnd<false>, 1), }
    spinlock::TTAS => { pairs: threads(SpinlockEnd<true>, 1), }
    semaphore::THREADS => { pairs: threads(semaphore::Poster, WORD), }
    spinlock::TAS_PROCESS => { pairs: processes(SpinlockEnd<false>, 1), }
    spinlock::TTAS_PROCESS => { pairs: processes(SpinlockEnd<true>, 1), }
    semaphore::PROCESSES => { pairs: processes(semaphore::Poster, WORD), }
    futex::MECHANISM => { pairs: processes(futex::FutexEnd, 1), }
    condvar::MECHANISM => { pairs: processes(condvar::Guest, 1), }
    eventfd::MECHANISM => { pairs: processes(eventfd::Eventfd, WORD), }
    pipe::MECHANISM => {
        pairs: processes(pipe::Pipe, 1),
        streams: processes(pipe::Pipe),
        named: pipe::Pipe,
    }
    socket::UNIX_STREAM => {
        pairs: processes(socket::UnixStream, 1),
        streams: processes(socket::UnixStream),
    }
    socket::UNIX_SEQPACKET => {
        pairs: processes(socket::UnixSeqpacket, 1),
        streams: processes(socket::UnixSeqpacket),
    }
    socket::TCP_LOOPBACK => {
        pairs: processes(socket::TcpLoopback, 1),
        streams: processes(socket::TcpLoopback),
    }
    posix_mq::MECHANISM => {
        pairs: processes(posix_mq::PosixMq, 1),
        streams: processes(posix_mq::PosixMq),
        named: posix_mq::PosixMq,
    }
    signal::MECHANISM => { pairs: processes(signal::Usr1, 1), }
    semaphore_ring::MECHANISM => {
        pairs: processes(ring::Under<semaphore_ring::Semaphores>, WORD),
        streams: processes(ring::Under<semaphore_ring::Semaphores>),
        named: ring::Under<semaphore_ring::Semaphores>,
    }
    robust_ring::MECHANISM => {
        pairs: processes(ring::Under<robust_ring::Robust>, WORD),
        streams: processes(ring::Under<robust_ring::Robust>),
        named: ring::Under<robust_ring::Robust>,
    }
    robust_monitored::MECHANISM => { pairs: processes(robust_monitored::MonitoredRing, WORD), }
    boost_queue::PLAIN => { pairs: processes(boost_queue::BoostQueue, WORD), }
    boost_queue::MONITORED => { pairs: processes(boost_queue::MonitoredBoostQueue, WORD), }
    #[cfg(feature = "peers")]
    zeromq::INPROC => {
        pairs: threads(zeromq::Inproc, 1),
        streams: threads(zeromq::Inproc),
    }
    #[cfg(feature = "peers")]
    zeromq::IPC => {
        pairs: processes(zeromq::Ipc, 1),
        streams: processes(zeromq::Ipc),
        named: zeromq::Ipc,
    }
    #[cfg(feature = "peers")]
    zeromq::MONITORED_IPC => { pairs: processes(zeromq::MonitoredIpc, 1), }
    #[cfg(feature = "peers")]
    crossbeam::MECHANISM => {
        pairs: threads(crossbeam::Crossbeam, 1),
        streams: threads(crossbeam::Crossbeam),
    }
    #[cfg(feature = "peers")]
    rtrb::MECHANISM => {
        pairs: threads(rtrb::rings::Bytes, 1),
        words: threads(rtrb::rings::WordRing),
        streams: threads(rtrb::rings::Bytes),
    }
    #[cfg(feature = "peers")]
    iceoryx::PLAIN => {
        pairs: processes(iceoryx::Iceoryx, WORD),
        streams: processes(iceoryx::Iceoryx),
        named: iceoryx::Iceoryx,
    }
    #[cfg(feature = "peers")]
    iceoryx::MONITORED => { pairs: processes(iceoryx::MonitoredIceoryx, WORD), }
    #[cfg(feature = "peers")]
    cloudtoid::POLLING => {
        pairs: processes(cloudtoid::queues::CloudtoidQueues<true>, WORD),
        streams: processes(cloudtoid::queues::CloudtoidQueues<true>),
    }
    #[cfg(feature = "peers")]
    cloudtoid::WAITING => {
        pairs: processes(cloudtoid::queues::CloudtoidQueues<false>, WORD),
        streams: processes(cloudtoid::queues::CloudtoidQueues<false>),
        named: cloudtoid::queues::CloudtoidQueues<false>,
    }
    mailbox::SPIN => { pairs: processes(mailbox::Spin, WORD), }
    mailbox::SLEEP => {}
    mailbox::DEFAULT_OPTIONS => { pairs: processes(mailbox::DefaultOptions, WORD), }
    mailbox::MAILBOX => {
        pairs: processes(mailbox::MailboxMechanism, WORD),
        streams: processes(mailbox::LaneStream<true>),
        named: mailbox::ByPath<false>,
    }
    mailbox::CAUSAL => {
        pairs: processes(mailbox::Causal, WORD),
        streams: processes(mailbox::LaneStream<true, true>),
        named: mailbox::Causal,
    }
    mailbox::ZERO_COPY => { streams: processes(mailbox::LaneStream<false>), }
    mailbox::SUCCESSION => { named: mailbox::ByPath<true>, }
    mailbox::RELAY => { named: mailbox::RelayByPath, }
    elsewhere::HAND_OVER => {}
    elsewhere::CONTAINER_TCP => {}
    elsewhere::CONTAINER_UNIX => {}
}

pub fn find(name: &str) -> Option<&'static Mechanism> {
    ALL.iter().find(|mechanism| mechanism.name == name)
}

/// Returns the mechanisms that an experiment measures, each with its row there.
pub fn rows(kind: RowKind) -> impl Iterator<Item = (&'static Mechanism, &'static Listing)> {
    ALL.iter().filter_map(move |mechanism| Some((mechanism, mechanism.row(kind)?)))
}

/// Returns the reason why a mechanism cannot be used in a shape.
fn lacking(name: &str) -> MeasureError {
    match find(name) {
        None => MeasureError::fail(format!("there is no mechanism {name}")),
        Some(mechanism) => match mechanism.missing_feature() {
            Some(feature) => MeasureError::skip(format!("built without the feature `{feature}`")),
            None => MeasureError::fail(format!("{name} does not have ends of this shape")),
        },
    }
}

#[cfg(test)]
mod tests {
    use tontine_bench::about::Idling;

    use super::*;
    use crate::about::{Between, Death, Twin};
    use crate::driver::{PairDriver, StreamDriver};

    /// The kind of ends with which a shape is opened.
    struct Ends;

    impl PairUser for Ends {
        type Out = Between;

        fn threads<P: PairDriver<Half: Send>, const BYTES: usize>(self) -> Between {
            Between::Threads
        }

        fn processes<P: PairDriver, const BYTES: usize>(self) -> Between {
            Between::Processes
        }
    }

    impl StreamUser for Ends {
        type Out = Between;

        fn threads<S: StreamDriver<Out: Send>>(self) -> Between {
            Between::Threads
        }

        fn processes<S: StreamDriver>(self) -> Between {
            Between::Processes
        }
    }

    #[test]
    fn mechanism_names_are_unique_and_references_exist() {
        for (at, one) in ALL.iter().enumerate() {
            assert!(ALL[..at].iter().all(|other| other.name != one.name), "{}", one.name);
            match one.twin {
                Some(Twin::Sleeping(twin)) => {
                    assert!(find(twin).is_some_and(|twin| twin.idle == Idling::Sleeps), "{twin}");
                }
                Some(Twin::BetweenProcesses(twin)) => {
                    let between = find(twin).map(|twin| twin.between);
                    assert_eq!(between, Some(Between::Processes), "{twin}");
                }
                None => {}
            }
            if let Death::LeavesOne { row: other, .. } | Death::As { other, .. } = one.death {
                let killed = find(other).and_then(|other| other.row(RowKind::Survival));
                assert!(killed.is_some(), "{}: no row kills {other}", one.name);
            }
        }
    }

    #[test]
    fn shape_opens_between_both_ends_of_its_mechanism() {
        let traffic = Traffic { bytes: 8, senders: 1 };
        for one in ALL {
            let shapes = [pairs(one.name, Ends), streams(one.name, traffic, Ends)];
            for between in shapes.into_iter().flatten() {
                assert_eq!(between, one.between, "{}", one.name);
            }
        }
    }

    #[test]
    fn row_has_the_shape_of_its_experiment() {
        let traffic = Traffic { bytes: 8, senders: 1 };
        let built = |one: &&Mechanism| one.missing_feature().is_none();
        for one in ALL.iter().filter(built) {
            if one.row(RowKind::Throughput).is_some() {
                assert!(streams(one.name, traffic, Ends).is_ok(), "{}", one.name);
            }
            if one.row(RowKind::Survival).is_some() {
                assert!(pairs(one.name, Ends).is_ok(), "{}", one.name);
            }
        }
    }

    #[test]
    fn missing_shape_returns_its_reason() {
        let unknown = pairs("pigeon", Ends).expect_err("there are no pigeons");
        assert!(unknown.why().contains("pigeon"), "{unknown}");
        assert!(streams("futex", Traffic { bytes: 8, senders: 1 }, Ends).is_err());
        #[cfg(not(feature = "peers"))]
        assert!(pairs("rtrb", Ends).is_err_and(|why| why.why().contains("feature `peers`")));
    }
}
