//! A report for a terminal, at most 100 columns wide.

use super::report::{CauseFigures, Figures, Report, WorstPacket, WorstStage};
use std::fmt::Write;

/// Causes with a smaller share than this are summed up in one line.
const SMALLEST_SHARE: f64 = 0.001;
/// A timeline's spans that are shown.
const MOST_SPANS: usize = 40;

/// Everything, and how to read it. Ends with a newline.
pub fn render(report: &Report) -> String {
    let mut text = format!(
        "receive path of {}: from hard interrupt to the reader's wake-up, {} packets in {:.1} s\n",
        report.packets, report.total.n, report.duration_s
    );
    if report.readers_awake > 0 {
        line(
            &mut text,
            &format!(
                "{} of them found their reader awake and end at its socket",
                report.readers_awake
            ),
        );
    }
    if report.followers > 0 {
        line(
            &mut text,
            &format!(
                "{} more came behind another one, without an interrupt of their own: not measured",
                report.followers
            ),
        );
    }
    for tracepoint in &report.missing {
        line(&mut text, &format!("this kernel has no {tracepoint}"));
    }
    if report.lost_events > 0 {
        line(
            &mut text,
            &format!(
                "WARNING: {} events were lost, and packets and causes with them: use a larger \
                 --buffer-mib",
                report.lost_events
            ),
        );
    }
    if report.total.n == 0 {
        return text;
    }
    line(
        &mut text,
        &format!("\n{}{}", columns("µs", "packets", "share"), headers()),
    );
    let all = columns("all", &report.total.n.to_string(), "");
    line(&mut text, &(all + &figures(&report.total)));
    text += "what the CPU did meanwhile\n";
    let (shown, small): (Vec<_>, Vec<_>) = report
        .causes
        .iter()
        .partition(|cause| cause.share >= SMALLEST_SHARE);
    for cause in shown {
        line(&mut text, &cause_row(cause));
    }
    if !small.is_empty() {
        let share: f64 = small.iter().map(|cause| cause.share).sum();
        let title = format!("  {} smaller causes", small.len());
        line(&mut text, &columns(&title, "", &percent(share)));
    }
    blocked(&mut text, report);
    for (number, packet) in report.worst.iter().enumerate() {
        worst(&mut text, number + 1, packet);
    }
    text
}

/// The slowest packets alone, each from its interrupt to the guest's answer: what ran, and what ran instead.
/// Ends with a newline.
pub fn render_worst(report: &Report) -> String {
    let count = report.worst.len();
    let mut text = format!(
        "the {count} slowest of {} packets of {} in {:.1} s, each from its hard interrupt on\n",
        report.total.n, report.packets, report.duration_s
    );
    if report.lost_events > 0 {
        let lost = report.lost_events;
        line(&mut text, &format!("WARNING: {lost} events were lost"));
    }
    for (number, packet) in report.worst.iter().enumerate() {
        worst(&mut text, number + 1, packet);
    }
    text
}

/// A stage behind the wake-up, and what ran meanwhile.
fn stage(text: &mut String, stage: &WorstStage) {
    let thread = match (&stage.vm, stage.vcpu) {
        (Some(vm), Some(number)) => format!("VCPU {number} of {vm} ({})", stage.thread),
        _ => stage.thread.clone(),
    };
    let title = match stage.kind.as_str() {
        "wait" => format!("{thread} is woken and waits for CPU {}", stage.cpu),
        "carry" => format!("{thread} carries the packet, on CPU {}", stage.cpu),
        "guest" => format!("{thread} runs the guest, on CPU {}", stage.cpu),
        "send" => format!("{thread} sends the answer, on CPU {}", stage.cpu),
        _ => format!("{thread} runs, on CPU {}", stage.cpu),
    };
    line(
        text,
        &format!("  {:>9.1} {:>9.1}   {title}", stage.after_us, stage.for_us),
    );
    // A thread that runs in its own stage is what is meant to run.
    let is_expected = |thread: &str| stage.kind != "wait" && thread == stage.thread;
    for piece in stage.ran.iter().take(MOST_SPANS) {
        if is_expected(&piece.thread) {
            continue;
        }
        let name = if piece.thread.is_empty() {
            "unknown"
        } else {
            &piece.thread
        };
        line(
            text,
            &format!(
                "            {:>9.1}     instead {name} ({})",
                piece.for_us, piece.priority
            ),
        );
    }
    if !stage.end.is_empty() {
        line(text, &format!("                          {}", stage.end));
    }
}

