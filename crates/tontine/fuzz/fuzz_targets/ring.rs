//! A chunk, as a hostile sender fills it: see `tontine::fuzzing`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tontine::fuzzing::ring(bytes));
