//! What libvirt and Proxmox VE have steadyvm do as VMs come and go: admit, describe, put budgets in force, forget.
//!
//! - `libvirt`, `proxmox`: who calls, and what a VM asks for in their words (`domain`, `interface`)
//! - `keeper`: what is done then, whoever calls; `admission` asks the plan
//! - `description`, `directory`, `holder`: a VM's file in /run/steadyvm.d, and how long it counts
//!
//! Rule: it can end no VM that runs. Only before a VM starts may it fail, and only a VM that asks for a budget; after that
//! what went wrong is told. libvirt ends a VM whose hook fails at `started` or `reconnect`.
//! Rule: it ends, within [`LIMIT`], since libvirt holds the VM's lock meanwhile.

#![forbid(unsafe_code)]

mod admission;
mod description;
mod directory;
mod domain;
mod error;
mod holder;
mod interface;
mod keeper;
mod libvirt;
mod proxmox;

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use steadyvm_fault::Fault;

use self::error::Result;
use self::interface::shown;
use self::keeper::{Keeper, Places};

pub use self::error::Error;
pub use self::libvirt::Operation;
pub use self::proxmox::Phase;

/// How long a call takes at most.
pub const LIMIT: Duration = Duration::from_secs(20);

/// How urgent words are (`syslog(3)`).
#[derive(Debug, Clone, Copy)]
pub enum Urgency {
    /// Something was not done.
    Error = 3,
    /// Something is not as it should be.
    Warning = 4,
}

/// Where words go.
pub type Say = fn(Urgency, &str);

/// Who calls, and why.
pub enum Call {
    /// libvirt's hook for QEMU.
    Libvirt {
        /// What is happening.
        operation: Operation,
        /// What libvirt calls the domain.
        name: String,
        /// The domain's XML.
        xml: Box<dyn Read + Send>,
    },
    /// Proxmox VE's hookscript.
    Proxmox {
        /// What is happening.
        phase: Phase,
        /// The VM's number.
        number: u32,
    },
}

/// What was not done.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Failure {
    /// What was to be done, for which VM.
    what: String,
    why: Error,
    /// The VM may not start.
    pub refuses_the_start: bool,
}

/// Does what there is to do, on the host whose files are below `root`.
///
/// # Errors
/// What was not done, and whether the VM may start all the same.
pub fn run(call: Call, root: &Path, say: Say) -> Result<(), Failure> {
    let deadline = Instant::now() + LIMIT;
    // Whether the VM may ask for a budget, as far as is known: no other is refused, whatever goes wrong.
    let asks = Arc::new(AtomicBool::new(false));
    let keeper = Keeper::new(Places::below(root), deadline, say);
    let (what, is_before_the_start) = match &call {
        Call::Libvirt {
            operation, name, ..
        } => (
            format!("{} of VM {}", operation.word(), shown(name)),
            *operation == Operation::Prepare,
        ),
        Call::Proxmox { phase, number } => (
            format!("{} of VM {number}", phase.word()),
            *phase == Phase::PreStart,
        ),
    };
    let asks_now = Arc::clone(&asks);
    let done = within(deadline, move || {
        let it_asks = || asks_now.store(true, Ordering::Relaxed);
        match call {
            Call::Libvirt { operation, xml, .. } => libvirt::run(operation, xml, &keeper, &it_asks),
            Call::Proxmox { phase, number } => proxmox::run(number, phase, &keeper, &it_asks),
        }
    });
    done.map_err(|why| Failure {
        what,
        why,
        refuses_the_start: is_before_the_start && asks.load(Ordering::Relaxed),
    })
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
        Err(RecvTimeoutError::Timeout) => {
            let what = format!("not done within {} s", LIMIT.as_secs());
            Err(Fault::machine(what, "").into())
        }
        Err(RecvTimeoutError::Disconnected) => {
            Err(Fault::machine("this hook has failed: please report it", "").into())
        }
    }
}
