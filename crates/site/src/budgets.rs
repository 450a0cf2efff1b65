//! `[sched]`: which mechanism keeps the plan's budgets.

use std::collections::BTreeMap;

use steadyvm_analysis::host::FairServer;
use steadyvm_analysis::plan::{Report, Request};
use steadyvm_config::File;
use steadyvm_host::HostError;
use steadyvm_host::profile::{
    Profile, SchedulerProfile, USABLE_BY_EXT_PERCENT, USABLE_PERCENT, VcpuBudget, VmProfile,
};
use steadyvm_sched::config::{Mechanism, Priority, Queue, Vm, planned_server};
use steadyvm_sched::ejection::Verdict;

use crate::ext::Ext;

/// The table `[sched]`, and what `[host]` says of servers.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub mechanism: Mechanism,
    /// What follows is for `ext` alone; without it, as the plan has it.
    server: Option<String>,
    order: Option<Priority>,
    queue: Option<Queue>,
    quantum_us: Option<u64>,
    /// VMs with a budget without a plan.
    vm: BTreeMap<String, Vm>,
    /// The server that the plan is for.
    planned_server: &'static str,
}

impl Wanted {
    /// That of a file, if it has a `[sched]`.
    pub fn of(file: &File) -> Result<Option<Self>, HostError> {
        let Some(table) = &file.sched else {
            return Ok(None);
        };
        let wanted = Self {
            mechanism: table.mechanism,
            server: table.server.clone(),
            order: table.order,
            queue: table.queue,
            quantum_us: table.quantum_us,
            vm: (table.vm.iter())
                .map(|(name, vm)| (name.clone(), Vm::from(&vm.value)))
                .collect(),
            planned_server: planned_server(file).word(),
        };
        if wanted.is_for_ext_alone() && matches!(wanted.mechanism, Mechanism::Deadline) {
            return Err(HostError::BadInput {
                what: format!("{}: [sched] says more than SCHED_DEADLINE can do", table.place),
                fix: "write mechanism = \"ext\", or leave out order, queue, quantum_us, server and [sched.vm.NAME]"
                    .into(),
            });
        }
        Ok(Some(wanted))
    }

    /// Whether some VM has a budget though no plan gives it one.
    pub fn has_vms(&self) -> bool {
        !self.vm.is_empty()
    }

    fn is_for_ext_alone(&self) -> bool {
        self.needs_ext() || self.server.is_some()
    }

    /// Whether `SCHED_DEADLINE` cannot do it; a server of the file may be the one that it is.
    fn needs_ext(&self) -> bool {
        self.has_vms()
            || self.order.is_some()
            || self.queue.is_some()
            || self.quantum_us.is_some()
            || self.server.as_deref().is_some_and(|server| server != "cbs")
    }

    /// Whether `SCHED_DEADLINE` is what the plan is for: EDF, with constant-bandwidth servers.
    fn is_deadlines(&self, planned_for: Option<&str>) -> bool {
        planned_for.is_none_or(|scheduler| {
            matches!(scheduler, "gedf" | "pedf") && self.planned_server == "cbs"
        })
    }

    /// What `auto` comes to: only what the plan holds with.
    fn chosen(&self, planned_for: Option<&str>, has_ext: bool) -> Mechanism {
        match self.mechanism {
            Mechanism::Auto if self.needs_ext() => Mechanism::Ext,
            Mechanism::Auto if self.is_deadlines(planned_for) => Mechanism::Deadline,
            Mechanism::Auto if has_ext => Mechanism::Ext,
            Mechanism::Auto => Mechanism::None,
            chosen => chosen,
        }
    }

    /// What keeps budgets now, and why not what is chosen, if the kernel's ends of our scheduler keep that off.
    pub fn in_force(&self, planned_for: Option<&str>, ext: &Ext) -> (Mechanism, Option<String>) {
        let chosen = self.chosen(planned_for, ext.exists);
        if chosen == Mechanism::None && self.mechanism == Mechanism::Auto {
            return (chosen, Some(self.nothing_fits(planned_for)));
        }
        if chosen != Mechanism::Ext || ext.verdict == Verdict::MayRun {
            return (chosen, None);
        }
        let (instead, words) = self.instead(planned_for, ext.verdict);
        (instead, ext.held_off(words))
    }

