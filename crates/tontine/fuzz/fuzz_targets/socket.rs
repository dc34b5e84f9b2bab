//! A control message from either end: see `tontine::fuzzing`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tontine::fuzzing::socket(bytes));
