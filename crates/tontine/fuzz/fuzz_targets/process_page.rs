//! A process page: see `tontine::fuzzing`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tontine::fuzzing::process_page(bytes));
