//! A fuzz target's body on its corpus and on a bounded number of mutations of it: for `cargo test`,
//! on machines without cargo-fuzz.

use std::{fs, path::PathBuf};

use rand::{SeedableRng, seq::IndexedRandom};
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
