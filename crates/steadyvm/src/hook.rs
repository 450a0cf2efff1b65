//! `steadyvm hook`: what libvirt and Proxmox VE call as VMs come and go.

mod log;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use steadyvm_hook::{Call, Operation, Phase, Urgency};

use self::log::say;

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
pub fn run(args: &Args) -> ExitCode {
    let text = |words: &[OsString], place: usize| {
        let word = words.get(place).cloned().unwrap_or_default();
        word.to_string_lossy().into_owned()
    };
    let call = match &args.caller {
        Caller::Libvirt { words } if words.len() < 2 => return wrong_use("DOMAIN OPERATION"),
        Caller::Libvirt { words } => {
            Operation::of(&text(words, 1)).map(|operation| Call::Libvirt {
                operation,
                name: text(words, 0),
                xml: Box::new(std::io::stdin()),
            })
        }
        Caller::Proxmox { words } => {
            let Ok(number) = text(words, 0).parse() else {
                return wrong_use("VMID PHASE");
            };
            Phase::of(&text(words, 1)).map(|phase| Call::Proxmox { phase, number })
        }
    };
    let done = call.map_or(Ok(()), |call| steadyvm_hook::run(call, &args.root, say));
    let Err(failure) = done else {
        return ExitCode::SUCCESS;
    };
    say(Urgency::Error, &failure.to_string());
    ExitCode::from(u8::from(failure.refuses_the_start))
}

fn wrong_use(words: &str) -> ExitCode {
    say(
        Urgency::Error,
        &format!("wrong use: call it with -- {words}"),
    );
    ExitCode::from(2)
}
