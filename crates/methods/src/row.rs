//! What the table of methods says of each.

use crate::{HostKernel, Switches};

/// What the table says of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MethodRow {
    /// The name on the command line, in files and in results.
    pub name: &'static str,
    /// Names that it had; they are told what it is called.
    pub formerly: &'static [&'static str],
    /// What is set on the host.
    pub switches: Switches,
    /// More options for `steadyvm apply`.
    pub options: &'static [&'static str],
    /// The kernel of its hosts in the lab.
    pub kernel: HostKernel,
    /// What a machine must have for it.
    pub needs: &'static [Need],
    /// How guests are run, all of them alike.
    pub guests: Guests,
    /// What whoever runs it gives up.
    pub price: Price,
    /// What it is in a comparison.
    pub role: Role,
    /// What it sets, for people.
    pub sets: &'static str,
}

/// What a method is in a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// One of ours, or the host as it is.
    Own,
    /// The papers' mechanism in the kernel that they patched, to measure by. Hosts have better without a patch.
    Reproduction,
    /// What others use in steadyvm's place.
    Peer,
    /// It shows something of the others, which this says.
    Control(&'static str),
}

impl Role {
    /// Whether others use it in steadyvm's place.
    pub const fn is_peer(self) -> bool {
        matches!(self, Self::Peer)
    }

    /// Whether it is the papers' mechanism.
    pub const fn is_reproduction(self) -> bool {
        matches!(self, Self::Reproduction)
    }

    /// Whether it shows something of the others.
    pub const fn is_control(self) -> bool {
        matches!(self, Self::Control(_))
    }
}

/// What a machine must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// /dev/kvm.
    Kvm,
    /// A kernel with PREEMPT_RT.
    PreemptRt,
    /// A processor whose clock does not change its pace.
    ConstantClock,
    /// A network card with interrupts of its own.
    Cards,
    /// A kernel with levels of the receive path.
    Levels,
    /// A second CPU.
    TwoCpus,
    /// CPUs that the kernel was booted without.
    IsolatedCpus,
    /// An IOMMU in use, and a card with virtual functions.
    Iommu,
}

/// How guests are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guests {
    /// By QEMU, with virtio-net over vhost-net.
    Qemu,
    /// By `steadyvm up`, with virtio-net over vhost-net.
    Steadyvm,
    /// By `steadyvm up`, with outsourced sockets, each guest's in a network namespace of its own.
    Outsourced,
    /// So, and virtual CPUs that wait poll the cards, whose queues their VMs have for themselves.
    OutsourcedPolling,
    /// By QEMU, with outsourced sockets that `steadyvm sockets serve` serves.
    OutsourcedQemu,
    /// So without polls, but the latency-critical service has no guest: it is a process of the host in the
    /// namespace that its guest's sockets would be in.
    OutsourcedBulk,
    /// By QEMU, the latency-critical one as libvirt's documented real-time domain is.
    RealTime,
    /// By QEMU, the latency-critical one with a virtual function of the host's card by VFIO.
    Passthrough,
}

/// What a method takes away from the host's other tenants and from its operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    /// CPUs that nothing but the latency-critical VM may use, however little it does.
    pub cpus_set_aside: u32,
    /// Whether VMs may share the latency-critical VM's CPUs, so that VCPUs can be more than CPUs.
    pub cpus_are_shared: bool,
    /// Whether its memory may be shared or swapped: neither locked nor pinned for a device.
    pub memory_is_shared: bool,
    /// Whether its monitor can move it to another host while it runs.
    pub migrates: bool,
}

impl Price {
    /// It takes nothing.
    pub const NOTHING: Self = Self {
        cpus_set_aside: 0,
        cpus_are_shared: true,
        memory_is_shared: true,
        migrates: true,
    };
    /// A CPU.
    pub const A_CPU: Self = Self {
        cpus_set_aside: 1,
        cpus_are_shared: false,
        ..Self::NOTHING
    };
    /// `steadyvm up` has no migration.
    pub const MIGRATION: Self = Self {
        migrates: false,
        ..Self::NOTHING
    };
}

impl Guests {
    /// Who runs them and with what, in a table.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Qemu => "QEMU",
            Self::Steadyvm => "steadyvm up, virtio-net",
            Self::Outsourced => "steadyvm up, outsourced sockets",
            Self::OutsourcedPolling => "steadyvm up, sockets that poll",
            Self::OutsourcedQemu => "QEMU, outsourced sockets",
            Self::OutsourcedBulk => "none: the service is a process",
            Self::RealTime => "QEMU, libvirt's real-time domain",
            Self::Passthrough => "QEMU, a virtual function (VFIO)",
        }
    }

    /// What readers of figures must know.
    pub const fn note(self) -> Option<&'static str> {
        match self {
            Self::Steadyvm => Some(
                "its guests' cards are virtio-mmio, with two exits an interrupt that QEMU's, on PCI \
                 with MSI-X, do not have",
            ),
            Self::OutsourcedBulk => Some(
                "its latency-critical service is in no VM: what remains of rt-sockets where a VM \
                 costs nothing",
            ),
            Self::RealTime => Some(
                "a peer: tuned's realtime-virtual-host and libvirt's real-time domain; what of them \
                 is left out is in docs/guide/methods.md",
            ),
            Self::Passthrough => Some(
                "a peer: its card is a virtual function of the host's by VFIO, which takes such a card \
                 and, for the host, the sight of the VM's packets",
            ),
            Self::Qemu | Self::Outsourced | Self::OutsourcedPolling | Self::OutsourcedQemu => None,
        }
    }
}
