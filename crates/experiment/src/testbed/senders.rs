//! The low-priority endpoints that send to one another, and what they get of it.

use super::ask::ask;
use super::endpoint::{PATIENCE, Party};
use super::interference::Interference;
use std::net::Ipv4Addr;
use steadyvm_lab::Result;
use steadyvm_lab::agent::Process;

const SINK_PORT: u16 = 7701;
/// Small packets, since their number is what counts.
const PACKET_BYTES: &str = "64";

/// Each of the others with its sender to the next one.
pub(crate) struct Senders {
    floods: Vec<Process>,
    devices: Vec<String>,
    /// These serve until the host is gone.
    _sinks: Vec<Process>,
}

impl Senders {
    /// Makes all of them ready; none sends yet.
    ///
    /// # Errors
    /// A process does not start.
    pub fn ready(party: &Party) -> Result<Self> {
        let listen = format!("{}:{SINK_PORT}", Ipv4Addr::UNSPECIFIED);
        let (mut sinks, mut floods) = (Vec::new(), Vec::new());
        for (number, endpoint) in party.low.iter().enumerate() {
            let next = &party.low[(number + 1) % party.low.len()];
            let sink = format!("{}:{SINK_PORT}", next.address);
            sinks.push(endpoint.start(&["steadyvm-lab", "load", "sink", &listen])?);
            floods.push(endpoint.start(&["steadyvm-lab", "load", "flood", &sink, PACKET_BYTES])?);
        }
        Ok(Self {
            floods,
            devices: party.low_devices().map(str::to_owned).collect(),
            _sinks: sinks,
        })
    }

    /// So many as the level has begin.
    ///
    /// # Errors
    /// One does not answer.
    pub fn start(&mut self, level: Interference) -> Result<()> {
        self.tell("start", level)
    }

    /// And end.
    ///
    /// # Errors
    /// One does not answer.
    pub fn stop(&mut self, level: Interference) -> Result<()> {
        self.tell("stop", level)
    }

    fn tell(&mut self, word: &str, level: Interference) -> Result<()> {
        let mut floods = self.floods[..level.senders()].iter_mut();
        floods.try_for_each(|flood| ask(flood, word, PATIENCE).map(drop))
    }

    /// The host's files whose text is what [`Packets::parse`] reads.
    pub fn counters(&self) -> Vec<String> {
        let devices = self.devices.iter();
        let counters = devices.map(|it| format!("/sys/class/net/{it}/statistics/tx_packets"));
        std::iter::once("/proc/uptime".to_owned())
            .chain(counters)
            .collect()
    }
}

/// Packets that the others' devices handed to them, and when.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Packets {
    uptime_s: f64,
    count: u64,
}

impl Packets {
    /// /proc/uptime, and a line a device.
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let uptime_s = lines.next()?.split_whitespace().next()?.parse().ok()?;
        let counts: Option<Vec<u64>> = lines.map(|line| line.trim().parse().ok()).collect();
        let count = counts?.into_iter().try_fold(0, u64::checked_add)?;
        Some(Self { uptime_s, count })
    }

    /// 0 if no time has passed.
    pub fn per_s_since(&self, earlier: &Self) -> f64 {
        let passed_s = self.uptime_s - earlier.uptime_s;
        if passed_s > 0.0 {
            self.count.saturating_sub(earlier.count) as f64 / passed_s
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_summed_and_their_rate_is_a_seconds() {
        let before = Packets::parse("100.00 1.0\n5\n7\n0\n").unwrap();
        let after = Packets::parse("102.50 1.0\n255\n257\n0\n").unwrap();
        assert!((after.per_s_since(&before) - 200.0).abs() < 1e-9);
        assert!(before.per_s_since(&before).abs() < f64::EPSILON);
        for text in ["", "x\n1", "1.0 1\nx", &format!("1.0\n{}\n1", u64::MAX)] {
            assert_eq!(Packets::parse(text), None, "{text}");
        }
    }
}
