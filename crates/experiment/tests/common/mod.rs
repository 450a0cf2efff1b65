//! A synthetic comparison, deterministic: three methods, three rounds, the paper's order.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use steadyvm_experiment::compare::{MethodData, PhaseData, RoundData, RunData};
use steadyvm_load::netrt::{ClientRun, Counters, EndedBy, Sample};
use steadyvm_load::netstream::{Interval, NetStreamRun};

/// Method, level in ms, spread on the log scale, chance of a burst, NetStream's Mbit/s, busy share.
type Character = (&'static str, f64, f64, f64, f64, f64);

const CHARACTERS: [Character; 3] = [
    ("vanilla", 2.6, 0.45, 0.05, 380.0, 0.97),
    ("preempt-rt", 1.9, 0.2, 0.01, 340.0, 0.99),
    ("dedicated", 1.35, 0.12, 0.004, 110.0, 0.71),
];

/// `rounds` rounds of `requests` requests a phase.
pub fn comparison(rounds: usize, requests: usize) -> RunData {
    let methods = CHARACTERS
        .iter()
        .enumerate()
        .map(|(index, character)| MethodData {
            name: character.0.to_owned(),
            rounds: (0..rounds)
                .map(|round| round_of(*character, round, index, requests))
                .collect(),
        });
    RunData {
        methods: methods.collect(),
        ..RunData::default()
    }
}

fn round_of(character: Character, round: usize, index: usize, requests: usize) -> RoundData {
    let mut generator = ChaCha8Rng::seed_from_u64((round * 10 + index) as u64);
    let drift = 1.0 + 0.1 * round as f64;
    let (_, level, spread, burst, mbit_per_s, busy) = character;
    let mut phase = |level: f64, burst: f64, rate: Option<f64>, busy: f64| PhaseData {
        netrt: client_run(&mut generator, level * drift, spread, burst, requests),
        netstream: rate.map(|rate| net_stream(rate / drift)),
        host_cpu_busy_fraction: busy,
        guest: None,
        receive_path: None,
        exit_costs: None,
    };
    RoundData {
        idle: phase(0.8 * level.sqrt(), burst / 10.0, None, 0.2),
        full: phase(level, burst, Some(mbit_per_s), busy),
        equal: phase(level * 0.8, burst / 2.0, Some(99.0), busy * 0.6),
    }
}

fn client_run(
    generator: &mut ChaCha8Rng,
    level: f64,
    spread: f64,
    burst: f64,
    requests: usize,
) -> ClientRun {
    let mut uniform = || ((generator.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    let samples: Vec<Sample> = (0..requests as u64)
        .map(|sequence| {
            let normal = (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
            let tail = if uniform() < burst {
                uniform().powf(-0.5) * 4.0
            } else {
                0.0
            };
            let rtt_ms = level * (spread * normal).exp() + tail;
            Sample {
                sequence,
                sent_ns: sequence * 5_500_000,
                rtt_ns: (rtt_ms * 1e6) as u64,
            }
        })
        .collect();
    let answered = samples.len() as u64;
    let counters = Counters {
        requests: answered + 1,
        answered,
        lost: 1,
        timed_by_kernel: answered,
        ..Counters::default()
    };
    ClientRun {
        duration_ns: answered * 5_500_000,
        samples,
        counters,
        ended_by: EndedBy::Done,
    }
}

fn net_stream(mbit_per_s: f64) -> NetStreamRun {
    let intervals = [0.97, 1.0, 1.02, 1.01]
        .into_iter()
        .enumerate()
        .map(|(second, factor)| Interval {
            start_s: second as f64,
            end_s: second as f64 + 1.0,
            mbit_per_s: mbit_per_s * factor,
        });
    NetStreamRun {
        mbit_per_s,
        retransmits: Some(3),
        duration_s: 4.0,
        intervals: intervals.collect(),
        sender_cpu_fraction: 0.1,
        receiver_cpu_fraction: 0.3,
    }
}
