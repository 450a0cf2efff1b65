//! A frame as a table for people.

use std::fmt::Write as _;

use steadyvm_host::{Policy, Received, State, printable};
use steadyvm_sched::show::VcpuStanding;

use super::frame::{Frame, OthersWork, Receive, Sorted, Stage};
use crate::drift::ago;

/// A table of at most 100 columns.
pub fn table(frame: &Frame) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_table(&mut text, frame);
    text
}

fn write_table(text: &mut String, frame: &Frame) -> std::fmt::Result {
    let in_force = &frame.in_force;
    let state = match in_force.state {
        State::None => "nothing is in force",
        State::Applied => "in force",
        State::Incomplete => "an apply or undo was interrupted",
        State::BeforeReboot => "nothing is in force since the reboot",
    };
    let method = in_force.method.as_deref().unwrap_or("steadyvm");
    write!(
        text,
        "{method}: {state}, {} settings hold",
        in_force.holding
    )?;
    if in_force.drifted > 0 {
        write!(text, ", {} DRIFTED", in_force.drifted)?;
        if let Some(since) = in_force.drifted_since_unix_s {
            write!(text, " (first seen {})", ago(since, frame.at_unix_s))?;
        }
    }
    let watch = if in_force.watch {
        "a watch"
    } else {
        "no watch"
    };
    let own = frame.own_cpu_percent;
    let own = own.map_or("-".to_owned(), |own| format!("{own:.2}"));
    writeln!(
        text,
        "; {watch}\nover {:.1} s; own CPU {own} %",
        frame.interval_s
    )?;
    for (kind, groups) in frame.kinds() {
        for group in groups {
            let pid = group.pid.map_or(String::new(), |pid| format!(" ({pid})"));
            writeln!(text, "\n{kind} {}{pid}", printable(&group.name))?;
            if group.stages.is_empty() {
                writeln!(text, "  has no thread of its own now")?;
                continue;
            }
            writeln!(
                text,
                "  {:<24} {:<22} {:>6} {:>6} {:>8} {:>7} {:>7} {:>8}",
                "thread", "rank", "CPU %", "of own", "wake-ups", "p50 µs", "p99 µs", "max µs"
            )?;
            for stage in &group.stages {
                writeln!(text, "{}", row(stage).trim_end())?;
                if let Some(enforced) = &stage.enforced {
                    writeln!(text, "    {}", second_row(enforced))?;
                }
                if let Some(work) = others_work(stage) {
                    writeln!(text, "    {}", others_row(&work))?;
                }
            }
            if let Some(receive) = &group.receive {
                writeln!(text, "  {}", receive_row(receive))?;
            }
        }
    }
    if frame.wake_ups_from == "schedstat" {
        writeln!(text, "\np50 is the mean here, and there is no other figure")?;
    }
    for warning in &frame.warnings {
        writeln!(text, "warning: {warning}")?;
    }
    Ok(())
}

fn row(stage: &Stage) -> String {
    let number = stage.number.map_or(String::new(), |it| format!(" {it}"));
    let title = cut(
        &format!("{}{number} {}", stage.stage, printable(&stage.thread)),
        24,
    );
    let figure = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
    let wake_up = &stage.wake_up;
    format!(
        "  {title:<24} {:<22} {:>6} {:>6} {:>8} {:>7} {:>7} {:>8}",
        cut(&stage.rank, 22),
        figure(stage.cpu_percent),
        figure(stage.budget.and_then(|budget| budget.used_percent)),
        wake_up.n,
        figure(wake_up.p50_us.or(wake_up.mean_us)),
        figure(wake_up.p99_us),
        figure(wake_up.max_us),
    )
}

/// What a thread with a rank did for others: in a normal one it keeps nobody waiting.
fn others_work(stage: &Stage) -> Option<OthersWork> {
    let has_rank = matches!(
        stage.scheduling.policy,
        Policy::Fifo | Policy::RoundRobin | Policy::Deadline
    );
    stage
        .others_work
        .filter(|work| has_rank && work.handlers() > 0)
}

