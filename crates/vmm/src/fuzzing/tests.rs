//! The bodies on their corpora and on mutations of those: for machines without cargo-fuzz.

#[path = "../../../../fuzz/bounded.rs"]
mod bounded;

use rand::{Rng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

/// Changes, adds, removes and swaps pieces.
fn mutated(rng: &mut ChaCha8Rng, seed: &[u8], seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..rng.random_range(1..12) {
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
fn hostile_drivers_do_no_harm() {
    bounded::run("vmm_devices", 4_000, mutated, super::devices);
}

#[test]
fn no_file_is_booted_badly() {
    bounded::run("vmm_boot", 4_000, mutated, super::boot);
}
