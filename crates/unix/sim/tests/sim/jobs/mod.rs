//! Rules of job control, terminals, pipes and tracing that no scenario can express. Each test is
//! named after its rule and runs in every mode on both executors ([`scene::everywhere`]), and also
//! on Linux if it requests so.

mod console;
mod descriptors;
mod pipes;
mod scene;
mod terminal;
mod tracees;
mod tracing;
mod typing;
