//! A plan as text for people.

use std::fmt::Write;

use super::{Report, ServiceReport, Unit, VmReport, costs};

/// The plan; with `explain`, also what each figure means and why VCPUs cost more than tasks.
pub fn render(report: &Report, explain: bool) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut out, report, explain);
    // Names are the caller's: a terminal is not to obey them.
    (out.chars())
        .flat_map(|c| {
            let control = c.is_control() && c != '\n';
            let (escaped, plain) = (control.then(|| c.escape_default()), (!control).then_some(c));
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
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
        // More CPUs than there are: they would help. Else they are not what is missing.
        Some(cpus) if !report.feasible && cpus <= report.pcpus => {
            format!(
                "its VCPUs fit {}, which is not what is missing",
                count(cpus)
            )
        }
        Some(cpus) if report.min_pcpus_exact => format!("needs {cpus}"),
        Some(cpus) => format!("needs at most {cpus}"),
        None => "no number of CPUs holds it as it is".to_owned(),
    };
    writeln!(
        out,
        "{answer}: {} under {}; {needs}",
        count(report.pcpus),
        report.scheduler
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
    if report.services.is_empty() && !report.incomplete.is_empty() {
        let sentence = costs::sentence(&report.incomplete);
        writeln!(out, "  incomplete: {sentence}")?;
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
        write_service(out, service, report.feasible, unit)?;
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
        ("Note", report.notes.iter().collect()),
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
        for vm in &report.vms {
            explain_vm(out, vm, unit)?;
        }
        for service in &report.services {
            explain_service(out, service, unit)?;
        }
    }
    Ok(())
}

fn write_service(
    out: &mut String,
    service: &ServiceReport,
    feasible: bool,
    unit: Unit,
) -> std::fmt::Result {
    let show = |time: Option<i64>| time.map_or("?".to_owned(), |time| unit.show(time.into()));
    let limit = service.limit.map_or(String::new(), |limit| {
        format!(
            " ({} limit {})",
            match (feasible, service.met) {
                (true, _) => "within",
                (false, true) => "would be within",
                (false, false) => "over",
            },
            unit.show(limit.into())
        )
    });
    writeln!(
        out,
        "  {} in {}: at most {}{limit} = receive path {} + VCPU blackout {} + guest response {} \
         + guest wake-up {} + way back {}",
        service.name,
        service.vm,
        show(service.bound),
        show(service.receive_path),
        show(service.blackout),
        show(service.guest_response),
        show(service.guest_wakeup),
        show(service.send_path),
    )?;
    if service.bound.is_some()
        && let Some(sentence) = service.lacks()
    {
        writeln!(out, "    incomplete: {sentence}")?;
    }
    let Some(deadline) = service.guest_deadline else {
        return Ok(());
    };
    let rank =
        (service.guest_rank).map_or(String::new(), |rank| format!(", rank {rank} (1 is first)"));
    writeln!(
        out,
        "    its task in the guest: deadline {} from the packet's delivery{rank}",
        unit.show(deadline.into()),
    )
}

fn count(cpus: u32) -> String {
    if cpus == 1 {
        "1 CPU".to_owned()
    } else {
        format!("{cpus} CPUs")
    }
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
            )?;
            write_receive(out, vm, width, unit)
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
    if !vm.ranks.is_empty() {
        let ranks = vm.ranks.join(", ");
        writeln!(out, "  {:width$}    tasks by rank: {ranks}", "")?;
    }
    if let Some(chosen) = &vm.chosen {
        writeln!(out, "  {:width$}    {chosen}", "")?;
    }
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
            cpus(&vcpu.cpus, vcpu.dedicated)
        )?;
    }
    write_receive(out, vm, width, unit)
}

/// What receives for it with a budget.
fn write_receive(out: &mut String, vm: &VmReport, width: usize, unit: Unit) -> std::fmt::Result {
    for server in &vm.receive {
        writeln!(
            out,
            "  {:width$}    receive, {} {}: {} in every {} on {}",
            "",
            server.work.words(),
            server.number,
            unit.show(server.budget.into()),
            unit.show(server.period.into()),
            cpus(&server.cpus, false)
        )?;
    }
    Ok(())
}

/// The ways of a service, term by term.
fn explain_service(out: &mut String, service: &ServiceReport, unit: Unit) -> std::fmt::Result {
    let name = &service.name;
    for stage in &service.stages {
        let way = if stage.name == "receive" {
            "the way in"
        } else {
            "the way back"
        };
        let on = (stage.on.as_ref()).map_or(String::new(), |on| format!(" on path \"{on}\""));
        let terms: Vec<String> = (stage.terms.iter())
            .filter(|term| term.time != 0)
            .map(|term| format!("{} {}", term.what, unit.show(term.time.into())))
            .collect();
        if terms.is_empty() {
            writeln!(
                out,
                "  {name}: {way} is not counted: none of its terms is given."
            )?;
            continue;
        }
        writeln!(
            out,
            "  {name}: {way}{on} takes at most {}: {}; at least {}.",
            unit.show(stage.bound.into()),
            terms.join(" + "),
            unit.show(stage.least.into()),
        )?;
        if stage.name == "receive" && stage.bound > stage.least {
            writeln!(
                out,
                "  {name}: the difference, {}, is release jitter of its task.",
                unit.show((stage.bound - stage.least).into()),
            )?;
        }
    }
    Ok(())
}

/// Why this VM gets what it gets.
fn explain_vm(out: &mut String, vm: &VmReport, unit: Unit) -> std::fmt::Result {
    let (Some(interface), name) = (&vm.interface, &vm.name) else {
        return Ok(());
    };
    let budget = unit.show(interface.budget.into());
    let period = unit.show(interface.period.into());
    if let Some(deadline) = interface.deadline {
        let due = unit.show(deadline.into());
        return writeln!(
            out,
            "  {name}: its reservation of {budget} begins when a request wakes the VCPU and is due {due} later, so \
             no blackout comes before it. It holds while nothing else in the guest wakes that VCPU."
        );
    }
    let Some(utilization) = interface.utilization else {
        return writeln!(
            out,
            "  {name}: {budget} in every {period} is given, not computed."
        );
    };
    let least = interface.vcpus as i64 * interface.period;
    if interface.budget == least {
        return writeln!(
            out,
            "  {name}: its VCPUs always run and have CPUs of their own."
        );
    }
    write!(
        out,
        "  {name}: {budget} in every {period} is {:.0} % above its tasks' {utilization:.3}",
        (interface.bandwidth / utilization - 1.0) * 100.0
    )?;
    if let Some(away) = interface.away {
        write!(
            out,
            ", since its VCPU may be away for {}",
            unit.show(away.into())
        )?;
    }
    writeln!(out, ".")
}

fn cpus(cpus: &[u32], dedicated: bool) -> String {
    let list = cpus
        .iter()
        .map(u32::to_string)
        .collect::<Vec<_>>()
        .join(",");
    match (cpus, dedicated) {
        ([], _) => "no CPU".to_owned(),
        (_, true) => format!("CPU {list}, its own"),
        ([_], false) => format!("CPU {list}"),
        _ => format!("CPUs {list}, shared"),
    }
}

const EXPLANATION: &str = "
How to read this
  A VM's budget is the least that keeps every deadline of its tasks whatever the other VMs do. It is more
  than the tasks' utilisation because the VCPU may be away when a task is released (the blackout). A shorter VCPU period shortens the blackout and lowers the
  budget, but costs more switches. An infeasible test names a window of length t: demand is what must be
  executed in it, supply what is certain to be executed in it at worst.
";
