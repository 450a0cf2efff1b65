//! QEMU's command lines: of the emulated host, and of the guests inside it.

use crate::agent::PORT;
use serde::{Deserialize, Serialize};

/// How QEMU runs a machine's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Accelerator {
    /// The hardware's virtualisation.
    Kvm,
    /// Translation, on any machine; an AMD processor with SVM is emulated.
    Tcg,
}

impl std::fmt::Display for Accelerator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Kvm => "hardware KVM with nested virtualisation",
            Self::Tcg => "emulation (QEMU TCG)",
        })
    }
}

/// One network card of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// The tap device on the outside, created by QEMU in its own network namespace or, for a
    /// guest, made before.
    pub tap: String,
    /// Its hardware address. QEMU's default is the same in every machine.
    pub mac: String,
    /// The most bytes of this card that its tap holds; without a limit vhost hands the tap up to 64 packets
    /// at once, with one a packet at a time. Guests of QEMU only.
    #[serde(default)]
    pub send_buffer_bytes: Option<u32>,
    /// The host's PCI function that the guest has in place of a tap, by VFIO: "0000:01:10.0". Guests of
    /// QEMU only.
    #[serde(default)]
    pub function: Option<String>,
    /// Whether the tap is a macvtap, as libvirt's interfaces of type "direct" are. Guests of QEMU only.
    #[serde(default)]
    pub macvtap: bool,
}

/// What runs a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Monitor {
    /// QEMU.
    Qemu,
    /// `steadyvm up`.
    Steadyvm,
}

/// Outsourced sockets of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sockets {
    /// The host's network namespace in which they are.
    pub namespace: String,
    /// How long a virtual CPU that waits polls the namespace's card, in µs; 0: not at all. Guests of `steadyvm up` only.
    pub poll_us: u32,
}

/// What both kinds of machine have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name in messages and thread names.
    pub name: String,
    /// What runs it, if it is a guest: an emulated host is QEMU's.
    pub monitor: Monitor,
    /// A guest's outsourced sockets, if it has such.
    #[serde(default)]
    pub sockets: Option<Sockets>,
    /// The kernel image.
    pub kernel: String,
    /// The initramfs.
    pub initramfs: String,
    /// The block device or file with the user space.
    pub image: String,
    /// Words on the kernel's command line after the lab's own.
    pub kernel_words: String,
    /// How instructions run.
    pub accelerator: Accelerator,
    /// How long the threads of the lab's own emulator try to get its big lock before they sleep for it.
    /// `None`: they sleep at once, as those of any other emulator.
    #[serde(default)]
    pub lock_spin_us: Option<u32>,
    /// Number of virtual CPUs.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Whether a guest of QEMU is run as libvirt's documented real-time domain is:
    /// libvirt.org/kbase/kvm-realtime.html.
    #[serde(default)]
    pub real_time: bool,
    /// Whether an emulated host has an IOMMU.
    #[serde(default)]
    pub iommu: bool,
    /// Whether it has a disk that it may write, `/dev/vdb`. An emulated host's keeps nothing. A guest's is its host's.
    #[serde(default)]
    pub scratch: bool,
    /// Where the first serial port's output goes.
    pub console: String,
    /// Network cards.
    pub cards: Vec<Card>,
}

/// The kernel's words that every machine gets. A panic ends it at once instead of hanging. Its
/// TSC counts one clock for all CPUs, and on a loaded machine the kernel's checks of it and of
/// the timers against each other fail by chance.
const KERNEL_WORDS: &str = "console=ttyS0 panic=-1 quiet loglevel=4 tsc=reliable no_timer_check";

/// The size of a huge page; libvirt's example has those of 1 GiB.
pub(crate) const HUGE_PAGE_MIB: u32 = 2;

/// The disk that a machine may write.
pub const SCRATCH: &str = "/dev/vdb";
/// An emulated host's is a disk of 64 MiB that keeps nothing, so it loads no disk of this machine. It takes 100 us per request.
const SCRATCH_OF_HOST: &str = "if=virtio,format=raw,file.driver=null-co,file.size=64M,file.latency-ns=100000,file.read-zeroes=on";

