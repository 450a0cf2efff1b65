//! What the RT guest counts of its interrupts, and what KVM counts of the guest.

use super::exit_costs;
use std::collections::BTreeMap;
use steadyvm_comparison::{ExitCosts, GuestCounts};
use steadyvm_lab::agent::Connection;
use steadyvm_lab::{Error, Result};

/// Exits whose reason KVM counts (`arch/x86/kvm/x86.c`, `kvm_vcpu_stats_desc`): `io` and `mmio` went to
/// the monitor, `halt` is a VCPU that had nothing to do, `irq` the host's own interrupts.
const REASONS: [&str; 7] = [
    "io_exits",
    "mmio_exits",
    "halt_exits",
    "irq_exits",
    "irq_window_exits",
    "signal_exits",
    "hypercalls",
];

/// The counters of a running guest.
pub struct Counters {
    /// Where the guest runs.
    host: Connection,
    guest: Connection,
    /// The process of its monitor.
    monitor: i32,
}

/// What the guest's kernel has counted since it booted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Interrupts {
    network: u64,
    network_softirqs: u64,
    timer: u64,
}

/// Counts that have begun.
pub struct Counting {
    interrupts: Interrupts,
    kvm: BTreeMap<String, u64>,
}

impl Counters {
    pub fn new(host: Connection, guest: Connection, monitor: i32) -> Self {
        Self {
            host,
            guest,
            monitor,
        }
    }

    /// Begins to count. The guest is asked first and, at the end, last: what asking it costs is not in
    /// KVM's counts.
    pub fn begin(&self) -> Result<Counting> {
        let interrupts = self.interrupts()?;
        let kvm = self.kvm()?;
        Ok(Counting { interrupts, kvm })
    }

    /// What was counted since, while this many requests were answered.
    pub fn end(&self, since: &Counting, requests: u64) -> Result<GuestCounts> {
        let now = self.kvm()?;
        let interrupts = self.interrupts()?;
        let counted = |name: &str| {
            let count = |kvm: &BTreeMap<String, u64>| kvm.get(name).copied().unwrap_or(0);
            count(&now).saturating_sub(count(&since.kvm))
        };
        let passed =
            |of: fn(&Interrupts) -> u64| of(&interrupts).saturating_sub(of(&since.interrupts));
        let named = REASONS.map(|reason| (reason.to_owned(), counted(reason)));
        Ok(GuestCounts {
            requests,
            network_interrupts: passed(|interrupts| interrupts.network),
            network_softirqs: passed(|interrupts| interrupts.network_softirqs),
            timer_interrupts: passed(|interrupts| interrupts.timer),
            injected_interrupts: counted("irq_injections"),
            exits: counted("exits"),
            exit_reasons: named.into_iter().collect(),
        })
    }

    /// Begins to trace what exits cost.
    pub fn begin_exits(&self) -> Result<()> {
        exit_costs::begin(&self.host, self.monitor)
    }

    /// What they cost since, while this many requests were answered; none if the trace has lost some.
    pub fn end_exits(&self, requests: u64) -> Result<Option<ExitCosts>> {
        exit_costs::end(&self.host, requests)
    }

    /// The guest's network devices are cards (virtio's number 1), outsourced sockets (0xffff), virtual functions, whose interrupts
    /// have the network device's name, and shared memory of outsourced sockets, whose interrupts have the driver's.
    fn interrupts(&self) -> Result<Interrupts> {
        let devices = "grep -lE '0x(0001|ffff)' /sys/bus/virtio/devices/*/device | cut -d / -f 6; \
                       ls /sys/bus/pci/drivers/igbvf/*/net 2> /dev/null; \
                       ls -d /sys/bus/pci/drivers/steadyvm_sockets/0*:* 2> /dev/null | cut -d / -f 6; echo; cat /proc/softirqs /proc/interrupts";
        let text = self.guest.text(&["sh", "-c", devices])?;
        Interrupts::parse(&text).ok_or_else(|| Error::machine("read the guest's counters", text))
    }