    /// What keeps budgets while the kernel's ends of our scheduler keep it off, and how that is said.
    fn instead(&self, planned_for: Option<&str>, verdict: Verdict) -> (Mechanism, &'static str) {
        match (verdict, self.mechanism) {
            (Verdict::GivenUp, Mechanism::Auto) if self.is_deadlines(planned_for) => (
                Mechanism::Deadline,
                "SCHED_DEADLINE keeps those budgets of the plan that it can",
            ),
            _ => (Mechanism::None, "no VCPU has a budget"),
        }
    }

    /// Why `auto` finds nothing to keep the plan's budgets.
    fn nothing_fits(&self, planned_for: Option<&str>) -> String {
        format!(
            "the plan is for scheduler = \"{}\" with server = \"{}\", which SCHED_DEADLINE is not (EDF, cbs), and this kernel \
             has no sched_ext: no VCPU has a budget; plan with scheduler = \"pedf\" or \"gedf\" and server = \"cbs\", or boot a \
             kernel with sched_ext",
            planned_for.unwrap_or("gedf"),
            self.planned_server
        )
    }
}

/// A request as what will keep its budgets leaves CPUs to them, so that a plan that holds is one that can be kept.
pub fn kept(
    request: Request,
    wanted: Option<&Wanted>,
    ext: &Ext,
    fair_server: Option<FairServer>,
) -> Request {
    let Some(wanted) = wanted else {
        return request;
    };
    match wanted.in_force(Some(request.scheduler()), ext).0 {
        Mechanism::None => request,
        Mechanism::Ext => request.kept_by_ext(USABLE_BY_EXT_PERCENT),
        Mechanism::Deadline | Mechanism::Auto => request.kept_by_deadline(fair_server),
    }
}

/// A mechanism's name, and what it leaves to VCPUs of each CPU, per cent.
pub fn usable(mechanism: Mechanism) -> (&'static str, u8) {
    match mechanism {
        Mechanism::None => ("none", 100),
        Mechanism::Ext => ("ext", USABLE_BY_EXT_PERCENT),
        Mechanism::Deadline | Mechanism::Auto => ("deadline", USABLE_PERCENT),
    }
}

/// What a plan asks of `SCHED_DEADLINE` that no kernel does.
pub fn beyond_the_kernel(plan: &Report, wanted: Option<&Wanted>, ext: &Ext) -> Option<String> {
    let (by, _) = wanted?.in_force(Some(plan.scheduler), ext);
    let is_deadlines = matches!(by, Mechanism::Deadline | Mechanism::Auto);
    if !is_deadlines || plan.scheduler != "gedf" {
        return None;
    }
    let vm = plan.vms.iter().find(|vm| vm.rt && vm.is_masked)?;
    Some(format!(
        "VM \"{}\" may use some CPUs only, and with scheduler = \"gedf\" SCHED_DEADLINE refuses threads that may not run on \
         all CPUs (EPERM): plan with scheduler = \"pedf\", or let the VM use all CPUs (libvirt: <vcpu cpuset=…>, \
         <vcpupin>; Nova: cpu_shared_set)",
        vm.name
    ))
}

/// What putting budgets into a profile found.
#[derive(Debug, Default)]
pub struct Budgets {
    /// How what is enforced differs from the plan.
    pub differences: Vec<String>,
    /// Why the scheduler that the file wants is not at work.
    pub held_off: Option<String>,
}

/// Puts budgets into a profile: the plan's, and those of `[sched.vm.NAME]`.
pub fn put_in(
    profile: &mut Profile,
    plan: Option<&Report>,
    wanted: Option<&Wanted>,
    ext: &Ext,
) -> Budgets {
    let mut differences = Vec::new();
    let Some(wanted) = wanted else {
        let is_planned = |plan: &Report| plan.vms.iter().any(|vm| vm.rt && !vm.vcpus.is_empty());
        if plan.is_some_and(is_planned) {
            let why = "nothing keeps the plan's budgets: add [sched] to the file";
            differences.push(why.to_owned());
        }
        return Budgets {
            differences,
            held_off: None,
        };
    };
    let (chosen, held_off) = wanted.in_force(plan.map(|plan| plan.scheduler), ext);
    let by_ext = match chosen {
        Mechanism::None => {
            return Budgets {
                differences,
                held_off,
            };
        }
        Mechanism::Ext => true,
        Mechanism::Deadline | Mechanism::Auto => false,
    };
    if by_ext {
        let scheduler = scheduler(wanted, plan, &mut differences);
        for name in wanted.vm.keys() {
            vm_of(profile, name);
        }
        profile.vcpu_scheduler = Some(scheduler);
    }
    if let Some(plan) = plan {
        put_planned(profile, plan, &mut differences);
    }
    Budgets {
        differences,
        held_off,
    }
}

