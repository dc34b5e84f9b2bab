//! Carries the lanes of Tontine's mailboxes between hosts: a gateway per host, between whose
//! programs and the network it stands.
//!
//! - [`gateway`]: the [`Gateway`](gateway::Gateway) of one host. It reads local senders' messages
//!   ahead of their acknowledgement, and is a sender of local mailboxes for remote programs.
//! - [`outgoing`], [`incoming`], [`detector`]: the protocol between two gateways, without input,
//!   output or clock. [`frame`] describes its frames.
//! - [`link`]: the trait of a carrier, which may lose, repeat, delay and reorder frames. [`tcp`] is
//!   a carrier for one machine or a trusted cable, [`memory`] one for tests.
//! - [`config`], [`service`], [`status`]: the configuration file, the running service, its state.
//!
//! The command `tontine bridge` runs a gateway. See `docs/guides/across-machines.md` for its use,
//! `docs/internals/remote.md` for the protocol, and
//! `docs/decisions/0021-across-machines.md` for the reasons.

// Floors, from the bottom up: `frame`, `link`; `detector`, `outgoing`; `incoming`, `memory`, `tcp`,
// `config`, `status`; `gateway`; `service`.

pub mod config;
pub mod detector;
pub mod frame;
pub mod gateway;
pub mod incoming;
pub mod link;
pub mod memory;
pub mod outgoing;
pub mod service;
pub mod status;
pub mod tcp;