    fn kvm(&self) -> Result<BTreeMap<String, u64>> {
        let monitor = self.monitor;
        let names = REASONS.join(" ");
        let words =
            format!("cd /sys/kernel/debug/kvm/{monitor}-*; grep . exits irq_injections {names}");
        let text = self.host.text(&["sh", "-euc", &words])?;
        parse_kvm(&text).ok_or_else(|| Error::machine("read KVM's counters", text))
    }
}

impl Interrupts {
    /// Reads the network devices' names, an empty line, /proc/softirqs and /proc/interrupts. An
    /// interrupt is a device's if its last word is the device's name, alone or with a queue's.
    fn parse(text: &str) -> Option<Self> {
        let (devices, counters) = text.split_once("\n\n")?;
        let devices: Vec<&str> = devices.lines().collect();
        if devices.is_empty() {
            return None;
        }
        let of_network = |name: &str| {
            let mut owners = devices.iter();
            owners.any(|device| {
                let rest = name.strip_prefix(device);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            })
        };
        let mut found = Self::default();
        let mut titles = 0;
        for line in counters.lines() {
            let mut words = line.split_whitespace();
            let first = words.next().unwrap_or_default();
            let sum = words
                .clone()
                .map_while(|word| word.parse::<u64>().ok())
                .sum::<u64>();
            if first == "NET_RX:" || first == "NET_TX:" {
                found.network_softirqs += sum;
                titles += 1;
            } else if first == "LOC:" {
                found.timer = sum;
                titles += 1;
            } else if words.next_back().is_some_and(of_network) {
                found.network += sum;
            }
        }
        (titles == 3).then_some(found)
    }
}

/// Reads "NAME:COUNT" lines.
fn parse_kvm(text: &str) -> Option<BTreeMap<String, u64>> {
    let counts = text.lines().map(|line| {
        let (name, count) = line.split_once(':')?;
        Some((name.to_owned(), count.trim().parse().ok()?))
    });
    let counts: BTreeMap<String, u64> = counts.collect::<Option<_>>()?;
    counts.contains_key("exits").then_some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOFTIRQS: &str = "                    CPU0       CPU1\n\
                            \x20         HI:          1          0\n\
                            \x20     NET_TX:          2          3\n\
                            \x20     NET_RX:         10         20\n";
    const INTERRUPTS: &str = "           CPU0       CPU1\n\
                              \x20 4:         99          0   IO-APIC   4-edge      ttyS0\n\
                              \x20 6:          5          7   IO-APIC   6-edge      virtio1\n\
                              \x2026:         70          1  PCI-MSIX-0000:00:03.0   1-edge      virtio1-input.0\n\
                              \x2027:          9          9   IO-APIC   7-edge      virtio10\n\
                              LOC:       1000       2000   Local timer interrupts\n";

    #[test]
    fn the_networks_interrupts_and_softirqs_are_summed_over_cpus() {
        let text = format!("virtio1\nvirtio3\n\n{SOFTIRQS}{INTERRUPTS}");
        let expected = Interrupts {
            network: 83,
            network_softirqs: 35,
            timer: 3000,
        };
        assert_eq!(Interrupts::parse(&text), Some(expected));
        let of_memory =
            "30:          4          1  PCI-MSIX-0000:00:02.0   1-edge      steadyvm_sockets\n";
        let text = format!("steadyvm_sockets\n\n{SOFTIRQS}{of_memory}{INTERRUPTS}");
        let network = Interrupts::parse(&text).map(|it| it.network);
        assert_eq!(network, Some(5));
        for wrong in ["", "virtio1\n\n", "\n\nNET_RX: 1\nNET_TX: 1\nLOC: 1\n"] {
            assert_eq!(Interrupts::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn kvms_counters_are_read_by_name() {
        let counts = parse_kvm("exits:12\nhalt_exits:3\n").unwrap();
        assert_eq!((counts["exits"], counts["halt_exits"]), (12, 3));
        for wrong in ["", "halt_exits:3\n", "exits:many\n", "exits\n"] {
            assert_eq!(parse_kvm(wrong), None, "{wrong:?}");
        }
    }
}
