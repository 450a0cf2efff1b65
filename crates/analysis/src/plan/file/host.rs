//! The host of a request.

use serde::Deserialize;

use crate::{
    host::{Host, overhead::Overheads},
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
    pcpus: Count,
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
    pub(super) fn read(&self, unit: Unit) -> Result<Host, InputError> {
        let cpus = self.pcpus.within("host.pcpus", crate::host::MAX_CPUS)?;
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
