//! What `explain` says of packets: which of them were late, who polled them, what the CPU did.

use steadyvm_lab::host::RT;
use steadyvm_report::{Grid, headers, text};
use steadyvm_trace::receive_path::{Report, WorstPacket, WorstSpan};

/// The name of the thread that stands between the cards' threads.
pub const SPINNER: &str = "spinner";
/// Parts of a packet's time that are shorter than this share of it are not shown, but for its card's own.
const SHORTEST_SHARE: f64 = 0.01;

/// How long the spinner kept a packet that its card's own thread had queued already, in microseconds; `None`: it
/// did not.
///
/// The card's own thread stands above the spinner. So when the spinner runs after it, that thread sleeps and the
/// packet waits for somebody else.
pub fn kept_us(packet: &WorstPacket) -> Option<f64> {
    let own = |span: &WorstSpan| span.kind == "own" && span.name == "thread";
    let queued = packet.timeline.iter().position(own)?;
    let after = packet.timeline[queued..].iter();
    let spinner = after.filter(|span| span.kind == "thread" && span.name == SPINNER);
    let kept: Vec<f64> = spinner.map(|span| span.for_us).collect();
    (!kept.is_empty()).then(|| kept.iter().sum())
}

/// Whether another thread than its card's polled a packet.
pub fn is_polled_by_others(packet: &WorstPacket) -> bool {
    let mut spans = packet.timeline.iter().rev();
    let poll = spans.find(|span| span.kind == "own" && span.name == "poll");
    poll.is_some_and(|span| !is_thread_of_card(&span.thread))
}

/// Whether a thread is the real-time card's: "irq/27-rt-TxRx-", or "napi/rt-8193".
fn is_thread_of_card(thread: &str) -> bool {
    let mut words = thread.split('-');
    match words.next() {
        Some(first) if first.starts_with("irq/") => words.next() == Some(RT.name),
        Some(first) => first.strip_prefix("napi/") == Some(RT.name),
        None => false,
    }
}

/// What the CPU did while packets waited for it, over several recordings.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    /// What, in `explain`'s words.
    pub name: String,
    /// Packets that had any of it.
    pub packets: u64,
    /// Its mean over all packets, in microseconds.
    pub mean_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// The cause's name of the time in which the card's own thread was blocked on a lock. It is part of the others'.
const BLOCKED: &str = "own thread blocked on a lock";

/// The causes of all packets, the largest mean first, and how long the card's own thread was blocked.
pub fn causes<'r>(reports: impl IntoIterator<Item = &'r Report>) -> Vec<Cause> {
    let mut causes: Vec<Cause> = Vec::new();
    let mut n = 0.0;
    let mut add = |name: String, packets: u64, sum_us: f64, max_us: f64| {
        let found = causes.iter().position(|cause| cause.name == name);
        let index = found.unwrap_or(causes.len());
        if found.is_none() {
            causes.push(Cause {
                name,
                packets: 0,
                mean_us: 0.0,
                max_us: 0.0,
            });
        }
        let cause = &mut causes[index];
        cause.packets += packets;
        cause.mean_us += sum_us;
        cause.max_us = cause.max_us.max(max_us);
    };
    for report in reports {
        let of_report = report.total.n as f64;
        n += of_report;
        for cause in &report.causes {
            let own = if cause.in_own_thread && cause.kind != "own" {
                " (own thread)"
            } else {
                ""
            };
            let name = format!("{} {}", cause.kind, cause.name);
            let sum_us = cause.figures.mean_us.unwrap_or(0.0) * of_report;
            let max_us = cause.figures.max_us.unwrap_or(0.0);
            add(
                format!("{}{own}", name.trim_end()),
                cause.packets,
                sum_us,
                max_us,
            );
        }
        let blocked = &report.blocked;
        if blocked.packets > 0 {
            let sum_us = blocked.figures.mean_us.unwrap_or(0.0) * of_report;
            let max_us = blocked.figures.max_us.unwrap_or(0.0);
            add(BLOCKED.to_owned(), blocked.packets, sum_us, max_us);
        }
    }
    for cause in &mut causes {
        cause.mean_us /= n;
    }
    causes.sort_by(|one, other| other.mean_us.total_cmp(&one.mean_us));
    causes
}