fn others_row(it: &OthersWork) -> String {
    let text = format!(
        "softirqs of others: NET_TX {}, tasklets {}, timers {}, rest {}; {:.0} µs",
        it.net_tx, it.tasklets, it.timers, it.rest, it.total_us
    );
    cut(&text, 96)
}

/// All threads that do receive work together.
fn receive_row(it: &Receive) -> String {
    let percent = it.cpu_percent;
    let percent = percent.map_or("-".to_owned(), |percent| format!("{percent:.1}"));
    let mut text = format!("receive work: CPU {percent} %, {:.3} s so far", it.cpu_s);
    if let Some(Sorted {
        card,
        received,
        poll_percent,
    }) = &it.sorted
    {
        let percent = poll_percent.map_or("-".to_owned(), |percent| format!("{percent:.1}"));
        let Received {
            packets, discarded, ..
        } = received;
        let card = printable(card);
        let _ = write!(
            text,
            "; polls of {card} {percent} %, {packets} packets, {discarded} discarded"
        );
    } else if !it.shared_cards.is_empty() {
        let _ = write!(
            text,
            "; without polls of {}, which others share",
            printable(&it.shared_cards.join(", "))
        );
    }
    cut(&text, 98)
}

/// What `steadyvm top --budgets` has of a VCPU, what matters most first: the end may be cut. What is not counted is left out.
fn second_row(it: &VcpuStanding) -> String {
    let mut parts = Vec::new();
    if let Some(guest) = it.guest {
        parts.push(format!("misses {}", guest.misses));
    }
    if let Some(short) = it.short_periods {
        parts.push(format!("short {short}"));
    }
    if let Some(used_ns) = it.period_used_ns {
        let last = it.last_period_used_ns;
        let last = last.map_or(String::new(), |ns| format!(", last {}", ns / 1000));
        parts.push(format!("this period {}{last} us", used_ns / 1000));
    }
    if let Some((ns, times)) = it.throttled_ns.zip(it.throttles) {
        parts.push(format!("throttled {:.0} ms, {times} x", ns as f64 / 1e6));
    }
    parts.push(format!(
        "preempted {}, moved {}",
        it.preemptions, it.migrations
    ));
    cut(&parts.join("; "), 96)
}

