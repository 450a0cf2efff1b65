//! The fuzz targets' bodies on their corpus, on mutations of it and on generated plans: for machines
//! without cargo-fuzz.
// Helpers of tests unwrap, too.
#![allow(clippy::unwrap_used)]

#[path = "../../../fuzz/bounded.rs"]
mod bounded;
mod fuzz_bodies;

use rand::{Rng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

const WORDS: [&str; 22] = [
    "0",
    "-1",
    "1",
    "2",
    "9007199254740992",
    "9223372036854775807",
    "1e9",
    "\"",
    "{",
    "}",
    "[",
    "]",
    "null",
    "true",
    "\"prm\"",
    "\"mpr\"",
    "\"dmpr\"",
    "\"pedf\"",
    "\"gedf\"",
    "\"dm\"",
    "\n",
    ",",
];

/// Replaces, removes or inserts pieces, numbers above all.
fn mutated(rng: &mut ChaCha8Rng, seed: &[u8], _: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..rng.random_range(1..6) {
        if bytes.is_empty() {
            break;
        }
        let mut at = rng.random_range(0..bytes.len());
        if rng.random_bool(0.7) {
            // Move on to a number.
            at += bytes[at..].iter().position(u8::is_ascii_digit).unwrap_or(0);
        }
        let digits = bytes[at..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let end = at + digits.max(rng.random_range(0..3).min(bytes.len() - at));
        let word = if rng.random_bool(0.5) {
            rng.random_range(0..2_000_i64).to_string()
        } else {
            (*WORDS.choose(rng).unwrap()).to_owned()
        };
        bytes.splice(at..end, word.bytes());
    }
    bytes
}

#[test]
fn json() {
    bounded::run("plan_json", 4_000, mutated, fuzz_bodies::plan_json);
}

#[test]
fn toml() {
    bounded::run("plan_toml", 1_500, mutated, fuzz_bodies::plan_toml);
}
