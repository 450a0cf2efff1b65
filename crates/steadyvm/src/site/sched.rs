//! `[sched]`: which mechanism keeps the plan's budgets.

use anyhow::Result;
use serde::Deserialize;
use steadyvm_analysis::plan::Report;
use steadyvm_host::HostError;
use steadyvm_host::net::{Profile, VcpuBudget, VmProfile};

/// What enforces budgets. Other fields of the table are the scheduler's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mechanism {
    /// The best that `apply` has: today `deadline`.
    #[default]
    Auto,
    /// `SCHED_DEADLINE`, on any kernel.
    Deadline,
    /// The `sched_ext` scheduler, which a program of its own keeps loaded.
    Ext,
    /// Nothing: budgets are computed only.
    None,
}

#[derive(Default, Deserialize)]
struct Table {
    #[serde(default)]
    mechanism: Mechanism,
}

#[derive(Deserialize)]
struct File {
    sched: Option<Table>,
}

/// The mechanism of a file, if it has a `[sched]`.
pub fn mechanism(name: &str, text: &str) -> Result<Option<Mechanism>, HostError> {
    let file: File = toml::from_str(text).map_err(|error| {
        let place = error.span().map_or(0, |span| span.start);
        let line = text.get(..place).unwrap_or(text).matches('\n').count() + 1;
        HostError::BadInput {
            what: format!("{name} line {line}: {}", error.message()),
            fix: "mechanism is \"auto\", \"deadline\", \"ext\" or \"none\"".into(),
        }
    })?;
    Ok(file.sched.map(|table| table.mechanism))
}

/// Puts the plan's budgets into a profile. Returns how what is enforced differs from the plan.
pub fn put_in(profile: &mut Profile, plan: &Report, mechanism: Option<Mechanism>) -> Vec<String> {
    match mechanism {
        None if plan.vms.iter().any(|vm| vm.rt && !vm.vcpus.is_empty()) => {
            return vec!["nothing keeps the plan's budgets: add [sched] to the file".to_owned()];
        }
        None | Some(Mechanism::None) => return Vec::new(),
        Some(Mechanism::Ext) => {
            return vec![
                "[sched] mechanism = \"ext\": the budgets are in force only while `steadyvm sched` runs"
                    .to_owned(),
            ];
        }
        Some(Mechanism::Auto | Mechanism::Deadline) => {}
    }
    let mut differences = Vec::new();
    if !matches!(plan.scheduler, "gedf" | "pedf") {
        differences.push(format!(
            "the plan is for {}, but SCHED_DEADLINE is EDF: plan with scheduler = \"gedf\" or \"pedf\"",
            plan.scheduler
        ));
    }
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
                    "VCPU {number} of VM \"{}\" is planned a whole CPU, which SCHED_DEADLINE does not give: \
                     it keeps the priority of its class",
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
                    [cpu] if plan.scheduler == "pedf" => Some(cpu),
                    _ => None,
                },
            };
            vm_of(profile, &vm.name)
                .budgets
                .insert(number as u32, budget);
        }
    }
    differences
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

    const FILE: &str = "[host]\npcpus = 2\nscheduler = \"gedf\"\n[sched]\n[[vm]]\nname = \"a\"\nclass = \"rt\"\n\
                        interface = \"prm\"\nperiod = \"10ms\"\nbudget = \"4ms\"\n[[vm]]\nname = \"b\"\nclass = \"best-effort\"\n";

    fn planned(text: &str) -> (Profile, Vec<String>) {
        let report = plan::run(&plan::file::parse(text).unwrap()).unwrap();
        let mut profile = Profile::default();
        let differences = put_in(&mut profile, &report, mechanism("f", text).unwrap());
        (profile, differences)
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
        let (_, differences) = planned(&FILE.replace("gedf", "pdm"));
        assert!(differences[0].contains("is EDF"), "{differences:?}");
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
        let error = mechanism("f", "\n[sched]\nmechanism = \"cfs\"\n").unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("f line 3") && text.contains("deadline"),
            "{text}"
        );
    }
}
