//! What a measurement says about the machine it ran on.

use std::fs;

/// The load average over one minute; 0 where the kernel does not tell.
pub fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|first| first.parse().ok())
        .unwrap_or(0.0)
}

/// The machine's processor.
pub fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    line.and_then(|line| line.split(':').nth(1))
        .unwrap_or("unknown")
        .trim()
        .to_owned()
}
