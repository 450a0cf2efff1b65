//! The fuzz targets' bodies on their corpus and on mutations of it: for machines without cargo-fuzz.

// Helpers of tests unwrap, too.
#![allow(clippy::unwrap_used)]

#[path = "../../../fuzz/bounded.rs"]
mod bounded;
mod fuzz_bodies;

#[test]
fn rings() {
    bounded::run("socket_ring", 10_000, bounded::in_pieces, fuzz_bodies::ring);
}

#[test]
fn chains() {
    bounded::run(
        "socket_chains",
        5_000,
        bounded::in_pieces,
        fuzz_bodies::chains,
    );
}

#[test]
fn requests() {
    bounded::run(
        "socket_requests",
        5_000,
        bounded::in_pieces,
        fuzz_bodies::requests,
    );
}

#[test]
fn channels() {
    bounded::run(
        "socket_channels",
        1_000,
        bounded::in_pieces,
        fuzz_bodies::channels,
    );
}
