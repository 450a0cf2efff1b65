//! `steadyvm-lab shell`, `run` and `prepare`: an emulated host by hand.

use crate::kernel::{KernelOrImage, KernelOrImageParser, KernelParser};
use crate::this_program;
use anyhow::{Context, Result};
use nix::sys::termios::{self, SetArg, Termios};
use signal_hook::consts::SIGWINCH;
use signal_hook::iterator::Signals;
use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use steadyvm_lab::agent::{Process, Stream, TerminalSize};
use steadyvm_lab::artifact::{Brought, BroughtKernel, Cache, brought_module};
use steadyvm_lab::host::EmulatedHost;
use steadyvm_lab::laboratory::{HostKernel, Laboratory, of_methods, require_root};
use steadyvm_lab::{Error, carry, init};

nix::ioctl_read_bad!(window_size, nix::libc::TIOCGWINSZ, nix::libc::winsize);

/// A shell in an emulated host with KVM and two network cards.
///
/// The host is booted for it and taken down after it.
#[derive(Debug, clap::Args)]
pub struct ShellArgs {
    #[command(flatten)]
    boot: BootArgs,
}

/// Run a command in an emulated host; its exit code becomes this one's.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    #[command(flatten)]
    boot: BootArgs,
    /// The command and its arguments, after --.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Get everything that the lab boots, building what is missing.
#[derive(Debug, clap::Args)]
pub struct PrepareArgs {
    /// Only what hosts with these kernels need, separated by commas [default: all kernels that
    /// methods need]. A kernel image of your own needs what 6.12 does.
    #[arg(long, value_name = "KERNELS", value_parser = KernelParser, value_delimiter = ',')]
    kernel: Vec<HostKernel>,
}

/// A guest to run.
#[derive(Debug, clap::Args)]
pub struct CarryArgs {
    /// The guest, in JSON.
    machine: String,
}

#[derive(Debug, clap::Args)]
struct BootArgs {
    /// The host's kernel: one of those below, or the path of a bzImage that you have built, such as
    /// ./bzImage.
    ///
    /// A word with a slash is a path. So is one that names a file and no kernel.
    #[arg(
        long,
        value_name = "KERNEL|PATH",
        value_parser = KernelOrImageParser,
        default_value = "6.12-rt"
    )]
    kernel: KernelOrImage,
    /// With a path: take the modules that a host needs, and what they need, from this directory.
    ///
    /// It is what `make modules_install INSTALL_MOD_PATH=DIR` fills, or the lib/modules/RELEASE in it.
    /// Without this option all that a host needs must be built in: `virtio_pci`, `virtio_blk`,
    /// `virtio_console`, `squashfs`, `overlay`, `igb` and `bridge`; for guests `kvm_amd` or
    /// `kvm_intel`, `tun` and `vhost_net`, too.
    #[arg(long, value_name = "DIR")]
    modules: Option<PathBuf>,
    /// A `steadyvm_sockets.ko` for the guests of this host, instead of the one that the lab builds.
    ///
    /// Guests run Debian's 6.12, whatever the host runs: build it for that kernel.
    #[arg(long, value_name = "FILE.ko")]
    module: Option<PathBuf>,
    /// More words for its kernel's command line, such as "isolcpus=1".
    #[arg(long, value_name = "WORDS", default_value = "")]
    kernel_words: String,
}

impl BootArgs {
    /// What is to be booted instead of the lab's own.
    fn brought(&self) -> steadyvm_lab::Result<Brought> {
        let modules = self.modules.as_deref();
        let kernel = match (&self.kernel, modules) {
            (KernelOrImage::Image(image), _) => Some(BroughtKernel::open(image, modules)?),
            (KernelOrImage::Known(_), None) => None,
            (KernelOrImage::Known(kernel), Some(directory)) => {
                let what = format!("take modules from {}", directory.display());
                let why = format!("the kernel {kernel} needs none of yours");
                let advice = "leave out --modules, or give your kernel's image: --kernel ./bzImage";
                return Err(Error::input(what, why).what_to_do(advice));
            }
        };
        Ok(Brought {
            kernel,
            sockets_module: self.module.as_deref().map(brought_module).transpose()?,
        })
    }
}