fn cause_row(cause: &CauseFigures) -> String {
    // In the device's own thread: the inversion that the thread's priority cannot cure.
    let place = if cause.in_own_thread && cause.kind != "own" {
        " (own thread)"
    } else {
        ""
    };
    let title = format!("  {} {}{place}", cause.kind, cause.name);
    columns(&title, &cause.packets.to_string(), &percent(cause.share)) + &figures(&cause.figures)
}

fn blocked(text: &mut String, report: &Report) {
    let blocked = &report.blocked;
    if blocked.packets == 0 {
        return;
    }
    line(text, "while the device's own thread was blocked on a lock");
    let share = blocked.figures.mean_us.unwrap_or(0.0) / report.total.mean_us.unwrap_or(1.0);
    let row = columns(
        "  blocked, in all",
        &blocked.packets.to_string(),
        &percent(share),
    );
    line(text, &(row + &figures(&blocked.figures)));
    for owner in &blocked.owners {
        let lock = if owner.softirq_lock {
            "softirq lock"
        } else {
            "another lock"
        };
        let thread = if owner.thread.is_empty() {
            "unknown"
        } else {
            &owner.thread
        };
        line(
            text,
            &format!("    {lock}, owner {thread}: {} times", owner.times),
        );
    }
}

fn worst(text: &mut String, number: usize, packet: &WorstPacket) {
    let woken = if packet.woken.is_empty() {
        "whose reader was awake".to_owned()
    } else {
        format!("that woke {}", packet.woken)
    };
    line(
        text,
        &format!(
            "\nslowest packet {number}: {:.1} µs on CPU {} at {:.6} s, {woken}{}",
            packet.total_us,
            packet.cpu,
            packet.at_s,
            whole(packet)
        ),
    );
    line(
        text,
        "      after       for  what (b: own thread blocked)  in",
    );
    for span in packet.timeline.iter().take(MOST_SPANS) {
        let blocked = if span.blocked { 'b' } else { ' ' };
        let what = format!("{} {}", span.kind, span.name);
        line(
            text,
            &format!(
                "  {:>9.1} {:>9.1} {blocked} {what:<28} {} ({})",
                span.after_us, span.for_us, span.thread, span.priority
            ),
        );
    }
    let more = packet.timeline.len().saturating_sub(MOST_SPANS);
    if more > 0 {
        line(text, &format!("  ... {more} more, see --json"));
    }
    for one in &packet.stages {
        stage(text, one);
    }
}

/// How long all of it took, where more is known than the way to the wake-up.
fn whole(packet: &WorstPacket) -> String {
    if packet.stages.is_empty() {
        String::new()
    } else {
        format!("; {:.1} µs in all", packet.whole_us)
    }
}

fn columns(title: &str, packets: &str, share: &str) -> String {
    let cut: String = title.chars().take(36).collect();
    format!("{cut:<36} {packets:>7} {share:>6}")
}

fn headers() -> String {
    let names = ["mean", "SD", "p50", "p99", "max"];
    names.map(|name| format!(" {name:>8}")).concat()
}

fn figures(figures: &Figures) -> String {
    [
        figures.mean_us,
        figures.sd_us,
        figures.p50_us,
        figures.p99_us,
        figures.max_us,
    ]
    .map(|figure| figure.map_or_else(|| format!(" {:>8}", "-"), |value| format!(" {value:>8.1}")))
    .concat()
}

fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

fn line(text: &mut String, content: &str) {
    let _ = writeln!(text, "{}", content.trim_end());
}
