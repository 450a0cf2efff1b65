//! What all BPF programs of this crate need.

use std::path::Path;
use std::sync::Mutex;

use libbpf_rs::set_print;
use steadyvm_fault::{Fault, Result};

/// libbpf has one place for what it prints.
static PRINTING: Mutex<()> = Mutex::new(());

/// Refuses a kernel without BTF, which finds the programs' tracepoints.
pub fn require_btf() -> Result<()> {
    if Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Ok(());
    }
    Err(Fault::lack(
        "cannot trace by BPF",
        "the kernel lacks BTF (CONFIG_DEBUG_INFO_BTF)",
    ))
}

/// libbpf prints why it fails, but there is another way.
pub fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let _alone = PRINTING.lock();
    let before = set_print(None);
    let done = work();
    set_print(before);
    done
}