/// Runs the verb `prepare`.
pub fn prepare(args: &PrepareArgs) -> Result<ExitCode> {
    let kernels = if args.kernel.is_empty() {
        of_methods()
    } else {
        args.kernel.clone()
    };
    open_laboratory(&kernels, &Brought::default())?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the verb `agent`.
pub fn agent() -> Result<ExitCode> {
    init::run_agent()?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the verb `carry`.
pub fn carry(args: &CarryArgs) -> Result<ExitCode> {
    carry::carry(&serde_json::from_str(&args.machine).context("the guest's description")?)?;
    Ok(ExitCode::SUCCESS)
}

/// The laboratory with these kernels; its logs are those of the last host that was booted by hand.
fn open_laboratory(kernels: &[HostKernel], brought: &Brought) -> Result<Laboratory> {
    require_root()?;
    let cache = Cache::of_this_machine()?;
    let logs = cache.helper_directory("logs");
    let program = this_program();
    Ok(Laboratory::open_with(
        &cache,
        &program,
        &logs,
        kernels,
        brought,
        &crate::display(),
    )?)
}

fn boot(args: &BootArgs) -> Result<EmulatedHost> {
    let brought = args.brought()?;
    let known = match args.kernel {
        KernelOrImage::Known(kernel) => Some(kernel),
        KernelOrImage::Image(_) => None,
    };
    let mut laboratory = open_laboratory(known.as_slice(), &brought)?;
    laboratory.kernel_words.clone_from(&args.kernel_words);
    let host = match known {
        Some(kernel) => laboratory.host("lab", kernel)?,
        None => laboratory.host_of_brought("lab")?,
    };
    Ok(EmulatedHost::boot(&host)?)
}

/// Runs the verb `run`.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let host = boot(&args.boot)?;
    let process = Arc::new(host.connection().spawn(&args.command)?);
    if io::stdin().is_terminal() {
        process.end_of_input()?;
    } else {
        feed_standard_input(&process);
    }
    follow(&process)
}

/// Runs the verb `shell`.
pub fn shell(args: &ShellArgs) -> Result<ExitCode> {
    let host = boot(&args.boot)?;
    let process = Arc::new(
        host.connection()
            .spawn_in(&["bash", "-i"], Some(terminal_size()))?,
    );
    let _raw = RawTerminal::enter()?;
    feed_standard_input(&process);
    let resized = Arc::clone(&process);
    let mut signals = Signals::new([SIGWINCH]).context("cannot watch the terminal's size")?;
    thread::spawn(move || {
        for _ in signals.forever() {
            let _ = resized.resize(terminal_size());
        }
    });
    follow(&process)
}

/// Copies standard input to the process in a thread that ends with this program.
fn feed_standard_input(process: &Arc<Process>) {
    let process = Arc::clone(process);
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count) = io::stdin().read(&mut buffer) {
            if count == 0 || process.input(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = process.end_of_input();
    });
}

/// Shows the process's output until it ends, and takes over its exit code.
fn follow(process: &Process) -> Result<ExitCode> {
    let status = process.follow(|stream, data| {
        // A reader that went away, as in `| head`, is no error of ours.
        let _ = match stream {
            Stream::Output => io::stdout()
                .write_all(data)
                .and_then(|()| io::stdout().flush()),
            Stream::Error => io::stderr().write_all(data),
        };
    })?;
    Ok(ExitCode::from(
        u8::try_from(status.shell_code()).unwrap_or(u8::MAX),
    ))
}

fn terminal_size() -> TerminalSize {
    let mut size = nix::libc::winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the call writes one winsize, which `size` is. Without a terminal it writes nothing.
    let _ = unsafe { window_size(0, &raw mut size) };
    TerminalSize {
        rows: size.ws_row,
        columns: size.ws_col,
    }
}

/// The terminal hands every key through, until this is dropped.
struct RawTerminal(Option<Termios>);

impl RawTerminal {
    fn enter() -> Result<Self> {
        if !io::stdin().is_terminal() {
            return Ok(Self(None));
        }
        let before = termios::tcgetattr(io::stdin()).context("cannot read the terminal's mode")?;
        let mut raw = before.clone();
        termios::cfmakeraw(&mut raw);
        termios::tcsetattr(io::stdin(), SetArg::TCSANOW, &raw)
            .context("cannot set the terminal's mode")?;
        Ok(Self(Some(before)))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = termios::tcsetattr(io::stdin(), SetArg::TCSANOW, before);
        }
    }
}
