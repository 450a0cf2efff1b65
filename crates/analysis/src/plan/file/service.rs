//! One service of a request.

use std::collections::HashSet;
use std::ops::Deref;

use steadyvm_config::{self as config, Count, Written};

use crate::{
    error::{not_negative, positive},
    latency::ReceivePath,
    path::{Arrivals, Front, Stream},
    plan::{
        Impossible, InputError, InterfaceName, Measured, Missing, NamedTask, Needs, Period,
        SchedulerName, Service, TaskNeeds, Unit, Vm,
        slowed::Slowed,
        way::{Flow, Passage, Queue, Traveller, Way, passages},
    },
    task::Task,
    time::Time,
    work::Work,
};

/// A `[[service]]`: of a task of a VM, or with c, t and limit a task of its own.
pub(super) struct ServiceTable<'f>(pub &'f config::Service);

impl Deref for ServiceTable<'_> {
    type Target = config::Service;

    fn deref(&self) -> &config::Service {
        self.0
    }
}

/// A time as written, or 0.
fn or_0(written: Option<Written>) -> Time {
    written.map_or(0, |time| time.0)
}

/// The way back by its parts.
fn way_back(parts: &config::SendParts) -> Result<Way, crate::Error> {
    let guest = not_negative("guest", or_0(parts.guest))?;
    let host = not_negative("host", or_0(parts.host))?;
    let terms = vec![
        ("guest transmit", guest),
        ("vhost or outsourced send", host),
        ("NIC", not_negative("nic", or_0(parts.nic))?),
    ];
    let queue = queue(
        parts.on.as_ref(),
        parts.level,
        parts.packet,
        parts.batch,
        parts.interrupt.0,
    )?;
    Ok(Way {
        terms,
        in_guest: guest,
        in_front: guest + host,
        least: 0,
        queue,
        slowed: None,
    })
}

/// Its place on a shared path, if it names one.
fn queue(
    on: Option<&String>,
    level: Count,
    packet: Written,
    batch: Count,
    interrupt: Time,
) -> Result<Option<Queue>, crate::Error> {
    let Some(on) = on else { return Ok(None) };
    Ok(Some(Queue {
        on: on.clone(),
        packet: positive("the packet cost on a shared path", packet.0)?,
        level: level.0,
        front: Front {
            interrupt: not_negative("the interrupt latency", interrupt)?,
            // A packet that is begun is finished.
            batch: positive("the batch on a shared path", batch.0)?,
        },
    }))
}

/// A `[[flow]]`: other traffic on a path.
pub(super) fn flow(table: &config::Flow, index: usize, unit: Unit) -> Result<Flow, InputError> {
    let bad = |error: crate::Error| InputError::new(format!("flow[{index}]"), unit.error(&error));
    let arrivals = Arrivals {
        period: table.t.0,
        jitter: table.jitter.0,
    };
    Ok(Flow {
        name: table
            .name
            .clone()
            .unwrap_or_else(|| format!("flow[{index}]")),
        on: table.on.clone(),
        stream: Stream {
            packet: positive("the packet cost", table.packet.0).map_err(bad)?,
            level: table.level.0,
            arrivals: arrivals.checked().map_err(bad)?,
        },
    })
}

/// What was measured of a way in, for what the file leaves out.
#[derive(Clone, Copy, Default)]
pub(super) struct MeasuredWay {
    pub interrupt: Option<Time>,
    pub packet: Option<Time>,
}

fn way_in(table: &config::Receive, measured: MeasuredWay) -> Result<Way, crate::Error> {
    let least = not_negative("the shortest receive path", table.least.0)?;
    if table.on.is_some() && table.ahead.0 != 0 {
        return Err(crate::Error::Contradiction {
            what: "receive has on and ahead".to_owned(),
            advice: "what is ahead on a shared path is computed; leave out ahead",
        });
    }
    let interrupt = measured.interrupt.unwrap_or_else(|| or_0(table.interrupt));
    let packet = measured.packet.unwrap_or_else(|| or_0(table.packet));
    let queue = queue(
        table.on.as_ref(),
        table.level,
        Written(packet),
        table.batch,
        interrupt,
    )?;
    let path = ReceivePath {
        interrupt,
        packet,
        batch: table.batch.0,
        ahead: table.ahead.0,
    };
    let bound = path.bound()?;
    let shortest = if queue.is_some() { packet } else { bound };
    if least > shortest {
        return Err(crate::Error::Exceeds {
            what: "the shortest receive path",
            value: least,
            limit_name: "its bound",
            limit: shortest,
            advice: "give the least time from a packet's arrival to its delivery",
        });
    }
    let packets = |count: Time| count.saturating_mul(packet);
    let terms = if queue.is_some() {
        Vec::new()
    } else {
        vec![
            ("interrupt", interrupt),
            ("less urgent packets in service", packets(table.batch.0)),
            ("packets ahead", packets(table.ahead.0)),
            ("its own packet", packet),
        ]
    };
    Ok(Way {
        terms,
        least,
        queue,
        ..Way::default()
    })
}

