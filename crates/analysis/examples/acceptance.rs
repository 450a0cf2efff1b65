//! What each server is admitted on each host: counts of random VCPU sets, as a page.
//! `cargo run --release -p steadyvm-analysis --example acceptance docs/results/acceptance.md`

#[path = "../benches/hosts/mod.rs"]
#[allow(dead_code)] // the benches use more of it
mod hosts;

#[path = "../tests/soundness/server_explorer.rs"]
#[allow(dead_code, missing_docs, clippy::unwrap_used)] // the tests use more of it
mod server_explorer;

use std::fmt::Write as _;
use std::path::Path;
use std::{env, io};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use server_explorer::{Kind, Policy, Vcpu as Explored, holds};
use steadyvm_analysis::{
    Work,
    host::{Host, HostScheduler, Vcpu, VcpuServer, admit, gfb, overhead::Overheads},
    plan,
    task::Task,
};
use steadyvm_report::picture::{Bar, Group};
use steadyvm_report::results_page::{self, Details};
use steadyvm_report::{Answer, Finding, Picture};

const SETS: usize = 1_500;

const SERVERS: [(&str, VcpuServer); 4] = [
    ("cbs", VcpuServer::ConstantBandwidth),
    ("sporadic", VcpuServer::Sporadic),
    ("deferrable", VcpuServer::Deferrable),
    ("periodic", VcpuServer::Periodic),
];

const SCHEDULERS: [(&str, HostScheduler); 4] = [
    ("pedf", HostScheduler::PartitionedEarliestDeadline),
    ("gedf", HostScheduler::GlobalEarliestDeadline),
    ("pdm", HostScheduler::PartitionedDeadlineMonotonic),
    ("gdm", HostScheduler::GlobalDeadlineMonotonic),
];

/// `count` VCPUs that fill 30 to 100 % of `cpus` CPUs: shares by `UUniFast` (Bini and Buttazzo, 2005), none above
/// 90 %, periods of 1 to 100 ms.
fn set(rng: &mut ChaCha8Rng, cpus: u32, count: usize) -> Vec<(i64, i64)> {
    loop {
        let mut rest = f64::from(cpus) * rng.random_range(0.3..1.0);
        let mut shares = Vec::with_capacity(count);
        for left in (1..count).rev() {
            let next = rest * rng.random_range(0.0_f64..1.0).powf(1.0 / left as f64);
            shares.push(rest - next);
            rest = next;
        }
        shares.push(rest);
        if shares.iter().all(|share| (0.001..0.9).contains(share)) {
            let vcpu = |share: f64| {
                let period = rng.random_range(1_000_000..100_000_000_i64);
                ((period as f64 * share) as i64, period)
            };
            return shares.into_iter().map(vcpu).collect();
        }
    }
}

fn admitted(set: &[(i64, i64)], cpus: u32, scheduler: HostScheduler, server: VcpuServer) -> bool {
    let vcpus: Option<Vec<Vcpu>> = (set.iter().enumerate())
        .map(|(vm, &(budget, period))| Vcpu::new(vm, budget, period).ok())
        .collect();
    let host = Host::new(cpus, scheduler, server, Overheads::default());
    vcpus
        .zip(host.ok())
        .is_some_and(|(vcpus, host)| admit(&host, &vcpus, &mut Work::default()).is_feasible())
}

const COMMAND: &str =
    "cargo run --release -p steadyvm-analysis --example acceptance docs/results/acceptance.md";
/// The server that the answer is of: the default.
const SHOWN: &str = "cbs";

fn main() -> io::Result<()> {
    let file = env::args().nth(1);
    let file = file.ok_or_else(|| io::Error::other("give the page's file"))?;
    let mut tables = String::new();
    let accepted = accepted(&mut tables);
    let refusals = needless(&mut tables);
    speed(&mut tables);
    let details = Details {
        command: COMMAND.to_owned(),
        warning: format!(
            "{SETS} random sets per row (UUniFast, 30 to 100 % of the CPUs, periods of 1 to 100 ms, seed 28), sets admitted \
             of them. `cbs` is the default server and what `SCHED_DEADLINE` enforces. On one CPU pedf and gedf are the same \
             scheduler, and pdm and gdm: the rows must be equal."
        ),
        tables,
        facts: Vec::new(),
    };
    results_page::write(Path::new(&file), &answer(&accepted, &refusals), &details)
}

