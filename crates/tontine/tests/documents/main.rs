//! The examples, the guide and the documented layout match the library; so does the machine code.

#[path = "../child/mod.rs"]
mod child;
mod examples;
mod guide;
mod layout;
mod machine_code;
