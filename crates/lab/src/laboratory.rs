//! Everything that is needed to boot hosts and guests, made ready once a run.

use crate::accelerator;
use crate::artifact::{
    Brought, Cache, DistributionKernel, Initramfs, PackedInitramfs, RtKernel, UserSpace, emulator,
    user_space_image,
};
use crate::emulator::{Accelerator, Card, HUGE_PAGE_MIB, Machine, Monitor};
use crate::host::HostSpecification;
use crate::host_kernel::{DEBUG_BOOT_PATIENCE, boot_patience};
use crate::namespace::Namespace;
use crate::parts::{HostKernels, Parts};
use crate::progress::Observer;
use crate::qemu;
use crate::{At, Error, Programs, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use steadyvm_methods::Method;

pub use crate::host_kernel::{of_all, of_methods, require_for};
pub use steadyvm_methods::HostKernel;

/// Where a host finds what its guests boot.
const GUEST_KERNEL: &str = "/boot/guest-kernel";
const GUEST_INITRAMFS: &str = "/boot/guest-initramfs";
/// A guest's disk is the host's own: one read-only image serves both.
const GUEST_IMAGE: &str = "/dev/vda";

const HOST_MEMORY_MIB: u32 = 2048;
const GUEST_MEMORY_MIB: u32 = 256;
/// Huge pages that a host needs for a guest that is run as a real-time domain: `hugepages=` on its
/// kernel's command line.
pub const HUGE_PAGES_OF_A_GUEST: u32 = GUEST_MEMORY_MIB / HUGE_PAGE_MIB;

/// Where a guest finds the module for outsourced sockets. It is loaded where a method asks for it.
pub const SOCKETS_MODULE: &str = "/usr/local/lib/steadyvm_sockets.ko";

/// The lab's kernels, images and the way to run them.
pub struct Laboratory {
    /// The kernel of guests, and of hosts whose method is `vanilla`.
    pub distribution_kernel: DistributionKernel,
    /// The kernels that we built, as far as they were asked for.
    pub our_kernels: BTreeMap<HostKernel, RtKernel>,
    /// The guest's module for outsourced sockets.
    pub sockets_module: PathBuf,
    /// How hosts run.
    pub accelerator: Accelerator,
    /// The QEMU that they run in.
    pub emulator: PathBuf,
    /// More words for the command line of every host's kernel.
    pub kernel_words: String,
    /// The kernel of every method's host; `None`: each has its method's own.
    pub kernel_instead: Option<HostKernel>,
    image: PathBuf,
    log_directory: PathBuf,
    /// The distribution's kernels that hosts run, as far as they were asked for, with their modules.
    packages: BTreeMap<HostKernel, (DistributionKernel, Arc<PackedInitramfs>)>,
    /// For kernels without modules.
    initramfs: Arc<PackedInitramfs>,
    /// The kernel image that the user brought, with its modules.
    brought: Option<(PathBuf, Arc<PackedInitramfs>)>,
}

impl Laboratory {
    /// Gets everything from the cache, building what is missing, and finds out how to run it.
    /// Of the kernels only `kernels` and the distribution's 6.12, which guests run: each of ours takes
    /// minutes to build, the others of the distribution are a download. `program` is the lab's own, linked statically: it and
    /// the `steadyvm` beside it serve inside the machines. Their consoles and logs go to `log_directory`.
    pub fn open(
        cache: &Cache,
        program: &Path,
        log_directory: &Path,
        kernels: &[HostKernel],
        observer: &dyn Observer,
    ) -> Result<Self> {
        let nothing = Brought::default();
        Self::open_with(cache, program, log_directory, kernels, &nothing, observer)
    }

    /// The same with what a user brings instead of the lab's own.
    pub fn open_with(
        cache: &Cache,
        program: &Path,
        log_directory: &Path,
        kernels: &[HostKernel],
        brought: &Brought,
        observer: &dyn Observer,
    ) -> Result<Self> {
        std::fs::create_dir_all(log_directory).at("create", log_directory)?;
        let programs = &Programs::beside(program)?;
        let Parts {
            distribution_kernel,
            sockets_module,
            image,
            kernels:
                HostKernels {
                    ours,
                    packages: mut unpacked,
                },
            emulator: known_emulator,
        } = Parts::obtain(cache, kernels, brought, observer)?;
        unpacked.insert(HostKernel::OF_GUESTS, distribution_kernel.clone());
        let guest = Initramfs {
            programs,
            modules: Some(&distribution_kernel.guest_modules),
            additions: vec![(SOCKETS_MODULE, &*sockets_module)],
        }
        .pack()?;
        let guest_path = guest.path();
        let pack = |modules: Option<&Path>| -> Result<PackedInitramfs> {
            let additions = vec![
                (GUEST_KERNEL, &*distribution_kernel.image),
                (GUEST_INITRAMFS, &*guest_path),
            ];
            Initramfs {
                programs,
                modules,
                additions,
            }
            .pack()
        };
        let initramfs = Arc::new(pack(None)?);
        let brought = match &brought.kernel {
            None => None,
            Some(kernel) => Some((
                kernel.image.clone(),
                match kernel.host_modules()? {
                    None => Arc::clone(&initramfs),
                    Some(modules) => Arc::new(pack(Some(modules.path()))?),
                },
            )),
        };
        let mut packages = BTreeMap::new();
        for (kernel, package) in unpacked {
            let initramfs = Arc::new(pack(Some(&package.host_modules))?);
            packages.insert(kernel, (package, initramfs));
        }
        let mut laboratory = Self {
            packages,
            initramfs,
            brought,
            distribution_kernel,
            our_kernels: ours,
            sockets_module,
            accelerator: Accelerator::Tcg,
            emulator: PathBuf::from(qemu::PROGRAM),
            kernel_words: String::new(),
            kernel_instead: None,
            image,
            log_directory: log_directory.to_owned(),
        };
        let first = kernels.first().copied();
        let trial = laboratory.host("trial", first.unwrap_or(HostKernel::OF_GUESTS))?;
        laboratory.accelerator = accelerator::choose(&trial, observer);
        if laboratory.accelerator == Accelerator::Tcg {
            laboratory.emulator = known_emulator.unwrap_or_else(|| emulator(cache, observer));
        }
        Ok(laboratory)
    }

    /// Gives hosts and guests another user space, from an image that is built if need be.
    ///
    /// # Errors
    /// The image cannot be built.
    pub fn with_user_space(
        mut self,
        user_space: UserSpace,
        cache: &Cache,
        observer: &dyn Observer,
    ) -> Result<Self> {
        self.image = user_space_image(cache, user_space, observer)?;
        Ok(self)
    }

    /// The kernel of a method's host.
    pub fn kernel_of(&self, method: Method) -> HostKernel {
        self.in_place_of(method.row().kernel)
    }

    /// The kernel that a host runs whose own would be this one.
    pub fn in_place_of(&self, own: HostKernel) -> HostKernel {
        self.kernel_instead.unwrap_or(own)
    }

    /// What readers of figures must know of the hosts' kernel.
    pub fn note(&self) -> Option<String> {
        let kernel = self.kernel_instead?;
        Some(format!(
            "every host ran {} in place of its method's own kernel: {}",
            kernel.name(),
            self.kernel_title(kernel)
        ))
    }

    /// A kernel's version and kind, for people.
    pub fn kernel_title(&self, kernel: HostKernel) -> String {
        match (self.our_kernels.get(&kernel), self.packages.get(&kernel)) {
            (Some(ours), _) => format!("{} ({})", ours.version, ours.kind),
            (None, Some((package, _))) if kernel.row().is_preempt_rt => {
                format!("{} (distribution, PREEMPT_RT)", package.version)
            }
            (None, Some((package, _))) => format!("{} (distribution)", package.version),
            (None, None) => kernel.name().to_owned(),
        }
    }

    /// A host to boot.
    ///
    /// # Errors
    /// The laboratory was opened without this kernel.
    pub fn host(&self, name: &str, kernel: HostKernel) -> Result<HostSpecification> {
        let package = self.packages.get(&kernel);
        let package = package.map(|(package, initramfs)| (&package.image, initramfs));
        let ours = self.our_kernels.get(&kernel);
        let ours = ours.map(|ours| (&ours.image, &self.initramfs));
        let (image, initramfs) = package.or(ours).ok_or_else(|| {
            let why = format!("the kernel {} was not asked for", kernel.name());
            Error::input(format!("boot the host {name}"), why)
        })?;
        Ok(self.host_with(name, image, initramfs, boot_patience(kernel)))
    }

    /// A host to boot with the kernel that the user brought.
    ///
    /// # Errors
    /// The laboratory was opened without one.
    pub fn host_of_brought(&self, name: &str) -> Result<HostSpecification> {
        let (image, initramfs) = self.brought.as_ref().ok_or_else(|| {
            let why = "no kernel image was given";
            Error::input(format!("boot the host {name}"), why)
        })?;
        // It may be one that checks itself.
        Ok(self.host_with(name, image, initramfs, DEBUG_BOOT_PATIENCE))
    }

    fn host_with(
        &self,
        name: &str,
        image: &Path,
        initramfs: &Arc<PackedInitramfs>,
        boot_patience: Duration,
    ) -> HostSpecification {
        HostSpecification {
            name: name.to_owned(),
            kernel: image.to_owned(),
            initramfs: Arc::clone(initramfs),
            image: self.image.clone(),
            kernel_words: self.kernel_words.clone(),
            emulator: self.emulator.clone(),
            accelerator: self.accelerator,
            log_directory: self.log_directory.clone(),
            boot_patience,
            boot_on_cpu: None,
            devices_on_cpu: None,
            iommu: false,
            scratch: false,
            memory_mib: HOST_MEMORY_MIB,
        }
    }
}

/// Tries, before any long work, what only root may do.
pub fn require_root() -> Result<()> {
    Namespace::new().map(drop)
}

/// A guest to start in a host: the distribution's kernel, one virtio-net card over vhost-net, run by
/// QEMU.
/// `number` sets its card's address apart from the other guests'.
pub fn guest(name: &str, number: u8, cpus: u32) -> Machine {
    Machine {
        name: name.to_owned(),
        monitor: Monitor::Qemu,
        sockets: None,
        kernel: GUEST_KERNEL.to_owned(),
        initramfs: GUEST_INITRAMFS.to_owned(),
        image: GUEST_IMAGE.to_owned(),
        kernel_words: String::new(),
        accelerator: Accelerator::Kvm,
        lock_spin_us: None,
        cpus,
        memory_mib: GUEST_MEMORY_MIB,
        real_time: false,
        iommu: false,
        scratch: false,
        console: format!("{}/{name}.console", crate::emulator::RUN_DIRECTORY),
        cards: vec![Card {
            tap: format!("tap-{name}"),
            mac: format!("52:54:00:78:00:{number:02x}"),
            send_buffer_bytes: None,
            function: None,
            macvtap: false,
        }],
    }
}
