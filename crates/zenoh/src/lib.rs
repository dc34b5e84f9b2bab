//! Carries the frames between Tontine's gateways over Zenoh: [`ZenohLink`].
//!
//! The link is a [`tontine_remote::link::Link`]. Zenoh may lose frames without an error (a peer that
//! is stopped, a connection that ends), so that nothing here promises delivery: the protocol of
//! [`tontine_remote`] repeats what is not acknowledged.
//!
//! - [`ZenohOptions`] has the names and endpoints, and refuses endpoints without a cipher.
//! - `settings` makes Zenoh's configuration, with the access control by the names in certificates.
//! - `outbox` sends: one queue and one thread for each peer, because Zenoh's `put` waits.
//! - `inbox` receives: one queue for each peer, filled by Zenoh's threads.
//! - [`certificates`] makes the certificates of a realm.
//!
//! The package is not a member of the workspace, because Zenoh brings two hundred packages along.

pub mod certificates;
mod error;
mod inbox;
mod link;
mod options;
mod outbox;
mod settings;

pub use error::ZenohError;
pub use link::{CarrierCounts, ZenohLink};
pub use options::{Certificates, ZenohOptions};
