//! The `tontine` command.

fn main() {}