/// CPUs, host, and how many sets it admits of [`SETS`] with [`SHOWN`].
type Accepted = (u32, &'static str, usize);
/// CPUs, host, how many it refuses with [`SHOWN`], and how many of them no schedule needs.
type Refused = (u32, &'static str, usize, usize);

fn answer(accepted: &[Accepted], refusals: &[Refused]) -> Answer {
    let most_cpus = accepted.iter().map(|it| it.0).max().unwrap_or(0);
    let counts = accepted.iter().filter(|it| it.0 == most_cpus);
    let counts = counts.map(|(cpus, host, sets)| Finding::Count {
        of: format!("`{host}`"),
        what: format!("sets accepted on {cpus} CPUs"),
        count: *sets as u64,
        all: SETS as u64,
    });
    let several = refusals.iter().filter(|it| it.0 > 1);
    let needless = several.map(|(cpus, host, refused, needless)| Finding::Count {
        of: format!("`{host}`"),
        what: format!("refusals on {cpus} CPUs that no schedule needs"),
        count: *needless as u64,
        all: *refused as u64,
    });
    let on = |wanted: u32| Group {
        name: format!("{wanted} CPUs"),
        bars: (accepted.iter().filter(|it| it.0 == wanted))
            .map(|(_, host, sets)| {
                Bar::new(host, Some(*sets as f64), |it| format!("{it} of {SETS}"))
            })
            .collect(),
    };
    let mut cpus: Vec<u32> = accepted.iter().map(|it| it.0).collect();
    cpus.dedup();
    Answer {
        question: "Which sets of VMs does the analysis accept?".to_owned(),
        findings: counts.chain(needless).collect(),
        picture: Picture {
            title: format!("Random sets of VMs that are accepted, {SHOWN}; longer is better"),
            groups: cpus.into_iter().map(on).collect(),
        },
    }
}

fn accepted(text: &mut String) -> Vec<Accepted> {
    let mut shown = Vec::new();
    let _ = writeln!(
        text,
        "| CPUs | VCPUs | host | cbs | sporadic | deferrable | periodic |\n|---|---|---|---|---|---|---|"
    );
    let mut rows = Vec::new();
    for (cpus, count) in [(1, 3), (2, 4), (4, 8), (8, 16)] {
        let mut rng = ChaCha8Rng::seed_from_u64(28);
        let sets: Vec<Vec<(i64, i64)>> = (0..SETS).map(|_| set(&mut rng, cpus, count)).collect();
        for (name, scheduler) in SCHEDULERS {
            let _ = write!(text, "| {cpus} | {count} | {name} |");
            for (server_name, server) in SERVERS {
                let accepted = sets
                    .iter()
                    .filter(|set| admitted(set, cpus, scheduler, server))
                    .count();
                let _ = write!(text, " {accepted} |");
                if server_name == SHOWN {
                    shown.push((cpus, name, accepted));
                }
            }
            text.push('\n');
        }
        if cpus == 1 {
            continue;
        }
        let gedf = HostScheduler::GlobalEarliestDeadline;
        let pedf = HostScheduler::PartitionedEarliestDeadline;
        let cbs = VcpuServer::ConstantBandwidth;
        let on = |set: &&Vec<(i64, i64)>, scheduler, server| admitted(set, cpus, scheduler, server);
        let before = sets
            .iter()
            .filter(|set| on(set, gedf, VcpuServer::Periodic))
            .count();
        let plain = sets.iter().filter(|set| dense(set, cpus)).count();
        let after = sets.iter().filter(|set| on(set, gedf, cbs)).count();
        let lost: Vec<_> = sets
            .iter()
            .filter(|set| on(set, gedf, VcpuServer::Periodic) && !on(set, gedf, cbs))
            .collect();
        let pinned = lost.iter().filter(|set| on(set, pedf, cbs)).count();
        rows.push((cpus, count, before, plain, after, lost.len(), pinned));
    }
    let _ = writeln!(
        text,
        "\n## cbs on gedf, beside periodic servers\n\n\
         Periodic: held if the same VCPUs had periodic servers. Density: what the plain density test (Goossens, Funk\n\
         and Baruah) leaves. cbs: density with some VCPUs counted as whole CPUs. Every loss has one reason: a guest\n\
         that sleeps in its budget and wakes again executes up to its deadline, or gets a new one early, so neither\n\
         slack (response times) nor at most one budget in a period (interference) can be relied on.\n\n\
         | CPUs | VCPUs | periodic | density | cbs | lost | of these held by pedf |\n|---|---|---|---|---|---|---|"
    );
    for (cpus, count, before, plain, after, lost, pinned) in rows {
        let _ = writeln!(
            text,
            "| {cpus} | {count} | {before} | {plain} | {after} | {lost} | {pinned} |"
        );
    }
    shown
}

/// Hosts drawn for each row of the refusals.
const DRAWN: usize = 200;

/// Small hosts that are refused, and of which no schedule misses (in some packing, if VCPUs are pinned).
fn needless(text: &mut String) -> Vec<Refused> {
    let mut shown = Vec::new();
    let _ = writeln!(
        text,
        "\n## Needless refusals\n\n\
         {DRAWN} random hosts a row, of 2 to 4 VCPUs with periods of 2 to 5 and D <= T, seed 46. Every schedule of those that are\n\
         refused is visited, guests that wake and sleep at will, on pinned hosts for every packing. *Needless*: none misses.\n\
         *Unknown*: more than 60,000 states, or a sporadic budget above 3.\n\n\
         | CPUs | host | server | accepted | refused | needless | unknown |\n|---|---|---|---|---|---|---|"
    );
    for cpus in 1..=2_u32 {
        for (name, scheduler) in SCHEDULERS {
            for (server_name, server) in SERVERS {
                let policy = if scheduler.is_fixed_priority() {
                    Policy::DeadlineMonotonic
                } else {
                    Policy::EarliestDeadline
                };
                let kind = match (server, policy) {
                    (VcpuServer::Deferrable, _) => continue,
                    (VcpuServer::Periodic, _) => Kind::Job,
                    (VcpuServer::ConstantBandwidth, Policy::EarliestDeadline) => {
                        Kind::ConstantBandwidth
                    }
                    _ => Kind::Sporadic,
                };
                let mut rng = ChaCha8Rng::seed_from_u64(46);
                let (mut accepted, mut refused, mut needless, mut unknown) = (0, 0, 0, 0);
                for _ in 0..DRAWN {
                    let given: Vec<(u8, u8, u8)> = (0..rng.random_range(2..=4))
                        .map(|_| {
                            let period = rng.random_range(2..=5);
                            let budget = rng.random_range(1..period);
                            let whole = rng.random_bool(0.7);
                            let deadline = rng.random_range(budget..=period);
                            (budget, if whole { period } else { deadline }, period)
                        })
                        .collect();
                    let vcpus: Option<Vec<Vcpu>> = (given.iter().enumerate())
                        .map(|(vm, &(budget, deadline, period))| {
                            Vcpu::new(vm, budget.into(), period.into())
                                .ok()?
                                .due(deadline.into())
                                .ok()
                        })
                        .collect();
                    let host = Host::new(cpus, scheduler, server, Overheads::default());
                    let (Some(vcpus), Ok(host)) = (vcpus, host) else {
                        continue;
                    };
                    if admit(&host, &vcpus, &mut Work::default()).is_feasible() {
                        accepted += 1;
                        continue;
                    }
                    refused += 1;
                    if kind == Kind::Sporadic && given.iter().any(|&(budget, ..)| budget > 3) {
                        unknown += 1;
                        continue;
                    }
                    let held = held_by_some(&given, cpus, scheduler.is_partitioned(), kind, policy);
                    needless += usize::from(held == Some(true));
                    unknown += usize::from(held.is_none());
                }
                let _ = writeln!(
                    text,
                    "| {cpus} | {name} | {server_name} | {accepted} | {refused} | {needless} | {unknown} |"
                );
                if server_name == SHOWN {
                    shown.push((cpus, name, refused, needless));
                }
            }
        }
    }
    shown
}

type Given = (u8, u8, u8);

/// Whether no schedule of VCPUs (budget, deadline, period) misses: of some packing, if they are pinned. `None`: too many
/// states.
fn held_by_some(
    given: &[Given],
    cpus: u32,
    pinned: bool,
    kind: Kind,
    policy: Policy,
) -> Option<bool> {
    let explore = |members: &[Given], cpus: u8| {
        let vcpu = |&(budget, deadline, period): &Given| Explored {
            budget,
            deadline,
            period,
            cpus,
        };
        let vcpus: Vec<Explored> = members.iter().map(vcpu).collect();
        holds(&vcpus, kind, policy, 60_000)
    };
    if !pinned {
        return explore(given, u8::MAX >> (8 - cpus));
    }
    let mut unknown = false;
    for packing in 0..cpus.pow(given.len() as u32) {
        let verdict = (0..cpus).try_fold(true, |held, cpu| {
            let home = |vcpu: usize| packing / cpus.pow(vcpu as u32) % cpus;
            let members = (0..given.len()).filter(|&vcpu| home(vcpu) == cpu);
            let members: Vec<Given> = members.map(|vcpu| given[vcpu]).collect();
            if held && !members.is_empty() {
                explore(&members, 1)
            } else {
                Some(held)
            }
        });
        if verdict == Some(true) {
            return verdict;
        }
        unknown |= verdict.is_none();
    }
    (!unknown).then_some(false)
}

/// Runs of admission.
const RUNS: usize = 21;

/// Runs of what takes longer.
const FEW_RUNS: usize = 3;

/// Of several runs, each in milliseconds: median, least, most, and the mean CPU time of a run.
fn timed(runs: usize, mut run: impl FnMut()) -> (f64, f64, f64, f64) {
    let before = cpu_time_ms();
    let mut times: Vec<f64> = (0..runs)
        .map(|_| {
            let started = std::time::Instant::now();
            run();
            started.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    let cpu_ms = (cpu_time_ms() - before) / runs as f64;
    times.sort_by(f64::total_cmp);
    (times[(runs - 1) / 2], times[0], times[runs - 1], cpu_ms)
}

/// The same VCPUs as a request.
fn request(vcpus: &[Vcpu], cpus: u32, scheduler: &str, server: &str) -> Option<plan::Request> {
    let vms: Vec<_> = (vcpus.iter().enumerate())
        .map(|(vm, vcpu)| {
            json!({"name": format!("v{vm}"), "budget": vcpu.budget(), "period": vcpu.period()})
        })
        .collect();
    let host = json!({"pcpus": cpus, "scheduler": scheduler, "server": server});
    plan::json::parse(&json!({"host": host, "vms": vms, "unit": "ns"}).to_string()).ok()
}

/// How long 1,000 hosts of 64 VCPUs take, and one of 4,096.
fn speed(text: &mut String) {
    let _ = writeln!(
        text,
        "\n## Speed\n\n\
         64 VCPUs on 32 CPUs, 1,000 random hosts one after the other on one core (a host is 60 %, 75 % or 90 % full, in\n\
         turn). *Admission* is `host::admit`, {RUNS} runs; *answer* is `plan::holds` of parsed requests (yes or no, after\n\
         fewer CPUs were tried where all of them do not do), *report* is `plan::run` (with the least number of CPUs, a report and\n\
         changes that would help), {FEW_RUNS} runs each. Milliseconds by the clock: the median (least, most). CPU time is the mean over the\n\
         runs, from /proc/thread-self/schedstat: it does not count what other processes of the machine took. Load average\n\
         when it began: {}. Target: 100 ms for the 1,000 admissions.\n\n\
         | host | server | held | admission | its CPU time | within 100 ms | answer | its CPU time | report | its CPU time | report / admission |\n\
         |---|---|---|---|---|---|---|---|---|---|---|",
        load()
    );
    let hosts: Vec<Vec<Vcpu>> = (0..1_000_u64)
        .map(|seed| hosts::even_vcpus(seed, 32, [0.6, 0.75, 0.9][(seed % 3) as usize]))
        .collect();
    for (name, scheduler) in SCHEDULERS {
        for (server_name, server) in SERVERS {
            let Ok(host) = Host::new(32, scheduler, server, Overheads::default()) else {
                continue;
            };
            let mut held = 0;
            let (admission, least, most, admission_cpu) = timed(RUNS, || {
                held = (hosts.iter())
                    .filter(|vcpus| admit(&host, vcpus, &mut Work::default()).is_feasible())
                    .count();
            });
            let requests: Vec<plan::Request> = (hosts.iter())
                .filter_map(|vcpus| request(vcpus, 32, name, server_name))
                .collect();
            let all = |answer: &dyn Fn(&plan::Request) -> bool| {
                std::hint::black_box(requests.iter().filter(|request| answer(request)).count());
            };
            let (answer, answer_least, answer_most, answer_cpu) = timed(FEW_RUNS, || {
                all(&|request| plan::holds(request).unwrap_or_default());
            });
            let (report, report_least, report_most, report_cpu) = timed(FEW_RUNS, || {
                all(&|request| plan::run(request).is_ok_and(|report| report.feasible));
            });
            let met = if admission_cpu <= 100.0 { "yes" } else { "no" };
            let _ = writeln!(
                text,
                "| {name} | {server_name} | {held} | {admission:.1} ({least:.1}, {most:.1}) | {admission_cpu:.1} | {met} | \
                 {answer:.0} ({answer_least:.0}, {answer_most:.0}) | {answer_cpu:.0} | \
                 {report:.0} ({report_least:.0}, {report_most:.0}) | {report_cpu:.0} | {:.1} |",
                report_cpu / admission_cpu
            );
        }
    }
    let _ = writeln!(
        text,
        "\n4,096 VCPUs on 2,048 CPUs, 75 % full, best fit, {FEW_RUNS} runs. Target: the report of pedf within 1,000 ms (6,900 before\n\
         CPUs were kept in order of bandwidth).\n\n\
         | host | server | feasible | admission | its CPU time | report | its CPU time |\n|---|---|---|---|---|---|---|"
    );
    for (name, scheduler) in [SCHEDULERS[0], SCHEDULERS[2]] {
        let vcpus: Vec<Vcpu> = (0..64_u64)
            .flat_map(|seed| hosts::even_vcpus(seed, 32, 0.75))
            .collect();
        let cbs = VcpuServer::ConstantBandwidth;
        let (Ok(host), Some(request)) = (
            Host::new(2_048, scheduler, cbs, Overheads::default()),
            request(&vcpus, 2_048, name, "cbs"),
        ) else {
            continue;
        };
        let (admission, least, most, admission_cpu) = timed(FEW_RUNS, || {
            std::hint::black_box(admit(&host, &vcpus, &mut Work::default()).is_feasible());
        });
        let mut feasible = false;
        let (report, report_least, report_most, report_cpu) = timed(FEW_RUNS, || {
            feasible = plan::run(&request).is_ok_and(|report| report.feasible);
        });
        let _ = writeln!(
            text,
            "| {name} | cbs | {feasible} | {admission:.0} ({least:.0}, {most:.0}) | {admission_cpu:.0} | {report:.0} ({report_least:.0}, \
             {report_most:.0}) | {report_cpu:.0} |"
        );
    }
}

/// What the kernel counts for the calling thread, to a tick.
fn cpu_time_ms() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let run_ns = text
        .split(' ')
        .next()
        .and_then(|word| word.parse::<f64>().ok());
    run_ns.unwrap_or(f64::NAN) / 1e6
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}

fn dense(set: &[(i64, i64)], cpus: u32) -> bool {
    let tasks: Option<Vec<Task>> = set
        .iter()
        .map(|&(budget, period)| Task::implicit(budget, period).ok())
        .collect();
    tasks.is_some_and(|tasks| tasks.len() <= cpus as usize || gfb::test(&tasks, cpus))
}
