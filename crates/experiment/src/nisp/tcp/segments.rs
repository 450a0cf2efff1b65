//! What a sender's TCP has counted, as its kernel tells of a network namespace.

use std::ops::AddAssign;

/// Counters of a TCP sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Segments {
    /// Segments sent, those sent again among them.
    pub segments: u64,
    /// Segments sent again, for whatever reason.
    pub retransmitted: u64,
    /// Probes for a lost tail: one segment, with old data or new, when no acknowledgment has come for
    /// two round trips.
    pub loss_probes: u64,
    /// Times that the retransmission timer ran out: the sender begins anew from one segment.
    pub timeouts: u64,
}

impl Segments {
    /// Reads /proc/net/snmp and /proc/net/netstat, one after the other.
    pub fn parse(text: &str) -> Option<Self> {
        let retransmitted = counter(text, "Tcp:", "RetransSegs")?;
        Some(Self {
            // OutSegs leaves out what is sent again (RFC 4022).
            segments: counter(text, "Tcp:", "OutSegs")?.saturating_add(retransmitted),
            retransmitted,
            loss_probes: counter(text, "TcpExt:", "TCPLossProbes")?,
            timeouts: counter(text, "TcpExt:", "TCPTimeouts")?,
        })
    }

    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            segments: self.segments.saturating_sub(earlier.segments),
            retransmitted: self.retransmitted.saturating_sub(earlier.retransmitted),
            loss_probes: self.loss_probes.saturating_sub(earlier.loss_probes),
            timeouts: self.timeouts.saturating_sub(earlier.timeouts),
        }
    }

    /// Segments sent again over all: 0 to 1; `None` if none was sent.
    pub fn retransmitted_fraction(&self) -> Option<f64> {
        (self.segments > 0).then(|| self.retransmitted as f64 / self.segments as f64)
    }
}

impl AddAssign for Segments {
    fn add_assign(&mut self, other: Self) {
        self.segments += other.segments;
        self.retransmitted += other.retransmitted;
        self.loss_probes += other.loss_probes;
        self.timeouts += other.timeouts;
    }
}

/// A counter by its name: each group has a line of names and a line of values, which both begin with
/// the group's.
fn counter(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text
        .lines()
        .filter(|line| line.split_whitespace().next() == Some(group));
    let mut names = lines.next()?.split_whitespace();
    let place = names.position(|it| it == name)?;
    lines.next()?.split_whitespace().nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SNMP: &str = "Ip: Forwarding DefaultTTL\nIp: 2 64\n\
        Tcp: RtoAlgorithm MaxConn InSegs OutSegs RetransSegs OutRsts\nTcp: 1 -1 900 1000 24 0\n\
        Udp: InDatagrams\nUdp: 7\n";
    const NETSTAT: &str = "TcpExt: SyncookiesSent TCPTimeouts TCPLossProbes\nTcpExt: 0 3 5\n\
        IpExt: InNoRoutes\nIpExt: 0\n";

    #[test]
    fn counters_are_found_by_name_and_a_segment_sent_again_is_a_segment() {
        let segments = Segments::parse(&(SNMP.to_owned() + NETSTAT)).unwrap();
        let expected = Segments {
            segments: 1024,
            retransmitted: 24,
            loss_probes: 5,
            timeouts: 3,
        };
        assert_eq!(segments, expected);
        let fraction = segments.retransmitted_fraction().unwrap();
        assert!((fraction - 24.0 / 1024.0).abs() < 1e-12);
        let none = segments.since(&segments);
        assert_eq!(
            (none, none.retransmitted_fraction()),
            (Segments::default(), None)
        );
    }

    #[test]
    fn this_machines_kernel_writes_what_is_read() {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/net/{name}")).unwrap();
        assert!(Segments::parse(&(read("snmp") + &read("netstat"))).is_some());
    }

    #[test]
    fn a_file_without_a_counter_is_refused() {
        for text in [
            "",
            SNMP,
            NETSTAT,
            "Tcp: OutSegs\n",
            "Tcp: OutSegs\nTcp: x\n",
        ] {
            assert_eq!(Segments::parse(text), None, "{text}");
        }
        let short = (SNMP.to_owned() + NETSTAT).replace("1 -1 900 1000 24 0", "1 -1 900");
        assert_eq!(Segments::parse(&short), None);
    }

    proptest! {
        #[test]
        fn any_damaged_file_is_read_without_panic(at in 0..SNMP.len(), byte: u8) {
            let mut bytes = (SNMP.to_owned() + NETSTAT).into_bytes();
            bytes[at] = byte;
            let _ = Segments::parse(&String::from_utf8_lossy(&bytes));
        }
    }
}
