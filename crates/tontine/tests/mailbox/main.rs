//! Tests the mailbox, and the lives of its processes, through the public API.
//!
//! Each test runs in its own process ([`alone`]).

#[macro_use]
#[path = "../alone/mod.rs"]
mod alone;
mod activation;
mod addresses;
mod allowed_groups;
#[path = "../asleep/mod.rs"]
mod asleep;
mod asynchronous;
mod bad_days;
mod before_welcome;
mod caps;
mod channel;
#[path = "../child/mod.rs"]
mod child;
#[path = "../common/mod.rs"]
mod common;
mod deaths;
mod ended_lane;
mod ends;
mod fairness;
mod footprint;
mod forks;
mod grants;
mod growth;
mod held_chunks;
mod holding;
mod interrupts;
mod last_look;
mod last_sender;
mod life;
mod messages;
mod namespaces;
mod no_memory;
mod no_system_call;
mod order;
mod owner_wait;
mod path_lock;
#[path = "../raw/mod.rs"]
mod raw;
mod redelivered;
mod relay;
mod relay_ends;
mod requested_back;
mod reservation;
mod set;
mod shortage;
mod space;
mod streams;
mod succession;
mod wake;
