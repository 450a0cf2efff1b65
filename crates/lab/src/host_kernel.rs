//! The kernels that hosts run, by name.

use crate::artifact::{Flavour, KernelPackage, NEWEST_SERIES};
use crate::host::BOOT_PATIENCE;
use crate::{Error, Result};
use std::time::Duration;
use steadyvm_host::Method;

/// How long a host may take to come up whose kernel checks itself.
pub(crate) const DEBUG_BOOT_PATIENCE: Duration = Duration::from_secs(600);

/// Where a kernel comes from.
pub(crate) enum Origin {
    Package(KernelPackage),
    Built(Flavour),
}

/// Which kernel a host runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostKernel {
    /// The distribution's, unmodified.
    Distribution,
    /// The distribution's with PREEMPT_RT, unmodified.
    PreemptRt,
    /// The distribution's newest, unmodified.
    Newest,
    /// The same with PREEMPT_RT.
    NewestRt,
    /// Ours, of the same series with PREEMPT_RT, and mended (`kernel/patches/7.3`).
    NewestRtPatched,
    /// Ours, with PREEMPT_RT and levels of the receive path.
    RtLevels,
    /// `RtLevels` that checks itself, too slow to measure with.
    RtLevelsDebug,
    /// The same without PREEMPT_RT; guests can run it too.
    LevelsDebug,
}

impl HostKernel {
    /// Those that methods need.
    pub const OF_METHODS: [Self; 3] = [Self::Distribution, Self::PreemptRt, Self::RtLevels];

    /// Every one.
    pub const ALL: [Self; 8] = [
        Self::Distribution,
        Self::PreemptRt,
        Self::Newest,
        Self::NewestRt,
        Self::NewestRtPatched,
        Self::RtLevels,
        Self::RtLevelsDebug,
        Self::LevelsDebug,
    ];

