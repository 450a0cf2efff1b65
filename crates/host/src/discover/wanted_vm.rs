//! A VM as a person names it on a command line: `NAME`, `PID`, and its VCPUs that run the service.

use std::str::FromStr;

use super::processes::Processes;
use super::vm_names::VmSelector;
use super::{all_vms, find_vm};
use crate::error::HostError;
use crate::method::RtVm;
use crate::printable::printable;
use crate::settings::Machine;

/// A VM that somebody wants to be real-time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedVm {
    selector: VmSelector,
    rt_vcpus: Vec<u32>,
}

impl FromStr for WantedVm {
    type Err = HostError;

    /// Reads `PID` or `NAME`, and what may follow: `:VCPU,VCPU`. A name may have colons of its own, but not end as
    /// VCPUs do. Digits are a process.
    fn from_str(text: &str) -> Result<Self, HostError> {
        let numbers = |list: &str| -> Option<Vec<u32>> {
            let vcpus = list.split(',').map(|vcpu| vcpu.parse().ok());
            vcpus.collect()
        };
        let split = text
            .rsplit_once(':')
            .and_then(|(who, list)| Some((who, numbers(list)?)));
        let (who, mut rt_vcpus) = split.unwrap_or((text, Vec::new()));
        rt_vcpus.sort_unstable();
        rt_vcpus.dedup();
        let is_number = who.bytes().all(|byte| byte.is_ascii_digit());
        let selector = if is_number {
            who.parse().ok().filter(|&pid| pid > 0).map(VmSelector::Pid)
        } else {
            Some(VmSelector::Name(who.to_owned()))
        };
        let selector = selector.ok_or_else(|| HostError::BadInput {
            what: format!("`{}` does not name a VM", printable(text)),
            fix: "write its name or the process of its monitor, and :VCPU,VCPU for those that run the service, as in \
                  web:1 or 4711:1"
                .into(),
        })?;
        Ok(Self { selector, rt_vcpus })
    }
}

impl WantedVm {
    /// The running VM that is meant. A number is taken as it is: whether it is a VM's shows where it is used.
    /// `warnings` tells of processes that claim the name and are not believed.
    ///
    /// # Errors
    /// No such VM, or several.
    pub fn find(&self, machine: &Machine, warnings: &mut Vec<String>) -> Result<RtVm, HostError> {
        let rt_vm = |pid| RtVm {
            pid,
            rt_vcpus: self.rt_vcpus.clone(),
        };
        if let VmSelector::Pid(pid) = self.selector {
            return Ok(rt_vm(pid));
        }
        let threads = machine.all_threads()?;
        let processes = Processes::of(&threads);
        let told = warnings.len();
        if let Some(found) = find_vm(machine, &processes, &self.selector, &[], warnings)? {
            return Ok(rt_vm(found.pid));
        }
        let running = all_vms(machine, &processes);
        let running: Vec<String> = running
            .iter()
            .map(|(name, vm)| format!("{} (process {})", printable(name), vm.pid))
            .collect();
        Err(HostError::BadInput {
            what: [format!("{} does not run on this host", self.selector)]
                .into_iter()
                .chain(warnings.drain(told..))
                .collect::<Vec<_>>()
                .join("; "),
            fix: if running.is_empty() {
                "start it first: no VM runs that KVM knows of".into()
            } else {
                format!(
                    "start it first, or name one that runs: {}",
                    running.join(", ")
                )
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> (VmSelector, Vec<u32>) {
        let WantedVm { selector, rt_vcpus } = text.parse().unwrap();
        (selector, rt_vcpus)
    }

    #[test]
    fn reads_vms() {
        let name = |name: &str| VmSelector::Name(name.into());
        for (text, selector, vcpus) in [
            ("12:3,1,3", VmSelector::Pid(12), &[1, 3][..]),
            ("12", VmSelector::Pid(12), &[]),
            ("web", name("web"), &[]),
            ("web:1,2", name("web"), &[1, 2]),
            ("a:b", name("a:b"), &[]),
            ("a:b:0", name("a:b"), &[0]),
            ("1:a", name("1:a"), &[]),
            ("1a", name("1a"), &[]),
        ] {
            assert_eq!(read(text), (selector, vcpus.to_vec()), "{text}");
        }
        for text in ["", "0", ":1", "0:1", "99999999999"] {
            let error = text.parse::<WantedVm>().unwrap_err();
            assert_eq!(error.blame().exit_code(), 2, "{text}");
            assert!(error.to_string().contains("web:1"), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn a_name_is_read_whatever_it_is(name in "[a-z][a-z0-9 :.-]{0,12}[a-z]", vcpus in prop::collection::vec(0_u32..9, 1..4)) {
            let list: Vec<String> = vcpus.iter().map(ToString::to_string).collect();
            let (selector, mut read) = read(&format!("{name}:{}", list.join(",")));
            prop_assert_eq!(selector, VmSelector::Name(name));
            prop_assert!(vcpus.iter().all(|vcpu| read.contains(vcpu)));
            read.retain(|vcpu| !vcpus.contains(vcpu));
            prop_assert!(read.is_empty());
        }

        #[test]
        fn no_text_panics(text in ".{0,24}") {
            let _ = text.parse::<WantedVm>();
        }
    }
}
