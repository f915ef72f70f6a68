#![no_main]

#[path = "../properties/group_text.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|data: &[u8]| property::check(data));
