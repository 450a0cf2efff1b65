//! Frames of any bytes through the readers of Sampled Values and GOOSE: none panics, and what is read is written again alike.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadyvm_load::layer2::{Frame, marked};

fuzz_target!(|bytes: &[u8]| {
    let _ = marked(bytes);
    if let Ok(frame) = Frame::parse(bytes) {
        let written = frame.to_bytes();
        assert_eq!(written.as_deref().map(Frame::parse), Ok(Ok(frame)));
    }
});
