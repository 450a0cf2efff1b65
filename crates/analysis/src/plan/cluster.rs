//! Several hosts in one plan: which host takes which VM.
//!
//! Model: `[[host]]` in the place of `[host]`: a host as in a plan, with a `name` and `memory_mib`; VMs have
//! `memory_mib`. Rule: worst fit. VMs come in the order of the file; each goes to the host that has most of its CPUs
//! free (costs included), among those with the memory and whose plan with the VM holds; at a tie to the first. So
//! every host keeps room for its VMs to grow. It is a heuristic: what it refuses might fit otherwise.
//! Real-time VMs that no host takes are named with what the last refusal said. Complexity: hosts times VMs plans.

use std::fmt::Write;

use serde::Serialize;
use serde_json::Value;

use super::{
    InputError, Report, text,
    value::{self, Object},
};

/// The most hosts.
pub const MAX_HOSTS: usize = 10_000;

/// A plan of several hosts.
#[derive(Debug, Clone, Serialize)]
pub struct ClusterReport {
    /// Every VM has a host, and every host's plan holds.
    pub feasible: bool,
    /// In the order of the file.
    pub hosts: Vec<HostReport>,
    /// VMs that no host takes.
    pub refused: Vec<Refused>,
}

/// A host.
#[derive(Debug, Clone, Serialize)]
pub struct HostReport {
    /// Its name.
    pub name: String,
    /// Its VMs, in the order they came.
    pub vms: Vec<String>,
    /// Memory for VMs, MiB; `null`: not counted.
    pub memory_mib: Option<u64>,
    /// Of this taken, MiB.
    pub memory_used_mib: u64,
    /// Its plan; `null` without VMs.
    pub plan: Option<Report>,
}

/// A VM without a host.
#[derive(Debug, Clone, Serialize)]
pub struct Refused {
    /// Its name.
    pub vm: String,
    /// Why the host with most room does not take it.
    pub why: String,
}

struct Candidate {
    name: String,
    request: Object,
    cpus: f64,
    memory_mib: Option<u64>,
    memory_used_mib: u64,
    vms: Vec<Value>,
    plan: Option<Report>,
}

impl Candidate {
    fn free(&self) -> f64 {
        let used = |plan: &Report| plan.cpus.iter().map(|cpu| cpu.utilization).sum();
        self.cpus - self.plan.as_ref().map_or(0.0, used)
    }

    /// The plan with these VMs, their services and the flows these use.
    fn with(&self, vms: Vec<Value>, rest: &Rest) -> Result<Report, InputError> {
        let mut request = self.request.clone();
        let here = |service: &&Value| vms.iter().any(|vm| vm.get("name") == service.get("vm"));
        let services: Vec<Value> = rest.services.iter().filter(here).cloned().collect();
        let way = |service: &Value, way: &str, on: &Value| {
            service.get(way).and_then(|way| way.get("on")) == Some(on)
        };
        let used = |flow: &&Value| {
            let on = flow.get("on").unwrap_or(&Value::Null);
            services
                .iter()
                .any(|service| way(service, "receive", on) || way(service, "send", on))
        };
        let flows: Vec<Value> = rest.flows.iter().filter(used).cloned().collect();
        request.insert("vms".to_owned(), vms.into());
        request.insert("services".to_owned(), services.into());
        request.insert("flows".to_owned(), flows.into());
        value::plan(request).map_err(|error| {
            InputError::new(
                format!("host {}, {}", self.name, error.place),
                error.message,
            )
        })
    }
}

struct Rest {
    services: Vec<Value>,
    flows: Vec<Value>,
}

/// Whether a text is a plan of several hosts.
pub fn is_cluster(text: &str) -> bool {
    value::of(text).is_ok_and(|object| object.get("host").is_some_and(Value::is_array))
}

/// Deals the VMs of `text` to its hosts.
///
/// # Errors
/// A text that is no cluster, or a part of it that is in no plan.
pub fn run(text: &str) -> Result<ClusterReport, InputError> {
    let mut object = value::of(text)?;
    let Some(Value::Array(hosts)) = object.remove("host") else {
        return Err(InputError::new(
            "host",
            "a cluster has [[host]] tables, each with a name",
        ));
    };
    if hosts.is_empty() || hosts.len() > MAX_HOSTS {
        let message = format!("a cluster has between 1 and {MAX_HOSTS} hosts");
        return Err(InputError::new("host", message));
    }
    let mut take = |names: [&str; 2]| -> Vec<Value> {
        let taken = value::list(&mut object, names).map(std::mem::take);
        for name in names {
            object.remove(name);
        }
        taken.unwrap_or_default()
    };
    let vms = take(["vm", "vms"]);
    let rest = Rest {
        services: take(["service", "services"]),
        flows: take(["flow", "flows"]),
    };
    let mut candidates = (hosts.into_iter().enumerate())
        .map(|(index, host)| candidate(index, host, &object))
        .collect::<Result<Vec<_>, _>>()?;
    let mut seen = std::collections::HashSet::new();
    let mut refused = Vec::new();
    for (index, mut vm) in all_vms(vms, &rest.services).into_iter().enumerate() {
        let memory = memory(&mut vm, &format!("vm[{index}]"))?.unwrap_or(0);
        let name = vm
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        if name.is_empty() || !seen.insert(name.clone()) {
            let message = format!("VM \"{name}\": every VM needs a name of its own");
            return Err(InputError::new(format!("vm[{index}]"), message));
        }
        if let Err(why) = place(&mut candidates, &vm, memory, &rest)? {
            refused.push(Refused { vm: name, why });
        }
    }
    let names = |vms: &[Value]| -> Vec<String> {
        let name = |vm: &Value| vm.get("name").and_then(Value::as_str).map(str::to_owned);
        vms.iter().filter_map(name).collect()
    };
    let hosts = (candidates.into_iter())
        .map(|host| HostReport {
            vms: names(&host.vms),
            name: host.name,
            memory_mib: host.memory_mib,
            memory_used_mib: host.memory_used_mib,
            plan: host.plan,
        })
        .collect();
    Ok(ClusterReport {
        feasible: refused.is_empty(),
        hosts,
        refused,
    })
}

