//! `[host] enforce`: which mechanism keeps the plan's budgets.

use std::collections::BTreeMap;

use steadyvm_analysis::host::FairServer;
use steadyvm_analysis::plan::{ReceiveWork, Report, Request};
use steadyvm_config::{File, HostName, ServerName};
use steadyvm_host::HostError;
use steadyvm_host::profile::{
    Profile, SchedulerProfile, USABLE_BY_EXT_PERCENT, USABLE_PERCENT, VcpuBudget, VmProfile,
};
use steadyvm_sched::config::{Config, Mechanism, Queue, Vm};
use steadyvm_sched::ejection::Verdict;

use crate::ext::Ext;

/// What `[host]` says of budgets.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub mechanism: Mechanism,
    scheduler: HostName,
    server: ServerName,
    quantum_ns: u64,
    /// VMs with a budget, where no plan is made.
    vm: BTreeMap<String, Vm>,
}

impl Wanted {
    /// That of a file, if it has `enforce`.
    pub fn of(file: &File) -> Result<Option<Self>, HostError> {
        let Some(host) = &file.host else {
            return Ok(None);
        };
        let Some(mechanism) = host.enforce else {
            return Ok(None);
        };
        let mut wanted = Self {
            mechanism,
            scheduler: host.scheduler,
            server: host.server,
            quantum_ns: u64::try_from(host.quantum.0).unwrap_or_default(),
            vm: BTreeMap::new(),
        };
        let Some(why) = host.why_no_plan() else {
            return Ok(Some(wanted));
        };
        if mechanism == Mechanism::Deadline {
            return Err(HostError::BadInput {
                what: format!("{}: {why}, and SCHED_DEADLINE is EDF with cbs", host.place),
                fix: "write enforce = \"ext\", or leave out scheduler and server".into(),
            });
        }
        let config = Config::of(file).map_err(|error| HostError::BadInput {
            what: error.to_string(),
            fix: "steadyvm.toml(5) has all keys".into(),
        })?;
        wanted.vm = config.vm;
        Ok(Some(wanted))
    }

    /// Whether some VM has a budget though no plan gives it one.
    pub fn has_vms(&self) -> bool {
        !self.vm.is_empty()
    }

    /// Whether a plan is made.
    fn is_planned(&self) -> bool {
        self.scheduler.is_planned() && self.server.is_planned()
    }

    /// Whether `SCHED_DEADLINE` is what the file asks for: EDF, with constant-bandwidth servers.
    fn is_deadlines(&self) -> bool {
        self.scheduler.is_edf() && self.server == ServerName::Cbs
    }

    /// What `auto` comes to: only what the plan holds with.
    fn chosen(&self, has_ext: bool) -> Mechanism {
        match self.mechanism {
            Mechanism::Auto if self.is_deadlines() => Mechanism::Deadline,
            Mechanism::Auto if has_ext => Mechanism::Ext,
            Mechanism::Auto => Mechanism::None,
            chosen => chosen,
        }
    }

    /// What keeps budgets now, and why not what is chosen, if the kernel's ends of our scheduler keep that off.
    pub fn in_force(&self, ext: &Ext) -> (Mechanism, Option<String>) {
        let chosen = self.chosen(ext.exists);
        if chosen == Mechanism::None && self.mechanism == Mechanism::Auto {
            return (chosen, Some(self.nothing_fits()));
        }
        if chosen != Mechanism::Ext || ext.verdict == Verdict::MayRun {
            return (chosen, None);
        }
        (Mechanism::None, ext.held_off("no VCPU has a budget"))
    }

    /// Why `auto` finds nothing to keep the budgets.
    fn nothing_fits(&self) -> String {
        format!(
            "the file has scheduler = \"{}\" with server = \"{}\", which SCHED_DEADLINE is not (EDF, cbs), and this kernel \
             has no sched_ext: no VCPU has a budget; plan with scheduler = \"pedf\" or \"gedf\" and server = \"cbs\", or boot a \
             kernel with sched_ext",
            self.scheduler.word(),
            self.server.word()
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
    match wanted.in_force(ext).0 {
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
    let (by, _) = wanted?.in_force(ext);
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

/// Puts budgets into a profile: the plan's, or those that VMs name where no plan is made.
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
            let why = "nothing keeps the plan's budgets: add enforce = \"auto\" to [host]";
            differences.push(why.to_owned());
        }
        return Budgets {
            differences,
            held_off: None,
        };
    };
    let (chosen, held_off) = wanted.in_force(ext);
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
        for name in wanted.vm.keys() {
            vm_of(profile, name);
        }
        profile.vcpu_scheduler = Some(scheduler(wanted));
    }
    if let Some(plan) = plan {
        put_planned(profile, plan, &mut differences);
    }
    Budgets {
        differences,
        held_off,
    }
}

