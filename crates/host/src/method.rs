//! What a caller asks for: a method, and what it is to be applied to.

use serde::{Deserialize, Serialize};
pub use steadyvm_methods::{Method, Need, Switches, Unknown};

use crate::error::HostError;

impl From<Unknown> for HostError {
    fn from(Unknown { what, fix }: Unknown) -> Self {
        Self::BadInput { what, fix }
    }
}

/// The FIFO priorities of the path from the wire to the guest.
///
/// Every stage stands above the default 50 of all other IRQ threads, and a stage never stands
/// below the one it feeds: see docs/design/host-methods.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Priorities {
    /// IRQ threads of the RT NICs.
    pub irq: u32,
    /// Threaded NAPI kthreads of the RT NICs, where enabled.
    pub napi: u32,
    /// vhost workers of the RT VMs.
    pub vhost: u32,
    /// The kernel's own threads that all of the host depends on: those of RCU, of the timers and of the interrupts of
    /// disks and consoles.
    /// Above what a tenant keeps busy, which are the vhost workers and VCPUs.
    #[serde(default = "housekeeping")]
    pub housekeeping: u32,
    /// The end of the path, where the service runs: RT VCPU threads, and the threads of RT
    /// processes.
    pub vcpu: u32,
}

const fn housekeeping() -> u32 {
    76
}

impl Default for Priorities {
    fn default() -> Self {
        Self {
            irq: 80,
            napi: 78,
            vhost: 75,
            housekeeping: housekeeping(),
            vcpu: 70,
        }
    }
}

impl Priorities {
    /// What the kernel gives to every IRQ thread.
    pub const OTHER_IRQ_THREADS: u32 = 50;

    /// Whether the path cannot invert and stays below the kernel's own 99.
    pub fn check(&self) -> Result<(), HostError> {
        let ordered = self.irq >= self.napi && self.napi >= self.vhost && self.vhost >= self.vcpu;
        let is_above = self.housekeeping > self.vhost && self.housekeeping < 99;
        if ordered && is_above && self.vcpu > Self::OTHER_IRQ_THREADS && self.irq < 99 {
            return Ok(());
        }
        Err(HostError::BadInput {
            what: format!(
                "priorities irq {}, napi {}, vhost {}, vcpu {}, housekeeping {} would invert",
                self.irq, self.napi, self.vhost, self.vcpu, self.housekeeping
            ),
            fix: "use 99 > irq >= napi >= vhost >= vcpu > 50 and 99 > housekeeping > vhost".into(),
        })
    }
}

/// A VM whose traffic is real-time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RtVm {
    /// The process of its monitor (QEMU).
    pub pid: u32,
    /// The VCPUs that run the service. Empty: all but VCPU 0, which is left to the guest's
    /// housekeeping; VCPU 0 itself if there is no other.
    pub rt_vcpus: Vec<u32>,
}

/// What a method is applied to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
// Each is an option of its own on the command line.
#[allow(clippy::struct_excessive_bools)]
pub struct Target {
    /// The network interfaces that carry real-time traffic.
    pub rt_nics: Vec<String>,
    /// The VMs that serve it.
    pub rt_vms: Vec<RtVm>,
    /// The processes of the host itself that serve it. Threads that one of them starts later are
    /// normal ones.
    #[serde(default)]
    pub rt_processes: Vec<u32>,
    /// The CPU that `dedicated` gives to the path; none: the highest CPU that is online.
    pub dedicated_cpu: Option<usize>,
    /// The priorities of the path.
    pub priorities: Priorities,
    /// Whether to switch off RT throttling (`sched_rt_runtime_us` = -1). Never by default: a
    /// runaway RT VCPU could then take its CPU for ever.
    pub disable_rt_throttling: bool,
    /// Whether the fair server keeps the kernel's long pieces: up to 50 ms of a second in which
    /// normal threads run before the RT path.
    #[serde(default)]
    pub keep_fair_server: bool,
    /// Whether the threads of RCU, of the timers and of the interrupts of disks keep their ranks. A VCPU that computes
    /// without end then stops them on its CPU, and after them the host.
    #[serde(default)]
    pub keep_housekeeping: bool,
    /// Whether the interrupt threads of devices that RT VMs have by passthrough keep their ranks.
    #[serde(default)]
    pub keep_vfio: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_priorities_do_not_invert() {
        Priorities::default().check().unwrap();
        assert!(
            Priorities {
                vhost: 60,
                ..Priorities::default()
            }
            .check()
            .is_err()
        );
        assert!(
            Priorities {
                vcpu: 50,
                ..Priorities::default()
            }
            .check()
            .is_err()
        );
        assert!(
            Priorities {
                irq: 99,
                ..Priorities::default()
            }
            .check()
            .is_err()
        );
    }
}
