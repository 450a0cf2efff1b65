//! The methods: what is set on a host, and how its guests are run.

use crate::row::{Guests, MethodRow, Need, Price, Role};
use crate::{HostKernel, Switches, Unknown};
use serde::{Deserialize, Serialize};

/// What every method with ranks needs.
const RANKED: &[Need] = &[Need::Kvm, Need::PreemptRt, Need::ConstantClock, Need::Cards];
/// … and those with levels.
const LEVELS: &[Need] = &[
    Need::Kvm,
    Need::PreemptRt,
    Need::ConstantClock,
    Need::Cards,
    Need::Levels,
];

impl MethodRow {
    /// The host as Debian has it.
    const VANILLA: Self = Self {
        name: "vanilla",
        formerly: &[],
        switches: Switches::VANILLA,
        options: &[],
        kernel: HostKernel::V6_12,
        needs: &[Need::Kvm],
        guests: Guests::Qemu,
        price: Price::NOTHING,
        role: Role::Own,
        sets: "nothing",
    };
    /// What most others build on.
    const PREEMPT_RT: Self = Self {
        name: "preempt-rt",
        switches: Switches::RT,
        kernel: HostKernel::V6_12Rt,
        needs: RANKED,
        sets: "priorities along the path of the real-time VM",
        ..Self::VANILLA
    };
    const RT_POLL_LIST: Self = Self {
        name: "rt-poll-list",
        switches: Switches {
            levels: true,
            ..Switches::RT
        },
        kernel: HostKernel::V6_12RtPatched,
        needs: LEVELS,
        role: Role::Reproduction,
        sets: "`preempt-rt`, and a receive level for the RT card",
        ..Self::PREEMPT_RT
    };
    const RT_PROFILE: Self = Self {
        name: "rt-profile",
        switches: Switches::RT_PROFILE,
        sets: "`preempt-rt`, and the polls of the other cards in threads below it",
        ..Self::PREEMPT_RT
    };
    const STOCK_PROFILE: Self = Self {
        name: "stock-profile",
        switches: Switches {
            any_kernel: true,
            ..Switches::RT_PROFILE
        },
        kernel: HostKernel::V6_12,
        needs: &[Need::Kvm, Need::ConstantClock, Need::Cards],
        sets: "`rt-profile`, and the polls of the real-time card in threads, too",
        ..Self::RT_PROFILE
    };
    const RT_LEVELS: Self = Self {
        name: "rt-levels",
        switches: Switches {
            levels: true,
            ..Switches::RT_PROFILE
        },
        sets: "`rt-profile` and `rt-poll-list`",
        ..Self::RT_POLL_LIST
    };
    const VF: Self = Self {
        name: "vf",
        options: &["--keep-vfio"],
        needs: &[
            Need::Kvm,
            Need::PreemptRt,
            Need::ConstantClock,
            Need::Cards,
            Need::Iommu,
        ],
        guests: Guests::Passthrough,
        // A device writes to all of the guest's memory, and igbvf has no driver for migration.
        price: Price {
            memory_is_shared: false,
            ..Price::MIGRATION
        },
        role: Role::Peer,
        sets: "`preempt-rt` but for the interrupts of the VM's card",
        ..Self::PREEMPT_RT
    };
}

