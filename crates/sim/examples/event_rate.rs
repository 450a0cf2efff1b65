//! How many scheduling events the simulator handles per second of CPU time, on systems of the dissertation's size
//! (5 CPUs, 4 guests) and larger, as a page.
//!
//! `cargo run --release -p steadyvm-sim --example event_rate docs/results/simulator-speed.md [SECONDS]`

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

use steadyvm_report::picture::{Bar, Group};
use steadyvm_report::results_page::{self, Details};
use steadyvm_report::{Answer, Finding, Picture};
use steadyvm_sched_policy::{CpuSet, Host, Kind, Order, Parameters};
use steadyvm_sim::{
    simulate,
    system::{Guest, GuestOrder, Overheads, Play, System, Task, Vcpu},
};

/// `cpus` CPUs at 80 %, `guests` guests of `vcpus` VCPUs with 3 tasks each.
fn system(kind: Kind, partitioned: bool, cpus: u32, guests: u32, vcpus: u32) -> System {
    let count = u64::from(guests * vcpus);
    let share = |vcpu: u64| (u64::from(cpus) * 800 / count) + vcpu % 7;
    let guest = |guest: u32| Guest {
        name: format!("vm{guest}"),
        order: GuestOrder::EarliestDeadline,
        vcpus: (0..vcpus)
            .map(|vcpu| {
                let number = u64::from(guest * vcpus + vcpu);
                let period = 5_000_000 << (number % 3);
                let budget = period * share(number).min(1_000) / 1_000;
                Vcpu {
                    parameters: Parameters::new(kind, budget, period).expect("valid"),
                    cpus: if partitioned {
                        CpuSet::from_iter([number as u32 % cpus])
                    } else {
                        CpuSet::first(cpus)
                    },
                }
            })
            .collect(),
        tasks: (0..vcpus * 3)
            .map(|task| {
                let vcpu = task % vcpus;
                let number = u64::from(guest * vcpus + vcpu);
                let period = 20_000_000 + 7_000_000 * u64::from(task % 5);
                let mut settings =
                    Task::periodic(format!("t{task}"), period * share(number) / 3_600, period);
                settings.vcpu = Some(vcpu as usize);
                settings
            })
            .collect(),
    };
    System {
        host: Host::new(Order::EarliestDeadline, partitioned, 0),
        cpus,
        overheads: Overheads::default(),
        play: Play::default(),
        guests: (0..guests).map(guest).collect(),
    }
}

/// Time that this thread has had a CPU, s: other work on the machine does not count.
fn cpu_seconds() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("a kernel with schedstat");
    let ns = text
        .split(' ')
        .next()
        .and_then(|word| word.parse::<f64>().ok());
    ns.expect("its first word is a time") / 1e9
}

/// Events per second that the issue of the simulator asks for, millions.
const TARGET: f64 = 5.0;
const ROUNDS: usize = 3;

/// A row of the page: the system, the server, and the median.
type Rate = (&'static str, Kind, f64);

/// How many systems reach the target, and the slowest and the fastest server of each.
fn answer(rates: &[Rate]) -> Answer {
    let mut groups: Vec<Group> = Vec::new();
    for (system, ..) in rates {
        if groups.iter().any(|group| group.name == *system) {
            continue;
        }
        let of_system = || rates.iter().filter(|(name, ..)| name == system);
        let slowest = of_system().map(|it| it.2).fold(f64::INFINITY, f64::min);
        let fastest = of_system().map(|it| it.2).fold(0.0, f64::max);
        let bar = |name, rate| Bar::new(name, Some(rate), |it| format!("{it:.1} million"));
        groups.push(Group {
            name: (*system).to_owned(),
            bars: vec![
                bar("fastest server", fastest),
                bar("slowest server", slowest),
            ],
        });
    }
    let reached = |name: &str| {
        let of_system = rates.iter().filter(|(system, ..)| *system == name);
        let all = of_system.clone().count() as u64;
        (of_system.filter(|it| it.2 >= TARGET).count() as u64, all)
    };
    let findings = groups.iter().map(|group| {
        let (count, all) = reached(&group.name);
        Finding::Count {
            of: group.name.clone(),
            what: format!("servers that reach {TARGET} million events per second"),
            count,
            all,
        }
    });
    Answer {
        question: "How fast is the simulator?".to_owned(),
        findings: findings.collect(),
        picture: Picture {
            title: "Scheduling events per second of CPU time; longer is better".to_owned(),
            groups: groups.clone(),
        },
    }
}

fn main() -> io::Result<()> {
    let file = env::args().nth(1);
    let file = file.ok_or_else(|| io::Error::other("give the page's file"))?;
    let seconds: u64 = env::args()
        .nth(2)
        .and_then(|text| text.parse().ok())
        .unwrap_or(100);
    let sizes = [
        ("1 CPU, 5 VCPUs, partitioned", true, 1, 5, 1),
        ("5 CPUs, 16 VCPUs, partitioned", true, 5, 4, 4),
        ("5 CPUs, 16 VCPUs, global", false, 5, 4, 4),
        ("32 CPUs, 100 VCPUs, global", false, 32, 25, 4),
    ];
    let (mut text, mut found) = (String::new(), Vec::new());
    let _ = writeln!(
        text,
        "| system | server | events | median | least | most | {TARGET} reached |\n|---|---|---|---|---|---|---|"
    );
    let mut missed = Vec::new();
    for (name, partitioned, cpus, guests, vcpus) in sizes {
        for kind in Kind::ALL {
            let system = system(kind, partitioned, cpus, guests, vcpus);
            let mut events = 0;
            let mut rates = [(); ROUNDS].map(|()| {
                let start = cpu_seconds();
                events = simulate(&system, 1, seconds * 1_000_000_000)
                    .expect("a valid system")
                    .events;
                events as f64 / (cpu_seconds() - start) / 1e6
            });
            rates.sort_by(f64::total_cmp);
            let median = rates[ROUNDS / 2];
            found.push((name, kind, median));
            let reached = if median >= TARGET { "yes" } else { "**no**" };
            if median < TARGET {
                missed.push(format!("{} on {name} ({median:.1})", kind.word()));
            }
            let _ = writeln!(
                text,
                "| {name} | {} | {events} | {median:.2} | {:.2} | {:.2} | {reached} |",
                kind.word(),
                rates[0],
                rates[ROUNDS - 1]
            );
        }
    }
    let _ = writeln!(
        text,
        "\nTarget: {TARGET} million. Missed by {} of {}: {}.\n\n\
         A decision looks through all VCPUs that wait, so that the time of an event grows with their number.",
        missed.len(),
        sizes.len() * Kind::ALL.len(),
        missed.join("; ")
    );
    let command =
        "cargo run --release -p steadyvm-sim --example event_rate docs/results/simulator-speed.md";
    let details = Details {
        command: format!("{command} {seconds}"),
        warning: format!(
            "{seconds} s of each system, seed 1, {ROUNDS} rounds. Millions of scheduling events per second of CPU time: \
             median, least and most."
        ),
        tables: text,
        facts: Vec::new(),
    };
    results_page::write(Path::new(&file), &answer(&found), &details)
}
