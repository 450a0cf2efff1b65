//! The kernels that hosts of the lab run, called by release and flavour.

use crate::Unknown;

/// What the table says of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
// Each is a fact of its own.
#[allow(clippy::struct_excessive_bools)]
pub struct KernelRow {
    /// Its release, and what sets it apart from Debian's own of that release.
    pub name: &'static str,
    /// Names that it had; they are told what it is called.
    pub formerly: &'static [&'static str],
    /// The release that Debian packages.
    pub series: &'static str,
    /// Whether Debian has it among the backports to its stable release.
    pub is_backported: bool,
    /// How it is made of Debian's source; `None`: it is Debian's own, unmodified.
    pub built: Option<Build>,
    /// Whether it is fully preemptible.
    pub is_preempt_rt: bool,
    /// Whether its receive path has levels (`kernel/patches/6.12`).
    pub has_levels: bool,
    /// Whether it checks itself (lockdep, KASAN), and so is too slow to measure with.
    pub checks_itself: bool,
    /// What it is, for people.
    pub help: &'static str,
}

/// How a kernel is built, with the patches of its series in `kernel/patches`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Build {
    /// Files of `kernel` with the options that it must have; a later one's go before.
    pub options: &'static [&'static str],
    /// Whether modules are built for it, as guests that run it need.
    pub has_headers: bool,
    /// What is special about it, in results.
    pub kind: &'static str,
}

impl KernelRow {
    /// Debian's 6.12.
    const DEBIAN: Self = Self {
        name: "6.12",
        formerly: &[],
        series: "6.12",
        is_backported: false,
        built: None,
        is_preempt_rt: false,
        has_levels: false,
        checks_itself: false,
        help: "Debian's 6.12, unmodified",
    };
    /// Debian's 7.3.
    const DEBIAN_7_3: Self = Self {
        name: "7.3",
        series: "7.3",
        is_backported: true,
        help: "Debian's 7.3 of the backports to 13, unmodified",
        ..Self::DEBIAN
    };
    /// Ours of 6.12.
    const PATCHED: Self = Self {
        name: "6.12-rt-patched",
        formerly: &["rt-levels"],
        built: Some(Build {
            options: &["config"],
            has_headers: false,
            kind: "PREEMPT_RT, levels",
        }),
        is_preempt_rt: true,
        has_levels: true,
        help: "steadyvm's 6.12 with PREEMPT_RT and levels of the receive path",
        ..Self::DEBIAN
    };
}

table! {
    /// A kernel that a host can run.
    HostKernel of KernelRow {
        /// Debian's, unmodified. Guests run it, too.
        V6_12: KernelRow {
            formerly: &["vanilla"],
            ..KernelRow::DEBIAN
        },
        /// The same with PREEMPT_RT.
        V6_12Rt: KernelRow {
            name: "6.12-rt",
            formerly: &["preempt-rt"],
            is_preempt_rt: true,
            help: "Debian's 6.12 with PREEMPT_RT, unmodified",
            ..KernelRow::DEBIAN
        },
        /// Ours, with PREEMPT_RT and levels of the receive path.
        V6_12RtPatched: KernelRow::PATCHED,
        /// The same, checking itself.
        V6_12RtPatchedDebug: KernelRow {
            name: "6.12-rt-patched-debug",
            formerly: &["rt-levels-debug"],
            built: Some(Build {
                options: &["config", "config-debug"],
                has_headers: false,
                kind: "PREEMPT_RT, levels, lockdep, KASAN",
            }),
            checks_itself: true,
            help: "the same as a debug kernel (lockdep, KASAN): slow, built on first use",
            ..KernelRow::PATCHED
        },
        /// That without PREEMPT_RT; guests can run it, too.
        V6_12PatchedDebug: KernelRow {
            name: "6.12-patched-debug",
            formerly: &["levels-debug"],
            built: Some(Build {
                options: &["config", "config-debug", "config-preempt"],
                has_headers: true,
                kind: "PREEMPT, levels, lockdep, KASAN",
            }),
            is_preempt_rt: false,
            checks_itself: true,
            help: "the debug kernel without PREEMPT_RT",
            ..KernelRow::PATCHED
        },
        /// Debian's newest, unmodified.
        V7_3: KernelRow::DEBIAN_7_3,
        /// The same with PREEMPT_RT.
        V7_3Rt: KernelRow {
            name: "7.3-rt",
            is_preempt_rt: true,
            help: "Debian's 7.3 with PREEMPT_RT, unmodified",
            ..KernelRow::DEBIAN_7_3
        },
        /// Ours of the newest, mended (`kernel/patches/7.3`).
        V7_3RtPatched: KernelRow {
            name: "7.3-rt-patched",
            is_preempt_rt: true,
            built: Some(Build {
                options: &["config", "config-7.3"],
                has_headers: false,
                kind: "PREEMPT_RT, patched",
            }),
            help: "steadyvm's 7.3 with PREEMPT_RT and its fixes",
            ..KernelRow::DEBIAN_7_3
        },
    }
}

impl HostKernel {
    /// The kernel of guests.
    pub const OF_GUESTS: Self = Self::V6_12;

    pub(crate) fn unknown(text: &str) -> Unknown {
        let renamed = Self::ALL
            .into_iter()
            .find(|it| it.row().formerly.contains(&text));
        Unknown {
            what: format!("unknown kernel `{text}`"),
            fix: match renamed {
                Some(kernel) => format!("it is called {kernel}"),
                None => format!("use one of: {}", Self::ALL.map(Self::name).join(", ")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn kernels_are_called_by_release_and_never_like_methods() {
        let names: BTreeSet<&str> = HostKernel::ALL.map(HostKernel::name).into();
        assert_eq!(names.len(), HostKernel::ALL.len());
        for kernel in HostKernel::ALL {
            assert!(kernel.name().starts_with(kernel.row().series), "{kernel}");
            assert_eq!(kernel.name().parse(), Ok(kernel));
            assert!(kernel.name().parse::<crate::Method>().is_err(), "{kernel}");
        }
    }

    #[test]
    fn a_name_that_a_kernel_had_is_told_the_new_one() {
        for (former, name) in [
            ("vanilla", "6.12"),
            ("preempt-rt", "6.12-rt"),
            ("rt-levels", "6.12-rt-patched"),
            ("rt-levels-debug", "6.12-rt-patched-debug"),
            ("levels-debug", "6.12-patched-debug"),
        ] {
            let error = former.parse::<HostKernel>().unwrap_err();
            assert_eq!(error.fix, format!("it is called {name}"));
        }
        let error = "6.1".parse::<HostKernel>().unwrap_err().to_string();
        assert!(error.contains("7.3-rt-patched"), "{error}");
    }
}