/// The way that it describes.
fn way_out(send: Option<&config::Send>) -> Result<Way, crate::Error> {
    match send {
        None => way_out(Some(&config::Send::Time(Written(0)))),
        Some(config::Send::Time(time)) => Ok(Way {
            terms: vec![("way back", not_negative("the way back", time.0)?)],
            ..Way::default()
        }),
        Some(config::Send::Parts(parts)) => way_back(parts),
    }
}

impl ServiceTable<'_> {
    /// Whether it makes a task.
    pub(super) fn makes_task(&self) -> bool {
        self.task.is_none()
    }

    /// What was measured of its way in, of what the file leaves out.
    pub(super) fn measured_way(&self, measured: &Measured) -> MeasuredWay {
        let Measured {
            interrupt, packet, ..
        } = *measured;
        MeasuredWay {
            interrupt: interrupt.filter(|_| self.receive.interrupt.is_none()),
            packet: packet.filter(|_| self.receive.packet.is_none()),
        }
    }

    /// The terms of its ways that nobody says.
    fn missing(&self, measured: MeasuredWay) -> Vec<Missing> {
        let receive = &self.receive;
        let has_interrupt = receive.interrupt.is_some() || measured.interrupt.is_some();
        let has_packet = receive.packet.is_some() || measured.packet.is_some();
        let has_send = match &self.send {
            None => false,
            Some(config::Send::Time(_)) => true,
            Some(config::Send::Parts(it)) => {
                it.guest.is_some() && it.host.is_some() && it.nic.is_some()
            }
        };
        [
            (Missing::ReceivePath, has_interrupt && has_packet),
            (Missing::GuestWakeup, self.wake.is_some()),
            (Missing::SendPath, has_send),
        ]
        .into_iter()
        .filter_map(|(term, is_said)| (!is_said).then_some(term))
        .collect()
    }

    fn name(&self) -> &str {
        self.name
            .as_deref()
            .or(self.task.as_deref())
            .unwrap_or(&self.vm)
    }

    /// The service, with what was measured of its way in; its task is made, or gets the release jitter of the receive path and the service's deadline.
    pub(super) fn read(
        &self,
        vms: &mut Vec<Vm>,
        place: &str,
        unit: Unit,
        measured: MeasuredWay,
    ) -> Result<Service, InputError> {
        let name = self.name();
        let wrong = |message: String| self.wrong(place, &message);
        let bad = |error: crate::Error| wrong(unit.error(&error));
        let receive = way_in(&self.receive, measured).map_err(bad)?;
        let send = way_out(self.send.as_ref()).map_err(bad)?;
        let limit = self
            .limit
            .map(|limit| positive("the limit", limit.0))
            .transpose()
            .map_err(bad)?;
        let mut service = Service {
            name: name.to_owned(),
            vm: 0,
            task: 0,
            requests: Arrivals {
                period: 1,
                jitter: 0,
            },
            receive,
            send,
            receive_path: Passage::default(),
            wake: not_negative("the guest's wake-up", or_0(self.wake)).map_err(bad)?,
            send_path: Passage::default(),
            limit,
            missing: self.missing(measured),
            impossible: None,
        };
        if service.send.queue.is_some() && limit.is_none() {
            return Err(wrong(
                "its way back is on a shared path, so limit is needed: it bounds how late a response is sent; \
                 give the longest latency it may have"
                    .to_owned(),
            ));
        }
        let found = vms.iter().position(|vm| vm.name == self.vm);
        (service.vm, service.task) = if self.makes_task() {
            self.make_task(vms, found, place, unit)?
        } else {
            self.find_task(vms, found, place)?
        };
        let vm = &vms[service.vm];
        if let Some(slowed) = Slowed::receiving(vm) {
            service.receive.received_by(slowed);
        }
        if let Some(slowed) = Slowed::sending(vm) {
            service.send.sent_by(slowed);
        }
        if let Needs::Tasks(needs) = &vm.needs {
            let task = needs.tasks[service.task].task;
            service.requests = Arrivals {
                period: task.period(),
                jitter: task.jitter(),
            };
        }
        Ok(service)
    }

    /// What is wrong with it, as an error.
    fn wrong(&self, place: &str, message: &str) -> InputError {
        InputError::new(place, format!("service \"{}\": {message}", self.name()))
    }

    /// Makes its task, in a VM that is made if need be: the numbers of both.
    fn make_task(
        &self,
        vms: &mut Vec<Vm>,
        found: Option<usize>,
        place: &str,
        unit: Unit,
    ) -> Result<(usize, usize), InputError> {
        let wrong = |message: String| self.wrong(place, &message);
        let (Some(c), Some(t)) = (self.c, self.t) else {
            return Err(wrong(
                "give c (execution of a request) and t (time between two), or the \
                              name of a task of its VM"
                    .to_owned(),
            ));
        };
        if self.limit.is_none() {
            return Err(wrong(
                "limit is missing; give the longest latency it may have".to_owned(),
            ));
        }
        if self.d.is_none() && c.0 > t.0 && t.0 > 0 {
            return Err(wrong(format!(
                "a request executes for {} and the next comes after {}: no CPU can keep up; shorten c, or raise t",
                unit.show(c.0.into()),
                unit.show(t.0.into())
            )));
        }
        // A request whose answer may take longer than t: the next may wait for it, so t bounds the deadline.
        let task = Task::new(c.0, self.d.map_or(t.0, |d| d.0), t.0)
            .map_err(|error| wrong(unit.error(&error)))?;
        let vm = found.unwrap_or_else(|| {
            vms.push(new_vm(&self.vm, place));
            vms.len() - 1
        });
        let Needs::Tasks(needs) = &mut vms[vm].needs else {
            return Err(wrong(format!(
                "VM \"{}\" has no tasks; leave out its budget and rt",
                self.vm
            )));
        };
        needs.tasks.push(NamedTask {
            name: self.name().to_owned(),
            task,
        });
        Ok((vm, needs.tasks.len() - 1))
    }

    /// Finds its task: the numbers of its VM and of it there.
    fn find_task(
        &self,
        vms: &[Vm],
        found: Option<usize>,
        place: &str,
    ) -> Result<(usize, usize), InputError> {
        let wrong = |message: String| self.wrong(place, &message);
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
        let task =
            position.ok_or_else(|| wrong(format!("VM \"{}\" has no task \"{task}\"", self.vm)))?;
        Ok((vm, task))
    }
}