impl Machine {
    /// QEMU's arguments for an emulated host: igb cards, one on each root port of its own,
    /// because an igb's virtual functions claim the devices beside it.
    pub fn host_arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        if self.iommu {
            // Before the devices that are behind it. It remaps interrupts, which VFIO asks for.
            let iommu = "intel-iommu,intremap=on,device-iotlb=on";
            push(&mut arguments, "-device", iommu.into());
        }
        arguments.extend(self.common_arguments());
        let chips = match (self.iommu, self.accelerator) {
            // KVM's own interrupt controller has no part that remaps.
            (true, Accelerator::Kvm) => ",kernel-irqchip=split",
            _ => "",
        };
        push(&mut arguments, "-M", format!("q35{chips}"));
        if self.scratch {
            push(&mut arguments, "-drive", SCRATCH_OF_HOST.into());
        }
        if self.accelerator == Accelerator::Tcg {
            // The emulator's main loop serves timers and cards in one thread and polls a descriptor for
            // each queue at every turn. Without these, the CPU that notifies a disk serves it by itself.
            for device in ["virtio-blk-pci", "virtio-serial-pci"] {
                push(&mut arguments, "-global", format!("{device}.ioeventfd=off"));
            }
        }
        for (index, card) in self.cards.iter().enumerate() {
            let Card { tap, mac, .. } = card;
            push(
                &mut arguments,
                "-netdev",
                format!("tap,id=net{index},ifname={tap},{NO_SCRIPTS}"),
            );
            let port = format!("pcie-root-port,id=port{index},chassis={index},bus=pcie.0");
            push(&mut arguments, "-device", port);
            push(
                &mut arguments,
                "-device",
                format!("igb,netdev=net{index},mac={mac},bus=port{index}"),
            );
        }
        arguments
    }

    /// QEMU's arguments for a guest: virtio-net cards over vhost-net, or functions of the host's.
    pub fn guest_arguments(&self) -> Vec<String> {
        let mut arguments = self.common_arguments();
        // Without the HPET the guest uses its CPUs' own timers, which KVM serves in the kernel.
        let memory = if self.real_time {
            // <nosharepages/>, and <hugepages/> of the size that an emulated host has room for.
            ",mem-merge=off,memory-backend=memory"
        } else {
            ""
        };
        push(&mut arguments, "-M", format!("q35,hpet=off{memory}"));
        if self.real_time {
            let pages = format!(
                "memory-backend-memfd,id=memory,size={}M,hugetlb=on,hugetlbsize={HUGE_PAGE_MIB}M,prealloc=on",
                self.memory_mib
            );
            push(&mut arguments, "-object", pages);
            // <locked/>
            push(&mut arguments, "-overcommit", "mem-lock=on".into());
        }
        if self.scratch {
            let drive = format!("file={SCRATCH},format=raw,if=virtio");
            push(&mut arguments, "-drive", drive);
        }
        for (index, card) in self.cards.iter().enumerate() {
            if let Some(function) = &card.function {
                push(
                    &mut arguments,
                    "-device",
                    format!("vfio-pci,host={function}"),
                );
                continue;
            }
            let Card { tap, mac, .. } = card;
            let limit = card.send_buffer_bytes;
            let limit = limit.map_or_else(String::new, |bytes| format!(",sndbuf={bytes}"));
            let device = if card.macvtap {
                // It has no name to open: whoever starts the monitor hands it the device.
                format!("fd={}", FIRST_HANDED + index as i32)
            } else {
                format!("ifname={tap},{NO_SCRIPTS}")
            };
            let netdev = format!("tap,id=net{index},{device},vhost=on{limit}");
            push(&mut arguments, "-netdev", netdev);
            push(
                &mut arguments,
                "-device",
                format!("virtio-net-pci,netdev=net{index},mac={mac}"),
            );
        }
        if self.sockets.is_some() {
            let door = door_of_sockets(&self.name);
            let vectors = self.cpus + 1;
            push(
                &mut arguments,
                "-chardev",
                format!("socket,id=sockets,path={door}"),
            );
            push(
                &mut arguments,
                "-device",
                format!("ivshmem-doorbell,chardev=sockets,vectors={vectors}"),
            );
        }
        arguments
    }

    /// The kernel's command line.
    pub fn command_line(&self) -> String {
        let words = format!("{KERNEL_WORDS} {}", self.kernel_words);
        words.trim().to_owned()
    }

    /// What runs its instructions, and which processor it is.
    fn processor_arguments(&self) -> [String; 4] {
        let (accelerator, processor) = match self.accelerator {
            // KVM of a PREEMPT_RT kernel starts only where the TSC is promised to be constant.
            // <pmu state="off"/> is of real-time domains.
            Accelerator::Kvm if self.real_time => {
                ("kvm".to_owned(), "host,migratable=off,+invtsc,pmu=off")
            }
            Accelerator::Kvm => ("kvm".to_owned(), "host,migratable=off,+invtsc"),
            // Without fast string moves, kernels and C libraries copy by words: the emulation does
            // `rep movsb` byte by byte.
            Accelerator::Tcg => {
                let spin = self.lock_spin_us;
                let spin = spin.map_or_else(String::new, |us| format!(",lock-spin-us={us}"));
                (
                    format!("tcg,thread=multi{spin}"),
                    "max,-erms,-fsrm,migratable=off,+invtsc",
                )
            }
        };
        ["-accel", &accelerator, "-cpu", processor].map(str::to_owned)
    }

    fn common_arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> = "-nodefaults -no-user-config -no-reboot -display none -S"
            .split(' ')
            .map(str::to_owned)
            .chain(self.processor_arguments())
            .collect();
        push(
            &mut arguments,
            "-name",
            format!("{},debug-threads=on", self.name),
        );
        push(&mut arguments, "-smp", self.cpus.to_string());
        push(&mut arguments, "-m", format!("{}M", self.memory_mib));
        push(&mut arguments, "-serial", format!("file:{}", self.console));
        push(&mut arguments, "-kernel", self.kernel.clone());
        push(&mut arguments, "-initrd", self.initramfs.clone());
        push(&mut arguments, "-append", self.command_line());
        push(
            &mut arguments,
            "-drive",
            format!("file={},format=raw,if=virtio,readonly=on", self.image),
        );
        // Port 0 is for consoles. QEMU's default is 31 ports with two queues each, all of them polled.
        let serial = "virtio-serial-pci,max_ports=2";
        push(&mut arguments, "-device", serial.into());
        push(
            &mut arguments,
            "-device",
            format!("virtserialport,chardev=agent,name={PORT}"),
        );
        arguments
    }
}

