//! What a caller asks for: a method, and what it is to be applied to.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::HostError;

/// A way to set up the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Nothing is set.
    Vanilla,
    /// Real-time priorities for the path from the RT NIC to the RT service.
    PreemptRt,
    /// `PreemptRt`, and one CPU for that path alone.
    Dedicated,
    /// `PreemptRt`, and the RT NICs' packets on the RT level of the receive path: the paper's RT
    /// poll list. Needs our kernel patches.
    RtPollList,
    /// `PreemptRt`, and the receive path of everything else below it: the no-patch profile.
    RtProfile,
    /// `RtProfile` and `RtPollList` together.
    RtLevels,
    /// A peer: what tuned's profile `realtime-virtual-host` sets, and libvirt's documented XML of a
    /// real-time VM, on CPUs that the kernel was booted without. Nothing of ours is in it.
    Tuned,
}

impl Method {
    /// All methods, in the order of the comparison.
    pub const ALL: [Self; 7] = [
        Self::Vanilla,
        Self::PreemptRt,
        Self::Dedicated,
        Self::RtPollList,
        Self::RtProfile,
        Self::RtLevels,
        Self::Tuned,
    ];

    /// The name on the command line and in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vanilla => "vanilla",
            Self::PreemptRt => "preempt-rt",
            Self::Dedicated => "dedicated",
            Self::RtPollList => "rt-poll-list",
            Self::RtProfile => "rt-profile",
            Self::RtLevels => "rt-levels",
            Self::Tuned => "tuned",
        }
    }

    /// Whether it puts the RT NICs' packets on the RT level, which takes our kernel patches.
    pub const fn has_levels(self) -> bool {
        self.switches().levels
    }

    /// What it is composed of.
    pub const fn switches(self) -> Switches {
        let rt = Switches {
            rt: true,
            ..Switches::VANILLA
        };
        match self {
            Self::Vanilla => Switches::VANILLA,
            Self::PreemptRt => rt,
            Self::Dedicated => Switches {
                dedicated: true,
                ..rt
            },
            Self::RtPollList => Switches { levels: true, ..rt },
            Self::RtProfile => Switches::RT_PROFILE,
            Self::RtLevels => Switches {
                levels: true,
                ..Switches::RT_PROFILE
            },
            Self::Tuned => Switches::TUNED,
        }
    }
}

/// What a method is composed of: `rt`, and with it `dedicated`, `profile` and `levels`, joined by
/// `+`; or `tuned` alone. Each of the names of [`Method`] stands for one composition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
// Each is a switch of its own, as its users write them: rt+dedicated+profile+levels.
#[allow(clippy::struct_excessive_bools)]
pub struct Switches {
    /// Ranks for the path from the RT NIC to the RT service. Every other switch but `tuned` needs it.
    pub rt: bool,
    /// One CPU for that path alone.
    pub dedicated: bool,
    /// The other NICs polled in threads below it.
    pub profile: bool,
    /// The RT NICs' packets on the RT level of the receive path, which takes our kernel patches.
    pub levels: bool,
    /// What the peer sets, in place of all of this.
    pub tuned: bool,
}

impl Switches {
    /// Nothing is set.
    pub const VANILLA: Self = Self {
        rt: false,
        dedicated: false,
        profile: false,
        levels: false,
        tuned: false,
    };

    /// As a profile that is read from a file.
    pub const RT_PROFILE: Self = Self {
        rt: true,
        profile: true,
        ..Self::VANILLA
    };

    /// The peer.
    pub const TUNED: Self = Self {
        tuned: true,
        ..Self::VANILLA
    };

    /// Whether nothing is set.
    pub fn is_vanilla(self) -> bool {
        self == Self::VANILLA
    }

    /// The method that has a name of its own for it.
    pub fn alias(self) -> Option<Method> {
        Method::ALL
            .into_iter()
            .find(|method| method.switches() == self)
    }

    /// The switches by name, in the order in which they are written.
    const fn named(self) -> [(&'static str, bool); 5] {
        [
            ("rt", self.rt),
            ("dedicated", self.dedicated),
            ("profile", self.profile),
            ("levels", self.levels),
            ("tuned", self.tuned),
        ]
    }

    /// The names of those that are on, joined by `+`; `vanilla` for none.
    pub fn composition(self) -> String {
        let on = self.named().into_iter().filter(|(_, is_on)| *is_on);
        let names: Vec<&str> = on.map(|(name, _)| name).collect();
        if names.is_empty() {
            Method::Vanilla.name().to_owned()
        } else {
            names.join("+")
        }
    }
}

impl From<Method> for Switches {
    fn from(method: Method) -> Self {
        method.switches()
    }
}

impl fmt::Display for Switches {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.alias() {
            Some(method) => method.fmt(formatter),
            None => formatter.pad(&self.composition()),
        }
    }
}

impl From<Switches> for String {
    fn from(switches: Switches) -> Self {
        switches.to_string()
    }
}

impl TryFrom<String> for Switches {
    type Error = HostError;

    fn try_from(text: String) -> Result<Self, HostError> {
        text.parse()
    }
}

impl FromStr for Switches {
    type Err = HostError;

    /// Reads a composition (`rt+dedicated`), or the name of a [`Method`].
    fn from_str(text: &str) -> Result<Self, HostError> {
        if let Ok(method) = text.parse::<Method>() {
            return Ok(method.switches());
        }
        let mut switches = Self::VANILLA;
        for name in text.split('+') {
            let switch = match name {
                "rt" => &mut switches.rt,
                "dedicated" => &mut switches.dedicated,
                "profile" => &mut switches.profile,
                "levels" => &mut switches.levels,
                "tuned" => &mut switches.tuned,
                _ => return Err(unknown(text)),
            };
            *switch = true;
        }
        if switches.tuned {
            return Err(HostError::BadInput {
                what: format!("method `{text}` joins tuned with other switches"),
                fix: "use tuned alone: it gives the path no ranks that others could build on"
                    .into(),
            });
        }
        if switches.rt {
            return Ok(switches);
        }
        Err(HostError::BadInput {
            what: format!("method `{text}` lacks the switch rt, which the others need"),
            fix: format!("write rt+{text}"),
        })
    }
}

fn unknown(text: &str) -> HostError {
    let names = Method::ALL.map(Method::name).join(", ");
    HostError::BadInput {
        what: format!("unknown method `{text}`"),
        fix: format!(
            "use one of: {names}; or a composition of rt, dedicated, profile and levels, such as \
             rt+dedicated+levels"
        ),
    }
}

impl fmt::Display for Method {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Method {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        Self::ALL
            .into_iter()
            .find(|method| method.name() == text)
            .ok_or_else(|| unknown(text))
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

    #[test]
    fn methods_have_names() {
        for method in Method::ALL {
            assert_eq!(method.name().parse::<Method>().unwrap(), method);
        }
        assert_eq!("fast".parse::<Method>().unwrap_err().blame().exit_code(), 2);
    }
}
