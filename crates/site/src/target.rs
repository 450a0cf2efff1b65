//! What methods are for, by the names that their owner knows.

use serde::{Deserialize, Serialize};
use steadyvm_host::{HostError, Machine, Priorities, Target, WantedVm};

/// What methods are for, but for the VMs: those are given as they are looked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
// Each is a choice of its own.
#[allow(clippy::struct_excessive_bools)]
pub struct TargetNames {
    /// The network interfaces that carry real-time traffic.
    pub nics: Vec<String>,
    /// The processes of this host that serve it themselves, without a VM.
    pub processes: Vec<u32>,
    /// The CPU for method dedicated; none: the highest one that is online.
    pub cpu: Option<usize>,
    /// Whether the kernel never throttles a runaway RT thread.
    pub rt_throttling_off: bool,
    /// Whether the fair server keeps its slices.
    pub keep_fair_server: bool,
    /// Whether the threads of RCU, of the timers and of disks' interrupts keep their ranks.
    pub keep_housekeeping: bool,
    /// Whether the interrupt threads of devices that RT VMs have by passthrough keep theirs.
    pub keep_vfio: bool,
}

impl TargetNames {
    /// Finds the VMs that are named, and warns of processes that claim their names.
    ///
    /// # Errors
    /// A VM that is not there, or several of its name.
    pub fn find(&self, vms: &[String], warn: impl Fn(&str)) -> Result<Target, HostError> {
        let machine = Machine::real();
        let mut warnings = Vec::new();
        let rt_vms = vms
            .iter()
            .map(|text| text.parse::<WantedVm>()?.find(&machine, &mut warnings))
            .collect::<Result<_, _>>();
        for warning in &warnings {
            warn(warning);
        }
        Ok(Target {
            rt_nics: self.nics.clone(),
            rt_vms: rt_vms?,
            rt_processes: self.processes.clone(),
            dedicated_cpu: self.cpu,
            priorities: Priorities::default(),
            disable_rt_throttling: self.rt_throttling_off,
            keep_fair_server: self.keep_fair_server,
            keep_housekeeping: self.keep_housekeeping,
            keep_vfio: self.keep_vfio,
        })
    }
}
