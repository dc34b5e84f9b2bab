//! The examples, the guide, the documented layout and the machine code match the library.

#[path = "../child/mod.rs"]
mod child;
mod examples;
mod guide;
mod layout;
mod machine_code;
