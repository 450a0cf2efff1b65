//! What receives for VMs is in the same sum as their VCPUs, and in the bounds of their services.
// Helpers of tests unwrap, too.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use proptest::prelude::*;
use steadyvm_analysis::plan::{self, Report};

fn plan(text: &str) -> Report {
    plan::run(&plan::file::parse(text).unwrap()).unwrap()
}

/// A VM with a budget of so many tenths of a millisecond in 10 ms, and what receives for it: threads of its function, workers.
#[derive(Debug, Clone)]
struct Asked {
    tenths: u32,
    polls: Option<(u32, u32)>,
    vhost: Option<(u32, u32)>,
}

fn asked() -> impl Strategy<Value = Asked> {
    let share = || prop::option::of((2_u32..60, 1_u32..4));
    (0_u32..100, share(), share()).prop_map(|(tenths, polls, vhost)| Asked {
        tenths,
        polls,
        vhost,
    })
}

fn file(scheduler: &str, cpus: u32, vms: &[Asked], with_receive: bool) -> String {
    let mut text =
        format!("[host]\npcpus = {cpus}\nscheduler = \"{scheduler}\"\nenforce = \"deadline\"\n");
    for (number, vm) in vms.iter().enumerate() {
        let _ = write!(text, "[[vm]]\nname = \"vm{number}\"\n");
        // One without a budget is not real-time, and is received for all the same.
        if vm.tenths > 0 {
            let _ = write!(
                text,
                "budget = \"{}us\"\nperiod = \"10ms\"\n",
                vm.tenths * 100
            );
        } else {
            text.push_str("rt = false\n");
        }
        let share = |keys: [&str; 2], share: Option<(u32, u32)>| {
            let share = share.map(|(tenths, threads)| {
                format!(
                    "{} = \"{}us\", {} = {threads}",
                    keys[0],
                    tenths * 100,
                    keys[1]
                )
            });
            share.into_iter()
        };
        let keys: Vec<String> = share(["budget", "napi_threads"], vm.polls)
            .chain(share(["vhost_budget", "workers"], vm.vhost))
            .collect();
        if with_receive && !keys.is_empty() {
            let _ = write!(
                text,
                "nic = \"eth0\"\nreceive = {{ {} }}\n",
                keys.join(", ")
            );
        }
    }
    text
}

/// `to_ratio()` of the kernel.
fn ratio(runtime_ns: i64, period_ns: i64) -> i64 {
    (runtime_ns << 20) / period_ns
}

