//! A plan as text for people.

use std::fmt::Write;

use super::{Report, Unit, VcpuReport, VmReport};

/// The plan; with `explain`, also what each figure means and why VCPUs cost more than tasks.
pub fn render(report: &Report, explain: bool) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut out, report, explain);
    out
}

fn write(out: &mut String, report: &Report, explain: bool) -> std::fmt::Result {
    let unit = if report.nanoseconds {
        Unit::Nanosecond
    } else {
        Unit::Callers
    };
    let answer = if report.feasible {
        "feasible"
    } else if !report.explanations.is_empty()
        && report.explanations.iter().all(|reason| reason.undecided)
    {
        "NOT feasible (undecided, so no)"
    } else {
        "NOT feasible"
    };
    let needs = match report.min_pcpus {
        Some(cpus) if report.min_pcpus_exact => format!("needs {cpus}"),
        Some(cpus) => format!("needs at most {cpus}"),
        None => "no number of CPUs holds it as it is".to_owned(),
    };
    writeln!(
        out,
        "{answer}: {} CPUs under {}; {needs}",
        report.pcpus, report.scheduler
    )?;
    writeln!(out, "\nVMs")?;
    let width = report
        .vms
        .iter()
        .map(|vm| vm.name.chars().count())
        .max()
        .unwrap_or(0);
    for vm in &report.vms {
        write_vm(out, vm, width, unit)?;
    }
    if report.feasible || report.cpus.iter().any(|cpu| cpu.utilization > 0.0) {
        writeln!(out, "\nCPUs (real-time share, slack for everything else)")?;
        for cpu in &report.cpus {
            let (used, slack) = (cpu.utilization * 100.0, cpu.slack * 100.0);
            writeln!(out, "  CPU {:<3} {used:5.1} %  {slack:5.1} %", cpu.cpu)?;
        }
    }
    if !report.services.is_empty() {
        writeln!(out, "\nServices")?;
    }
    for service in &report.services {
        let show = |time: Option<i64>| time.map_or("?".to_owned(), |time| unit.show(time.into()));
        let limit = service.limit.map_or(String::new(), |limit| {
            format!(
                " ({} limit {})",
                if service.met { "within" } else { "over" },
                unit.show(limit.into())
            )
        });
        writeln!(
            out,
            "  {} in {}: at most {}{limit} = receive path {} + VCPU blackout {} + guest response {}",
            service.name,
            service.vm,
            show(service.bound),
            show(service.receive_path),
            show(service.blackout),
            show(service.guest_response),
        )?;
    }
    for (title, lines) in [
        (
            "Why not",
            report
                .explanations
                .iter()
                .map(|e| &e.text)
                .collect::<Vec<_>>(),
        ),
        ("What would help", report.suggestions.iter().collect()),
    ] {
        if !lines.is_empty() {
            writeln!(out, "\n{title}")?;
        }
        for line in lines {
            writeln!(out, "  - {line}")?;
        }
    }
    if explain {
        out.push_str(EXPLANATION);
    }
    Ok(())
}

fn write_vm(out: &mut String, vm: &VmReport, width: usize, unit: Unit) -> std::fmt::Result {
    let name = &vm.name;
    let Some(interface) = &vm.interface else {
        return if vm.rt {
            writeln!(out, "  {name:width$}  no interface")
        } else {
            let vcpus = vm.vcpu_count;
            writeln!(
                out,
                "  {name:width$}  not real-time: {vcpus} VCPUs get what is left"
            )
        };
    };
    let tasks = interface.utilization.map_or(String::new(), |utilization| {
        format!(" for tasks that use {utilization:.3}")
    });
    let exact = if interface.exact {
        ""
    } else {
        " (sufficient; not shown to be the least)"
    };
    writeln!(
        out,
        "  {name:width$}  {} in every {} = {:.3} CPUs{tasks}{exact}",
        unit.show(interface.budget.into()),
        unit.show(interface.period.into()),
        interface.bandwidth,
    )?;
    for (number, vcpu) in vm.vcpus.iter().enumerate() {
        let budget = unit.show(vcpu.budget.into());
        let tasks = if vcpu.tasks.is_empty() {
            String::new()
        } else {
            format!(": {}", vcpu.tasks.join(", "))
        };
        writeln!(
            out,
            "  {:width$}    VCPU {number}: {budget} on {}{tasks}",
            "",
            cpus(vcpu)
        )?;
    }
    Ok(())
}

fn cpus(vcpu: &VcpuReport) -> String {
    let list = vcpu
        .cpus
        .iter()
        .map(u32::to_string)
        .collect::<Vec<_>>()
        .join(",");
    match (&vcpu.cpus[..], vcpu.dedicated) {
        ([], _) => "no CPU".to_owned(),
        (_, true) => format!("CPU {list}, its own"),
        ([_], false) => format!("CPU {list}"),
        _ => format!("CPUs {list}, shared"),
    }
}

const EXPLANATION: &str = "
How to read this
  A VM's budget is the least that keeps every deadline of its tasks whatever the other VMs do. It is more
  than the tasks' utilisation because the VCPU may be away when a task is released: up to twice the
  period less the budget (the blackout). A shorter VCPU period shortens the blackout and lowers the
  budget, but costs more switches. An infeasible test names a window of length t: demand is what must be
  executed in it, supply what is certain to be executed in it at worst.
";
