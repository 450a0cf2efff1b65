//! A recording in the Chrome trace format, which Perfetto opens: a track per CPU, a track per task.

use std::{collections::BTreeSet, fmt::Write};

use crate::{Recorder, system::System};

/// The recording as JSON. Times are microseconds, as the format wants.
pub fn render(system: &System, recorder: &Recorder) -> String {
    let names = Names::of(system);
    let mut events = Vec::with_capacity(recorder.stretches.len() + recorder.jobs.len());
    let micros = |ns: u64| ns as f64 / 1_000.0;
    let cpus: BTreeSet<u32> = recorder
        .stretches
        .iter()
        .map(|stretch| stretch.cpu)
        .collect();
    let name = |pid: u32, tid: u32, kind: &str, name: &str| serde_json::json!({"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": {"name": name}});
    events.push(name(1, 0, "process_name", "host"));
    events.push(name(2, 0, "process_name", "tasks"));
    events.extend(
        cpus.iter()
            .map(|&cpu| name(1, cpu, "thread_name", &format!("cpu {cpu}"))),
    );
    for (task, label) in names.tasks.iter().enumerate() {
        events.push(name(2, task as u32, "thread_name", label));
    }
    for stretch in &recorder.stretches {
        let runner = stretch
            .runner
            .map_or("(budget idles away)", |vcpu| names.vcpu(vcpu));
        let task = stretch.task.map_or("", |task| names.task(task));
        events.push(serde_json::json!({
            "ph": "X", "pid": 1, "tid": stretch.cpu, "ts": micros(stretch.start_ns),
            "dur": micros(stretch.end_ns - stretch.start_ns), "name": runner,
            "args": {"task": task, "on the budget of": names.vcpu(stretch.holder)},
        }));
    }
    for job in &recorder.jobs {
        let late = job.finish_ns > job.deadline_ns;
        events.push(serde_json::json!({
            "ph": "X", "pid": 2, "tid": job.task, "ts": micros(job.release_ns),
            "dur": micros(job.finish_ns - job.release_ns), "name": if late { "late" } else { "in time" },
            "args": {"deadline_us": micros(job.deadline_ns)},
        }));
    }
    serde_json::json!({"displayTimeUnit": "ns", "traceEvents": events}).to_string()
}

/// Names of VCPUs and tasks by number.
pub(crate) struct Names {
    pub vcpus: Vec<String>,
    pub tasks: Vec<String>,
}

impl Names {
    pub(crate) fn of(system: &System) -> Self {
        let (mut vcpus, mut tasks) = (Vec::new(), Vec::new());
        for guest in &system.guests {
            vcpus.extend((0..guest.vcpus.len()).map(|vcpu| {
                let mut name = guest.name.clone();
                // Writing to a string does not fail.
                let _ = write!(name, "/{vcpu}");
                name
            }));
            tasks.extend(
                guest
                    .tasks
                    .iter()
                    .map(|task| format!("{}/{}", guest.name, task.name)),
            );
        }
        Self { vcpus, tasks }
    }

    pub(crate) fn vcpu(&self, vcpu: u32) -> &str {
        self.vcpus.get(vcpu as usize).map_or("?", String::as_str)
    }

    pub(crate) fn task(&self, task: u32) -> &str {
        self.tasks.get(task as usize).map_or("?", String::as_str)
    }
}