/// The VMs of the file, and those that only a service names.
fn all_vms(mut vms: Vec<Value>, services: &[Value]) -> Vec<Value> {
    for service in services {
        let Some(name) = service.get("vm").and_then(Value::as_str) else {
            continue;
        };
        if !vms
            .iter()
            .any(|vm| vm.get("name").and_then(Value::as_str) == Some(name))
        {
            vms.push(serde_json::json!({"name": name}));
        }
    }
    vms
}

/// Worst fit: the roomiest host whose plan holds. The inner error: why the roomiest one does not take it.
fn place(
    candidates: &mut [Candidate],
    vm: &Value,
    memory: u64,
    rest: &Rest,
) -> Result<Result<(), String>, InputError> {
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by(|&a, &b| {
        candidates[b]
            .free()
            .total_cmp(&candidates[a].free())
            .then(a.cmp(&b))
    });
    let mut why = None;
    for host in order {
        let host = &mut candidates[host];
        let used = host.memory_used_mib.saturating_add(memory);
        if let Some(most) = host.memory_mib.filter(|&most| used > most) {
            why = why.or_else(|| {
                let free = most - host.memory_used_mib;
                Some(format!(
                    "host {} has {free} MiB of memory left, the VM needs {memory} MiB",
                    host.name
                ))
            });
            continue;
        }
        let mut vms = host.vms.clone();
        vms.push(vm.clone());
        let plan = host.with(vms.clone(), rest)?;
        if plan.feasible {
            (host.vms, host.plan, host.memory_used_mib) = (vms, Some(plan), used);
            return Ok(Ok(()));
        }
        why = why.or_else(|| {
            let reason = plan
                .explanations
                .first()
                .map_or("its plan does not hold", |reason| &reason.text);
            Some(format!("host {}: {reason}", host.name))
        });
    }
    Ok(Err(why.unwrap_or_default()))
}

fn candidate(index: usize, host: Value, request: &Object) -> Result<Candidate, InputError> {
    let place = format!("host[{index}]");
    let mut host = host;
    let memory_mib = memory(&mut host, &place)?;
    let Value::Object(mut table) = host else {
        return Err(InputError::new(place, "a host is a table"));
    };
    let name = match table.remove("name") {
        Some(Value::String(name)) => name,
        None => format!("host{index}"),
        Some(_) => return Err(InputError::new(place, "its name is no text")),
    };
    let mut request = request.clone();
    request.insert("host".to_owned(), Value::Object(table));
    // A wrong field of a host is an error even if it gets no VM.
    let mut probe = request.clone();
    let nothing = serde_json::json!([{"name": "nothing", "rt": false}]);
    probe.insert("vms".to_owned(), nothing);
    let probed = value::plan(probe)
        .map_err(|error| InputError::new(format!("host {name}, {}", error.place), error.message))?;
    Ok(Candidate {
        name,
        request,
        cpus: f64::from(probed.pcpus),
        memory_mib,
        memory_used_mib: 0,
        vms: Vec::new(),
        plan: None,
    })
}

/// Takes `memory_mib` out of a host or a VM.
fn memory(of: &mut Value, place: &str) -> Result<Option<u64>, InputError> {
    let Some(table) = of.as_object_mut() else {
        return Err(InputError::new(place, "it is no table"));
    };
    table.remove("memory_mib").map_or(Ok(None), |value| {
        let wrong = || InputError::new(place, "memory_mib is no whole number of MiB");
        value.as_u64().map(Some).ok_or_else(wrong)
    })
}

/// The cluster as text for people.
pub fn render(report: &ClusterReport, explain: bool) -> String {
    let placed: usize = report.hosts.iter().map(|host| host.vms.len()).sum();
    let answer = if report.feasible {
        "feasible"
    } else {
        "NOT feasible"
    };
    let mut out = format!(
        "{answer}: {placed} VMs on {} hosts (worst fit)\n",
        report.hosts.len()
    );
    for host in &report.hosts {
        let memory = host.memory_mib.map_or(String::new(), |memory| {
            format!(", {} of {memory} MiB", host.memory_used_mib)
        });
        let vms = if host.vms.is_empty() {
            "no VM".to_owned()
        } else {
            host.vms.join(", ")
        };
        let _ = writeln!(out, "\n== {}{memory}: {vms}", clean(&host.name));
        if let Some(plan) = &host.plan {
            out.push_str(&text::render(plan, explain));
        }
    }
    for refused in &report.refused {
        let _ = writeln!(
            out,
            "\nno host takes VM \"{}\": {}",
            clean(&refused.vm),
            clean(&refused.why)
        );
    }
    if !report.feasible {
        out.push_str("Worst fit is a heuristic: it proves no VM impossible. Add a host, or order large VMs first.\n");
    }
    out
}

/// A terminal is not to obey a name.
fn clean(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}
