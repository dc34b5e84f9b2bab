//! The mailbox's promises P1 to P9 on the local mailbox, through two gateways on the carrier in
//! memory, and through two gateways on TCP, which are processes.
//!
//! `suite` knows no carrier; `route` lists what lies between the programs, and which promises
//! differ across machines. `deaths` kills and stops the processes on TCP, `starts` begins lanes at
//! owners that are not ready, `hostile` contains peers that break the protocol.

#[macro_use]
#[path = "../../../../tontine/tests/alone/mod.rs"]
mod alone;
#[path = "../../../../tontine/tests/child/mod.rs"]
mod child;
mod deaths;
mod hostile;
#[path = "../hosts/mod.rs"]
mod hosts;
#[path = "../../../../tontine/tests/raw/mod.rs"]
mod raw;
mod route;
mod starts;
mod suite;
