//! Everything that is needed to boot hosts and guests, made ready once a run.

use crate::accelerator;
use crate::artifact::{
    Cache, DistributionKernel, Flavour, Initramfs, KernelPackage, NEWEST_SERIES, PackedInitramfs,
    RtKernel, UserSpace, emulator, sockets_module, user_space_image,
};
use crate::emulator::{Accelerator, Card, HUGE_PAGE_MIB, Machine, Monitor};
use crate::host::{BOOT_PATIENCE, HostSpecification};
use crate::namespace::Namespace;
use crate::progress::Observer;
use crate::qemu;
use crate::{At, Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use steadyvm_host::Method;

/// How long a host may take to come up whose kernel checks itself.
const DEBUG_BOOT_PATIENCE: Duration = Duration::from_secs(600);

/// Where a kernel comes from.
enum Origin {
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
    fn origin(self) -> Origin {
        let newest = |preempt_rt| KernelPackage {
            series: NEWEST_SERIES,
            preempt_rt,
            backported: true,
        };
        match self {
            Self::Distribution => Origin::Package(KernelPackage::STANDARD),
            Self::PreemptRt => Origin::Package(KernelPackage {
                preempt_rt: true,
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
    fn boot_patience(self) -> Duration {
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

    fn is_preempt_rt(self) -> bool {
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

/// Where a host finds what its guests boot.
const GUEST_KERNEL: &str = "/boot/guest-kernel";
const GUEST_INITRAMFS: &str = "/boot/guest-initramfs";
/// A guest's disk is the host's own: one read-only image serves both.
const GUEST_IMAGE: &str = "/dev/vda";

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
}

impl Laboratory {
    /// Gets everything from the cache, building what is missing, and finds out how to run it.
    /// Of the kernels only `kernels` and the distribution's 6.12, which guests run: each of ours takes
    /// minutes to build, the others of the distribution are a download. `program` is the statically linked `steadyvm` that serves inside the
    /// machines; their consoles and logs go to `log_directory`.
    pub fn open(
        cache: &Cache,
        program: &Path,
        log_directory: &Path,
        kernels: &[HostKernel],
        observer: &dyn Observer,
    ) -> Result<Self> {
        std::fs::create_dir_all(log_directory).at("create", log_directory)?;
        // Fails at once, and not after minutes, where the kernel's source is missing.
        let distribution_kernel =
            DistributionKernel::obtain(cache, KernelPackage::STANDARD, observer)?;
        let image = user_space_image(cache, UserSpace::Lab, observer)?;
        let sockets_module = sockets_module(
            cache,
            &distribution_kernel.release,
            &distribution_kernel.version,
            observer,
        )?;
        let guest = Initramfs {
            program,
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
                program,
                modules,
                additions,
            }
            .pack()
        };
        let mut our_kernels = BTreeMap::new();
        let mut packages = BTreeMap::new();
        for &kernel in kernels.iter().chain(&[HostKernel::Distribution]) {
            match kernel.origin() {
                Origin::Built(flavour) => {
                    our_kernels.insert(kernel, RtKernel::obtain(cache, flavour, observer)?);
                }
                Origin::Package(package) => {
                    let package = DistributionKernel::obtain(cache, package, observer)?;
                    let initramfs = Arc::new(pack(Some(&package.host_modules))?);
                    packages.insert(kernel, (package, initramfs));
                }
            }
        }
        let mut laboratory = Self {
            packages,
            initramfs: Arc::new(pack(None)?),
            distribution_kernel,
            our_kernels,
            sockets_module,
            accelerator: Accelerator::Tcg,
            emulator: PathBuf::from(qemu::PROGRAM),
            kernel_words: String::new(),
            kernel_instead: None,
            image,
            log_directory: log_directory.to_owned(),
        };
        let first = kernels.first().copied();
        let trial = laboratory.host("trial", first.unwrap_or(HostKernel::Distribution))?;
        laboratory.accelerator = accelerator::choose(&trial, observer);
        if laboratory.accelerator == Accelerator::Tcg {
            laboratory.emulator = emulator(cache, observer);
        }
        Ok(laboratory)
    }

    /// Gives hosts and guests real network programs, too, from an image that is built if need be.
    pub fn with_programs(mut self, cache: &Cache, observer: &dyn Observer) -> Result<Self> {
        self.image = user_space_image(cache, UserSpace::Programs, observer)?;
        Ok(self)
    }

    /// Gives hosts libvirt, too, from an image that is built if need be.
    ///
    /// # Errors
    /// The image cannot be built.
    pub fn with_libvirt(mut self, cache: &Cache, observer: &dyn Observer) -> Result<Self> {
        self.image = user_space_image(cache, UserSpace::Libvirt, observer)?;
        Ok(self)
    }

    /// Gives hosts and guests real services to measure, too, from an image that is built if need be.
    ///
    /// # Errors
    /// The image cannot be built.
    pub fn with_services(mut self, cache: &Cache, observer: &dyn Observer) -> Result<Self> {
        self.image = user_space_image(cache, UserSpace::Services, observer)?;
        Ok(self)
    }

    /// The kernel of a method's host.
    pub fn kernel_of(&self, method: Method) -> HostKernel {
        self.in_place_of(HostKernel::of(method))
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
            (None, Some((package, _))) if kernel.is_preempt_rt() => {
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
        Ok(HostSpecification {
            name: name.to_owned(),
            kernel: image.clone(),
            initramfs: Arc::clone(initramfs),
            image: self.image.clone(),
            kernel_words: self.kernel_words.clone(),
            emulator: self.emulator.clone(),
            accelerator: self.accelerator,
            log_directory: self.log_directory.clone(),
            boot_patience: kernel.boot_patience(),
            boot_on_cpu: None,
            devices_on_cpu: None,
            iommu: false,
        })
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
        console: format!("{}/{name}.console", crate::carry::RUN_DIRECTORY),
        cards: vec![Card {
            tap: format!("tap-{name}"),
            mac: format!("52:54:00:78:00:{number:02x}"),
            send_buffer_bytes: None,
            function: None,
        }],
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
