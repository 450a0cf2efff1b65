//! The host of a request.

use serde::Deserialize;

use super::{cpus::CpuNumbers, places::Places};
use crate::{
    host::{Host, MAX_CPUS, overhead::Overheads},
    plan::{
        Enforcement, HostName, InputError, Method, ServerName, Unit,
        duration::{Count, Written},
    },
    time::Time,
};

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with \"pcpus\" and \"scheduler\""
)]
pub(super) struct HostTable {
    pcpus: Option<Count>,
    cpus: Option<CpuNumbers>,
    pub scheduler: HostName,
    #[serde(default)]
    server: ServerName,
    #[serde(default)]
    pub method: Method,
    pub enforce: Option<Enforcement>,
    #[serde(default)]
    overheads: OverheadTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "an object of overheads")]
struct OverheadTable {
    quantum: Written,
    scheduler: Written,
    context_switch: Written,
    migration: Written,
    cache_reload: Written,
    /// Times a guest may sleep and wake in one of its VCPU's periods.
    wakeups: Option<Count>,
}

impl Default for OverheadTable {
    fn default() -> Self {
        let none = Written(0);
        Self {
            quantum: none,
            scheduler: none,
            context_switch: none,
            migration: none,
            cache_reload: none,
            wakeups: None,
        }
    }
}

impl HostTable {
    /// How many CPUs the VMs have, and their numbers where those are not 0 and up. `here`: the CPUs of this machine, for a
    /// host that does not say.
    pub(super) fn cpus(
        &self,
        places: &Places,
        here: Option<&[u32]>,
    ) -> Result<(u32, Option<Vec<u32>>), InputError> {
        let count = (self.pcpus.map(|count| count.within("host.pcpus", MAX_CPUS))).transpose()?;
        let numbers = match (&self.cpus, count, here) {
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

    pub(super) fn read(&self, cpus: u32, unit: Unit) -> Result<Host, InputError> {
        let table = &self.overheads;
        let overheads = Overheads {
            quantum: table.quantum.0,
            scheduler: table.scheduler.0,
            context_switch: table.context_switch.0,
            migration: table.migration.0,
            cache_reload: table.cache_reload.0,
            wakeups: match table.wakeups {
                Some(wakeups) => wakeups.within("host.overheads.wakeups", 1_000)?.into(),
                // A periodic server idles its budget away; of the others, every release may wake the guest.
                None => Time::from(self.server.is_idling()),
            },
            ..Overheads::default()
        };
        Host::new(cpus, self.scheduler.into(), self.server.into(), overheads)
            .map_err(|error| InputError::new("host.overheads", unit.error(&error)))
    }
}
