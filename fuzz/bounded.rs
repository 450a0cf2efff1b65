//! A fuzz target's body on its corpus and on a bounded number of mutations of it: for `cargo test`,
//! on machines without cargo-fuzz.

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

/// Makes other bytes of a seed; all seeds are there to take from.
type Mutate = fn(&mut ChaCha8Rng, &[u8], &[Vec<u8>]) -> Vec<u8>;

/// Runs `body` on the corpus of `target`, then `rounds` times on what `mutated` makes of a seed.
pub fn run(target: &str, rounds: usize, mutated: Mutate, body: fn(&[u8])) {
    let seeds = corpus(target);
    for seed in &seeds {
        body(seed);
    }
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    for _ in 0..rounds {
        let seed = seeds.choose(&mut rng).unwrap();
        body(&mutated(&mut rng, seed, &seeds));
    }
}

/// Changes, adds, removes and swaps pieces: for bytes without a form of their own.
#[allow(dead_code)] // other bodies have mutations of their own
pub fn in_pieces(rng: &mut ChaCha8Rng, seed: &[u8], seeds: &[Vec<u8>]) -> Vec<u8> {
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
