//! Rules of groups, sessions, job control, terminals, pipes and tracing. Each test is named after
//! its rule and runs in every mode on both executors ([`scene::everywhere`]), and also on Linux if
//! it requests so.

mod console;
mod descriptors;
mod groups;
mod job_control;
mod orphans;
mod ownership;
mod pipes;
mod scene;
mod sessions;
mod terminal;
mod tracees;
mod tracing;
mod typing;
