//! How many scheduling events the simulator handles per second of CPU time, on systems of the dissertation's size
//! (5 CPUs, 4 guests) and larger.
//!
//! `cargo run --release -p steadyvm-sim --example event_rate [SECONDS]`

use std::{env, time::Instant};

use steadyvm_sched_policy::{CpuSet, Host, Kind, Order, Parameters};
use steadyvm_sim::{
    simulate,
    system::{Guest, GuestOrder, Overheads, System, Task, Vcpu},
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
        guests: (0..guests).map(guest).collect(),
    }
}

fn main() {
    let seconds: u64 = env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(200);
    println!("| system | server | events | s | million events/s |\n|---|---|---|---|---|");
    for (name, partitioned, cpus, guests, vcpus) in [
        ("1 CPU, 5 VCPUs, partitioned", true, 1, 5, 1),
        ("5 CPUs, 16 VCPUs, partitioned", true, 5, 4, 4),
        ("5 CPUs, 16 VCPUs, global", false, 5, 4, 4),
        ("32 CPUs, 100 VCPUs, global", false, 32, 25, 4),
    ] {
        for kind in Kind::ALL {
            let system = system(kind, partitioned, cpus, guests, vcpus);
            let start = Instant::now();
            let outcome = simulate(&system, 1, seconds * 1_000_000_000).expect("a valid system");
            let elapsed = start.elapsed().as_secs_f64();
            println!(
                "| {name} | {} | {} | {elapsed:.2} | {:.2} |",
                kind.word(),
                outcome.events,
                outcome.events as f64 / elapsed / 1e6
            );
        }
    }
}
