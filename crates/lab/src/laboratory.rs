//! Everything that is needed to boot hosts and guests, made ready once a run.

use crate::accelerator;
use crate::artifact::{
    Cache, DistributionKernel, Flavour, Initramfs, PackedInitramfs, RtKernel, user_space_image,
};
use crate::emulator::{Accelerator, Card, Machine};
use crate::error::{At, Result};
use crate::host::{BOOT_PATIENCE, HostSpecification};
use crate::namespace::Namespace;
use crate::progress::Observer;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use steadyvm_host::Method;

/// Which kernel a host runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostKernel {
    /// The distribution's, unmodified.
    Distribution,
    /// Ours, with PREEMPT_RT.
    PreemptRt,
    /// `PreemptRt` with levels of the receive path.
    RtLevels,
}

impl HostKernel {
    /// The kernel that a method's host runs.
    pub fn of(method: Method) -> Self {
        match method {
            Method::Vanilla => Self::Distribution,
            Method::PreemptRt | Method::Dedicated | Method::RtProfile => Self::PreemptRt,
            Method::RtPollList => Self::RtLevels,
        }
    }
}

/// Where a host finds what its guests boot.
const GUEST_KERNEL: &str = "/boot/guest-kernel";
const GUEST_INITRAMFS: &str = "/boot/guest-initramfs";
/// A guest's disk is the host's own: one read-only image serves both.
const GUEST_IMAGE: &str = "/dev/vda";

/// The lab's kernels, images and the way to run them.
pub struct Laboratory {
    /// The distribution's kernel.
    pub distribution_kernel: DistributionKernel,
    /// Our kernel.
    pub rt_kernel: RtKernel,
    /// Our kernel with levels of the receive path.
    pub levels_kernel: RtKernel,
    /// How hosts run.
    pub accelerator: Accelerator,
    image: PathBuf,
    log_directory: PathBuf,
    distribution_initramfs: Arc<PackedInitramfs>,
    rt_initramfs: Arc<PackedInitramfs>,
}

impl Laboratory {
    /// Gets everything from the cache, building what is missing, and finds out how to run it.
    /// `program` is the statically linked `steadyvm` that serves inside the machines; their
    /// consoles and logs go to `log_directory`.
    pub fn open(
        cache: &Cache,
        program: &Path,
        log_directory: &Path,
        observer: &dyn Observer,
    ) -> Result<Self> {
        std::fs::create_dir_all(log_directory).at("create", log_directory)?;
        // Fails at once, and not after minutes, where the kernel's source is missing.
        let distribution_kernel = DistributionKernel::obtain(cache, observer)?;
        let image = user_space_image(cache, observer)?;
        let rt_kernel = RtKernel::obtain(cache, Flavour::Plain, observer)?;
        let levels_kernel = RtKernel::obtain(cache, Flavour::Levels, observer)?;
        let guest = Initramfs {
            program,
            modules: Some(&distribution_kernel.guest_modules),
            additions: Vec::new(),
        }
        .pack()?;
        let guest_path = guest.path();
        let pack = |modules| {
            let additions = vec![
                (GUEST_KERNEL, &*distribution_kernel.image),
                (GUEST_INITRAMFS, &*guest_path),
            ];
            Initramfs {
                program,
                modules,
                additions,
            }
            .pack()
        };
        let mut laboratory = Self {
            distribution_initramfs: Arc::new(pack(Some(&distribution_kernel.host_modules))?),
            rt_initramfs: Arc::new(pack(None)?),
            distribution_kernel,
            rt_kernel,
            levels_kernel,
            accelerator: Accelerator::Tcg,
            image,
            log_directory: log_directory.to_owned(),
        };
        let trial = laboratory.host("trial", HostKernel::PreemptRt);
        laboratory.accelerator = accelerator::choose(&trial, observer);
        Ok(laboratory)
    }

    /// A kernel's version and kind, for people.
    pub fn kernel_title(&self, kernel: HostKernel) -> String {
        match kernel {
            HostKernel::Distribution => {
                format!("{} (distribution)", self.distribution_kernel.version)
            }
            HostKernel::PreemptRt => format!("{} (PREEMPT_RT)", self.rt_kernel.version),
            HostKernel::RtLevels => format!("{} (PREEMPT_RT, levels)", self.levels_kernel.version),
        }
    }

    /// A host to boot.
    pub fn host(&self, name: &str, kernel: HostKernel) -> HostSpecification {
        let (kernel, initramfs) = match kernel {
            HostKernel::Distribution => (
                &self.distribution_kernel.image,
                &self.distribution_initramfs,
            ),
            HostKernel::PreemptRt => (&self.rt_kernel.image, &self.rt_initramfs),
            HostKernel::RtLevels => (&self.levels_kernel.image, &self.rt_initramfs),
        };
        HostSpecification {
            name: name.to_owned(),
            kernel: kernel.clone(),
            initramfs: Arc::clone(initramfs),
            image: self.image.clone(),
            kernel_words: String::new(),
            accelerator: self.accelerator,
            log_directory: self.log_directory.clone(),
            boot_patience: BOOT_PATIENCE,
            boot_on_cpu: None,
        }
    }
}

/// Tries, before any long work, what only root may do.
pub fn require_root() -> Result<()> {
    Namespace::new().map(drop)
}

/// A guest to start in a host: the distribution's kernel, one virtio-net card over vhost-net.
/// `number` sets its card's address apart from the other guests'.
pub fn guest(name: &str, number: u8, cpus: u32) -> Machine {
    Machine {
        name: name.to_owned(),
        kernel: GUEST_KERNEL.to_owned(),
        initramfs: GUEST_INITRAMFS.to_owned(),
        image: GUEST_IMAGE.to_owned(),
        kernel_words: String::new(),
        accelerator: Accelerator::Kvm,
        cpus,
        memory_mib: 256,
        console: format!("{}/{name}.console", crate::carry::RUN_DIRECTORY),
        cards: vec![Card {
            tap: format!("tap-{name}"),
            mac: format!("52:54:00:78:00:{number:02x}"),
        }],
    }
}
