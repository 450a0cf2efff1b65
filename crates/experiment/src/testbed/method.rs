//! What is compared: what is set on the host, and how the guests are run.

use super::guests::Guests;
use std::fmt;
use std::str::FromStr;
use steadyvm_comparison::Service;
use steadyvm_host::net::tuned;
use steadyvm_host::{CpuSet, Method};
use steadyvm_lab::host::HostSpecification;
use steadyvm_lab::laboratory::{HUGE_PAGES_OF_A_GUEST, HostKernel, Laboratory};
use steadyvm_lab::{Error, Result};

/// A method of a comparison. The host's part is a method of `crates/host`, the only writer of host
/// state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComparedMethod {
    /// The name on the command line and in results.
    pub name: &'static str,
    /// What is set on the host.
    pub host: Method,
    /// More options for `steadyvm apply --method`.
    pub host_options: &'static [&'static str],
    /// The host's kernel.
    pub kernel: HostKernel,
    /// Whether the kernel was asked for by name, as in `preempt-rt@7.3-rt`.
    pub kernel_is_named: bool,
    /// How the guests are run, all of them alike.
    pub guests: Guests,
}

/// The host's CPU that a method sets aside for the latency-critical VM, and the others.
const SET_ASIDE: usize = 1;
const OTHERS: usize = 0;

/// Every method of the host with QEMU's guests, the peers' as they have them, then those with guests of
/// `steadyvm up`, then what levels cost that nobody uses.
const ALL: [ComparedMethod; Method::ALL.len() + 9] = {
    let [a, b, c, d, e, f, tuned] = Method::ALL;
    [
        with_qemu(a),
        with_qemu(b),
        with_qemu(c),
        with_qemu(d),
        with_qemu(e),
        with_qemu(f),
        ComparedMethod {
            guests: Guests::RealTime,
            ..with_qemu(tuned)
        },
        ComparedMethod {
            name: "vf",
            guests: Guests::Passthrough,
            host_options: &["--keep-vfio"],
            ..with_qemu(Method::PreemptRt)
        },
        ComparedMethod {
            name: "vf-ranked",
            guests: Guests::Passthrough,
            ..with_qemu(Method::PreemptRt)
        },
        ComparedMethod {
            name: "preempt-rt-vmm",
            guests: Guests::Steadyvm,
            ..with_qemu(Method::PreemptRt)
        },
        ComparedMethod {
            name: "rt-sockets",
            guests: Guests::Outsourced,
            ..with_qemu(Method::PreemptRt)
        },
        ComparedMethod {
            name: "no-patch",
            guests: Guests::Outsourced,
            ..with_qemu(Method::RtProfile)
        },
        ComparedMethod {
            name: "rt-process",
            guests: Guests::OutsourcedBulk,
            ..with_qemu(Method::PreemptRt)
        },
        ComparedMethod {
            name: "outsourcing",
            guests: Guests::Outsourced,
            ..with_qemu(Method::RtPollList)
        },
        ComparedMethod {
            name: "steadyvm",
            guests: Guests::Outsourced,
            ..with_qemu(Method::RtLevels)
        },
        ComparedMethod {
            name: "levels-off",
            kernel: HostKernel::RtLevels,
            ..with_qemu(Method::PreemptRt)
        },
    ]
};

const fn with_qemu(host: Method) -> ComparedMethod {
    ComparedMethod {
        name: host.name(),
        host,
        host_options: &[],
        kernel: HostKernel::of(host),
        kernel_is_named: false,
        guests: Guests::Qemu,
    }
}

impl ComparedMethod {
    /// Refuses a method that is about guests where there are none.
    pub(crate) fn check(self, service: Service) -> Result<()> {
        if self.guests == Guests::Qemu || service == Service::Vm {
            return Ok(());
        }
        let why = "it differs in how guests are run, and with this --service there are none";
        let what_to_do = match self.guests {
            Guests::RealTime => "use --service vm".to_owned(),
            _ => format!("use --service vm, or the method {}", self.host),
        };
        Err(Error::input(format!("compare method {self}"), why).what_to_do(what_to_do))
    }