/// Every thread that gets a budget: its share, and its CPUs.
fn threads(report: &Report) -> Vec<(i64, Vec<u32>)> {
    let mut found = Vec::new();
    for vm in &report.vms {
        for vcpu in vm
            .vcpus
            .iter()
            .filter(|vcpu| !vcpu.dedicated && vcpu.budget > 0)
        {
            let install = vcpu.install.as_ref().unwrap();
            found.push((
                ratio(install.runtime_ns, install.period_ns),
                install.cpus.clone(),
            ));
        }
        for server in &vm.receive {
            let install = server.install.as_ref().unwrap();
            assert!(server.budget <= install.runtime_ns);
            found.push((ratio(server.budget, server.period), install.cpus.clone()));
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// `__dl_overflow()`: all budgets, and 50 ms in 1 s for the fair server of each CPU, are at most 95 % of the CPUs. Where each
    /// thread has a CPU of its own the plan is in the kernel's place, and holds each CPU to that.
    #[test]
    fn the_kernel_admits_all_that_a_plan_admits(
        vms in prop::collection::vec(asked(), 1..5), cpus in 1_u32..4, is_global in any::<bool>(),
    ) {
        let scheduler = if is_global { "gedf" } else { "pedf" };
        let report = plan(&file(scheduler, cpus, &vms, true));
        if report.feasible {
            let (most, fair) = (ratio(950_000, 1_000_000), ratio(50_000_000, 1_000_000_000));
            let threads = threads(&report);
            let expected = vms.iter().flat_map(|vm| [vm.polls, vm.vhost]).flatten();
            let expected: u32 = expected.map(|(_, threads)| threads).sum();
            let received: usize = report.vms.iter().map(|vm| vm.receive.len()).sum();
            prop_assert_eq!(received, expected as usize);
            if is_global {
                let free = i64::from(cpus);
                let all: i64 = threads.iter().map(|(share, _)| share).sum();
                prop_assert!(all + fair * free <= most * free);
            } else {
                let mut by_cpu: BTreeMap<u32, i64> = BTreeMap::new();
                for (share, cpus) in threads {
                    prop_assert_eq!(cpus.len(), 1);
                    *by_cpu.entry(cpus[0]).or_default() += share;
                }
                prop_assert!(by_cpu.values().all(|share| share + fair <= most));
            }
            // What is received makes no plan possible.
            prop_assert!(plan(&file(scheduler, cpus, &vms, false)).feasible);
        }
    }
}

const HOST: &str = "[host]\npcpus = 1\nscheduler = \"pedf\"\nenforce = \"deadline\"\n";
const SERVICE: &str = "[[service]]\nvm = \"web\"\nc = \"1ms\"\nt = \"50ms\"\nlimit = \"45ms\"\nwake = \"20us\"\n\
                       [service.receive]\ninterrupt = \"50us\"\npacket = \"10us\"\n";

#[test]
fn a_plan_that_fits_without_what_is_received_and_not_with_it_is_refused() {
    for scheduler in ["pedf", "gedf"] {
        let host = HOST.replace("pedf", scheduler);
        let vm = "[[vm]]\nname = \"web\"\nbudget = \"6ms\"\nperiod = \"10ms\"\n";
        assert!(plan(&format!("{host}{vm}")).feasible);
        let more = "nic = \"eth0\"\nreceive = { budget = \"2ms\", vhost_budget = \"2ms\" }\n";
        let report = plan(&format!("{host}{vm}{more}"));
        assert!(!report.feasible);
        let why = &report.explanations[0].text;
        assert!(
            why.contains("(receive) of VM \"web\"") || why.contains("VCPU 0"),
            "{why}"
        );
        // An ordinary VM's counts as well.
        let ordinary = "[[vm]]\nname = \"bulk\"\nclass = \"best-effort\"\nreceive = { vhost_budget = \"4ms\" }\n";
        let report = plan(&format!("{host}{vm}{ordinary}"));
        assert!(!report.feasible, "{report:?}");
        let less = ordinary.replace("4ms", "2ms");
        assert!(plan(&format!("{host}{vm}{less}")).feasible);
    }
}

#[test]
fn what_a_program_bounds_is_no_server_and_ext_comes_after_those() {
    let vm = "[[vm]]\nname = \"web\"\nbudget = \"6ms\"\nperiod = \"10ms\"\nnic = \"eth0\"\nreceive = { budget = \"4ms\" }\n";
    let by_program = format!("{HOST}{vm}way = \"xdp\"\n");
    let report = plan(&by_program);
    assert!(report.feasible && report.vms[0].receive.is_empty());
    let by_ext = HOST.replace("deadline", "ext");
    let report = plan(&format!("{by_ext}{vm}"));
    assert!(!report.feasible);
    let why = &report.explanations.last().unwrap().text;
    assert!(why.contains("goes before a sched_ext scheduler"), "{why}");
    assert!(plan(&by_program.replace("deadline", "ext")).feasible);
}

#[test]
fn budgets_that_the_kernel_does_not_take_are_refused_with_their_thread() {
    let vm = "[[vm]]\nname = \"web\"\nrt = false\nreceive = { vhost_budget = \"5us\", period = \"50us\" }\n";
    let report = plan(&format!("{HOST}{vm}"));
    assert!(!report.feasible);
    let is_told = |what: &str| {
        let mut why = report.explanations.iter();
        why.any(|why| why.text.contains("vhost worker 0 (receive)") && why.text.contains(what))
    };
    assert!(is_told("its period is"), "{report:?}");
    let whole = vm.replace("5us", "50us");
    let error = plan::file::parse(&format!("{HOST}{whole}")).unwrap_err();
    assert!(error.to_string().contains("whole CPU"), "{error}");
}

/// What the ways in and out of the only service take.
fn ways(receive: &str) -> i64 {
    let vm = format!("[[vm]]\nname = \"web\"\nnic = \"eth0\"\n{receive}");
    let report = plan(&format!("{HOST}{vm}{SERVICE}"));
    let service = &report.services[0];
    for stage in &service.stages {
        let sum: i64 = stage.terms.iter().map(|term| term.time).sum();
        assert_eq!(sum, stage.bound, "{stage:?}");
    }
    assert_eq!(service.receive_path, Some(service.stages[0].bound));
    assert_eq!(service.send_path, Some(service.stages[1].bound));
    service.stages.iter().map(|stage| stage.bound).sum()
}

#[test]
fn a_services_bound_has_its_servers() {
    let without = ways("");
    let polls = "receive = { budget = \"200us\", period = \"1ms\" }\n";
    let with = ways(polls);
    // 2 (P - Q), and two packets of 10 us at a fifth of a CPU.
    assert_eq!(with - without, 1_600_000 + 2 * 40_000);
    let both = polls.replace("period", "vhost_budget = \"100us\", period");
    // Both are away, the slower one sets the rate, and the worker carries the response, too.
    assert_eq!(
        ways(&both) - without,
        1_600_000 + 1_800_000 + 2 * 90_000 + 1_800_000
    );
    let split = polls.replace("period", "napi_threads = 2, period");
    assert_eq!(ways(&split) - without, 1_800_000 + 2 * 90_000);
}

/// On a shared path the servers slow down all that precedes, and flows, too.
#[test]
fn a_queues_bound_has_its_servers_and_a_queue_that_outruns_them_has_none() {
    let service = SERVICE.replace("packet = \"10us\"", "packet = \"10us\"\non = \"card\"");
    let flow = "[[flow]]\non = \"card\"\nt = \"1ms\"\npacket = \"10us\"\n";
    let of = |receive: &str, flow: &str| {
        let vm = format!("[[vm]]\nname = \"web\"\nnic = \"eth0\"\n{receive}");
        plan(&format!("{HOST}{vm}{service}{flow}"))
    };
    let receive = "receive = { budget = \"200us\", period = \"1ms\" }\n";
    let (without, with) = (of("", flow), of(receive, flow));
    let bounds = [&without, &with].map(|report| report.services[0].stages[0].bound);
    assert!(
        bounds[1] >= bounds[0] + 1_600_000 + 2 * 40_000,
        "{bounds:?}"
    );
    let stage = &with.services[0].stages[0];
    let sum: i64 = stage.terms.iter().map(|term| term.time).sum();
    assert_eq!(sum, stage.bound);
    assert!(
        stage
            .terms
            .iter()
            .any(|term| term.what.contains("used up") && term.time == 1_600_000)
    );
    // 30 % of a CPU's packets by a fifth of a CPU.
    let heavy = flow.replace("\"10us\"", "\"300us\"");
    assert!(of("", &heavy).services[0].bound.is_some());
    let refused = of(receive, &heavy);
    assert!(
        !refused.feasible && refused.services[0].bound.is_none(),
        "{refused:?}"
    );
}
