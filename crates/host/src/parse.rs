//! Parsers of kernel text. They never panic: what makes no sense is left out or refused.

/// `PF_KTHREAD`: a kernel thread.
pub const PF_KTHREAD: u64 = 0x0020_0000;
/// `PF_EXITING`: it is on its way out.
pub const PF_EXITING: u64 = 0x4;
/// `PF_SIGNALED`: a signal has killed it.
pub const PF_SIGNALED: u64 = 0x400;
/// `PF_USER_WORKER`: a thread of a user's process that the kernel has started and that runs none of
/// its code: of vhost since 6.4, of `io_uring`, of KVM.
pub const PF_USER_WORKER: u64 = 0x4000;
/// `PF_IO_WORKER`: one of `io_uring`.
pub const PF_IO_WORKER: u64 = 0x10;
/// `PF_NO_SETAFFINITY`: user space may not change the affinity.
pub const PF_NO_SETAFFINITY: u64 = 0x0400_0000;

/// The fields of `/proc/<pid>/stat` that this crate needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// The thread's number.
    pub tid: u32,
    /// Its name.
    pub comm: String,
    /// The state letter.
    pub state: char,
    /// The parent process.
    pub parent: u32,
    /// `PF_` flags.
    pub flags: u64,
    /// When it started, in clock ticks after boot.
    pub start_time: u64,
    /// CPU time so far, its program's and the kernel's, in clock ticks.
    pub cpu_ticks: u64,
}

/// Reads a stat line. The name may contain spaces and parentheses: it ends at the last `)`.
pub fn stat(line: &str) -> Option<Stat> {
    let open = line.find('(')?;
    let close = line.rfind(')')?;
    let tid = line.get(..open)?.trim().parse().ok()?;
    let comm = line.get(open + 1..close)?.to_owned();
    // Field 3 (state) is the first after the name.
    let fields: Vec<&str> = line.get(close + 1..)?.split_ascii_whitespace().collect();
    Some(Stat {
        tid,
        comm,
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        flags: fields.get(6)?.parse().ok()?,
        start_time: fields.get(19)?.parse().ok()?,
        cpu_ticks: {
            let ticks = |field: usize| fields.get(field)?.parse::<u64>().ok();
            ticks(11)?.saturating_add(ticks(12)?)
        },
    })
}

/// `/proc/PID/task/TID/schedstat`: Documentation/scheduler/sched-stats.rst.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SchedStat {
    /// Time on a CPU.
    pub ran_ns: u64,
    /// Time that it waited for one.
    pub waited_ns: u64,
    /// How often it began to run.
    pub times: u64,
}

impl SchedStat {
    /// Reads the file's text; `None` if it is cut, or if the kernel does not count.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace().map(str::parse);
        let mut next = || words.next()?.ok();
        let found = Self {
            ran_ns: next()?,
            waited_ns: next()?,
            times: next()?,
        };
        (found != Self::default()).then_some(found)
    }
}

/// Whether a thread's `/proc/<pid>/task/<tid>/status` has a SIGKILL that it has not taken yet.
pub fn is_killed(status: &str) -> bool {
    const MASK: u64 = 1 << (libc::SIGKILL - 1);
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    let pending = pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    pending.is_some_and(|pending| pending & MASK != 0)
}

/// A line of `/proc/interrupts` with a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interrupt {
    /// The interrupt's number.
    pub irq: u32,
    /// The names of its actions, as drivers gave them; empty if nobody asked for it.
    pub actions: Vec<String>,
}

/// Reads `/proc/interrupts`. Lines without a number (NMI, LOC) are left out.
pub fn interrupts(text: &str) -> Vec<Interrupt> {
    let mut lines = text.lines();
    let cpus = lines.next().map_or(0, |header| {
        header
            .split_ascii_whitespace()
            .filter(|word| word.starts_with("CPU"))
            .count()
    });
    lines
        .filter_map(|line| {
            let (number, rest) = line.split_once(':')?;
            let irq = number.trim().parse().ok()?;
            let words: Vec<&str> = rest.split_ascii_whitespace().skip(cpus).collect();
            Some(Interrupt {
                irq,
                actions: actions(&words),
            })
        })
        .collect()
}

/// The action names after the chip's columns: chip, then the hardware number with the trigger
/// (`524288-edge`, or the two apart), then the names separated by commas.
fn actions(words: &[&str]) -> Vec<String> {
    let is_trigger = |word: &str| {
        let word = word.to_ascii_lowercase();
        ["edge", "level", "fasteoi"]
            .iter()
            .any(|end| word == *end || word.ends_with(&format!("-{end}")))
    };
    let start = match words.iter().position(|word| is_trigger(word)) {
        Some(place) => place + 1,
        None => 2,
    };
    words
        .get(start..)
        .unwrap_or_default()
        .join(" ")
        .split(", ")
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}

/// The interrupt number of an IRQ thread's name (`irq/30-eth0-TxRx-0`).
pub fn irq_of_thread(comm: &str) -> Option<u32> {
    comm.strip_prefix("irq/")?.split_once('-')?.0.parse().ok()
}

