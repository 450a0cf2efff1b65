//! The fuzz targets' bodies on their corpus and on mutations of it: for machines without cargo-fuzz.

// Helpers of tests unwrap, too.
#![allow(clippy::unwrap_used)]

mod fuzz_bodies;

use std::{fs, path::PathBuf};

use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Changes, adds, removes and swaps pieces.
fn mutated(rng: &mut ChaCha8Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seeds.choose(rng).unwrap().clone();
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

fn run(target: &str, rounds: usize, body: fn(&[u8])) {
    let seeds = corpus(target);
    for seed in &seeds {
        body(seed);
    }
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for _ in 0..rounds {
        body(&mutated(&mut rng, &seeds));
    }
}

#[test]
fn rings() {
    run("socket_ring", 10_000, fuzz_bodies::ring);
}

#[test]
fn chains() {
    run("socket_chains", 5_000, fuzz_bodies::chains);
}

#[test]
fn requests() {
    run("socket_requests", 5_000, fuzz_bodies::requests);
}
