//! What is compared: what is set on the host, and how the guests are run.

use std::fmt;
use std::str::FromStr;
use steadyvm_comparison::Service;
use steadyvm_host::CpuSet;
use steadyvm_host::profile::tuned;
use steadyvm_lab::host::HostSpecification;
use steadyvm_lab::laboratory::{HUGE_PAGES_OF_A_GUEST, HostKernel, Laboratory, require_for};
use steadyvm_lab::{Error, Result};
use steadyvm_methods::{Guests, Method, MethodRow, Unknown};

/// A method of a comparison, and the kernel of its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComparedMethod {
    /// What is set on the host, and how its guests are run.
    pub method: Method,
    /// The host's kernel.
    pub kernel: HostKernel,
    /// Whether the kernel was asked for by name, as in `preempt-rt@7.3-rt`.
    pub kernel_is_named: bool,
}

/// The host's CPU that a method sets aside for the latency-critical VM, and the others.
const SET_ASIDE: usize = 1;
const OTHERS: usize = 0;

impl From<Method> for ComparedMethod {
    fn from(method: Method) -> Self {
        Self {
            method,
            kernel: method.row().kernel,
            kernel_is_named: false,
        }
    }
}

impl ComparedMethod {
    /// What the table of methods says of it.
    pub fn row(self) -> &'static MethodRow {
        self.method.row()
    }

    /// The options of `steadyvm apply` that are its own.
    pub fn options(self) -> impl Iterator<Item = String> {
        self.row().options.iter().map(ToString::to_string)
    }

    /// Refuses a method that is about guests where there are none.
    pub(crate) fn check(self, service: Service) -> Result<()> {
        if self.row().guests == Guests::Qemu || service == Service::Vm {
            return Ok(());
        }
        let why = "it differs in how guests are run, and with this --service there are none";
        let what_to_do = match self.row().guests {
            Guests::RealTime => "use --service vm".to_owned(),
            _ => format!("use --service vm, or the method {}", self.row().switches),
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
            iommu: self.row().guests == Guests::Passthrough,
            ..host
        })
    }

    /// The words for the command line of its host's kernel.
    pub fn kernel_words(self) -> String {
        match self.row().guests {
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
        let why = self.row().guests.note()?;
        Some(format!("{self}: {why}"))
    }
}

impl fmt::Display for ComparedMethod {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kernel_is_named {
            formatter.pad(&format!("{}@{}", self.method, self.kernel))
        } else {
            self.method.fmt(formatter)
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
        let unknown = |error: Unknown| error.to_string();
        let method: Method = name.parse().map_err(unknown)?;
        let Some(kernel) = kernel else {
            return Ok(method.into());
        };
        let kernel: HostKernel = kernel.parse().map_err(unknown)?;
        require_for(kernel, method).map_err(|error| error.to_string())?;
        Ok(Self {
            method,
            kernel,
            kernel_is_named: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = ComparedMethod> {
        Method::ALL.into_iter().map(ComparedMethod::from)
    }

    #[test]
    fn a_name_is_read_as_it_is_written() {
        for method in all() {
            assert_eq!(method.to_string().parse(), Ok(method));
        }
        let renamed = "steadyvm@7.3".parse::<ComparedMethod>().unwrap_err();
        assert!(renamed.contains("levels-sockets"), "{renamed}");
    }

    #[test]
    fn a_method_runs_on_a_kernel_of_ones_choice() {
        let method: ComparedMethod = "profile-sockets@7.3-rt".parse().unwrap();
        assert_eq!(method.kernel, HostKernel::V7_3Rt);
        assert_eq!(method.to_string(), "profile-sockets@7.3-rt");
        let own: ComparedMethod = "preempt-rt@6.12-rt".parse().unwrap();
        let kernel = ComparedMethod::from(Method::PreemptRt).kernel;
        assert_eq!(own.kernel, kernel);
        for (wrong, said) in [
            ("preempt-rt@preempt-rt", "it is called 6.12-rt"),
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
        let row = Method::row;
        let [base, control, sockets] =
            [Method::PreemptRt, Method::PreemptRtVmm, Method::RtSockets].map(row);
        assert!(base.switches == control.switches && control.switches == sockets.switches);
        assert_eq!(
            [base, control, sockets].map(|method| method.guests),
            [Guests::Qemu, Guests::Steadyvm, Guests::Outsourced]
        );
        assert_eq!(row(Method::RtProcess).switches, sockets.switches);
        let both = row(Method::Outsourcing);
        assert_eq!(both.guests, sockets.guests);
        let levels = row(Method::RtPollList);
        assert_eq!(both.kernel, levels.kernel);
        let all_of_it = row(Method::LevelsSockets);
        assert_eq!(
            (all_of_it.guests, all_of_it.kernel),
            (both.guests, both.kernel)
        );
        assert_eq!(all_of_it.switches, row(Method::RtLevels).switches);
        let off = row(Method::LevelsOff);
        assert_eq!((off.switches, off.kernel), (base.switches, levels.kernel));
        // The peers run on the distribution's kernel, and ours needs no word on its command line.
        let tuned = row(Method::Tuned);
        assert_eq!(
            (tuned.guests, tuned.kernel),
            (Guests::RealTime, base.kernel)
        );
        let [function, ranked] = [Method::Vf, Method::VfRanked].map(row);
        assert_eq!(
            (function.switches, function.kernel),
            (base.switches, base.kernel)
        );
        let differing = MethodRow {
            name: ranked.name,
            sets: ranked.sets,
            options: &[],
            ..*function
        };
        assert_eq!(differing, *ranked);
        for method in all() {
            let is_peer = [Method::Tuned, Method::Vf, Method::VfRanked].contains(&method.method);
            assert_eq!(method.kernel_words().is_empty(), !is_peer, "{method}");
            assert_eq!(method.row().role.is_peer(), is_peer, "{method}");
        }
    }

    #[test]
    fn a_host_is_booted_with_what_tuned_needs() {
        let words = ComparedMethod::from(Method::Tuned).kernel_words();
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
        for method in all() {
            assert!(method.check(Service::Vm).is_ok());
            let alone = method.check(Service::Host).is_ok();
            assert_eq!(alone, method.row().guests == Guests::Qemu, "{method}");
        }
    }
}