    /// Where it comes from.
    pub(crate) fn origin(self) -> Origin {
        let newest = |preempt_rt| KernelPackage {
            series: NEWEST_SERIES,
            preempt_rt,
            backported: true,
            with_headers: false,
        };
        match self {
            Self::Distribution => Origin::Package(KernelPackage::STANDARD),
            Self::PreemptRt => Origin::Package(KernelPackage {
                preempt_rt: true,
                with_headers: false,
                ..KernelPackage::STANDARD
            }),
            Self::Newest => Origin::Package(newest(false)),
            Self::NewestRt => Origin::Package(newest(true)),
            Self::NewestRtPatched => Origin::Built(Flavour::Newest),
            Self::RtLevels => Origin::Built(Flavour::Levels),
            Self::RtLevelsDebug => Origin::Built(Flavour::LevelsDebug),
            Self::LevelsDebug => Origin::Built(Flavour::PreemptDebug),
        }
    }

    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Distribution => "vanilla",
            Self::PreemptRt => "preempt-rt",
            Self::Newest => "7.3",
            Self::NewestRt => "7.3-rt",
            Self::NewestRtPatched => "7.3-rt-patched",
            Self::RtLevels => "rt-levels",
            Self::RtLevelsDebug => "rt-levels-debug",
            Self::LevelsDebug => "levels-debug",
        }
    }

    /// The name that says which release it is, where the distribution made it.
    pub fn release_name(self) -> &'static str {
        match self {
            Self::Distribution => "6.12",
            Self::PreemptRt => "6.12-rt",
            other => other.name(),
        }
    }

    /// The kernel of a name, of either kind.
    pub fn named(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|kernel| [kernel.name(), kernel.release_name()].contains(&name))
    }

    /// How long a host with it may take to come up.
    pub(crate) fn boot_patience(self) -> Duration {
        match self {
            Self::RtLevelsDebug | Self::LevelsDebug => DEBUG_BOOT_PATIENCE,
            _ => BOOT_PATIENCE,
        }
    }

    /// The kernel that a method's host runs.
    pub const fn of(method: Method) -> Self {
        match method {
            Method::Vanilla => Self::Distribution,
            Method::PreemptRt | Method::Dedicated | Method::RtProfile | Method::Tuned => {
                Self::PreemptRt
            }
            Method::RtPollList | Method::RtLevels => Self::RtLevels,
        }
    }

    /// The kernels of several methods' hosts: each one's own, which is given with it, or `instead` for
    /// all of them.
    ///
    /// # Errors
    /// One of the methods needs what `instead` lacks.
    pub fn of_all(
        methods: impl IntoIterator<Item = (Method, Self)>,
        instead: Option<Self>,
    ) -> Result<Vec<Self>> {
        let of = |(method, own)| match instead {
            None => Ok(own),
            Some(kernel) => kernel.require_for(method).map(|()| kernel),
        };
        methods.into_iter().map(of).collect()
    }

    pub(crate) fn is_preempt_rt(self) -> bool {
        match self {
            Self::Distribution | Self::Newest | Self::LevelsDebug => false,
            Self::PreemptRt
            | Self::NewestRt
            | Self::NewestRtPatched
            | Self::RtLevels
            | Self::RtLevelsDebug => true,
        }
    }

    fn has_levels(self) -> bool {
        match self {
            Self::Distribution
            | Self::PreemptRt
            | Self::Newest
            | Self::NewestRt
            | Self::NewestRtPatched => false,
            Self::RtLevels | Self::RtLevelsDebug | Self::LevelsDebug => true,
        }
    }

    /// Refuses a method that cannot be in force on this kernel.
    ///
    /// # Errors
    /// What it lacks.
    pub fn require_for(self, method: Method) -> Result<()> {
        let why = if method != Method::Vanilla && !self.is_preempt_rt() {
            "it has no PREEMPT_RT"
        } else if method.has_levels() && !self.has_levels() {
            "it has no levels of the receive path"
        } else {
            return Ok(());
        };
        let what = format!("boot {method}'s host with the kernel {}", self.name());
        Err(Error::input(what, why).what_to_do(format!(
            "leave the method out, or use the kernel {} (--kernel, or METHOD@KERNEL)",
            Self::of(method).name()
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Blame;

    #[test]
    fn a_kernel_takes_the_place_of_methods_that_it_has_all_for() {
        use HostKernel::{Distribution, LevelsDebug, PreemptRt, RtLevels, RtLevelsDebug};
        use Method::{Dedicated, RtPollList, RtProfile, Vanilla};
        let with_own = |method| (method, HostKernel::of(method));
        let all = |kernel| HostKernel::of_all(Method::ALL.map(with_own), Some(kernel));
        for kernel in [RtLevels, RtLevelsDebug] {
            assert_eq!(all(kernel).unwrap(), [kernel; Method::ALL.len()]);
        }
        for (kernel, method, lacks) in [
            (PreemptRt, RtPollList, "levels"),
            (LevelsDebug, RtPollList, "PREEMPT_RT"),
            (LevelsDebug, Dedicated, "PREEMPT_RT"),
            (Distribution, RtProfile, "PREEMPT_RT"),
        ] {
            let error = HostKernel::of_all([Vanilla, method].map(with_own), Some(kernel));
            let error = error.unwrap_err();
            assert_eq!(error.blame, Blame::Input);
            assert!(error.why.contains(lacks), "{error}");
            assert!(error.what.contains(method.name()), "{error}");
        }
    }

    #[test]
    fn each_method_has_its_own_kernel_otherwise() {
        let with_own = |method| (method, HostKernel::of(method));
        let kernels = HostKernel::of_all(Method::ALL.map(with_own), None).unwrap();
        for (kernel, method) in kernels.into_iter().zip(Method::ALL) {
            assert_eq!(kernel, HostKernel::of(method));
            HostKernel::of_all([with_own(method)], Some(kernel)).unwrap();
        }
    }
}
