//! The hosts' kernels on the command line.

use clap::builder::{PossibleValue, StyledStr, TypedValueParser};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command, ValueEnum};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use steadyvm_experiment::testbed::ComparedMethod;
use steadyvm_host::Method;
use steadyvm_lab::laboratory::HostKernel;
use steadyvm_lab::{Error, Result};

/// A kernel that a host can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kernel {
    /// Debian's 6.12 with PREEMPT_RT, unmodified.
    #[value(alias = "6.12-rt")]
    PreemptRt,
    /// steadyvm's 6.12 with PREEMPT_RT and levels of the receive path.
    RtLevels,
    /// The same as a debug kernel (lockdep, KASAN): slow, built on first use.
    RtLevelsDebug,
    /// The debug kernel without PREEMPT_RT.
    LevelsDebug,
    /// Debian's 6.12, unmodified.
    #[value(alias = "6.12")]
    Vanilla,
    /// Debian's 7.3 of the backports to 13, unmodified.
    #[value(name = "7.3")]
    Newest,
    /// Debian's 7.3 with PREEMPT_RT, unmodified.
    #[value(name = "7.3-rt")]
    NewestRt,
    /// steadyvm's 7.3 with PREEMPT_RT and its fixes.
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

/// The kernel of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelOrImage {
    /// One that the lab knows.
    Known(Kernel),
    /// The path of a user's kernel image.
    Image(PathBuf),
}

impl KernelOrImage {
    /// What a word on the command line means: a path has a slash, or else is a file's name and no kernel's.
    fn of_word(word: &OsStr, is_file: impl FnOnce(&Path) -> bool) -> Option<Self> {
        let path = Path::new(word);
        let image = || Self::Image(path.to_owned());
        if word.as_encoded_bytes().contains(&b'/') {
            return Some(image());
        }
        let known = word
            .to_str()
            .and_then(|name| Kernel::from_str(name, false).ok());
        known.map(Self::Known).or_else(|| is_file(path).then(image))
    }
}

/// Reads a [`KernelOrImage`]; help and completions list the names.
#[derive(Debug, Clone)]
pub struct KernelOrImageParser;

impl TypedValueParser for KernelOrImageParser {
    type Value = KernelOrImage;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        word: &OsStr,
    ) -> std::result::Result<KernelOrImage, clap::Error> {
        if let Some(kernel) = KernelOrImage::of_word(word, Path::is_file) {
            return Ok(kernel);
        }
        // Its error has all names.
        let names = clap::builder::EnumValueParser::<Kernel>::new();
        let known = names.parse_ref(command, argument, word);
        known.map(KernelOrImage::Known).map_err(|mut error| {
            let tip = "a kernel image of your own is given by its path, such as ./bzImage";
            let tips = vec![StyledStr::from(tip)];
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
            error
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let kernels = Kernel::value_variants().iter();
        Some(Box::new(kernels.filter_map(Kernel::to_possible_value)))
    }
}

/// Which kernels the hosts of a measurement run.
#[derive(Debug, clap::Args)]
pub struct InsteadArgs {
    /// Boot every method's host with this kernel instead of the method's own, for example a debug kernel (lockdep, KASAN).
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_a_kernels_name_or_else_a_path() {
        let meant = |word: &str, is_file| KernelOrImage::of_word(OsStr::new(word), |_| is_file);
        let image = |path: &str| Some(KernelOrImage::Image(PathBuf::from(path)));
        for is_file in [true, false] {
            for (name, kernel) in [("6.12-rt", Kernel::PreemptRt), ("7.3", Kernel::Newest)] {
                assert_eq!(meant(name, is_file), Some(KernelOrImage::Known(kernel)));
            }
            for path in ["./bzImage", "/boot/vmlinuz", "./7.3", "nowhere/"] {
                assert_eq!(meant(path, is_file), image(path));
            }
        }
        for word in ["bzImage", "6.13", "7.3-RT"] {
            assert_eq!(meant(word, true), image(word));
            assert_eq!(meant(word, false), None);
        }
        assert_eq!(meant("", false), None);
    }
}
