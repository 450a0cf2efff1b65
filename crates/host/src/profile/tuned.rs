//! The peer: for which CPUs tuned's profile `realtime-virtual-host` is applied, and what it puts on the kernel's command line.

use serde::{Deserialize, Serialize};

use crate::cpu_set::CpuSet;
use crate::error::HostError;
use crate::settings::Machine;

/// `<vcpusched scheduler="fifo" priority="1"/>`: libvirt.org/kbase/kvm-realtime.html.
pub const VCPU_PRIORITY: u32 = 1;

/// The CPUs that the kernel keeps out of load balancing: what was made of `isolcpus=`.
const ISOLATED: &str = "/sys/devices/system/cpu/isolated";

/// What the peer is applied to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunedProfile {
    /// `isolated_cores` of /etc/tuned/realtime-virtual-host-variables.conf.
    pub isolated: CpuSet,
}

/// The words that the profile puts on the kernel's command line, for a host with these CPUs:
/// realtime/tuned.conf, network-latency/tuned.conf and realtime-virtual-host/tuned.conf,
/// `[bootloader]`, with `isolate_managed_irq=Y`, which is the package's default.
pub fn command_line(isolated: &CpuSet, others: &CpuSet) -> String {
    format!(
        "skew_tick=1 isolcpus=managed_irq,domain,{isolated} intel_pstate=disable nosoftlockup \
         tsc=reliable nohz=on nohz_full={isolated} rcu_nocbs={isolated} irqaffinity={others}"
    )
}

impl TunedProfile {
    /// For the CPUs that the kernel was booted without.
    ///
    /// # Errors
    /// There are none: the profile takes a boot.
    pub(crate) fn of(machine: &Machine) -> Result<Self, HostError> {
        let text = machine.tree.read(ISOLATED).unwrap_or_default();
        let isolated: CpuSet = text.trim().parse().unwrap_or_default();
        let online = machine.online()?;
        if !isolated.is_empty() && isolated != online {
            return Ok(Self { isolated });
        }
        let last = CpuSet::single(online.last().unwrap_or_default());
        let others = online.without(online.last().unwrap_or_default());
        Err(HostError::Unsupported {
            missing: format!("method tuned needs isolated CPUs, and {ISOLATED} has none"),
            fix: format!(
                "boot with {}, or use method dedicated, which needs no boot",
                command_line(&last, &others)
            ),
        })
    }
}
