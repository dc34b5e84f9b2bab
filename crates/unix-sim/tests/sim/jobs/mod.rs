//! Groups, sessions, job control, terminals, pipes and tracing, rule by rule: each test is named
//! after one and holds in every mode, on both executors ([`scene::everywhere`]), and on Linux where
//! a test says so.

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
