//! Carries the frames between Tontine's gateways over Zenoh: [`ZenohLink`].
//!
//! The link is a [`tontine_gateway::link::Link`]. Zenoh may lose frames without an error (a stopped
//! peer, a connection that ends), so that nothing here promises delivery: the protocol of
//! [`tontine_gateway`] repeats what is not acknowledged.
//!
//! - [`ZenohOptions`] has the names and endpoints, and refuses endpoints without a cipher.
//! - `settings` makes Zenoh's configuration, with the access control by the names in certificates.
//! - `peer_sender` sends: one queue and one thread for each peer, because Zenoh's `put` waits.
//! - `receive_queues` receives: one queue for each peer, filled by Zenoh's threads.
//! - [`certificates`] makes the certificates of a realm.
//!
//! The package is not a member of the workspace, because Zenoh brings two hundred packages along.

// Floors, from the bottom up: `error`; `options`, `receive_queues`; `certificates`, `peer_sender`,
// `settings`; `link`.

pub mod certificates;
mod error;
mod link;
mod options;
mod peer_sender;
mod receive_queues;
mod settings;

pub use error::ZenohError;
pub use link::{CarrierCounts, ZenohLink};
pub use options::{Certificates, ZenohOptions};