table! {
    /// A way to set up a host and to run its guests. What differs on the host comes first, so that it names what is set.
    #[derive(Serialize, Deserialize)]
    #[serde(into = "String", try_from = "String")]
    Method of MethodRow {
        /// Nothing is set.
        Vanilla: MethodRow::VANILLA,
        /// Real-time priorities for the path from the RT NIC to the RT service.
        PreemptRt: MethodRow::PREEMPT_RT,
        /// `PreemptRt`, and one CPU for that path alone.
        Dedicated: MethodRow {
            name: "dedicated",
            switches: Switches {
                dedicated: true,
                ..Switches::RT
            },
            needs: &[
                Need::Kvm,
                Need::PreemptRt,
                Need::ConstantClock,
                Need::Cards,
                Need::TwoCpus,
            ],
            price: Price::A_CPU,
            sets: "`preempt-rt`, and one CPU for that path alone",
            ..MethodRow::PREEMPT_RT
        },
        /// `PreemptRt`, and the RT NICs' packets on the RT level of the receive path: the paper's RT
        /// poll list. Needs our kernel patches.
        RtPollList: MethodRow::RT_POLL_LIST,
        /// `PreemptRt`, and the receive path of everything else below it.
        RtProfile: MethodRow::RT_PROFILE,
        /// `RtProfile` on a distribution's kernel without PREEMPT_RT.
        StockProfile: MethodRow::STOCK_PROFILE,
        /// `RtProfile` and `RtPollList` together.
        RtLevels: MethodRow::RT_LEVELS,
        /// A peer: what tuned's profile `realtime-virtual-host` sets, and libvirt's documented XML of a
        /// real-time VM, on CPUs that the kernel was booted without. Nothing of ours is in it.
        Tuned: MethodRow {
            name: "tuned",
            switches: Switches::TUNED,
            needs: &[
                Need::Kvm,
                Need::PreemptRt,
                Need::ConstantClock,
                Need::Cards,
                Need::IsolatedCpus,
            ],
            guests: Guests::RealTime,
            price: Price {
                memory_is_shared: false,
                ..Price::A_CPU
            },
            role: Role::Peer,
            sets: "what the tuned profile `realtime-virtual-host` sets",
            ..MethodRow::PREEMPT_RT
        },
        /// A peer: the VM has a virtual function of the card.
        Vf: MethodRow::VF,
        /// The same, its interrupts ranked.
        VfRanked: MethodRow {
            name: "vf-ranked",
            options: &[],
            sets: "`preempt-rt`",
            ..MethodRow::VF
        },
        /// `PreemptRt` with outsourced sockets.
        RtSockets: MethodRow {
            name: "rt-sockets",
            guests: Guests::Outsourced,
            price: Price::MIGRATION,
            sets: "`preempt-rt`",
            ..MethodRow::PREEMPT_RT
        },
        /// `RtProfile` with outsourced sockets.
        ProfileSockets: MethodRow {
            name: "profile-sockets",
            formerly: &["no-patch"],
            guests: Guests::Outsourced,
            price: Price::MIGRATION,
            sets: "`rt-profile`",
            ..MethodRow::RT_PROFILE
        },
        /// `ProfileSockets` whose virtual CPUs poll the VM's own card while they wait.
        PollSockets: MethodRow {
            name: "poll-sockets",
            guests: Guests::OutsourcedPolling,
            price: Price::MIGRATION,
            sets: "`rt-profile`",
            ..MethodRow::RT_PROFILE
        },
        /// `ProfileSockets` with QEMU's guests.
        QemuSockets: MethodRow {
            name: "qemu-sockets",
            guests: Guests::OutsourcedQemu,
            price: Price::MIGRATION,
            sets: "`rt-profile`",
            ..MethodRow::RT_PROFILE
        },
        /// `StockProfile` with outsourced sockets.
        StockSockets: MethodRow {
            name: "stock-sockets",
            guests: Guests::Outsourced,
            price: Price::MIGRATION,
            sets: "`stock-profile`",
            ..MethodRow::STOCK_PROFILE
        },
        /// `RtPollList` with outsourced sockets: the dissertation's.
        Outsourcing: MethodRow {
            name: "outsourcing",
            guests: Guests::Outsourced,
            price: Price::MIGRATION,
            sets: "`rt-poll-list`",
            ..MethodRow::RT_POLL_LIST
        },
        /// `RtLevels` with outsourced sockets: all of it.
        LevelsSockets: MethodRow {
            name: "levels-sockets",
            formerly: &["steadyvm"],
            guests: Guests::Outsourced,
            price: Price::MIGRATION,
            sets: "`rt-levels`",
            ..MethodRow::RT_LEVELS
        },
        /// `RtSockets` with virtio-net.
        PreemptRtVmm: MethodRow {
            name: "preempt-rt-vmm",
            guests: Guests::Steadyvm,
            price: Price::MIGRATION,
            role: Role::Control("the monitor's own share: rt-sockets with virtio-net"),
            sets: "`preempt-rt`",
            ..MethodRow::PREEMPT_RT
        },
        /// `RtSockets` without a VM for the service.
        RtProcess: MethodRow {
            name: "rt-process",
            guests: Guests::OutsourcedBulk,
            price: Price::MIGRATION,
            role: Role::Control("the lower bound: the service runs without a VM"),
            sets: "`preempt-rt`",
            ..MethodRow::PREEMPT_RT
        },
        /// `PreemptRt` on the patched kernel.
        LevelsOff: MethodRow {
            name: "levels-off",
            kernel: HostKernel::V6_12RtPatched,
            role: Role::Control("the price of patches that are off"),
            sets: "`preempt-rt`",
            ..MethodRow::PREEMPT_RT
        },
    }
}

impl Method {
    /// Those that differ in what they set on the host: what `steadyvm apply --method` takes by name.
    pub fn of_hosts() -> impl Iterator<Item = Self> {
        let is_of_hosts = |it: &Self| it.switches().alias() == Some(*it);
        Self::ALL.into_iter().filter(is_of_hosts)
    }

    /// What is set on the host.
    pub const fn switches(self) -> Switches {
        self.row().switches
    }

    /// Whether it puts the RT NICs' packets on the RT level, which takes our kernel patches.
    pub const fn has_levels(self) -> bool {
        self.switches().levels
    }

