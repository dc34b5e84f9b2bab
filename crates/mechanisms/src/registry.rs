//! The registry of mechanisms: [`ALL`], and access to a mechanism's ends by its name.
//!
//! The registry has one line per mechanism, in the order of the rows.

use tontine_host::error::{MeasureError, Result};

use crate::about::{Asked, Listing, Mechanism};
use crate::driver::{Driver, NamedUser, PairUser, StreamUser, Traffic};
use crate::{
    boost_queue, condvar, crossbeam, elsewhere, eventfd, futex, iceoryx, mailbox, pipe, posix_mq,
    ring, robust_monitored, robust_ring, rtrb, semaphore, semaphore_ring, signal, socket, spinlock,
    zeromq,
};

/// Defines the registry of these drivers.
macro_rules! registry {
    ($($driver:ty),* $(,)?) => {
        /// All mechanisms, in the order of the rows.
        pub static ALL: &[Mechanism] = &[$(<$driver as Driver>::MECHANISM),*];

        /// Lets `user` open two ends of the mechanism `name`.
        ///
        /// # Errors
        /// Returns `Skipped` if this build lacks the mechanism, `Failed` if it has no pairs or is
        /// unknown.
        pub fn pairs<U: PairUser>(name: &str, user: U) -> Result<U::Out> {
            $(if <$driver as Driver>::MECHANISM.name == name {
                return <$driver as Driver>::pairs(user).ok_or_else(|| lacking(name));
            })*
            Err(lacking(name))
        }

        /// Lets `user` open a stream of the mechanism `name`.
        ///
        /// # Errors
        /// Returns the errors of [`pairs`].
        pub fn streams<U: StreamUser>(name: &str, traffic: Traffic, user: U) -> Result<U::Out> {
            $(if <$driver as Driver>::MECHANISM.name == name {
                return <$driver as Driver>::streams(traffic, user).ok_or_else(|| lacking(name));
            })*
            Err(lacking(name))
        }

        /// Lets one user each open the named ends of every mechanism that offers them, in the order
        /// of the rows.
        pub fn named<U: NamedUser>(mut user: impl FnMut() -> U) -> Vec<U::Out> {
            let mut all = Vec::new();
            $(all.extend(<$driver as Driver>::named(user()));)*
            all
        }
    };
}

registry![
    elsewhere::FlagInOneLine,
    elsewhere::FlagInTwoLines,
    spinlock::SpinThreads<false>,
    spinlock::SpinThreads<true>,
    semaphore::SemaphoreThreads,
    spinlock::SpinProcesses<false>,
    spinlock::SpinProcesses<true>,
    semaphore::SemaphoreProcesses,
    futex::FutexEnd,
    condvar::Guest,
    eventfd::Eventfd,
    pipe::Pipe,
    socket::UnixStream,
    socket::UnixSeqpacket,
    socket::TcpLoopback,
    posix_mq::PosixMq,
    signal::Usr1,
    ring::Under<semaphore_ring::Semaphores>,
    ring::Under<robust_ring::Robust>,
    robust_monitored::MonitoredRing,
    boost_queue::BoostQueue,
    boost_queue::MonitoredBoostQueue,
    zeromq::Inproc,
    zeromq::Ipc,
    zeromq::MonitoredIpc,
    crossbeam::Crossbeam,
    rtrb::Rtrb,
    iceoryx::Iceoryx,
    iceoryx::MonitoredIceoryx,
    mailbox::Spin,
    mailbox::Sleep,
    mailbox::DefaultOptions,
    mailbox::MailboxMechanism,
    mailbox::ZeroCopy,
    mailbox::Succession,
    mailbox::RelayMechanism,
    elsewhere::BlockHandOver,
    elsewhere::ContainerTcp,
    elsewhere::ContainerUnix,
    elsewhere::ContainerNetns,
];

/// Returns the mechanism with this name.
pub fn find(name: &str) -> Option<&'static Mechanism> {
    ALL.iter().find(|mechanism| mechanism.name == name)
}

/// Returns the mechanisms that an experiment measures, each with its row there.
pub fn rows(asked: Asked) -> impl Iterator<Item = (&'static Mechanism, &'static Listing)> {
    ALL.iter().filter_map(move |mechanism| Some((mechanism, mechanism.row(asked)?)))
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
    use super::*;
    use crate::about::{Between, Death, Idle, Twin};
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
                    assert!(find(twin).is_some_and(|twin| twin.idle == Idle::Sleeps), "{twin}");
                }
                Some(Twin::BetweenProcesses(twin)) => {
                    let between = find(twin).map(|twin| twin.between);
                    assert_eq!(between, Some(Between::Processes), "{twin}");
                }
                None => {}
            }
            if let Death::LeavesOne { row: other, .. } | Death::As { other, .. } = one.death {
                let killed = find(other).and_then(|other| other.row(Asked::Survival));
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
            if one.row(Asked::Throughput).is_some() {
                assert!(streams(one.name, traffic, Ends).is_ok(), "{}", one.name);
            }
            if one.row(Asked::Survival).is_some() {
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
