//! The hosts' kernels on the command line.

use clap::ValueEnum;
use steadyvm_experiment::compare::ComparedMethod;
use steadyvm_host::Method;
use steadyvm_lab::laboratory::HostKernel;
use steadyvm_lab::{Error, Result};

/// A kernel that a host can run.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Kernel {
    /// Debian's 6.12 with PREEMPT_RT, unmodified.
    #[value(alias = "6.12-rt")]
    PreemptRt,
    /// Ours: that with levels of the receive path (kernel/patches/6.12).
    RtLevels,
    /// The same with lockdep, KASAN and their kin: slow, not built by `prepare`.
    RtLevelsDebug,
    /// The same without PREEMPT_RT.
    LevelsDebug,
    /// Debian's 6.12, unmodified.
    #[value(alias = "6.12")]
    Vanilla,
    /// Debian 13's newest from its backports, unmodified.
    #[value(name = "7.3")]
    Newest,
    /// The same with PREEMPT_RT.
    #[value(name = "7.3-rt")]
    NewestRt,
    /// Ours: the same series, with kernel/patches/7.3.
    #[value(name = "7.3-rt-patched")]
    NewestRtPatched,
}

impl From<Kernel> for HostKernel {
    fn from(kernel: Kernel) -> Self {
        match kernel {
            Kernel::PreemptRt => Self::PreemptRt,
            Kernel::RtLevels => Self::RtLevels,
            Kernel::RtLevelsDebug => Self::RtLevelsDebug,
            Kernel::LevelsDebug => Self::LevelsDebug,
            Kernel::Vanilla => Self::Distribution,
            Kernel::Newest => Self::Newest,
            Kernel::NewestRt => Self::NewestRt,
            Kernel::NewestRtPatched => Self::NewestRtPatched,
        }
    }
}

/// Which kernels the hosts of a measurement run.
#[derive(Debug, clap::Args)]
pub struct InsteadArgs {
    /// Boot every method's host with this kernel instead of the method's own, such as one that checks
    /// itself, or one with levels for a method that does not use them.
    #[arg(long = "kernel", value_enum)]
    kernel: Option<Kernel>,
}

impl InsteadArgs {
    /// The kernel that was asked for.
    pub fn kernel(&self) -> Option<HostKernel> {
        self.kernel.map(HostKernel::from)
    }

    /// The kernels that a measurement needs of methods, each with its own kernel.
    ///
    /// # Errors
    /// The kernel that was asked for lacks what a method needs.
    pub fn wanted(
        &self,
        methods: impl IntoIterator<Item = (Method, HostKernel)>,
    ) -> Result<Vec<HostKernel>> {
        HostKernel::of_all(methods, self.kernel())
    }

    /// The same of compared methods.
    ///
    /// # Errors
    /// That, or a method whose own kernel was asked for by name beside one for all.
    pub fn wanted_by(&self, methods: &[ComparedMethod]) -> Result<Vec<HostKernel>> {
        let named = methods.iter().find(|method| method.kernel_is_named);
        if let (Some(method), Some(kernel)) = (named, self.kernel()) {
            let what = format!("boot {method}'s host with --kernel {}", kernel.name());
            return Err(Error::input(what, "the method names another kernel")
                .what_to_do("leave out --kernel, or what follows the @"));
        }
        self.wanted(methods.iter().map(|method| (method.host, method.kernel)))
    }
}
