//! Every word of a shared heap that a member can write: see `tontine::fuzzing`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tontine::fuzzing::heap_words(bytes));