    /// Its host, whose processors share the CPU `on_cpu` of this machine while it boots.
    ///
    /// # Errors
    /// The laboratory was opened without its kernel.
    pub fn specification(
        self,
        laboratory: &Laboratory,
        on_cpu: usize,
    ) -> Result<HostSpecification> {
        let kernel = laboratory.in_place_of(self.kernel);
        let host = laboratory.host(&self.to_string(), kernel)?;
        Ok(HostSpecification {
            boot_on_cpu: Some(on_cpu),
            kernel_words: format!("{} {}", host.kernel_words, self.kernel_words()),
            iommu: self.guests == Guests::Passthrough,
            ..host
        })
    }

    /// Whether it is what others use in steadyvm's place.
    pub fn is_peer(self) -> bool {
        matches!(self.guests, Guests::RealTime | Guests::Passthrough)
    }

    /// The words for the command line of its host's kernel.
    pub fn kernel_words(self) -> String {
        match self.guests {
            Guests::RealTime => {
                let words =
                    tuned::command_line(&CpuSet::single(SET_ASIDE), &CpuSet::single(OTHERS));
                format!("{words} hugepages={HUGE_PAGES_OF_A_GUEST}")
            }
            Guests::Passthrough => "intel_iommu=on iommu=pt".to_owned(),
            _ => String::new(),
        }
    }

    /// What readers of its figures must know.
    pub fn note(self) -> Option<String> {
        let why = match self.guests {
            Guests::Steadyvm => {
                "its guests' cards are virtio-mmio, with two exits an interrupt that QEMU's, on PCI \
                 with MSI-X, do not have"
            }
            Guests::OutsourcedBulk => {
                "its latency-critical service is in no VM: what remains of rt-sockets where a VM \
                 costs nothing"
            }
            Guests::RealTime => {
                "a peer: tuned's realtime-virtual-host and libvirt's real-time domain; what of them \
                 is left out is in docs/guide/methods.md"
            }
            Guests::Passthrough => {
                "a peer: its card is a virtual function of the host's by VFIO, which takes such a card \
                 and, for the host, the sight of the VM's packets"
            }
            Guests::Qemu | Guests::Outsourced => return None,
        };
        Some(format!("{self}: {why}"))
    }
}

impl fmt::Display for ComparedMethod {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kernel_is_named {
            formatter.pad(&format!("{}@{}", self.name, self.kernel.release_name()))
        } else {
            formatter.pad(self.name)
        }
    }
}

