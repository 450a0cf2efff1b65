//! Which threads hand the real-time VM's packets to its tap, and whether they do so with the stream's, too.
//!
//! The kernel counts by tap and thread (a histogram of the tracepoint `net_dev_start_xmit`). A thread that hands both taps
//! packets polls for both: the real-time VM's wait behind the stream's there. An XDP program that redirects to a tap passes the
//! tracepoint by.

use std::collections::BTreeSet;
use steadyvm_lab::Result;
use steadyvm_lab::agent::Connection;

const TAP: &str = "tap-rt";
const TAP_OF_STREAM: &str = "tap-bulk";
const INSTANCE: &str = "/sys/kernel/tracing/instances/pollers";
const EVENT: &str = "events/net/net_dev_start_xmit";

/// Packets that were handed to the real-time VM's tap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Handed {
    pub all: u64,
    /// By threads that handed the stream's tap some, too.
    pub by_shared: u64,
}

fn histogram() -> String {
    format!("hist:keys=name,common_pid if name == \"{TAP}\" || name == \"{TAP_OF_STREAM}\"")
}

/// Begins to count.
pub(super) fn begin(host: &Connection) -> Result<()> {
    let script = format!(
        "mkdir -p {INSTANCE}; echo '{}' > {INSTANCE}/{EVENT}/trigger",
        histogram()
    );
    host.run(&["sh", "-euc", &script]).map(drop)
}

/// Ends it.
pub(super) fn end(host: &Connection) -> Result<Handed> {
    let script = format!(
        "cat {INSTANCE}/{EVENT}/hist; echo '!{}' > {INSTANCE}/{EVENT}/trigger",
        histogram()
    );
    let text = host.text(&["sh", "-euc", &script])?;
    Ok(Handed::of(&text))
}

impl Handed {
    /// Of several measurements.
    pub fn sum(all: impl IntoIterator<Item = Self>) -> Self {
        all.into_iter().fold(Self::default(), |sum, it| Self {
            all: sum.all + it.all,
            by_shared: sum.by_shared + it.by_shared,
        })
    }

    /// Lines such as `{ name: tap-rt, common_pid: 17 } hitcount: 5`, with any number of spaces.
    fn of(text: &str) -> Self {
        let counts: Vec<(&str, u32, u64)> = text.lines().filter_map(count).collect();
        let shared = counts.iter().filter(|(tap, ..)| *tap == TAP_OF_STREAM);
        let shared: BTreeSet<u32> = shared.map(|(_, thread, _)| *thread).collect();
        let of_vm = || counts.iter().filter(|(tap, ..)| *tap == TAP);
        let by_shared = of_vm().filter(|(_, thread, _)| shared.contains(thread));
        Self {
            all: of_vm().map(|(.., count)| count).sum(),
            by_shared: by_shared.map(|(.., count)| count).sum(),
        }
    }
}

fn count(line: &str) -> Option<(&str, u32, u64)> {
    let keys = line.trim().strip_prefix("{ name:")?;
    let (tap, rest) = keys.split_once(", common_pid:")?;
    let (thread, count) = rest.split_once("} hitcount:")?;
    let count = count.split_whitespace().next()?;
    Some((tap.trim(), thread.trim().parse().ok()?, count.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_hands_both_taps_packets_is_shared() {
        let text = "\
# event histogram
#

{ name: tap-bulk                                                        , common_pid:         17 } hitcount:       4000
{ name: tap-rt                                                          , common_pid:         17 } hitcount:         30
{ name: tap-rt                                                          , common_pid:        230 } hitcount:        500

Totals:
    Hits: 4530
";
        let expected = Handed {
            all: 530,
            by_shared: 30,
        };
        assert_eq!(Handed::of(text), expected);
        assert_eq!(Handed::of("{ name: tap-rt"), Handed::default());
        let twice = Handed::sum([expected, expected]);
        assert_eq!((twice.all, twice.by_shared), (1060, 60));
    }
}
