//! Random hosts of 64 VCPUs, times in nanoseconds.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use steadyvm_analysis::host::Vcpu;

/// 64 VCPUs of like bandwidth, of 16 VMs, periods of 5 to 30 ms, bandwidth `share` of `cpus` in all.
pub fn even_vcpus(seed: u64, cpus: u32, share: f64) -> Vec<Vcpu> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mean = f64::from(cpus) * share / 64.0;
    (0..64)
        .filter_map(|i| {
            let period = rng.random_range(5..=30) * 1_000_000;
            let bandwidth = mean * rng.random_range(0.5..1.5);
            Vcpu::new(i / 4, (period as f64 * bandwidth) as i64, period).ok()
        })
        .collect()
}

/// 64 VCPUs of 16 VMs, a fifth of them heavy, periods of 1 to 100 ms, bandwidth `share` of `cpus` in all.
pub fn mixed_vcpus(seed: u64, cpus: u32, share: f64) -> Vec<Vcpu> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let weights: Vec<f64> = (0..64)
        .map(|_| {
            if rng.random_bool(0.2) {
                rng.random_range(0.3..0.8)
            } else {
                rng.random_range(0.01..0.1)
            }
        })
        .collect();
    let sum: f64 = weights.iter().sum();
    weights
        .iter()
        .enumerate()
        .filter_map(|(i, weight)| {
            let milliseconds = [1, 2, 5, 10, 20, 50, 100][rng.random_range(0..7)];
            let period = milliseconds * 1_000_000 + rng.random_range(0..1_000);
            let bandwidth = (weight * f64::from(cpus) * share / sum).min(0.95);
            Vcpu::new(i / 4, (period as f64 * bandwidth) as i64, period).ok()
        })
        .collect()
}
