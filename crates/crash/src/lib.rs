//! Kills a process at every instruction of an operation, and judges what the others are left with.
//!
//! One exploration flows through the modules in this order:
//!
//! 1. [`subject`] holds the registry: each [`subject::Subject`] is one mechanism that carries
//!    numbered messages ([`message`]) from a sender to a receiver, and names the operations that
//!    come under the knife.
//! 2. [`stage`] starts *actors*, fresh processes without address randomisation, each with one end
//!    of the mechanism in its hands; [`actor`] is the program that they run, and `patience`
//!    measures how long they may take.
//! 3. `knife` traces the victim: it records one stepped run of the operation, and later leads
//!    fresh victims to one point of that recording, where they are killed.
//! 4. [`explore`] does this for one point a class, for pairs or for all, and asks the survivors to
//!    go on; what they receive is compared with what was acknowledged ([`verdict`]).
//! 5. [`report`] holds what came out, and prints it.
//!
//! What it does not do: kill at random (`tontine measure` does), explore thread schedules, or trace
//! the helper threads that a library starts: these run on beside the victim's own thread.
//!
//! Floors, from the bottom up: `message`, `mode`; `verdict`, `patience`, `place`;
//! `subject`; `actor`; `stage`; `knife`; `report`; `explore`.
//!
//! It needs x86-64 Linux that allows `ptrace` and `personality`; where it does not, a subject is
//! *skipped*, with the reason.

pub mod actor;
pub mod explore;
mod knife;
pub mod message;
mod mode;
mod patience;
pub mod place;
pub mod report;
pub mod stage;
pub mod subject;
pub mod verdict;

pub use explore::{Request, run};
pub use mode::Mode;