    /// Whether a machine must have this for it.
    pub fn needs(self, need: Need) -> bool {
        self.row().needs.contains(&need)
    }

    /// Whether something bounds what packets of the real-time VM wait for on the receive path.
    pub const fn bounds_the_receive_path(self) -> bool {
        self.switches().rt
    }

    /// The method of this name, if all of it is what it sets on the host.
    ///
    /// # Errors
    /// There is none, or it is about guests, too.
    pub fn of_host_named(text: &str) -> Result<Self, Unknown> {
        let method: Self = text.parse()?;
        match method.switches().alias() {
            Some(of_host) if of_host != method => Err(Unknown {
                what: format!("method `{text}` says how guests are run or which kernel, too"),
                fix: format!("on a host it is {of_host}: use that"),
            }),
            _ => Ok(method),
        }
    }

    pub(crate) fn unknown(text: &str) -> Unknown {
        let renamed = Self::ALL
            .into_iter()
            .find(|it| it.row().formerly.contains(&text));
        Unknown {
            what: format!("unknown method `{text}`"),
            fix: match renamed {
                Some(method) => format!("it is called {method}"),
                None => format!("use one of: {}", Self::ALL.map(Self::name).join(", ")),
            },
        }
    }
}

impl From<Method> for String {
    fn from(method: Method) -> Self {
        method.name().to_owned()
    }
}

impl TryFrom<String> for Method {
    type Error = Unknown;

    fn try_from(text: String) -> Result<Self, Unknown> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_method_has_a_name_of_its_own_and_none_the_products() {
        let names: BTreeSet<&str> = Method::ALL.map(Method::name).into();
        assert_eq!(names.len(), Method::ALL.len());
        assert!(!names.contains("steadyvm"));
        for method in Method::ALL {
            assert_eq!(method.name().parse(), Ok(method));
            for former in method.row().formerly {
                let error = former.parse::<Method>().unwrap_err();
                assert_eq!(error.fix, format!("it is called {method}"));
            }
        }
        let error = "rt-socket".parse::<Method>().unwrap_err().to_string();
        assert!(error.contains("outsourcing"), "{error}");
    }

    /// What a host is checked for is what its settings and its guests take.
    #[test]
    fn needs_follow_from_what_is_set() {
        for method in Method::ALL {
            let row = method.row();
            for (need, is_needed) in [
                (Need::Kvm, true),
                (Need::PreemptRt, row.switches.needs_preempt_rt()),
                (Need::Levels, row.switches.levels),
                (Need::TwoCpus, row.switches.dedicated),
                (Need::IsolatedCpus, row.switches.tuned),
                (Need::Iommu, row.guests == Guests::Passthrough),
            ] {
                assert_eq!(method.needs(need), is_needed, "{method}: {need:?}");
            }
            let kernel = row.kernel.row();
            assert!(kernel.is_preempt_rt || !method.needs(Need::PreemptRt));
            assert!(kernel.has_levels || !method.needs(Need::Levels));
        }
    }

    #[test]
    fn what_is_set_on_the_host_alone_has_a_name_there() {
        let names: Vec<&str> = Method::of_hosts().map(Method::name).collect();
        assert_eq!(
            names,
            [
                "vanilla",
                "preempt-rt",
                "dedicated",
                "rt-poll-list",
                "rt-profile",
                "stock-profile",
                "rt-levels",
                "tuned"
            ]
        );
        for name in names {
            assert_eq!(Method::of_host_named(name).unwrap().name(), name);
        }
        for (name, on_a_host) in [
            ("outsourcing", "rt-poll-list"),
            ("levels-off", "preempt-rt"),
        ] {
            let error = Method::of_host_named(name).unwrap_err();
            assert_eq!(error.fix, format!("on a host it is {on_a_host}: use that"));
        }
    }

    #[test]
    fn a_method_that_sets_a_cpu_aside_says_so() {
        for method in Method::ALL {
            let takes_a_cpu = ["dedicated", "tuned"].contains(&method.name());
            let price = method.row().price;
            assert_eq!(price.cpus_set_aside, u32::from(takes_a_cpu), "{method}");
            assert_eq!(price.cpus_are_shared, !takes_a_cpu, "{method}");
        }
    }

    #[test]
    fn json_has_the_name() {
        let json = serde_json::to_string(&Method::ProfileSockets).unwrap();
        assert_eq!(json, "\"profile-sockets\"");
        assert_eq!(
            serde_json::from_str::<Method>(&json).unwrap(),
            Method::ProfileSockets
        );
        let error = serde_json::from_str::<Method>("\"no-patch\"").unwrap_err();
        assert!(error.to_string().contains("profile-sockets"), "{error}");
    }
}