/// The VCPU number of a VCPU thread's name: QEMU and libvirt (`CPU 1/KVM`), Firecracker
/// (`fc_vcpu 1`), Cloud Hypervisor (`vcpu1`), crosvm (`crosvm_vcpu1`), `steadyvm up` (`vcpu1/NAME`).
pub fn vcpu_of_thread(comm: &str) -> Option<u32> {
    if let Some(rest) = comm.strip_prefix("CPU ") {
        return rest.strip_suffix("/KVM")?.parse().ok();
    }
    let role = comm.split('/').next()?;
    ["fc_vcpu ", "vcpu", "crosvm_vcpu"]
        .iter()
        .find_map(|prefix| role.strip_prefix(prefix)?.parse().ok())
}

/// Major and minor number of a kernel release (`6.12.95+deb13-rt-amd64`).
pub fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.trim().split('.');
    let major = parts.next()?.parse().ok()?;
    let digits: String = parts
        .next()?
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    Some((major, digits.parse().ok()?))
}

/// Seconds of `/proc/uptime` as clock ticks of 10 ms, the unit of start times: the kernel's
/// `USER_HZ` is 100 on every architecture that runs KVM.
pub fn uptime_ticks(text: &str) -> Option<u64> {
    let (seconds, hundredths) = text.split_ascii_whitespace().next()?.split_once('.')?;
    let hundredths = hundredths.get(..2)?.parse::<u64>().ok()?;
    seconds
        .parse::<u64>()
        .ok()?
        .checked_mul(100)?
        .checked_add(hundredths)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_kill_that_was_not_taken_yet_is_pending() {
        assert!(is_killed(
            "Name:\tCPU 0/KVM\nSigPnd:\t0000000000000100\nShdPnd:\t0\n"
        ));
        for text in [
            "",
            "SigPnd:",
            "SigPnd:\tx\n",
            "SigPnd:\t0000000000004000\nShdPnd:\t0\n",
        ] {
            assert!(!is_killed(text), "{text}");
        }
    }

    #[test]
    fn a_name_with_parentheses_and_spaces() {
        let line = "42 (a) b (c)) S 2 0 0 0 -1 69238848 0 0 0 0 3 4 0 0 20 0 1 0 777 0 0";
        let stat = stat(line).unwrap();
        assert_eq!(stat.cpu_ticks, 7);
        assert_eq!(stat.comm, "a) b (c)");
        assert_eq!(
            (stat.tid, stat.parent, stat.start_time, stat.state),
            (42, 2, 777, 'S')
        );
        assert_eq!(stat.flags & PF_KTHREAD, PF_KTHREAD);
    }

    #[test]
    fn interrupts_of_several_chips() {
        let text = "           CPU0       CPU1
  1:          0          9  IO-APIC   1-edge      i8042
 16:          0          0  IO-APIC  16-fasteoi   ehci_hcd:usb1, i801_smbus
 30:          1          2  PCI-MSIX-0000:01:00.0    1-edge      eth0-TxRx-0
 31:          1          2   PCI-MSI 524289-edge      virtio2-input.0
 40:          1          2  GICv3  25 Level     vgic
NMI:          0          0   Non-maskable interrupts
ERR:          0
";
        let read = interrupts(text);
        let names: Vec<(u32, String)> = read
            .iter()
            .map(|one| (one.irq, one.actions.join("+")))
            .collect();
        assert_eq!(
            names,
            [
                (1, "i8042".into()),
                (16, "ehci_hcd:usb1+i801_smbus".into()),
                (30, "eth0-TxRx-0".into()),
                (31, "virtio2-input.0".into()),
                (40, "vgic".into()),
            ]
        );
    }

    #[test]
    fn thread_names() {
        assert_eq!(irq_of_thread("irq/30-eth0-TxR"), Some(30));
        assert_eq!(irq_of_thread("irq/30-s-eth0"), Some(30));
        assert_eq!(irq_of_thread("irq_work/0"), None);
        assert_eq!(vcpu_of_thread("CPU 1/KVM"), Some(1));
        assert_eq!(vcpu_of_thread("CPU 1/TCG"), None);
        assert_eq!(vcpu_of_thread("fc_vcpu 3"), Some(3));
        assert_eq!(vcpu_of_thread("vcpu0"), Some(0));
        assert_eq!(vcpu_of_thread("vcpu1/echo"), Some(1));
        assert_eq!(vcpu_of_thread("vcpu_worker"), None);
    }

    #[test]
    fn versions_and_uptime() {
        assert_eq!(kernel_version("6.12.95+deb13-rt-amd64\n"), Some((6, 12)));
        assert_eq!(kernel_version("6.18-rc1"), Some((6, 18)));
        assert_eq!(kernel_version("linux"), None);
        assert_eq!(uptime_ticks("12.34 20.00\n"), Some(1234));
        assert_eq!(uptime_ticks("12"), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*", lines in "[ ()0-9a-zA-Z:,/.\n-]{0,200}") {
            for input in [&text, &lines] {
                let _ = stat(input);
                let _ = interrupts(input);
                let _ = irq_of_thread(input);
                let _ = vcpu_of_thread(input);
                let _ = kernel_version(input);
                let _ = uptime_ticks(input);
            }
        }

        #[test]
        fn every_name_comes_back(comm in "[ -~]{0,15}", tid in 1_u32.., start in any::<u64>()) {
            let line = format!(
                "{tid} ({comm}) R 1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0"
            );
            let stat = stat(&line).unwrap();
            prop_assert_eq!((stat.tid, stat.comm, stat.start_time), (tid, comm, start));
        }
    }
}
