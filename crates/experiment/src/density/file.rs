//! The host's file of a row: its VMs, and what keeps them apart.

use std::fmt::Write;
use std::time::Duration;

/// What a row sets on its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// Nothing.
    Stock,
    /// Ranks of the packets' way and of the VCPUs.
    Ranks,
    /// The same, and a reservation for each VCPU that the plan admits: the plan's, for the VM's service.
    Budgets,
}

/// Services with a budget: those of the first VMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Services {
    /// How many VMs have one.
    pub vms: usize,
    /// CPU time that a request takes of its VCPU, in microseconds.
    pub work_us: u64,
}

/// The least time between two requests to a VM, and so the longest that the plan lets a reply take.
pub const APART: Duration = Duration::from_millis(50);

/// Of the budgets. A guest has one VCPU, which its timers wake, too: it needs a budget that holds whatever wakes it.
const PERIOD: Duration = Duration::from_millis(10);

/// The name of a real-time VM, by its number from 0.
pub fn name(number: usize) -> String {
    format!("vm{number:02}")
}

/// The file for so many VMs of class rt, the first of which have budgets.
pub fn text(vms: usize, services: Option<Services>) -> String {
    let mut text = match services {
        None => String::new(),
        Some(_) => "[host]\nenforce = \"deadline\"\n".to_owned(),
    };
    text.push_str("[[nic]]\nname = \"rt\"\nclass = \"rt\"\n");
    for number in 0..vms {
        let vm = name(number);
        // Writing to a string cannot fail.
        let _ = write!(text, "[[vm]]\nname = \"{vm}\"\nclass = \"rt\"\n");
        let Some(Services { work_us, .. }) = services.filter(|it| number < it.vms) else {
            continue;
        };
        let (period, apart) = (PERIOD.as_millis(), APART.as_millis());
        let _ = write!(
            text,
            "interface = \"prm\"\nperiod = \"{period}ms\"\n[[service]]\nvm = \"{vm}\"\nc = \"{work_us}us\"\nt = \"{apart}ms\"\n\
             limit = \"{apart}ms\"\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_vm_is_named_once_and_the_first_ones_have_services() {
        let work_us = 2345;
        for services in [None, Some(Services { vms: 7, work_us })] {
            let text = text(12, services);
            assert_eq!(text.matches("[[vm]]").count(), 12);
            for number in 0..12 {
                let name = format!("name = \"{}\"", name(number));
                assert_eq!(text.matches(&name).count(), 1);
            }
            let with = services.map_or(0, |it| it.vms);
            assert_eq!(text.matches("limit = \"50ms\"").count(), with);
            assert_eq!(text.matches("c = \"2345us\"").count(), with);
        }
    }
}
