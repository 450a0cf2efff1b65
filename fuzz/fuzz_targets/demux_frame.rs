//! Frames of any bytes through the parser of early demultiplexing: never misread.
#![no_main]

#[path = "../../crates/demux/tests/reference/mod.rs"]
mod reference;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|frame: &[u8]| {
    if let Some(how) = reference::misreading(frame) {
        panic!("{how}");
    }
});