impl FromStr for ComparedMethod {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (name, kernel) = match text.split_once('@') {
            Some((name, kernel)) => (name, Some(kernel)),
            None => (text, None),
        };
        let found = ALL.into_iter().find(|method| method.name == name);
        let method = found.ok_or_else(|| {
            let names = ALL.map(|method| method.name).join(", ");
            format!("unknown method `{name}`: use one of: {names}")
        })?;
        let Some(kernel) = kernel else {
            return Ok(method);
        };
        let found = HostKernel::named(kernel).ok_or_else(|| {
            let names = HostKernel::ALL.map(HostKernel::release_name).join(", ");
            format!("unknown kernel `{kernel}`: use one of: {names}")
        })?;
        found
            .require_for(method.host)
            .map_err(|error| error.to_string())?;
        Ok(Self {
            kernel: found,
            kernel_is_named: true,
            ..method
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_method_has_a_name_of_its_own() {
        for method in ALL {
            assert_eq!(method.name.parse::<ComparedMethod>(), Ok(method));
        }
        let names: BTreeSet<&str> = ALL.iter().map(|method| method.name).collect();
        assert_eq!(names.len(), ALL.len());
        let unknown = "rt-socket".parse::<ComparedMethod>().unwrap_err();
        assert!(unknown.contains("outsourcing"), "{unknown}");
    }

    #[test]
    fn a_method_runs_on_a_kernel_of_ones_choice() {
        let method: ComparedMethod = "no-patch@7.3-rt".parse().unwrap();
        assert_eq!(method.kernel, HostKernel::NewestRt);
        assert_eq!(method.to_string(), "no-patch@7.3-rt");
        let own: ComparedMethod = "preempt-rt@6.12-rt".parse().unwrap();
        assert_eq!(
            own.kernel,
            "preempt-rt".parse::<ComparedMethod>().unwrap().kernel
        );
        let of_lab: ComparedMethod = "preempt-rt@preempt-rt".parse().unwrap();
        assert_eq!(of_lab, own);
        for (wrong, said) in [
            ("preempt-rt@6.1", "7.3-rt"),
            ("preempt-rt@7.3", "no PREEMPT_RT"),
            ("rt-levels@7.3-rt", "no levels"),
            ("nothing@7.3-rt", "unknown method `nothing`"),
        ] {
            let error = wrong.parse::<ComparedMethod>().unwrap_err();
            assert!(error.contains(said), "{wrong}: {error}");
        }
    }

    /// Control rows differ from what they control in one thing.
    #[test]
    fn methods_are_composed_of_host_and_guests() {
        let parse = |name: &str| name.parse::<ComparedMethod>().unwrap();
        let [base, control, sockets] = ["preempt-rt", "preempt-rt-vmm", "rt-sockets"].map(parse);
        assert!(base.host == control.host && control.host == sockets.host);
        assert_eq!(
            [base, control, sockets].map(|method| method.guests),
            [Guests::Qemu, Guests::Steadyvm, Guests::Outsourced]
        );
        let bound = parse("rt-process");
        assert_eq!(bound.host, sockets.host);
        let both = parse("outsourcing");
        assert_eq!(both.guests, sockets.guests);
        let levels = parse("rt-poll-list");
        assert_eq!(both.kernel, levels.kernel);
        let all = parse("steadyvm");
        assert_eq!((all.guests, all.kernel), (both.guests, both.kernel));
        assert_eq!(all.host, parse("rt-levels").host);
        let off = parse("levels-off");
        assert_eq!((off.host, off.kernel), (base.host, levels.kernel));
        // The peers run on the distribution's kernel, and ours needs no word on its command line.
        let tuned = parse("tuned");
        assert_eq!(
            (tuned.guests, tuned.kernel),
            (Guests::RealTime, base.kernel)
        );
        let [function, ranked] = ["vf", "vf-ranked"].map(parse);
        assert_eq!((function.host, function.kernel), (base.host, base.kernel));
        assert_eq!(
            ComparedMethod {
                name: ranked.name,
                host_options: &[],
                ..function
            },
            ranked
        );
        for method in ALL {
            let is_peer = [tuned, function, ranked].contains(&method);
            assert_eq!(method.kernel_words().is_empty(), !is_peer, "{method}");
            assert_eq!(method.is_peer(), is_peer, "{method}");
        }
    }

    #[test]
    fn a_method_that_sets_a_cpu_aside_says_so() {
        let parse = |name: &str| name.parse::<ComparedMethod>().unwrap();
        for method in ALL {
            let takes_a_cpu = ["dedicated", "tuned"].contains(&method.name);
            let price = method.price();
            assert_eq!(price.cpus_set_aside, u32::from(takes_a_cpu), "{method}");
            assert_eq!(price.cpus_are_shared, !takes_a_cpu, "{method}");
        }
        let words = parse("tuned").kernel_words();
        for part in [
            "isolcpus=managed_irq,domain,1 ",
            "irqaffinity=0 ",
            "hugepages=",
        ] {
            assert!(words.contains(part), "{words}");
        }
    }

    #[test]
    fn methods_about_guests_need_guests() {
        for method in ALL {
            assert!(method.check(Service::Vm).is_ok());
            let alone = method.check(Service::Host).is_ok();
            assert_eq!(alone, method.guests == Guests::Qemu, "{method}");
        }
    }
}
