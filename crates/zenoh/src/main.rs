//! `tontine-bridge-zenoh`: a gateway whose carrier is Zenoh.

fn main() {}
