//! Measured costs of a host, for what a plan's file leaves out: they never promise more, what is written wins, and what
//! nobody says is named.

#![allow(clippy::unwrap_used)] // helpers of tests
#![allow(clippy::struct_field_names)] // all are times
#![allow(clippy::format_push_string)] // a file is written as it looks

use proptest::prelude::*;
use steadyvm_analysis::plan::{self, Measured, Missing, Report};
use steadyvm_config::File;

fn planned(text: &str, measured: &Measured) -> Report {
    let file = File::parse("", text).unwrap();
    let request = plan::file::of_measured(&file, None, measured).unwrap();
    plan::run(&request).unwrap()
}

/// A VM of one task that answers, and one that only computes.
#[derive(Debug, Clone)]
struct Vm {
    c_us: u32,
    t_us: u32,
    other_c_us: u32,
    period_us: u32,
    /// Written, or computed.
    budget_us: Option<u32>,
    limit_us: u32,
    packet_us: Option<u32>,
}

fn vm() -> impl Strategy<Value = Vm> {
    (
        50..400_u32,
        2_000..10_000_u32,
        0..400_u32,
        500..2_000_u32,
        proptest::option::of(100..900_u32),
        3_000..20_000_u32,
        proptest::option::of(1..20_u32),
    )
        .prop_map(
            |(c_us, t_us, other_c_us, period_us, share, limit_us, packet_us)| Vm {
                c_us,
                t_us,
                other_c_us,
                period_us,
                budget_us: share.map(|share| period_us * share / 1000),
                limit_us,
                packet_us,
            },
        )
}

fn file(vms: &[Vm], scheduler: &str, costs: &str) -> String {
    let mut text = format!("[host]\npcpus = 2\nscheduler = \"{scheduler}\"\n{costs}");
    for (number, vm) in vms.iter().enumerate() {
        let other = if vm.other_c_us > 0 {
            format!(", {{ c = \"{}us\", t = \"9ms\" }}", vm.other_c_us)
        } else {
            String::new()
        };
        let budget = (vm.budget_us).map_or(String::new(), |us| format!("budget = \"{us}us\"\n"));
        let packet = (vm.packet_us).map_or(String::new(), |us| {
            format!("receive = {{ packet = \"{us}us\" }}\n")
        });
        text += &format!(
            "[[vm]]\nname = \"{number}\"\ninterface = \"prm\"\nperiod = \"{}us\"\n{budget}\
             tasks = [{{ name = \"answers\", c = \"{}us\", t = \"{}us\" }}{other}]\n\
             [[service]]\nname = \"{number}\"\nvm = \"{number}\"\ntask = \"answers\"\nlimit = \"{}us\"\n{packet}",
            vm.period_us, vm.c_us, vm.t_us, vm.limit_us,
        );
    }
    text
}

fn measured() -> impl Strategy<Value = Measured> {
    let cost = |most: i64| proptest::option::of(0..most);
    (
        cost(100_000),
        cost(100_000),
        cost(300_000),
        cost(500_000),
        cost(20_000),
    )
        .prop_map(
            |(context_switch, migration, cache_reload, interrupt, packet)| Measured {
                context_switch,
                migration,
                cache_reload,
                interrupt,
                packet,
            },
        )
}

/// What a report promises of a VM: what nobody promises is worst.
fn runtimes(report: &Report) -> Vec<i64> {
    let vcpus = report.vms.iter().flat_map(|vm| &vm.vcpus);
    vcpus
        .filter_map(|vcpu| Some(vcpu.install.as_ref()?.runtime_ns))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Where a budget is written, a bound does not become smaller. One that is computed may become larger by the
    /// costs, and a larger budget answers earlier, so that it may even meet a limit: there, the budget does not become smaller.
    #[test]
    fn a_measured_cost_never_promises_more(
        vms in proptest::collection::vec(vm(), 1..4), scheduler in "pedf|gedf|pdm", measured in measured(),
    ) {
        let text = file(&vms, &scheduler, "");
        let (without, with) = (planned(&text, &Measured::default()), planned(&text, &measured));
        let is_written = vms.iter().all(|vm| vm.budget_us.is_some());
        prop_assert!(without.feasible || !with.feasible || !is_written, "{text}");
        for ((before, after), vm) in without.services.iter().zip(&with.services).zip(&vms) {
            if let (Some(before), Some(after), true) = (before.bound, after.bound, vm.budget_us.is_some()) {
                prop_assert!(after >= before, "{before} {after}\n{text}");
            }
            prop_assert!(before.bound.is_some() || after.bound.is_none());
            prop_assert!(after.incomplete.iter().all(|term| before.incomplete.contains(term)));
        }
        for (before, after) in without.vms.iter().zip(&with.vms) {
            if let (Some(before), Some(after)) = (&before.interface, &after.interface) {
                prop_assert!(after.budget >= before.budget, "{text}");
            }
        }
        if with.feasible {
            for (before, after) in runtimes(&without).iter().zip(runtimes(&with)) {
                prop_assert!(after >= *before, "{text}");
            }
        }
    }

    /// Zero is a value, too.
    #[test]
    fn what_the_file_says_wins(
        vms in proptest::collection::vec(vm(), 1..4), scheduler in "pedf|gedf", measured in measured(),
        costs in proptest::array::uniform3(0..50_u32), interrupt in 0..50_u32,
    ) {
        let [switch, reload, migration] = costs;
        let costs = format!(
            "[host.overheads]\ncontext_switch = \"{switch}us\"\ncache_reload = \"{reload}us\"\nmigration = \"{migration}us\"\n"
        );
        let text = file(&vms, &scheduler, &costs)
            .replace("receive = { ", &format!("receive = {{ interrupt = \"{interrupt}us\", "));
        let measured = Measured {
            // A service that leaves out its way in takes it.
            interrupt: measured.interrupt.filter(|_| vms.iter().all(|vm| vm.packet_us.is_some())),
            packet: measured.packet.filter(|_| vms.iter().all(|vm| vm.packet_us.is_some())),
            ..measured
        };
        prop_assert_eq!(planned(&text, &measured), planned(&text, &Measured::default()));
    }
}

