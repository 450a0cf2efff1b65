//! Lockdown: what a kernel keeps from root, too, as Debian's does where it was started under Secure Boot.
//!
//! `integrity` closes every way to change the running kernel: modules without a known signature, kexec of an unsigned
//! kernel, files of debugfs that can be written (EPERM at open, also for reading). `confidentiality` closes
//! the ways to read it, too: tracefs, perf events of the kernel, BPF programs that read its memory.

use std::io;

use crate::settings::Machine;

/// The kernel's own word, such as "none [integrity] confidentiality".
pub(crate) const FILE: &str = "/sys/kernel/security/lockdown";
/// Four bytes of attributes, and one that is 1 where it is on.
const SECURE_BOOT: &str =
    "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";

/// What is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lockdown {
    /// Nothing.
    Off,
    /// Something: the kernel's word for it.
    On(String),
    /// There is no such file: the kernel has no lockdown, or securityfs is not mounted.
    NoFile,
}

impl Lockdown {
    /// That of the kernel that runs.
    pub fn of(machine: &Machine) -> Self {
        let Ok(text) = machine.tree.read(FILE) else {
            return Self::NoFile;
        };
        let chosen = text
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'));
        match chosen {
            Some(("none", _)) => Self::Off,
            Some((word, _)) => Self::On(word.to_owned()),
            None => Self::On(text.trim().to_owned()),
        }
    }
}

/// Whether the firmware started only what is signed; `None` where it does not say.
pub(crate) fn secure_boot(machine: &Machine) -> Option<bool> {
    let bytes = machine.tree.read_bytes(SECURE_BOOT).ok()?;
    bytes.last().map(|last| *last == 1)
}

/// What to do about a file of debugfs that cannot be opened.
pub(crate) fn advice_on_debugfs(machine: &Machine, error: &io::Error) -> String {
    match (error.raw_os_error(), Lockdown::of(machine)) {
        (Some(libc::EPERM), Lockdown::On(word)) => format!(
            "the kernel is locked down ({FILE} is {word}), as it is under Secure Boot, and keeps the file from \
             root too: switch Secure Boot off in the firmware, or leave the file as it is"
        ),
        (Some(libc::EPERM), Lockdown::NoFile) => format!(
            "a kernel that is locked down, as it is under Secure Boot, keeps the file from root too; {FILE} \
             would say so: mount securityfs (mount -t securityfs securityfs /sys/kernel/security)"
        ),
        (Some(libc::EPERM | libc::EACCES), _) => "run it as root (sudo)".to_owned(),
        (Some(libc::ENOENT), _) if machine.tree.exists("/sys/kernel/debug/sched") => {
            "debugfs is mounted: this kernel was built without it (CONFIG_SCHED_DEBUG)".to_owned()
        }
        _ => "mount debugfs (mount -t debugfs debugfs /sys/kernel/debug)".to_owned(),
    }
}
