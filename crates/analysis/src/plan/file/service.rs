//! One service of a request.

use serde::Deserialize;

use crate::{
    error::{not_negative, positive},
    latency::ReceivePath,
    plan::{
        InputError, InterfaceName, NamedTask, Needs, Period, SchedulerName, Service, TaskNeeds,
        Unit, Vm,
        duration::{Count, Written},
    },
    task::Task,
    time::Time,
};

/// A `[[service]]`: of a task of a VM, or with c, t and limit a task of its own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object that describes a service")]
pub(super) struct ServiceTable {
    name: Option<String>,
    pub vm: String,
    task: Option<String>,
    c: Option<Written>,
    d: Option<Written>,
    t: Option<Written>,
    limit: Option<Written>,
    #[serde(default)]
    receive: ReceiveTable,
    /// From the guest's wake-up to its task: interrupt injection, softirq, the guest's scheduler.
    #[serde(default)]
    wake: Written,
    /// The way back: guest transmit, vhost or outsourced send, NIC.
    #[serde(default)]
    send: Written,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ReceiveTable {
    interrupt: Written,
    packet: Written,
    batch: Count,
    ahead: Count,
}

impl Default for ReceiveTable {
    fn default() -> Self {
        Self {
            interrupt: Written(0),
            packet: Written(0),
            batch: Count(1),
            ahead: Count(0),
        }
    }
}

impl ServiceTable {
    /// Whether it makes a task.
    pub(super) fn makes_task(&self) -> bool {
        self.task.is_none()
    }

    fn name(&self) -> &str {
        self.name
            .as_deref()
            .or(self.task.as_deref())
            .unwrap_or(&self.vm)
    }

    /// The service; its task is made, or gets the release jitter of the receive path and the service's deadline.
    pub(super) fn read(
        &self,
        vms: &mut Vec<Vm>,
        place: &str,
        unit: Unit,
    ) -> Result<Service, InputError> {
        let name = self.name();
        let wrong =
            |message: String| InputError::new(place, format!("service \"{name}\": {message}"));
        let bad = |error: crate::Error| wrong(unit.error(&error));
        let receive = ReceivePath {
            interrupt: self.receive.interrupt.0,
            packet: self.receive.packet.0,
            batch: self.receive.batch.0,
            ahead: self.receive.ahead.0,
        };
        receive.bound().map_err(bad)?;
        let limit = self
            .limit
            .map(|limit| positive("the limit", limit.0))
            .transpose()
            .map_err(bad)?;
        let mut service = Service {
            name: name.to_owned(),
            vm: 0,
            task: 0,
            receive,
            wake: not_negative("the guest's wake-up", self.wake.0).map_err(bad)?,
            send: not_negative("the way back", self.send.0).map_err(bad)?,
            limit,
            impossible: false,
        };
        let found = vms.iter().position(|vm| vm.name == self.vm);
        if self.makes_task() {
            let (Some(c), Some(t)) = (self.c, self.t) else {
                return Err(wrong(
                    "give c (execution of a request) and t (time between two), or the \
                                  name of a task of its VM"
                        .to_owned(),
                ));
            };
            if limit.is_none() {
                return Err(wrong(
                    "limit is missing; give the longest latency it may have".to_owned(),
                ));
            }
            // A request whose answer may take longer than t: the next may wait for it, so t bounds the deadline.
            let task = Task::new(c.0, self.d.map_or(t.0, |d| d.0), t.0).map_err(bad)?;
            service.vm = found.unwrap_or_else(|| {
                vms.push(new_vm(&self.vm, place));
                vms.len() - 1
            });
            let Needs::Tasks(needs) = &mut vms[service.vm].needs else {
                return Err(wrong(format!(
                    "VM \"{}\" has no tasks; leave out its budget and rt",
                    self.vm
                )));
            };
            service.task = needs.tasks.len();
            needs.tasks.push(NamedTask {
                name: name.to_owned(),
                task,
            });
        } else {
            if self.c.is_some() || self.d.is_some() || self.t.is_some() {
                return Err(wrong(
                    "its task has c, d and t; leave out task to give them here".to_owned(),
                ));
            }
            let vm = found.ok_or_else(|| {
                wrong(format!(
                    "it is in VM \"{}\", but no [[vm]] has that name",
                    self.vm
                ))
            })?;
            let Needs::Tasks(needs) = &vms[vm].needs else {
                return Err(wrong(format!(
                    "VM \"{}\" has no tasks to bound it by; give it tasks",
                    self.vm
                )));
            };
            let task = self.task.as_deref().unwrap_or_default();
            let position = needs.tasks.iter().position(|named| named.name == task);
            service.task = position
                .ok_or_else(|| wrong(format!("VM \"{}\" has no task \"{task}\"", self.vm)))?;
            service.vm = vm;
        }
        if let Needs::Tasks(needs) = &mut vms[service.vm].needs {
            let named = &mut needs.tasks[service.task];
            match carried(named.task, &service) {
                Some(task) => named.task = task,
                None => service.impossible = true,
            }
        }
        Ok(service)
    }
}

/// The task as the guest sees it: released when its packet would arrive at best, up to the receive path's
/// variation later; due so early that wake-up and way back fit the limit. `None`: no schedule can do that.
fn carried(task: Task, service: &Service) -> Option<Task> {
    let best = service.receive.best();
    let late = service.receive.bound().ok()? - best;
    let rest = service.limit.map_or(Time::MAX, |limit| {
        limit - best - service.wake - service.send
    });
    let deadline = task.deadline().min(rest);
    Task::new(task.execution(), deadline, task.period())
        .and_then(|changed| changed.with_suspension(task.suspension()))
        .and_then(|changed| changed.with_jitter(task.jitter() + late))
        .ok()
}

fn new_vm(name: &str, place: &str) -> Vm {
    Vm {
        place: place.to_owned(),
        name: name.to_owned(),
        mask: None,
        needs: Needs::Tasks(TaskNeeds {
            tasks: Vec::new(),
            scheduler: SchedulerName::Edf,
            interface: InterfaceName::Best,
            period: Period::Chosen,
            vcpus: None,
            budget: None,
        }),
    }
}
