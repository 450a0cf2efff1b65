//! What keeps a kernel from switching: sections without preemption or bottom halves, and long softirqs.

use std::fmt::{self, Write as _};

/// What the host does beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disturbance {
    Nothing,
    /// A TCP stream at full speed into another VM by another card: polls of up to 64 packets, of the largest merged frames.
    Stream,
    /// The kernel lists 10,000 UDP sockets, over and over, with bottom halves off for each part of its table.
    Sockets,
    /// Reads past the page cache: requests end in softirqs.
    Disk,
    /// Processes begin and end: page tables, RCU's callbacks.
    Processes,
    /// A flood from outside, a flow per packet, through 1,000 rules and connection tracking: all in softirqs.
    Rules,
}

/// Packets per second of the flood.
pub(super) const FLOOD_PER_S: u32 = 3_000;

/// Lists all UDP sockets until it is ended.
const LIST: &str = "while :; do cat /proc/net/udp > /dev/null; done";
const READ: &str =
    "while :; do dd if=/dev/vda of=/dev/null bs=1M iflag=direct status=none || exit; done";
const BEGIN_AND_END: &str = "while :; do /bin/true; done";

impl Disturbance {
    /// In the order of measuring.
    pub const ALL: [Self; 6] = [
        Self::Nothing,
        Self::Stream,
        Self::Sockets,
        Self::Disk,
        Self::Processes,
        Self::Rules,
    ];

    /// Scripts of the host that run beside, each until it is ended.
    pub fn scripts(self) -> &'static [&'static str] {
        match self {
            Self::Nothing | Self::Stream | Self::Rules => &[],
            Self::Sockets => &[LIST],
            Self::Disk => &[READ],
            Self::Processes => &[BEGIN_AND_END, BEGIN_AND_END],
        }
    }
}

/// The rules that each packet of the flood is held against; none of them is its.
pub(super) fn rules() -> String {
    let mut text = String::from(
        "table inet sections {\n  chain input {\n    type filter hook prerouting priority 0; policy accept;\n    \
         ct state invalid counter\n",
    );
    for number in 0..1_000 {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "    ip saddr 203.0.113.{} udp dport {} counter drop",
            number % 250 + 1,
            number + 1
        );
    }
    text + "  }\n}\n"
}

impl fmt::Display for Disturbance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Nothing => "alone",
            Self::Stream => "beside a TCP stream",
            Self::Sockets => "beside lists of 10,000 sockets",
            Self::Disk => "beside disk reads",
            Self::Processes => "beside processes that come and go",
            Self::Rules => "beside a flood through 1,000 rules",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_a_thousand_rules_of_their_own() {
        let text = rules();
        let rules: std::collections::BTreeSet<&str> =
            text.lines().filter(|line| line.contains("saddr")).collect();
        assert_eq!(rules.len(), 1_000);
        assert!(!text.contains("203.0.113.0 ") && !text.contains("dport 0 "));
    }
}