/// Bounds the ways of all services, and carries them into the tasks: release jitter, earlier deadlines.
pub(super) fn carry(vms: &mut [Vm], services: &mut [Service], flows: &[Flow]) {
    let travellers: Vec<Traveller<'_>> = (services.iter())
        .map(|service| Traveller {
            name: &service.name,
            receive: &service.receive,
            send: &service.send,
            requests: service.requests,
            ready: service.limit.unwrap_or_default(),
        })
        .collect();
    let ways = passages(&travellers, flows, &mut Work::default());
    let mut carried_before = HashSet::new();
    for (service, way) in services.iter_mut().zip(ways) {
        match way {
            Ok((receive, send)) => (service.receive_path, service.send_path) = (receive, send),
            Err(why) => {
                service.impossible = Some(Impossible::Path(why));
                continue;
            }
        }
        if let Needs::Tasks(needs) = &mut vms[service.vm].needs {
            let named = &mut needs.tasks[service.task];
            let first = carried_before.insert((service.vm, service.task));
            match carried(named.task, service, first) {
                Some(task) => named.task = task,
                None => service.impossible = Some(Impossible::TooLong),
            }
        }
    }
}

/// The task as the guest sees it: released when its packet would arrive at best, up to the receive path's
/// variation later; due so early that what of the way back is outside of the guest fits the limit. The wake-up is work
/// of the VCPU before any task; the guest's transmit path is work of the task, in whose context it runs. A deadline of
/// the task's own is that of its code alone. `None`: no schedule can do that.
fn carried(task: Task, service: &Service, first: bool) -> Option<Task> {
    let best = service.receive_path.least;
    let late = service.receive_path.bound - best;
    let transmit = service.send.in_guest;
    let rest = service.limit.map_or(Time::MAX, |limit| {
        limit - best - (service.send_path.bound - transmit)
    });
    // A second service of the task must not loosen what the first one asks for.
    let around = if first { service.wake + transmit } else { 0 };
    let own = task.deadline() + around;
    let deadline = own.min(task.period()).min(rest);
    Task::new(task.execution() + transmit, deadline, task.period())
        .and_then(|changed| changed.with_interrupt(service.wake))
        .and_then(|changed| changed.with_suspension(task.suspension()))
        .and_then(|changed| changed.with_jitter(task.jitter() + late))
        .ok()
}

fn new_vm(name: &str, place: &str) -> Vm {
    Vm {
        place: place.to_owned(),
        name: name.to_owned(),
        mask: None,
        homes: None,
        receive: Vec::new(),
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