/// The policy of the `sched_ext` scheduler.
fn scheduler(wanted: &Wanted) -> SchedulerProfile {
    // Under fixed priorities the plan's constant-bandwidth server is a sporadic one.
    let is_sporadic =
        wanted.is_planned() && !wanted.scheduler.is_edf() && wanted.server == ServerName::Cbs;
    let server = if is_sporadic {
        ServerName::Sporadic
    } else {
        wanted.server
    };
    SchedulerProfile {
        order: wanted.scheduler.into(),
        queue: wanted.scheduler.into(),
        quantum_ns: wanted.quantum_ns,
        server: server.word().to_owned(),
        vms: wanted.vm.clone(),
    }
}

/// The plan's budgets.
fn put_planned(profile: &mut Profile, plan: &Report, differences: &mut Vec<String>) {
    let is_partitioned = profile.vcpu_scheduler.as_ref().map_or_else(
        || plan.scheduler == "pedf",
        |it| it.queue == Queue::Partitioned,
    );
    // A policy of sched_ext pins nothing: the kernel admits what comes before it.
    if is_partitioned && profile.vcpu_scheduler.is_none() {
        put_receive(profile, plan);
    }
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
            let interface = vm.interface.as_ref();
            let own = vm_of(profile, &vm.name);
            own.begins_with_request = interface.is_some_and(|it| it.deadline.is_some());
            own.budgets.insert(number as u32, budget);
        }
    }
}

