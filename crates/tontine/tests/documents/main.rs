//! The examples, the guide and the documented layout match the library.

#[path = "../child/mod.rs"]
mod child;
mod examples;
mod guide;
mod layout;
