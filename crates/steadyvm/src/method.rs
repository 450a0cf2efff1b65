//! Methods for the cards, VMs and processes that are named, without a file: of `apply --method` and `measure --methods`.

use steadyvm_host::{Method, Switches};
use steadyvm_site::TargetNames;

use steadyvm_cli::output;

/// A method, and what it is for.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "One method instead of a file")]
pub struct MethodArgs {
    #[arg(long, group = FOR_METHODS, help = methods_help())]
    pub method: Option<Switches>,
    #[command(flatten)]
    pub target: TargetArgs,
}

/// The group of options that name methods.
pub const FOR_METHODS: &str = "for_methods";

/// What methods are for.
#[derive(Debug, clap::Args)]
// Each is an option of its own.
#[allow(clippy::struct_excessive_bools)]
pub struct TargetArgs {
    /// A network interface that carries real-time traffic; may be repeated.
    #[arg(long = "nic", value_name = "IF", requires = FOR_METHODS)]
    nics: Vec<String>,
    /// A process of this host that serves it itself, without a VM; may be repeated. Threads that
    /// it starts later are normal ones: name it when it is ready.
    #[arg(long = "process", value_name = "PID", requires = FOR_METHODS)]
    processes: Vec<u32>,
    /// The CPU for method dedicated; the highest one that is online if left out.
    #[arg(long, value_name = "N", requires = FOR_METHODS)]
    cpu: Option<usize>,
    /// Set `sched_rt_runtime_us` to -1: the kernel then never throttles a runaway RT thread.
    #[arg(long, requires = FOR_METHODS)]
    rt_throttling_off: bool,
    /// Do not shorten the fair server's slices (Linux 6.12+).
    ///
    /// Ordinary threads may then run up to 50 ms ahead of real-time ones; steadyvm's default is 1 ms.
    #[arg(long, requires = FOR_METHODS)]
    keep_fair_server: bool,
    /// Do not raise the threads of RCU, of the timers and of disks' interrupts.
    ///
    /// A VCPU that computes without end then stops them on its CPU. By default they stand above vhost workers and VCPUs.
    #[arg(long, requires = FOR_METHODS)]
    keep_housekeeping: bool,
    /// Do not raise the interrupt threads of devices that RT VMs have by passthrough (VFIO).
    ///
    /// By default they have the priority of the RT NICs' threads.
    #[arg(long, requires = FOR_METHODS)]
    keep_vfio: bool,
}

/// The methods of hosts, as their table has them.
pub fn methods_help() -> String {
    let names: Vec<&str> = Method::of_hosts().map(Method::name).collect();
    format!(
        "One of {}; or a composition of rt, dedicated, profile, levels and any-kernel, such as rt+dedicated+profile",
        names.join(", ")
    )
}

impl TargetArgs {
    /// Whether processes are named, which are others after a reboot.
    pub fn has_processes(&self) -> bool {
        !self.processes.is_empty()
    }

    /// The same for those who look for them.
    pub fn names(&self) -> TargetNames {
        TargetNames {
            nics: self.nics.clone(),
            processes: self.processes.clone(),
            cpu: self.cpu,
            rt_throttling_off: self.rt_throttling_off,
            keep_fair_server: self.keep_fair_server,
            keep_housekeeping: self.keep_housekeeping,
            keep_vfio: self.keep_vfio,
        }
    }
}

/// Says what to know of a name that was looked for.
pub fn warn(warning: &str) {
    output::say(&format!("steadyvm: warning: {warning}"));
}
