//! The hosts' kernels on the command line.

use clap::builder::{PossibleValue, StyledStr, TypedValueParser};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use steadyvm_experiment::testbed::ComparedMethod;
use steadyvm_lab::laboratory::{HostKernel, of_all};
use steadyvm_lab::{Error, Result};
use steadyvm_methods::Method;

/// Reads a kernel's name; help and completions list the names.
#[derive(Debug, Clone)]
pub struct KernelParser;

fn possible_values() -> impl Iterator<Item = PossibleValue> {
    let kernels = HostKernel::ALL.into_iter().map(HostKernel::row);
    kernels.map(|row| PossibleValue::new(row.name).help(row.help))
}

impl TypedValueParser for KernelParser {
    type Value = HostKernel;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        word: &OsStr,
    ) -> std::result::Result<HostKernel, clap::Error> {
        let found = word.to_string_lossy().parse::<HostKernel>();
        found.map_err(|unknown| {
            // Its error has all names.
            let names = clap::builder::PossibleValuesParser::new(possible_values());
            let mut error = match names.parse_ref(command, argument, word) {
                Err(error) => error,
                Ok(_) => clap::Error::new(clap::error::ErrorKind::InvalidValue),
            };
            tell(&mut error, &unknown.to_string());
            error
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(possible_values()))
    }
}

/// Adds a tip.
fn tell(error: &mut clap::Error, tip: &str) {
    let mut tips = match error.remove(ContextKind::Suggested) {
        Some(ContextValue::StyledStrs(tips)) => tips,
        _ => Vec::new(),
    };
    tips.push(StyledStr::from(tip.to_owned()));
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
}

/// The kernel of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelOrImage {
    /// One that the lab knows.
    Known(HostKernel),
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
        let known = word.to_str().and_then(|name| name.parse().ok());
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
        let known = KernelParser.parse_ref(command, argument, word);
        known.map(KernelOrImage::Known).map_err(|mut error| {
            tell(
                &mut error,
                "a kernel image of your own is given by its path, such as ./bzImage",
            );
            error
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        KernelParser.possible_values()
    }
}

/// Which kernels the hosts of a measurement run.
#[derive(Debug, clap::Args)]
pub struct InsteadArgs {
    /// Boot every method's host with this kernel instead of the method's own, for example a debug kernel (lockdep, KASAN).
    #[arg(long = "kernel", value_parser = KernelParser)]
    kernel: Option<HostKernel>,
}

impl InsteadArgs {
    /// The kernel that was asked for.
    pub fn kernel(&self) -> Option<HostKernel> {
        self.kernel
    }

    /// The kernels that a measurement needs of methods, each with its own kernel.
    ///
    /// # Errors
    /// The kernel that was asked for lacks what a method needs.
    pub fn wanted(
        &self,
        methods: impl IntoIterator<Item = (Method, HostKernel)>,
    ) -> Result<Vec<HostKernel>> {
        of_all(methods, self.kernel())
    }

    /// The same of compared methods.
    ///
    /// # Errors
    /// That, or a method whose own kernel was asked for by name beside one for all.
    pub fn wanted_by(&self, methods: &[ComparedMethod]) -> Result<Vec<HostKernel>> {
        let named = methods.iter().find(|method| method.kernel_is_named);
        if let (Some(method), Some(kernel)) = (named, self.kernel()) {
            let what = format!("boot {method}'s host with --kernel {kernel}");
            return Err(Error::input(what, "the method names another kernel")
                .what_to_do("leave out --kernel, or what follows the @"));
        }
        self.wanted(methods.iter().map(|method| (method.method, method.kernel)))
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
            for (name, kernel) in [("6.12-rt", HostKernel::V6_12Rt), ("7.3", HostKernel::V7_3)] {
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