/// The policy of the `sched_ext` scheduler: the plan's, but for what the file says.
fn scheduler(
    wanted: &Wanted,
    plan: Option<&Report>,
    differences: &mut Vec<String>,
) -> SchedulerProfile {
    let planned = plan.map_or("gedf", |plan| plan.scheduler);
    let planned_order = if planned.ends_with("dm") {
        Priority::DeadlineMonotonic
    } else {
        Priority::EarliestDeadline
    };
    let planned_queue = if planned.starts_with('p') {
        Queue::Partitioned
    } else {
        Queue::Global
    };
    let order = wanted.order.unwrap_or(planned_order);
    let queue = wanted.queue.unwrap_or(planned_queue);
    if plan.is_some() && (order, queue) != (planned_order, planned_queue) {
        differences.push(format!(
            "the plan is for {planned}, and [sched] asks for another order or queue: its bounds do not hold"
        ));
    }
    let planned_server = wanted.planned_server;
    let server = wanted.server.as_deref().unwrap_or(planned_server);
    if plan.is_some() && server != planned_server {
        differences.push(format!(
            "the plan is for server = \"{planned_server}\", and [sched] asks for \"{server}\": its bounds do not hold"
        ));
    }
    let quantum_ns = wanted.quantum_us.unwrap_or(0).saturating_mul(1000);
    if let Some(planned) = plan.and_then(planned_quantum_ns)
        && quantum_ns > planned
    {
        differences.push(format!(
            "[sched] has quantum_us = {}, and the plan is for a quantum of {} us: budgets end later than it counts, so its \
             bounds do not hold; write overheads = {{ quantum = \"{0}us\" }} into [host]",
            quantum_ns / 1000,
            planned / 1000,
        ));
    }
    // Under fixed priorities the plan's constant-bandwidth server is a sporadic one.
    let is_sporadic = plan.is_some() && order != Priority::EarliestDeadline && server == "cbs";
    SchedulerProfile {
        order,
        queue,
        quantum_ns,
        server: if is_sporadic { "sporadic" } else { server }.to_owned(),
        vms: wanted.vm.clone(),
    }
}

/// The quantum that the budgets of a plan are for, if it has any.
fn planned_quantum_ns(plan: &Report) -> Option<u64> {
    let mut vcpus = plan.vms.iter().flat_map(|vm| &vm.vcpus);
    let install = vcpus.find_map(|vcpu| vcpu.install.as_ref())?;
    u64::try_from(install.quantum_ns).ok()
}

/// The plan's budgets.
fn put_planned(profile: &mut Profile, plan: &Report, differences: &mut Vec<String>) {
    let is_partitioned = profile.vcpu_scheduler.as_ref().map_or_else(
        || plan.scheduler == "pedf",
        |it| it.queue == Queue::Partitioned,
    );
    let mut rank = 0;
    for vm in plan.vms.iter().filter(|vm| vm.rt) {
        for (number, vcpu) in vm.vcpus.iter().enumerate() {
            if vcpu.budget == 0 {
                continue;
            }
            // The budget alone is what the guest was analysed with; the host's costs come on top.
            let Some(install) = &vcpu.install else {
                differences.push(format!(
                    "VCPU {number} of VM \"{}\" has no place in the plan: it gets no budget",
                    vm.name
                ));
                continue;
            };
            if vcpu.dedicated || install.runtime_ns >= install.period_ns {
                differences.push(format!(
                    "VCPU {number} of VM \"{}\" is planned a whole CPU, which no budget gives: it keeps the priority of \
                     its class",
                    vm.name
                ));
                continue;
            }
            let times =
                [install.runtime_ns, install.deadline_ns, install.period_ns].map(u64::try_from);
            let [Ok(runtime_ns), Ok(deadline_ns), Ok(period_ns)] = times else {
                differences.push(format!(
                    "VCPU {number} of VM \"{}\": {} ns in {} ns is beyond what a kernel counts",
                    vm.name, install.runtime_ns, install.period_ns
                ));
                continue;
            };
            let budget = VcpuBudget {
                runtime_ns,
                deadline_ns,
                period_ns,
                cpu: match install.cpus[..] {
                    [cpu] if is_partitioned => Some(cpu),
                    _ => None,
                },
                rank,
            };
            rank += 1;
            vm_of(profile, &vm.name)
                .budgets
                .insert(number as u32, budget);
        }
    }
}

