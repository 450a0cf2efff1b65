//! Whether this host holds one VM more: asked of the same plan that `apply --strict` heeds.

use std::path::Path;

use steadyvm_fault::At;
use steadyvm_host::{CpuSet, Machine};
use steadyvm_site::{DropIn, Site};

use crate::error::{Result, refused};
use crate::interface::shown;

/// Refuses a VM that the host of this file cannot hold. `description` is the VM's file, which is not written yet.
///
/// # Errors
/// Why, and what to do.
pub fn admit(file: &Path, name: &str, description: DropIn) -> Result<()> {
    if !file.exists() {
        return refused(format!(
            "{} is not there, and real-time VMs start only where it says which CPUs they have: write [host] with \
             enforce = \"auto\" \
             (steadyvm.toml(5) has its keys)",
            file.display()
        ));
    }
    let site = Site::admit(file, description)
        .doing(format!("this host cannot hold VM {}", shown(name)))?;
    if site.offers().is_none() {
        return refused(format!(
            "{} has no [host] with enforce, so nothing would keep the budget of VM {}: add enforce = \"auto\"; \
             enforce = \"none\" counts only",
            file.display(),
            shown(name)
        ));
    }
    Ok(())
}

/// The CPUs that a VM's description names: those that its domain allows, of those that the host's file gives to VMs. None
/// if the domain allows all that are online.
///
/// # Errors
/// A domain that allows none of them.
pub fn cpus_for(
    file: &Path,
    machine: &Machine,
    allowed: Option<&CpuSet>,
) -> Result<Option<CpuSet>> {
    let Some(allowed) = allowed else {
        return Ok(None);
    };
    if machine.online()?.is_subset(allowed) {
        return Ok(None);
    }
    let Some(host) = steadyvm_site::host_cpus(file, machine)? else {
        return Ok(Some(allowed.clone()));
    };
    let hosts: CpuSet = host.cpus.iter().map(|&cpu| cpu as usize).collect();
    let both = allowed.intersection(&hosts);
    if both.is_empty() {
        return refused(format!(
            "the VM may use CPUs {allowed} only, and {} gives CPUs {hosts} to VMs: let the two agree (<vcpu cpuset=…>, \
             Nova's cpu_shared_set, cpus of [host])",
            file.display()
        ));
    }
    Ok(Some(both))
}
