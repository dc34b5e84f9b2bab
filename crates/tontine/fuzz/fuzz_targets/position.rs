//! The read position of a hostile receiver: see `tontine::fuzzing`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tontine::fuzzing::position(bytes));
