//! The bodies on their corpora and on mutations of those: for machines without cargo-fuzz.

#[path = "../../../../fuzz/bounded.rs"]
mod bounded;

use rand::{Rng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

const WORDS: [&str; 16] = [
    "0",
    "-1",
    "4294967296",
    "0-3",
    "99999999999999999999",
    "\"",
    "{",
    "}",
    "null",
    "true",
    "/proc/sys/net/../vm/",
    "kind",
    "old",
    "\n",
    "%%\n",
    ",",
];

/// Changes, adds, removes and swaps pieces.
fn mutated(rng: &mut ChaCha8Rng, seed: &[u8], seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..rng.random_range(1..8) {
        let at = rng.random_range(0..=bytes.len());
        let end = (at + rng.random_range(0..9)).min(bytes.len());
        match rng.random_range(0..4) {
            0 => bytes[at..end].fill_with(|| rng.random()),
            1 => {
                let word = WORDS.choose(rng).unwrap().bytes();
                bytes.splice(at..end, word);
            }
            2 => drop(bytes.drain(at..end)),
            _ => {
                let other = seeds.choose(rng).unwrap();
                let from = rng.random_range(0..=other.len());
                let to = (from + rng.random_range(0..60)).min(other.len());
                bytes.splice(at..end, other[from..to].iter().copied());
            }
        }
    }
    bytes
}

#[test]
fn no_file_of_the_kernel_does_harm() {
    bounded::run("host_files", 2_000, mutated, super::files);
}

#[test]
fn no_journal_does_harm() {
    bounded::run("host_journal", 2_000, mutated, super::journal);
}
