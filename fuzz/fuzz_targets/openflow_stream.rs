#![no_main]

#[path = "../properties/openflow_stream.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|data: &[u8]| property::check(data));
