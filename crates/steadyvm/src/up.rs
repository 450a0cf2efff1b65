//! `steadyvm up`: run a VM.

use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use steadyvm_vmm::configuration::Configuration;
use steadyvm_vmm::{End, Error, life};

/// Run a VM in this process until the guest powers off.
///
/// The VM is described by a file:
///
///   name = "echo"                      # in the names of its threads
///   kernel = "/boot/vmlinuz"           # a distribution's bzImage
///   initramfs = "/boot/initrd.img"
///   cmdline = "console=ttyS0 pci=off panic=-1 quiet"
///   memory_mib = 256
///   vcpus = 2
///   rt_vcpus = [1]                     # these run at SCHED_FIFO rt_priority (70)
///   lock_memory = true
///   console = "stdio"                  # or a file
///   [[disk]]
///   path = "root.img"
///   read_only = true
///   [[net]]                            # virtio-net over vhost-net
///   tap = "tap0"                       # ip tuntap add dev tap0 mode tap vnet_hdr
///   mac = "52:54:00:78:00:01"
///   [channel]                          # a virtio-serial port, as QEMU's
///   socket = "agent.socket"            # of the controlling program, which listens
///   name = "org.qemu.guest_agent.0"    # in the guest /dev/virtio-ports/NAME
///   [sockets]                          # outsourced sockets
///   namespace = "new"                  # or "current", or a name of `ip netns`
///
/// Only name and kernel are needed. A terminal is the guest's console; Ctrl-A x ends the VM there.
/// SIGTERM, SIGINT, SIGHUP and SIGQUIT end it too, as if its power were cut, within two seconds; a second
/// signal ends it at once.
///
/// Once everything is open, the monitor leaves the host's file system and namespaces and gives up its
/// rights; started without root, it makes a user namespace for that. user = NUMBER in the file makes
/// root's monitor that user's.
///
/// Exit codes: 0 the guest powered off, or a signal ended it; 1 the guest failed (a triple fault), or the monitor made a
/// system call that it may not make; 2 the file is wrong; 3 this machine lacks something; 4 the guest asked for a reset;
/// 5 the guest panicked (needs pvpanic-mmio in the guest and panic=-1).
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
#[allow(clippy::doc_markdown)] // TOML for a terminal
pub struct Args {
    /// The VM's description (vm.toml). Paths in it are relative to its directory.
    file: PathBuf,
    /// Only check the description and what it names: kernel and initramfs are loaded, disks opened,
    /// interfaces, sockets and namespaces looked for.
    #[arg(long)]
    check: bool,
    /// Write how often and why each VCPU left the guest, as JSON, when the VM ends and at SIGUSR1.
    #[arg(long, value_name = "FILE")]
    statistics: Option<PathBuf>,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let configuration = read(&args.file)?;
    if args.check {
        steadyvm_vmm::check(&configuration)?;
        return Ok(ExitCode::SUCCESS);
    }
    let end = life::run(&configuration, args.statistics.as_deref())?;
    match &end {
        End::PoweredOff => {}
        End::Reset => eprintln!("steadyvm up: the guest asked for a reset, which ends it here"),
        End::Panicked => eprintln!("steadyvm up: the guest panicked, which ends it here"),
        End::Asked(by) => eprintln!("steadyvm up: ended by {by}"),
        End::Failed(why) => return Err(Error::guest(why).into()),
    }
    Ok(ExitCode::from(end.exit_code()))
}

fn read(file: &Path) -> Result<Configuration> {
    let place = file.display().to_string();
    let text = fs::read_to_string(file).map_err(|error| Error::input(&place, error))?;
    let directory = file.parent().unwrap_or(Path::new("."));
    Ok(Configuration::parse(&text, &place)?.relative_to(directory))
}