/// The CPUs that a partitioned plan has for what receives for VMs. The budgets are the file's.
fn put_receive(profile: &mut Profile, plan: &Report) {
    for vm in plan.vms.iter().filter(|vm| !vm.receive.is_empty()) {
        let own = vm_of(profile, &vm.name);
        for server in &vm.receive {
            let budgets = match server.work {
                ReceiveWork::Polls => &mut own.poll_budgets,
                ReceiveWork::Vhost => &mut own.vhost_budgets,
            };
            if let (Some(budget), [cpu]) = (budgets.get_mut(server.number), &server.cpus[..]) {
                budget.cpu = Some(*cpu);
            }
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
    use steadyvm_sched::config::Priority;
    use steadyvm_sched::ejection::Ejection;

    const FILE: &str = "[host]\npcpus = 2\nscheduler = \"gedf\"\nenforce = \"auto\"\n[[vm]]\nname = \"a\"\nclass = \"rt\"\n\
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
    fn a_scheduler_that_the_kernel_has_ended_waits_and_is_then_given_up() {
        let auto = FILE.replace("gedf", "gdm");
        let ext = FILE.replace("auto", "ext");
        for (text, times, by_ext, budgets, words) in [
            (&auto, 0, true, 1, None),
            (&auto, 1, false, 0, Some("after a pause")),
            (&auto, 3, false, 0, Some("until `steadyvm apply`")),
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
        let costs = "[host.overheads]\ncontext_switch = \"10us\"\n[[vm]]";
        let (profile, _) = planned(&FILE.replacen("[[vm]]", costs, 1));
        let budget = profile.vms[0].budgets[&0];
        assert!(budget.runtime_ns > 4_000_000, "{budget:?}");
        assert_eq!(budget.period_ns, 10_000_000);
    }

    #[test]
    fn a_reservation_that_begins_at_a_wake_up_is_due_before_its_period_ends() {
        let (profile, _) = planned(
            "[host]\npcpus = 2\nscheduler = \"gedf\"\nenforce = \"auto\"\n[[service]]\nvm = \"a\"\nc = \"2ms\"\n\
             t = \"10ms\"\nlimit = \"5ms\"\n",
        );
        let budget = profile.vms[0].budgets[&0];
        assert!(budget.runtime_ns >= 2_000_000, "{budget:?}");
        assert!(budget.deadline_ns <= 5_000_000, "{budget:?}");
        assert!(profile.vms[0].begins_with_request);
        assert!(!planned(FILE).0.vms[0].begins_with_request);
    }

    /// What the plan has counted is what threads get, where it has a CPU for them.
    #[test]
    fn what_receives_for_a_vm_runs_on_the_cpus_of_its_plan() {
        let more = "class = \"best-effort\"\nreceive = { vhost_budget = \"3ms\", workers = 2 }\n";
        let text = FILE
            .replace("class = \"best-effort\"\n", more)
            .replace("gedf", "pedf");
        let file = File::parse("f", &text).unwrap();
        let put = |text: &str| {
            let mut profile = steadyvm_host::profile::file::of(&file).unwrap();
            let report = plan::run(&plan::file::parse(text).unwrap()).unwrap();
            assert!(report.feasible);
            let mut ext = Ext::of(&[], 0);
            ext.exists = true;
            let wanted = wanted_of(text).unwrap();
            put_in(&mut profile, Some(&report), wanted.as_ref(), &ext);
            let bulk = profile.vms.iter().find(|vm| vm.name == "b").unwrap();
            let counted = report.vms[1].receive.iter();
            let counted = counted.map(|it| u64::try_from(it.budget).unwrap());
            let budgets: Vec<u64> = bulk.vhost_budgets.iter().map(|it| it.runtime_ns).collect();
            assert_eq!(budgets, counted.collect::<Vec<_>>());
            let cpus = bulk.vhost_budgets.iter().map(|it| it.cpu);
            cpus.collect::<Vec<_>>()
        };
        let cpus = put(&text);
        assert!(
            cpus.len() == 2 && cpus.iter().all(Option::is_some),
            "{cpus:?}"
        );
        assert_eq!(put(&text.replace("pedf", "gedf")), [None, None]);
    }

    #[test]
    fn what_the_mechanism_does_not_do_is_said() {
        let (profile, differences) = planned(&FILE.replace("\"4ms\"", "\"10ms\""));
        assert!(differences[0].contains("a whole CPU"), "{differences:?}");
        assert!(profile.vms.is_empty());
        let (profile, differences) = planned(&FILE.replace("enforce = \"auto\"\n", ""));
        assert!(profile.vms.is_empty(), "nothing is enforced unasked");
        assert!(differences[0].contains("add enforce"), "{differences:?}");
        let (_, differences) = planned(&FILE.replace("auto", "none"));
        assert!(differences.is_empty(), "{differences:?}");
    }

    #[test]
    fn a_wrong_mechanism_is_told_with_its_line_and_the_right_ones() {
        let error = wanted_of("\n[host]\nenforce = \"cfs\"\n").unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("f line 3") && text.contains("deadline"),
            "{text}"
        );
        let both = "[host]\nenforce = \"deadline\"\nscheduler = \"grm\"\n";
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
    }

    /// One word is the plan's and the mechanism's: they cannot differ.
    #[test]
    fn the_server_and_the_quantum_are_those_of_the_plan() {
        let ext = FILE.replace("auto", "ext");
        for server in ["cbs", "periodic", "sporadic", "deferrable"] {
            let text = ext.replace(
                "[[vm]]\nname = \"a\"",
                &format!("server = \"{server}\"\nquantum = \"500us\"\n[[vm]]\nname = \"a\""),
            );
            let (profile, differences) = planned(&text);
            assert!(differences.is_empty(), "{differences:?}");
            let scheduler = profile.vcpu_scheduler.unwrap();
            assert_eq!(
                (scheduler.server.as_str(), scheduler.quantum_ns),
                (server, 500_000)
            );
        }
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
                let (mechanism, why) = wanted.as_ref().unwrap().in_force(&ext);
                (
                    plan::run(&kept(request, wanted.as_ref(), &ext, None)),
                    mechanism,
                    why,
                )
            };
            let by_deadline = text.replace("auto", "deadline");
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
        for (key, word) in [("scheduler", "grm"), ("server", "polling")] {
            let text = format!(
                "[host]\nenforce = \"auto\"\n{key} = \"{word}\"\n[[vm]]\nname = \"web\"\nbudget = \"2ms\"\n\
                 period = \"10ms\"\ncpus = [0]\n"
            );
            let wanted = wanted_of(&text).unwrap();
            let mut profile = Profile::default();
            let ext = Ext::of(&[], 0);
            let differences = put_in(&mut profile, None, wanted.as_ref(), &ext).differences;
            assert!(differences.is_empty(), "{differences:?}");
            assert_eq!(profile.vms[0].name, "web");
            let scheduler = profile.vcpu_scheduler.unwrap();
            assert_eq!(scheduler.vms["web"].budget_ns, 2_000_000);
        }
    }
}