/// Where a host keeps what belongs to its guests.
pub const RUN_DIRECTORY: &str = "/run/steadyvm/guests";

/// Where a guest's QEMU reaches the server of its sockets.
pub(crate) fn door_of_sockets(name: &str) -> String {
    format!("{RUN_DIRECTORY}/{name}.sockets")
}

/// The descriptor by which a guest's monitor gets the macvtap of its first card; those of others follow. No monitor has as many
/// open as it begins.
pub(crate) const FIRST_HANDED: i32 = 200;

/// QEMU would run scripts to configure a tap; whoever starts it does that.
const NO_SCRIPTS: &str = "script=no,downscript=no";

fn push(arguments: &mut Vec<String>, option: &str, value: String) {
    arguments.push(option.to_owned());
    arguments.push(value);
}

/// The arguments that hand QEMU the control channel and its monitor as open descriptors.
pub fn channel_arguments(agent: i32, monitor: i32) -> Vec<String> {
    let mut arguments = Vec::new();
    push(
        &mut arguments,
        "-chardev",
        format!("socket,id=agent,fd={agent}"),
    );
    push(
        &mut arguments,
        "-chardev",
        format!("socket,id=monitor,fd={monitor}"),
    );
    push(
        &mut arguments,
        "-mon",
        "chardev=monitor,mode=control".into(),
    );
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laboratory::guest;

    #[test]
    fn a_real_time_domain_has_what_libvirts_page_has() {
        let plain = guest("rt", 1, 2);
        let real_time = Machine {
            real_time: true,
            ..plain.clone()
        };
        let text = |machine: &Machine| machine.guest_arguments().join(" ");
        for part in [
            ",pmu=off ",
            ",mem-merge=off,memory-backend=memory ",
            "hugetlb=on,hugetlbsize=2M,prealloc=on",
            "-overcommit mem-lock=on",
        ] {
            assert!(
                text(&real_time).contains(part),
                "{part}: {}",
                text(&real_time)
            );
            assert!(!text(&plain).contains(part), "{part}");
        }
    }

    #[test]
    fn a_macvtap_is_handed_and_a_tap_is_named() {
        let plain = guest("rt", 1, 2);
        let mut direct = plain.clone();
        direct.cards[0].macvtap = true;
        let text = |machine: &Machine| machine.guest_arguments().join(" ");
        assert!(text(&direct).contains("tap,id=net0,fd=200,vhost=on"));
        assert!(!text(&direct).contains("ifname="));
        assert!(text(&plain).contains("tap,id=net0,ifname=tap-rt,script=no"));
    }
}
