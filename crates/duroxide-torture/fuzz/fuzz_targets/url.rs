#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| duroxide_torture::fuzz::url(bytes));
