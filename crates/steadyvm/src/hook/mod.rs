//! `steadyvm hook`: what libvirt and Proxmox VE call as VMs come and go.
//!
//! Rule: it can end no VM that runs. Only before a VM starts may it fail, and only a VM that asks for a budget; after that
//! it logs. libvirt ends a VM whose hook fails at `started` or `reconnect`.
//! Rule: it ends, within [`LIMIT`], since libvirt holds the VM's lock meanwhile.

mod admission;
mod description;
mod directory;
mod domain;
mod holder;
mod interface;
mod keeper;
mod libvirt;
mod log;
mod proxmox;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Subcommand;

use self::interface::shown;
use self::keeper::Places;
use self::libvirt::Operation;
use self::log::{Urgency, say};
use self::proxmox::Phase;

/// Whether the VM may ask for a budget, as far as is known: no other is refused, whatever goes wrong.
static ASKS: AtomicBool = AtomicBool::new(false);

/// How long a call takes at most.
const LIMIT: Duration = Duration::from_secs(20);

/// Called by libvirt or Proxmox VE as a VM comes and goes: admit it, put its budget in force, forget it.
///
/// A VM asks for a budget by its flavor's extra specs (`OpenStack` Nova), by <interface xmlns="urn:steadyvm:rt"> in its
/// domain's metadata, or by its notes (Proxmox VE). Before such a VM starts, the hook asks the plan of
/// /etc/steadyvm.toml, as `steadyvm apply --strict` does, and refuses a VM that this host cannot hold. It describes the VM
/// in /run/steadyvm.d until the VM ends, and applies. It never refuses another VM; it applies as they start and end.
///
/// Once a VM runs, the hook ends with 0 whatever happens, and writes what went wrong to the system's log.
#[derive(Debug, clap::Args)]
#[command(disable_help_subcommand = true)]
pub struct Args {
    #[command(subcommand)]
    caller: Caller,
    /// The directory that holds /etc and /run, for tests.
    #[arg(long, global = true, hide = true, default_value = "/")]
    root: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Caller {
    /// libvirt's hook for QEMU, with the domain's XML on standard input.
    // A domain may be called as an option is.
    #[command(disable_help_flag = true)]
    Libvirt {
        /// What libvirt calls its hook with: DOMAIN OPERATION SUB-OPERATION EXTRA.
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "WORD"
        )]
        words: Vec<OsString>,
    },
    /// Proxmox VE's hookscript.
    #[command(disable_help_flag = true)]
    Proxmox {
        /// What Proxmox calls its hookscript with: VMID PHASE.
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "WORD"
        )]
        words: Vec<OsString>,
    },
}

/// Runs the verb. Exit codes: 0 go on, 1 the VM may not start, 2 wrong use.
pub fn run(args: Args) -> ExitCode {
    let places = Places::below(&args.root);
    let deadline = Instant::now() + LIMIT;
    let text = |words: &[OsString], place: usize| {
        let word = words.get(place).cloned().unwrap_or_default();
        word.to_string_lossy().into_owned()
    };
    match args.caller {
        Caller::Libvirt { words } if words.len() < 2 => wrong_use("DOMAIN OPERATION"),
        Caller::Libvirt { words } => {
            let word = text(&words, 1);
            let Some(operation) = Operation::of(&word) else {
                return ExitCode::SUCCESS;
            };
            let done = within(deadline, move || libvirt::run(operation, places, deadline));
            let what = format!("{word} of VM {}", shown(&text(&words, 0)));
            let may_refuse = operation == Operation::Prepare && ASKS.load(Ordering::Relaxed);
            outcome(done, may_refuse, &what)
        }
        Caller::Proxmox { words } => {
            let Ok(number) = text(&words, 0).parse() else {
                return wrong_use("VMID PHASE");
            };
            let word = text(&words, 1);
            let Some(phase) = Phase::of(&word) else {
                return ExitCode::SUCCESS;
            };
            let done = within(deadline, move || {
                proxmox::run(number, phase, places, deadline)
            });
            let what = format!("{word} of VM {number}");
            let may_refuse = phase == Phase::PreStart && ASKS.load(Ordering::Relaxed);
            outcome(done, may_refuse, &what)
        }
    }
}

/// From here on a failure before the start refuses it.
fn it_asks() {
    ASKS.store(true, Ordering::Relaxed);
}

fn wrong_use(words: &str) -> ExitCode {
    say(
        Urgency::Error,
        &format!("wrong use: call it with -- {words}"),
    );
    ExitCode::from(2)
}

/// What the caller is told.
fn outcome(done: Result<()>, may_refuse: bool, what: &str) -> ExitCode {
    let Err(error) = done else {
        return ExitCode::SUCCESS;
    };
    say(Urgency::Error, &format!("{what}: {error:#}"));
    ExitCode::from(u8::from(may_refuse))
}

/// Does something in a thread of its own, which ends with the program if it has not ended by then.
fn within(deadline: Instant, work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        // Nobody listens any more to one that is late.
        let _ = sender.send(work());
    });
    let left = deadline.saturating_duration_since(Instant::now());
    match receiver.recv_timeout(left) {
        Ok(done) => done,
        Err(RecvTimeoutError::Timeout) => bail!("not done within {} s", LIMIT.as_secs()),
        Err(RecvTimeoutError::Disconnected) => bail!("this hook has failed: please report it"),
    }
}
