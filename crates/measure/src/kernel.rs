//! The kernel that runs: what rows of a measurement ask of it.

use steadyvm_host::{Machine, Switches};

/// A kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// As `uname -r` prints it.
    pub release: String,
    /// Whether it is fully preemptible.
    pub is_preempt_rt: bool,
    /// Whether its receive path has levels.
    pub has_levels: bool,
}

impl Kernel {
    /// The one that runs.
    pub fn of(machine: &Machine) -> Self {
        Self {
            release: machine.kernel_release().unwrap_or_default(),
            is_preempt_rt: machine.preempt_rt().0,
            has_levels: machine.has_levels(),
        }
    }

    /// Release and flavour, as the lab calls kernels: 6.12, 6.12-rt, 6.12-rt-patched.
    pub fn name(&self) -> String {
        let mut numbers = self.release.split(|letter: char| !letter.is_ascii_digit());
        let series: Vec<&str> = numbers.by_ref().take(2).collect();
        let flavours = [("-rt", self.is_preempt_rt), ("-patched", self.has_levels)];
        let flavours = flavours.into_iter().filter(|(_, is_so)| *is_so);
        let flavours: String = flavours.map(|(flavour, _)| flavour).collect();
        series.join(".") + &flavours
    }

    /// Whether a user means it by this word.
    pub fn is_called(&self, word: &str) -> bool {
        word == self.release || word == self.name()
    }

    /// What it lacks for a method.
    pub fn lacks(&self, method: Switches) -> Option<&'static str> {
        match method {
            _ if method.needs_preempt_rt() && !self.is_preempt_rt => Some("PREEMPT_RT"),
            _ if method.levels && !self.has_levels => Some("levels of the receive path"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(release: &str, is_preempt_rt: bool, has_levels: bool) -> Kernel {
        Kernel {
            release: release.to_owned(),
            is_preempt_rt,
            has_levels,
        }
    }

    #[test]
    fn a_kernel_is_called_by_release_and_flavour() {
        let stock = kernel("6.12.48+deb13-amd64", false, false);
        let rt = kernel("6.12.48+deb13-rt-amd64", true, false);
        let names = [&stock, &rt, &kernel("6.12.48", true, true)].map(Kernel::name);
        assert_eq!(names, ["6.12", "6.12-rt", "6.12-rt-patched"]);
        assert!(stock.is_called("6.12") && stock.is_called("6.12.48+deb13-amd64"));
        assert!(!rt.is_called("6.12") && !rt.is_called("6.12.48"));
        assert_eq!(kernel("", false, false).name(), "");
    }

    #[test]
    fn what_a_method_lacks_is_named_by_what_it_sets() {
        let method = |text: &str| text.parse::<Switches>().unwrap();
        let stock = kernel("6.12.1", false, false);
        assert_eq!(stock.lacks(method("vanilla")), None);
        assert_eq!(stock.lacks(method("rt-profile")), Some("PREEMPT_RT"));
        assert_eq!(stock.lacks(method("rt+profile+any-kernel")), None);
        let rt = kernel("6.12.1", true, false);
        assert_eq!(rt.lacks(method("rt-profile")), None);
        assert!(rt.lacks(method("rt-levels")).unwrap().contains("levels"));
        assert_eq!(
            kernel("6.12.1", true, true).lacks(method("rt-levels")),
            None
        );
    }
}
