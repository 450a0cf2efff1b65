//! The parts of a laboratory, got side by side: downloads and builds keep different parts of the machine busy.

use crate::Result;
use crate::accelerator;
use crate::artifact::{
    Brought, Cache, DistributionKernel, KernelPackage, RtKernel, UserSpace, emulator,
    sockets_module, source_version, user_space_image,
};
use crate::host_kernel;
use crate::progress::Observer;
use crate::side_by_side::{Steps, result};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread;
use steadyvm_methods::HostKernel;

/// The parts, each from the cache or built.
pub struct Parts {
    /// The kernel of guests.
    pub distribution_kernel: DistributionKernel,
    /// Their module for outsourced sockets.
    pub sockets_module: PathBuf,
    /// The user space.
    pub image: PathBuf,
    /// The kernels of hosts, but for that of guests.
    pub kernels: HostKernels,
    /// The emulator, where it is known without a trial that hosts run in it.
    pub emulator: Option<PathBuf>,
}

/// Kernels of hosts.
#[derive(Default)]
pub struct HostKernels {
    /// Those that we built.
    pub ours: BTreeMap<HostKernel, RtKernel>,
    /// Those of the distribution.
    pub packages: BTreeMap<HostKernel, DistributionKernel>,
}

impl Parts {
    /// Gets them all.
    ///
    /// # Errors
    /// That of the part that failed first; what the others have not finished is begun again next time.
    pub fn obtain(
        cache: &Cache,
        kernels: &[HostKernel],
        brought: &Brought,
        observer: &dyn Observer,
    ) -> Result<Self> {
        // All kernels need it: where it is missing, no step begins.
        source_version()?;
        let steps = Steps::default();
        let parts = thread::scope(|scope| {
            let of_guests = steps.begin(scope, || of_guests(cache, brought, observer));
            let image = steps.begin(scope, || user_space_image(cache, UserSpace::Lab, observer));
            let kernels = steps.begin(scope, || of_hosts(cache, kernels, observer));
            let emulator = (!accelerator::is_claimed())
                .then(|| steps.begin(scope, || Ok(emulator(cache, observer))));
            let (distribution_kernel, sockets_module) = result(of_guests)?;
            Some(Self {
                distribution_kernel,
                sockets_module,
                image: result(image)?,
                kernels: result(kernels)?,
                emulator: match emulator {
                    Some(emulator) => Some(result(emulator)?),
                    None => None,
                },
            })
        });
        steps.outcome(parts)
    }
}

/// The kernel of guests, and the module that is built for it.
fn of_guests(
    cache: &Cache,
    brought: &Brought,
    observer: &dyn Observer,
) -> Result<(DistributionKernel, PathBuf)> {
    let kernel = DistributionKernel::obtain(cache, KernelPackage::STANDARD, observer)?;
    let module = match &brought.sockets_module {
        Some(module) => module.clone(),
        None => sockets_module(cache, &kernel, observer)?,
    };
    Ok((kernel, module))
}

/// One after the other: builds take all CPUs each, and indexes of packages are for one at a time.
fn of_hosts(cache: &Cache, kernels: &[HostKernel], observer: &dyn Observer) -> Result<HostKernels> {
    let mut found = HostKernels::default();
    for &kernel in kernels {
        // Guests have got theirs already.
        if kernel == HostKernel::OF_GUESTS {
            continue;
        }
        if let Some(package) = host_kernel::package(kernel) {
            let package = DistributionKernel::obtain(cache, package, observer)?;
            found.packages.insert(kernel, package);
        } else if let Some(ours) = RtKernel::obtain(cache, kernel, observer)? {
            found.ours.insert(kernel, ours);
        }
    }
    Ok(found)
}