/// What the CPU did from a packet's hard interrupt on, in order.
pub fn timeline(title: String, packet: &WorstPacket) -> Grid {
    let is_long = |span: &WorstSpan| span.for_us >= SHORTEST_SHARE * packet.total_us;
    let shown = |span: &&WorstSpan| span.kind == "own" || is_long(span);
    let row = |span: &WorstSpan| {
        vec![
            format!("{} {}", span.kind, span.name).trim_end().to_owned(),
            span.thread.clone(),
            span.priority.clone(),
            text::figure(Some(span.after_us)),
            text::figure(Some(span.for_us)),
        ]
    };
    Grid {
        title,
        words: 3,
        headers: headers(["the CPU did", "in the thread", "as", "after", "for"]),
        rows: packet.timeline.iter().filter(shown).map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadyvm_trace::receive_path::{Blocked, CauseFigures, Figures};

    /// A packet of parts: kind and name, thread, how long.
    fn packet(parts: &[(&str, &str, &str, f64)]) -> WorstPacket {
        let mut after_us = 0.0;
        let spans = parts.iter().map(|&(kind, name, thread, for_us)| {
            let began = after_us;
            after_us += for_us;
            WorstSpan {
                after_us: began,
                for_us,
                kind: kind.to_owned(),
                name: name.to_owned(),
                thread: thread.to_owned(),
                priority: "rt 50".to_owned(),
                blocked: false,
            }
        });
        let timeline: Vec<WorstSpan> = spans.collect();
        WorstPacket {
            at_s: 0.0,
            cpu: 0,
            total_us: after_us,
            woken: "steadyvm".to_owned(),
            timeline,
            whole_us: after_us,
            stages: Vec::new(),
        }
    }

    const INTERRUPT: (&str, &str, &str, f64) = ("own", "interrupt", "irq/33-bulk-TxR", 10.0);
    const OWN: (&str, &str, &str, f64) = ("own", "thread", "irq/27-rt-TxRx-", 90.0);
    const SPUN: (&str, &str, &str, f64) = ("thread", SPINNER, SPINNER, 15_000.0);
    const BULK: (&str, &str, &str, f64) = ("poll", "bulk", "irq/33-bulk-TxR", 400.0);
    const BY_OWN: (&str, &str, &str, f64) = ("own", "poll", "irq/27-rt-TxRx-", 50.0);
    const BY_BULK: (&str, &str, &str, f64) = ("own", "poll", "irq/33-bulk-TxR", 50.0);

    #[test]
    fn a_packet_is_late_if_the_spinner_ran_after_its_cards_thread() {
        let lost = packet(&[INTERRUPT, OWN, SPUN, BULK, SPUN, BY_BULK]);
        assert_eq!(kept_us(&lost), Some(30_000.0));
        // The interrupt came while the spinner ran: its thread comes before that goes on.
        let met = packet(&[INTERRUPT, SPUN, OWN, BY_OWN]);
        assert_eq!(kept_us(&met), None);
        assert_eq!(kept_us(&packet(&[INTERRUPT, BULK, BY_BULK])), None);
        assert_eq!(kept_us(&packet(&[])), None);
    }

    #[test]
    fn who_polls_a_packet_is_told_by_the_last_poll() {
        assert!(is_polled_by_others(&packet(&[OWN, BULK, BY_BULK])));
        assert!(!is_polled_by_others(&packet(&[OWN, BULK, BY_OWN])));
        assert!(!is_polled_by_others(&packet(&[OWN])));
        for (thread, own) in [
            ("irq/27-rt", true),
            ("napi/rt-8193", true),
            ("irq/27-rtx-TxRx", false),
            ("napi/bulk-8194", false),
            ("ksoftirqd/0", false),
            ("", false),
        ] {
            assert_eq!(is_thread_of_card(thread), own, "{thread}");
        }
    }

    fn report(n: u64, mean_us: f64, packets: u64, blocked: u64) -> Report {
        let figures = Figures {
            n,
            mean_us: Some(mean_us),
            max_us: Some(2.0 * mean_us),
            ..Figures::default()
        };
        let cause = |kind: &str, name: &str, in_own_thread| CauseFigures {
            kind: kind.to_owned(),
            name: name.to_owned(),
            in_own_thread,
            packets,
            share: 0.5,
            figures,
        };
        Report {
            causes: vec![cause("poll", "bulk", true), cause("own", "thread", true)],
            blocked: Blocked {
                packets: blocked,
                figures,
                owners: Vec::new(),
            },
            total: figures,
            ..Report::new(
                "device rt".to_owned(),
                1.0,
                &steadyvm_trace::receive_path::Findings::default(),
                0,
                steadyvm_trace::receive_path::Rank::WakeUp,
            )
        }
    }

    #[test]
    fn causes_of_recordings_are_weighted_by_their_packets() {
        let found = causes(&[report(300, 10.0, 7, 0), report(100, 30.0, 5, 2)]);
        let names: Vec<&str> = found.iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["poll bulk (own thread)", "own thread", BLOCKED]);
        assert_eq!((found[0].packets, found[2].packets), (12, 2));
        assert!((found[0].mean_us - 15.0).abs() < 1e-9, "{found:?}");
        assert!((found[0].max_us - 60.0).abs() < 1e-9, "{found:?}");
        assert!((found[2].mean_us - 7.5).abs() < 1e-9, "{found:?}");
        assert!(causes(&[]).is_empty());
    }

    #[test]
    fn a_timeline_leaves_out_what_is_short_and_not_its_cards_own() {
        let short = ("thread", "rcuc/0", "rcuc/0", 3.0);
        let parts = [INTERRUPT, OWN, SPUN, short, BULK];
        let grid = timeline("t".to_owned(), &packet(&parts));
        let did: Vec<&str> = grid.rows.iter().map(|row| &*row[0]).collect();
        let all = ["own interrupt", "own thread", "thread spinner", "poll bulk"];
        assert_eq!(did, all);
        assert_eq!(grid.rows[2][3], "100.0");
    }
}
