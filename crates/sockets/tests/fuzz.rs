//! The fuzz targets' bodies on their corpus and on mutations of it: for machines without cargo-fuzz.

// Helpers of tests unwrap, too.
#![allow(clippy::unwrap_used)]

#[path = "../../../fuzz/bounded.rs"]
mod bounded;
mod fuzz_bodies;

use rand::{Rng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

/// Changes, adds, removes and swaps pieces.
fn mutated(rng: &mut ChaCha8Rng, seed: &[u8], seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..rng.random_range(1..8) {
        let at = rng.random_range(0..=bytes.len());
        let end = (at + rng.random_range(0..9)).min(bytes.len());
        match rng.random_range(0..4) {
            0 => bytes[at..end].fill_with(|| rng.random()),
            1 => bytes[at..end].fill(*[0, 1, 0x7f, 0x80, 0xff].choose(rng).unwrap()),
            2 => drop(bytes.drain(at..end)),
            _ => {
                let other = seeds.choose(rng).unwrap();
                let from = rng.random_range(0..=other.len());
                let to = (from + rng.random_range(0..40)).min(other.len());
                bytes.splice(at..end, other[from..to].iter().copied());
            }
        }
    }
    bytes
}

#[test]
fn rings() {
    bounded::run("socket_ring", 10_000, mutated, fuzz_bodies::ring);
}

#[test]
fn chains() {
    bounded::run("socket_chains", 5_000, mutated, fuzz_bodies::chains);
}

#[test]
fn requests() {
    bounded::run("socket_requests", 5_000, mutated, fuzz_bodies::requests);
}

#[test]
fn channels() {
    bounded::run("socket_channels", 1_000, mutated, fuzz_bodies::channels);
}