const SHORTEST: &str = "[[service]]\nvm = \"web\"\nc = \"2ms\"\nt = \"10ms\"\nlimit = \"5ms\"\n";

#[test]
fn what_nobody_says_is_named_and_no_more() {
    use Missing::{
        CacheReload, ContextSwitch, Decision, GuestWakeup, Migration, ReceivePath, SendPath,
    };
    let missing = |text: &str, measured: &Measured| {
        let report = planned(text, measured);
        let rendered = plan::text::render(&report, false);
        let of_service = report.services[0].incomplete.clone();
        assert_eq!(
            rendered.contains("incomplete: nothing is counted for "),
            !of_service.is_empty(),
            "{rendered}"
        );
        of_service
    };
    let none = Measured::default();
    let all = [
        ReceivePath,
        GuestWakeup,
        SendPath,
        ContextSwitch,
        CacheReload,
    ];
    assert_eq!(missing(SHORTEST, &none), all);
    let whole = Measured {
        context_switch: Some(1_000),
        migration: Some(2_000),
        cache_reload: Some(3_000),
        interrupt: Some(4_000),
        packet: None,
    };
    // What a packet costs is not measured without one.
    assert_eq!(
        missing(SHORTEST, &whole),
        [ReceivePath, GuestWakeup, SendPath]
    );
    let ways =
        format!("{SHORTEST}receive = {{ packet = \"2us\" }}\nwake = \"0ns\"\nsend = \"3us\"\n");
    assert!(missing(&ways, &whole).is_empty());
    assert_eq!(
        missing(&ways, &none),
        [ReceivePath, ContextSwitch, CacheReload]
    );
    let parts = ways.replace("\"3us\"", "{ guest = \"1us\", host = \"2us\" }");
    assert_eq!(missing(&parts, &whole), [SendPath]);
    let parts = parts.replace("host = \"2us\"", "host = \"2us\", nic = \"1us\"");
    assert!(missing(&parts, &whole).is_empty());
    // VCPUs that move, and a quantum.
    let global = "[host]\npcpus = 2\nscheduler = \"gedf\"\n";
    assert_eq!(
        missing(&format!("{global}{ways}"), &none),
        [ReceivePath, ContextSwitch, CacheReload, Migration]
    );
    assert!(missing(&format!("{global}{ways}"), &whole).is_empty());
    let quantum = format!("[host]\npcpus = 1\nquantum = \"500us\"\n{ways}");
    assert_eq!(missing(&quantum, &whole), [Decision]);
    let decision = quantum.replace(
        "[[service]]",
        "[host.overheads]\ndecision = \"1us\"\n[[service]]",
    );
    assert!(missing(&decision, &whole).is_empty());
    // A VCPU that always runs is never switched.
    let full = "[host]\npcpus = 1\n[[vm]]\nname = \"web\"\ninterface = \"prm\"\nperiod = \"1ms\"\nbudget = \"1ms\"\n\
                tasks = [{ name = \"a\", c = \"1ms\", t = \"10ms\" }]\n[[service]]\nvm = \"web\"\ntask = \"a\"\n";
    assert_eq!(missing(full, &none), [ReceivePath, GuestWakeup, SendPath]);
}

#[test]
fn budgets_without_a_service_say_what_they_lack() {
    let text = "[host]\npcpus = 1\n[[vm]]\nname = \"a\"\nperiod = \"10ms\"\nbudget = \"4ms\"\n";
    let report = planned(text, &Measured::default());
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(
        json["incomplete"],
        serde_json::json!(["context_switch", "cache_reload"])
    );
    let rendered = plan::text::render(&report, false);
    assert!(
        rendered.contains(
            "\n  incomplete: nothing is counted for switches (host.overheads.context_switch), "
        ),
        "{rendered}"
    );
    let measured = Measured {
        context_switch: Some(1_500),
        cache_reload: Some(0),
        ..Measured::default()
    };
    let report = planned(text, &measured);
    assert!(report.incomplete.is_empty());
    let note = "what the file leaves out is as `steadyvm calibrate` measured it: \
                host.overheads.context_switch 1.5 us, host.overheads.cache_reload 0 ns";
    assert!(report.notes.iter().any(|it| it == note), "{report:?}");
}
