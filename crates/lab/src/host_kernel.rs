//! What the lab makes of the table of kernels: which one a method's host runs, and where it comes from.

use crate::artifact::KernelPackage;
use crate::host::BOOT_PATIENCE;
use crate::{Error, Result};
use std::time::Duration;
use steadyvm_methods::{HostKernel, Method, Need};

/// How long a host may take to come up whose kernel checks itself.
pub(crate) const DEBUG_BOOT_PATIENCE: Duration = Duration::from_secs(600);

/// Debian's package of a kernel, if it is Debian's own.
pub(crate) fn package(kernel: HostKernel) -> Option<KernelPackage> {
    let row = kernel.row();
    row.built.is_none().then_some(KernelPackage {
        series: row.series,
        preempt_rt: row.is_preempt_rt,
        backported: row.is_backported,
        with_headers: kernel == HostKernel::OF_GUESTS,
    })
}

/// How long a host with it may take to come up.
pub(crate) fn boot_patience(kernel: HostKernel) -> Duration {
    if kernel.row().checks_itself {
        DEBUG_BOOT_PATIENCE
    } else {
        BOOT_PATIENCE
    }
}

/// The kernels that methods run on by themselves.
pub fn of_methods() -> Vec<HostKernel> {
    let mut kernels: Vec<HostKernel> = Method::ALL.map(|method| method.row().kernel).into();
    kernels.sort();
    kernels.dedup();
    kernels
}

/// The kernels of several methods' hosts: each one's own, which is given with it, or `instead` for
/// all of them.
///
/// # Errors
/// One of the methods needs what `instead` lacks.
pub fn of_all(
    methods: impl IntoIterator<Item = (Method, HostKernel)>,
    instead: Option<HostKernel>,
) -> Result<Vec<HostKernel>> {
    let of = |(method, own)| match instead {
        None => Ok(own),
        Some(kernel) => require_for(kernel, method).map(|()| kernel),
    };
    methods.into_iter().map(of).collect()
}

/// Refuses a method that cannot be in force on this kernel.
///
/// # Errors
/// What it lacks.
pub fn require_for(kernel: HostKernel, method: Method) -> Result<()> {
    let row = kernel.row();
    let why = if method.needs(Need::PreemptRt) && !row.is_preempt_rt {
        "it has no PREEMPT_RT"
    } else if method.needs(Need::Levels) && !row.has_levels {
        "it has no levels of the receive path"
    } else {
        return Ok(());
    };
    let what = format!("boot {method}'s host with the kernel {kernel}");
    Err(Error::input(what, why).what_to_do(format!(
        "leave the method out, or use the kernel {} (--kernel, or METHOD@KERNEL)",
        method.row().kernel
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Blame;

    #[test]
    fn a_kernel_takes_the_place_of_methods_that_it_has_all_for() {
        use HostKernel::{V6_12, V6_12PatchedDebug, V6_12Rt, V6_12RtPatched, V6_12RtPatchedDebug};
        use Method::{Dedicated, RtPollList, RtProfile, Vanilla};
        let with_own = |method: Method| (method, method.row().kernel);
        let all = |kernel| of_all(Method::ALL.map(with_own), Some(kernel));
        for kernel in [V6_12RtPatched, V6_12RtPatchedDebug] {
            assert_eq!(all(kernel).unwrap(), [kernel; Method::ALL.len()]);
        }
        for (kernel, method, lacks) in [
            (V6_12Rt, RtPollList, "levels"),
            (V6_12PatchedDebug, RtPollList, "PREEMPT_RT"),
            (V6_12PatchedDebug, Dedicated, "PREEMPT_RT"),
            (V6_12, RtProfile, "PREEMPT_RT"),
        ] {
            let error = of_all([Vanilla, method].map(with_own), Some(kernel));
            let error = error.unwrap_err();
            assert_eq!(error.blame, Blame::Input);
            assert!(error.why.contains(lacks), "{error}");
            assert!(error.what.contains(method.name()), "{error}");
        }
    }

    #[test]
    fn each_method_has_its_own_kernel_otherwise() {
        let with_own = |method: Method| (method, method.row().kernel);
        let kernels = of_all(Method::ALL.map(with_own), None).unwrap();
        for (kernel, method) in kernels.into_iter().zip(Method::ALL) {
            assert_eq!(kernel, method.row().kernel);
            of_all([with_own(method)], Some(kernel)).unwrap();
            assert!(of_methods().contains(&kernel), "{method}");
        }
    }

    #[test]
    fn the_package_of_guests_has_what_modules_are_built_with() {
        assert_eq!(
            package(HostKernel::OF_GUESTS),
            Some(KernelPackage::STANDARD)
        );
        for kernel in HostKernel::ALL {
            assert_eq!(package(kernel).is_none(), kernel.row().built.is_some());
        }
    }
}
