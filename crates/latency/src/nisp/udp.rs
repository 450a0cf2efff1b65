//! With bursts of UDP packets at rising rates, as in the paper: nisp.json and its table.

use super::{deadlines, milliseconds};
use crate::job::Punctuality;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// nisp.json.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Version of this shape.
    pub schema_version: u32,
    /// From one job's release to the next, in microseconds.
    pub period_us: u64,
    /// What a job takes on the idle host, in microseconds.
    pub execution_us: u64,
    /// The deadlines, in microseconds after the release.
    pub deadlines_us: Vec<u64>,
    /// The highest of the methods' peaks: the last rate.
    pub peak_packets_per_s: f64,
    /// Seed of the first rate's schedule.
    pub seed: u64,
    /// One entry a method, in the order asked for.
    pub methods: Vec<Curve>,
}

/// One method at every rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// The method's name.
    pub name: String,
    /// The most packets a second that it received at any rate, with no job.
    pub peak_packets_per_s: f64,
    /// The rates in ascending order, the first without any packet.
    pub points: Vec<Point>,
}

/// One method at one rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The mean rate of the source, in packets a second.
    pub asked_packets_per_s: f64,
    /// What it sent.
    pub sent_packets_per_s: f64,
    /// What the low-priority process received.
    pub received_packets_per_s: f64,
    /// CPU time that was not idle, of all CPUs: 0 to 1.
    pub cpu_busy_fraction: f64,
    /// How long a job waited for the CPU while it could have run, in the mean, in microseconds: what
    /// the scheduler did. What interrupts took is not in it.
    pub waited_mean_us: f64,
    /// The high-priority process's jobs.
    pub punctuality: Punctuality,
}

/// The table for a terminal, at most 100 columns wide. Ends with a newline.
pub fn render(results: &Results) -> String {
    let mut text = format!(
        "A job of {} ms every {} ms at high priority; MMPP-2 bursts of UDP for a low-priority \
         process\non the same CPU, up to {:.0} packets/s. Deadlines: {} ms.\n",
        milliseconds(results.execution_us),
        milliseconds(results.period_us),
        results.peak_packets_per_s,
        deadlines(&results.deadlines_us)
    );
    for curve in &results.methods {
        let peak = curve.peak_packets_per_s;
        let _ = writeln!(text, "\n{}, peak {peak:.0} packets/s", curve.name);
        let _ = writeln!(
            text,
            "  {:>8} {:>8} {:>5} | {:>8} {:>8} {:>8} {:>8} {:>5} | {:>12} | {:>8}",
            "sent/s",
            "recv/s",
            "CPU %",
            "mean ms",
            "SD",
            "p99",
            "max",
            "wait",
            "misses %",
            "jitter"
        );
        for point in &curve.points {
            let _ = writeln!(text, "{}", row(point));
        }
    }
    text += "\nmean, SD, p99 and max: of the response, from release to finish; wait: how long of it the job \
             waited\nfor the CPU, in the mean (the rest are interrupts and the job itself); misses: at \
             each deadline;\njitter: SD of the time between two finishes; times in ms.\n";
    text
}

fn row(point: &Point) -> String {
    let job = &point.punctuality;
    let ms = |us: f64| format!("{:>8.2}", us / 1e3);
    let misses: Vec<String> = job
        .miss_ratios
        .iter()
        .map(|ratio| format!("{:>5.1}", 100.0 * ratio))
        .collect();
    format!(
        "  {:>8.0} {:>8.0} {:>5.1} | {} {} {} {} {:>5.2} | {:>12} | {}",
        point.sent_packets_per_s,
        point.received_packets_per_s,
        100.0 * point.cpu_busy_fraction,
        ms(job.response_mean_us),
        ms(job.response_sd_us),
        ms(job.response_p99_us),
        ms(job.response_max_us),
        point.waited_mean_us / 1e3,
        misses.join(" "),
        ms(job.jitter_sd_us)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Done;
    use std::time::Duration;

    #[test]
    fn the_table_has_a_row_a_rate_and_fits() {
        let done: Vec<Done> = (0..10)
            .map(|number| Done {
                released_ns: number * 30_000_000,
                finished_ns: number * 30_000_000 + 12_000_000 + number * 1_000_000,
            })
            .collect();
        let deadlines = [Duration::from_millis(16), Duration::from_millis(30)];
        let point = |rate| Point {
            asked_packets_per_s: rate,
            sent_packets_per_s: rate,
            received_packets_per_s: rate,
            cpu_busy_fraction: 0.5,
            waited_mean_us: 1500.0,
            punctuality: Punctuality::of(&done, &deadlines).unwrap(),
        };
        let results = Results {
            schema_version: 2,
            period_us: 30_000,
            execution_us: 12_000,
            deadlines_us: vec![16_000, 30_000],
            peak_packets_per_s: 123_456.0,
            seed: 1,
            methods: vec![Curve {
                name: "vanilla".into(),
                peak_packets_per_s: 123_456.0,
                points: vec![point(0.0), point(123_456.0)],
            }],
        };
        let text = render(&results);
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
        assert!(text.contains("  1.50 |   50.0   0.0 |"), "{text}");
        let rows = text
            .lines()
            .filter(|line| line.contains(" 50.0 |    16.50"));
        assert_eq!(rows.count(), 2, "{text}");
        let json = serde_json::to_string(&results).unwrap();
        assert_eq!(serde_json::from_str::<Results>(&json).unwrap(), results);
    }
}
