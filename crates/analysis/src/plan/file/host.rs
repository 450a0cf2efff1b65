//! The host of a request.

use steadyvm_config::CpuNumbers;

use super::{places::Places, within};
use crate::{
    host::{Host, MAX_CPUS, overhead::Overheads},
    plan::{InputError, Measured, Unit, costs::Costs, names},
};

/// A `[host]`.
pub(super) struct HostTable<'f>(pub &'f steadyvm_config::Host);

impl HostTable<'_> {
    /// How many CPUs the VMs have, and their numbers where those are not 0 and up. `here`: the CPUs of this machine, for a
    /// host that does not say.
    pub(super) fn cpus(
        &self,
        places: &Places,
        here: Option<&[u32]>,
    ) -> Result<(u32, Option<Vec<u32>>), InputError> {
        let count = (self.0.pcpus)
            .map(|count| within(count, "host.pcpus", MAX_CPUS))
            .transpose()?;
        let numbers = match (&self.0.cpus, count, here) {
            (Some(CpuNumbers(listed)), _, _) => listed.as_slice(),
            (None, Some(count), _) => return Ok((count, None)),
            (None, None, Some(here)) => here,
            (None, None, None) => {
                let message = "missing field `pcpus`; give the number of CPUs for VMs, such as pcpus = 4, or which, such as \
                     cpus = \"2-15\"";
                return Err(InputError::new(places.host(), message));
            }
        };
        let listed = numbers.len() as u32;
        if let Some(count) = count.filter(|&count| count != listed) {
            let message = format!("pcpus is {count}, but cpus names {listed}; keep one of the two");
            return Err(InputError::new(places.host(), message));
        }
        if !(1..=MAX_CPUS).contains(&listed) {
            let message = format!("{listed} CPUs: a plan is for 1 to {MAX_CPUS}");
            return Err(InputError::new(places.host(), message));
        }
        let is_plain = (0..).zip(numbers).all(|(index, &number)| index == number);
        Ok((listed, (!is_plain).then(|| numbers.to_vec())))
    }

    /// Which CPUs were supposed, for people; none if the file says them.
    pub(super) fn supposed(&self, count: u32, is_all: bool) -> Option<String> {
        if self.0.pcpus.is_some() || self.0.cpus.is_some() {
            return None;
        }
        let cpus = if count == 1 { "CPU" } else { "CPUs" };
        let order = if is_all { " under pedf" } else { "" };
        Some(format!(
            "pcpus is not given: this is for the {count} {cpus} of this host{order}; for another host write pcpus into [host]"
        ))
    }

    /// Its costs, with what was measured.
    pub(super) fn costs(&self, cpus: u32, measured: &Measured) -> Costs {
        let is_global = names::order(self.0.scheduler).is_some_and(|order| !order.is_partitioned());
        let moves = is_global && cpus > 1;
        Costs::of(&self.0.overheads, self.0.quantum.0, moves, measured)
    }

    pub(super) fn read(
        &self,
        cpus: u32,
        costs: Overheads,
        unit: Unit,
        places: &Places,
    ) -> Result<Host, InputError> {
        let (Some(order), Some(server)) =
            (names::order(self.0.scheduler), names::server(self.0.server))
        else {
            let why = self.0.why_no_plan().unwrap_or_default();
            let message = format!(
                "{why}; plans are for scheduler = \"pedf\", \"gedf\", \"pdm\" or \"gdm\", and server = \"cbs\", \
                 \"periodic\", \"sporadic\" or \"deferrable\". With enforce = \"ext\" `apply` gives VMs the budgets that \
                 they name"
            );
            return Err(InputError::new(places.host(), message));
        };
        let overheads = Overheads {
            wakeups: match self.0.overheads.wakeups {
                Some(wakeups) => within(wakeups, "host.overheads.wakeups", 1_000)?.into(),
                None => 0,
            },
            ..costs
        };
        Host::new(cpus, order, server, overheads)
            .map(|host| host.with_isolation(self.0.isolate))
            .map_err(|error| {
                let place = if self.0.quantum.0 < 0 {
                    "host.quantum"
                } else {
                    "host.overheads"
                };
                InputError::new(place, unit.error(&error))
            })
    }
}