/// The VM of a profile; one without settings for the network is added.
fn vm_of<'p>(profile: &'p mut Profile, name: &str) -> &'p mut VmProfile {
    let place = profile.vms.iter().position(|vm| vm.name == name);
    let place = place.unwrap_or_else(|| {
        profile.vms.push(VmProfile {
            name: name.to_owned(),
            ..VmProfile::default()
        });
        profile.vms.len() - 1
    });
    &mut profile.vms[place]
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadyvm_analysis::plan;
    use steadyvm_sched::ejection::Ejection;

    const FILE: &str = "[host]\npcpus = 2\nscheduler = \"gedf\"\n[sched]\n[[vm]]\nname = \"a\"\nclass = \"rt\"\n\
                        interface = \"prm\"\nperiod = \"10ms\"\nbudget = \"4ms\"\n[[vm]]\nname = \"b\"\nclass = \"best-effort\"\n";

    fn wanted_of(text: &str) -> Result<Option<Wanted>, HostError> {
        Wanted::of(&File::parse("f", text)?)
    }

    fn planned(text: &str) -> (Profile, Vec<String>) {
        planned_on(text, true)
    }

    fn planned_on(text: &str, has_ext: bool) -> (Profile, Vec<String>) {
        let report = plan::run(&plan::file::parse(text).unwrap()).unwrap();
        let mut profile = Profile::default();
        let wanted = wanted_of(text).unwrap();
        let mut ext = Ext::of(&[], 0);
        ext.exists = has_ext;
        let budgets = put_in(&mut profile, Some(&report), wanted.as_ref(), &ext);
        (profile, budgets.differences)
    }

    /// After so many ends by the kernel, all of them now.
    fn ended(text: &str, times: usize) -> (Profile, Option<String>) {
        let report = plan::run(&plan::file::parse(text).unwrap()).unwrap();
        let mut profile = Profile::default();
        let wanted = wanted_of(text).unwrap();
        let end = Ejection {
            boottime_s: 1000,
            unix_s: 0,
            reason: "runnable task stall".into(),
        };
        let ext = Ext::of(&vec![end; times], 1000);
        let budgets = put_in(&mut profile, Some(&report), wanted.as_ref(), &ext);
        (profile, budgets.held_off)
    }

    #[test]
    fn a_scheduler_that_the_kernel_has_ended_waits_and_then_auto_takes_deadline() {
        let auto = FILE.replace("gedf", "gdm");
        let ext = auto.replace("[sched]", "[sched]\nmechanism = \"ext\"");
        let own = FILE.replace("[sched]", "[sched]\nquantum_us = 1000");
        for (text, times, by_ext, budgets, words) in [
            (&auto, 0, true, 1, None),
            (&auto, 1, false, 0, Some("after a pause")),
            // Fixed priorities: SCHED_DEADLINE does not do instead.
            (&auto, 3, false, 0, Some("until `steadyvm apply`")),
            (&own, 3, false, 1, Some("SCHED_DEADLINE")),
            (&ext, 0, true, 1, None),
            (&ext, 2, false, 0, Some("after a pause")),
            (&ext, 3, false, 0, Some("until `steadyvm apply`")),
        ] {
            let (profile, held_off) = ended(text, times);
            assert_eq!(profile.vcpu_scheduler.is_some(), by_ext, "{times}: {text}");
            let found = profile.vms.first().map_or(0, |vm| vm.budgets.len());
            assert_eq!(found, budgets, "{times}: {text}");
            assert_eq!(held_off.is_some(), words.is_some());
            if let (Some(said), Some(words)) = (held_off, words) {
                assert!(said.contains(words) && said.contains("stall"), "{said}");
            }
        }
        // What SCHED_DEADLINE keeps anyway is not held off.
        assert_eq!(ended(FILE, 3).1, None);
    }

    #[test]
    fn planned_budgets_become_budgets_of_virtual_cpus() {
        let (profile, differences) = planned(FILE);
        assert!(differences.is_empty(), "{differences:?}");
        assert_eq!(profile.vms.len(), 1, "b is not real-time");
        let expected = VcpuBudget {
            runtime_ns: 4_000_000,
            deadline_ns: 10_000_000,
            period_ns: 10_000_000,
            cpu: None,
            rank: 0,
        };
        assert_eq!(profile.vms[0].budgets[&0], expected);
        let (profile, differences) = planned(&FILE.replace("gedf", "pedf"));
        assert!(differences.is_empty(), "{differences:?}");
        let on_its_cpu = VcpuBudget {
            cpu: Some(0),
            ..expected
        };
        assert_eq!(profile.vms[0].budgets[&0], on_its_cpu);
    }

    #[test]
    fn the_hosts_costs_come_on_top_of_the_budget() {
        let costs = "[host.overheads]\ncontext_switch = \"10us\"\n[sched]\n";
        let (profile, _) = planned(&FILE.replace("[sched]\n", costs));
        let budget = profile.vms[0].budgets[&0];
        assert!(budget.runtime_ns > 4_000_000, "{budget:?}");
        assert_eq!(budget.period_ns, 10_000_000);
    }

    #[test]
    fn a_reservation_that_begins_at_a_wake_up_is_due_before_its_period_ends() {
        let (profile, _) = planned(
            "[host]\npcpus = 2\nscheduler = \"gedf\"\n[sched]\n[[service]]\nvm = \"a\"\nc = \"2ms\"\n\
             t = \"10ms\"\nlimit = \"5ms\"\n",
        );
        let budget = profile.vms[0].budgets[&0];
        assert!(budget.runtime_ns >= 2_000_000, "{budget:?}");
        assert!(budget.deadline_ns <= 5_000_000, "{budget:?}");
    }

    #[test]
    fn what_the_mechanism_does_not_do_is_said() {
        let (profile, differences) = planned(&FILE.replace("\"4ms\"", "\"10ms\""));
        assert!(differences[0].contains("a whole CPU"), "{differences:?}");
        assert!(profile.vms.is_empty());
        let (profile, differences) = planned(&FILE.replace("[sched]\n", ""));
        assert!(profile.vms.is_empty(), "nothing is enforced unasked");
        assert!(differences[0].contains("add [sched]"), "{differences:?}");
        let (_, differences) = planned(&FILE.replace("[sched]", "[sched]\nmechanism = \"none\""));
        assert!(differences.is_empty(), "{differences:?}");
    }

    #[test]
    fn a_wrong_mechanism_is_told_with_its_line_and_the_right_ones() {
        let error = wanted_of("\n[sched]\nmechanism = \"cfs\"\n").unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("f line 3") && text.contains("deadline"),
            "{text}"
        );
        let error = wanted_of("[sched]\nquantum = 1\n").unwrap_err();
        assert!(error.to_string().contains("quantum"), "{error}");
        let both = "[sched]\nmechanism = \"deadline\"\norder = \"rate-monotonic\"\n";
        let error = wanted_of(both).unwrap_err();
        assert!(error.to_string().contains("SCHED_DEADLINE"), "{error}");
    }

    #[test]
    fn auto_takes_deadline_for_edf_and_ext_for_what_deadline_cannot_do() {
        let scheduler = |text: &str, has_ext| planned_on(text, has_ext).0.vcpu_scheduler;
        let dm = FILE.replace("gedf", "gdm");
        assert_eq!(scheduler(FILE, true), None);
        assert_eq!(scheduler(&dm, false), None);
        let expected = SchedulerProfile {
            order: Priority::DeadlineMonotonic,
            queue: Queue::Global,
            // The plan counts its constant-bandwidth servers so under fixed priorities.
            server: "sporadic".into(),
            ..SchedulerProfile::default()
        };
        assert_eq!(scheduler(&dm, true), Some(expected.clone()));
        let partitioned = SchedulerProfile {
            queue: Queue::Partitioned,
            ..expected
        };
        let pdm = FILE.replace("gedf", "pdm");
        assert_eq!(scheduler(&pdm, true), Some(partitioned));
        assert_eq!(planned(&pdm).0.vms[0].budgets[&0].cpu, Some(0));
        // What the file asks for is `ext`'s, and said where the plan has it otherwise.
        let asked = FILE.replace("[sched]", "[sched]\norder = \"explicit\"");
        let (profile, differences) = planned(&asked);
        assert_eq!(profile.vcpu_scheduler.unwrap().order, Priority::Explicit);
        assert!(
            differences[0].contains("bounds do not hold"),
            "{differences:?}"
        );
    }

    #[test]
    fn a_server_that_the_plan_is_not_for_is_said() {
        let served = |planned: &str, asked: &str| {
            let host = format!("server = \"{planned}\"\n[sched]{asked}");
            planned_on(&FILE.replace("[sched]", &host), true)
        };
        let (profile, differences) = served("cbs", "\nserver = \"sporadic\"");
        assert_eq!(profile.vcpu_scheduler.unwrap().server, "sporadic");
        assert!(
            differences[0].contains("is for server = \"cbs\""),
            "{differences:?}"
        );
        let ext = "\nmechanism = \"ext\"";
        let (profile, differences) = served("deferrable", ext);
        assert!(differences.is_empty(), "{differences:?}");
        assert_eq!(profile.vcpu_scheduler.unwrap().server, "deferrable");
        let (profile, differences) = served("deferrable", &format!("{ext}\nserver = \"cbs\""));
        assert!(
            differences[0].contains("bounds do not hold"),
            "{differences:?}"
        );
        assert_eq!(profile.vcpu_scheduler.unwrap().server, "cbs");
    }

    /// A quantum that the plan does not count makes budgets end later than it says.
    #[test]
    fn a_quantum_that_the_plan_is_not_for_is_said() {
        let with = |quantum: &str, overheads: &str| {
            let text = FILE.replace(
                "[sched]",
                &format!("{overheads}[sched]\nquantum_us = {quantum}"),
            );
            planned(&text).1
        };
        let said = with("500", "");
        assert!(said[0].contains("quantum = \"500us\""), "{said:?}");
        let counted = "overheads = { quantum = \"500us\" }\n";
        assert!(with("500", counted).is_empty());
        assert!(with("250", counted).is_empty());
        assert!(with("501", counted)[0].contains("bounds do not hold"));
    }

    /// `SCHED_DEADLINE` is EDF with constant-bandwidth servers: a plan for anything else is refused with that mechanism, and
    /// `auto` does not choose it.
    #[test]
    fn deadline_keeps_only_what_it_is() {
        for (scheduler, server, word) in [
            ("gedf", "cbs", ""),
            ("pedf", "cbs", ""),
            ("gdm", "cbs", "no fixed priorities"),
            ("pdm", "cbs", "no fixed priorities"),
            ("gedf", "periodic", "servers are cbs"),
            ("pedf", "deferrable", "servers are cbs"),
            ("pedf", "sporadic", "servers are cbs"),
        ] {
            let host = format!("scheduler = \"{scheduler}\"\nserver = \"{server}\"");
            let text = FILE.replace("scheduler = \"gedf\"", &host);
            let run = |text: &str, has_ext| {
                let wanted = wanted_of(text).unwrap();
                let mut ext = Ext::of(&[], 0);
                ext.exists = has_ext;
                let request = plan::file::parse(text).unwrap();
                let (mechanism, why) = wanted.as_ref().unwrap().in_force(Some(scheduler), &ext);
                (
                    plan::run(&kept(request, wanted.as_ref(), &ext, None)),
                    mechanism,
                    why,
                )
            };
            let by_deadline = text.replace("[sched]", "[sched]\nmechanism = \"deadline\"");
            match run(&by_deadline, true).0 {
                Ok(_) => assert_eq!(word, "", "{host}"),
                Err(error) => assert!(
                    !word.is_empty() && error.message.contains(word),
                    "{host}: {error}"
                ),
            }
            let fits = word.is_empty();
            let (with, mechanism, why) = run(&text, true);
            let expected = if fits {
                Mechanism::Deadline
            } else {
                Mechanism::Ext
            };
            assert_eq!((mechanism, why), (expected, None), "{host}");
            assert!(with.is_ok(), "{host}");
            let (without, mechanism, why) = run(&text, false);
            assert_eq!(mechanism == Mechanism::Deadline, fits, "{host}");
            assert_eq!(
                why.is_some_and(|why| why.contains("sched_ext")),
                !fits,
                "{host}"
            );
            assert!(without.is_ok(), "{host}");
        }
    }

    #[test]
    fn a_vm_may_have_a_budget_without_a_plan() {
        let text =
            "[sched]\nserver = \"sporadic\"\n[sched.vm.web]\nbudget_us = 2000\nperiod_us = 10000\n";
        let wanted = wanted_of(text).unwrap();
        let mut profile = Profile::default();
        let ext = Ext::of(&[], 0);
        let differences = put_in(&mut profile, None, wanted.as_ref(), &ext).differences;
        assert!(differences.is_empty(), "{differences:?}");
        assert_eq!(profile.vms[0].name, "web");
        let scheduler = profile.vcpu_scheduler.unwrap();
        assert_eq!(scheduler.vms["web"].budget_us, 2000);
        assert_eq!(scheduler.server, "sporadic");
    }
}