fn cut(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bounds::{Bound, Measured, RoundTrips};
    use crate::checks::{Checked, Checks, Term};
    use crate::top::frame::{Budget, Group, InForce, WakeUp};
    use steadyvm_host::Scheduling;
    use steadyvm_sched::show::GuestReport;

    pub(in super::super) fn frame() -> Frame {
        let stage = Stage {
            stage: "vcpu",
            number: Some(1),
            tid: 7,
            thread: "CPU 1/KVM".into(),
            scheduling: Scheduling::deadline(4_000_000, 10_000_000, 10_000_000, 0),
            rank: "deadline 4000/10000 us".into(),
            budget: Some(Budget {
                runtime_us: 4000.0,
                deadline_us: 10_000.0,
                period_us: 10_000.0,
                used_percent: Some(50.0),
            }),
            cpus: "0-1".into(),
            cpu_percent: Some(20.0),
            receive_cpu_s: None,
            wake_up: WakeUp {
                n: 3,
                mean_us: Some(2.0),
                p50_us: Some(2.0),
                p99_us: Some(4.0),
                max_us: Some(4.0),
            },
            others_work: None,
            enforced: Some(VcpuStanding {
                period_used_ns: Some(1_234_000),
                last_period_used_ns: Some(4_000_000),
                throttled_ns: Some(250_000_000),
                throttles: Some(3),
                preemptions: 4,
                short_periods: Some(0),
                guest: Some(GuestReport {
                    jobs: 50,
                    misses: 2,
                }),
                ..VcpuStanding::default()
            }),
        };
        let worker = Stage {
            stage: "vhost",
            number: None,
            tid: 8,
            thread: "vhost-5".into(),
            cpu_percent: Some(2.5),
            receive_cpu_s: Some(1.5),
            enforced: None,
            ..stage.clone()
        };
        let stages = vec![stage, worker];
        Frame {
            schema_version: 1,
            at_unix_s: 1000,
            interval_s: 1.0,
            in_force: InForce {
                state: State::Applied,
                method: Some("rt+profile".into()),
                holding: 30,
                drifted: 2,
                drifted_since_unix_s: Some(900),
                watch: true,
                measured: vec![Measured {
                    file: "/etc/steadyvm.toml".into(),
                    bound: Bound {
                        service: "web".into(),
                        vm: "we\"b".into(),
                        bound_ns: 2_000_000,
                        lacks: None,
                    },
                    round_trips: RoundTrips {
                        answered: 2000,
                        lost: 1,
                        over: 3,
                        longest_ns: 2_500_000,
                    },
                    unix_s: 900,
                }],
                checks: Some(checks()),
            },
            wake_ups_from: "bpf",
            lost_events: 0,
            own_cpu_percent: Some(0.25),
            nics: Vec::new(),
            vms: vec![Group {
                name: "we\"b".into(),
                pid: Some(5),
                receive: Some(Receive::of(&stages, vec!["eth0".into()], None)),
                stages,
            }],
            processes: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// A service one of whose terms was broken.
    fn checks() -> Checks {
        let term = Term {
            term: "VCPU blackout".into(),
            planned_ns: Some(1_000_000),
            n: 50,
            over: 3,
            longest_ns: Some(2_500_000),
            near: Some(2.5),
        };
        Checks {
            vms: vec![Checked {
                vm: "we\"b".into(),
                services: vec!["web".into()],
                lacks: None,
                terms: vec![term],
                guest: None,
            }],
            ..Checks::default()
        }
    }

    /// A program's account of a VM.
    pub(in super::super) fn sorted() -> Sorted {
        Sorted {
            card: "eth0".into(),
            received: Received {
                packets: 70,
                bytes: 4480,
                discarded: 20,
            },
            poll_percent: Some(1.25),
        }
    }

    #[test]
    fn a_table_has_ranks_budgets_and_wake_ups_within_100_columns() {
        let text = table(&frame());
        assert!(
            text.contains("2 DRIFTED (first seen 100 s ago); a watch"),
            "{text}"
        );
        assert!(text.contains("VM we\"b (5)"), "{text}");
        let row = text.lines().find(|line| line.contains("vcpu 1")).unwrap();
        for figure in ["deadline 4000/10000 us", "20.0", "50.0", "4.0"] {
            assert!(row.contains(figure), "{row}");
        }
        let second = "    misses 2; short 0; this period 1234, last 4000 us; throttled 250 ms, 3 x; preempted 4, moved 0";
        assert!(text.contains(second), "{text}");
        let work = "  receive work: CPU 2.5 %, 1.500 s so far; without polls of eth0, which others share\n";
        assert!(text.contains(work), "{text}");
        let mut frame = frame();
        frame.vms[0].receive.as_mut().unwrap().sorted = Some(sorted());
        let text = table(&frame);
        let work = "receive work: CPU 2.5 %, 1.500 s so far; polls of eth0 1.2 %, 70 packets, 20 discarded\n";
        assert!(text.contains(work), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100));
    }

    #[test]
    fn work_of_others_is_told_of_threads_that_have_a_rank() {
        let mut frame = frame();
        let work = OthersWork {
            net_tx: 12,
            tasklets: 3,
            total_us: 85.4,
            ..OthersWork::default()
        };
        frame.vms[0].stages[0].others_work = Some(work);
        let said = "    softirqs of others: NET_TX 12, tasklets 3, timers 0, rest 0; 85 µs\n";
        assert!(table(&frame).contains(said), "{}", table(&frame));
        frame.vms[0].stages[0].scheduling = Scheduling::normal();
        assert!(!table(&frame).contains("softirqs of others"));
        frame.vms[0].stages[0].scheduling = Scheduling::fifo(50, 0);
        frame.vms[0].stages[0].others_work = Some(OthersWork::default());
        assert!(!table(&frame).contains("softirqs of others"));
    }
}
