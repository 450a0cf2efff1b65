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
    /// The same, and a reservation for each VCPU: the plan's, for the VM's service.
    Budgets,
}

/// The work of a request: an emulated guest needs about 3 ms, and its own timers the rest. The requests of 20 VMs take 1.6 of 2
/// CPUs.
pub const WORK: Duration = Duration::from_millis(4);
/// The least time between two requests to a VM, and so the longest that the plan lets a reply take.
pub const APART: Duration = Duration::from_millis(50);

/// The name of a real-time VM, by its number from 0.
pub fn name(number: usize) -> String {
    format!("vm{number:02}")
}

/// The file for so many VMs; `None` where the row sets nothing.
pub fn text(kept: Kept, vms: usize) -> Option<String> {
    let mut text = match kept {
        Kept::Stock => return None,
        Kept::Ranks => String::new(),
        Kept::Budgets => "[host]\nenforce = \"deadline\"\n".to_owned(),
    };
    text.push_str("[[nic]]\nname = \"rt\"\nclass = \"rt\"\n");
    for number in 0..vms {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "[[vm]]\nname = \"{}\"\nclass = \"rt\"\n",
            name(number)
        );
    }
    let services = if kept == Kept::Budgets { vms } else { 0 };
    for number in 0..services {
        let (vm, work, apart) = (name(number), WORK.as_millis(), APART.as_millis());
        let _ = write!(
            text,
            "[[service]]\nvm = \"{vm}\"\nc = \"{work}ms\"\nt = \"{apart}ms\"\nlimit = \"{apart}ms\"\n"
        );
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_vm_is_named_once_and_has_a_service_where_the_row_has_budgets() {
        assert_eq!(text(Kept::Stock, 3), None);
        for kept in [Kept::Ranks, Kept::Budgets] {
            let text = text(kept, 12).unwrap();
            assert_eq!(text.matches("[[vm]]").count(), 12);
            let services = if kept == Kept::Budgets { 12 } else { 0 };
            for number in 0..12 {
                let name = format!("name = \"{}\"", name(number));
                assert_eq!(text.matches(&name).count(), 1);
            }
            assert_eq!(text.matches("limit = \"50ms\"").count(), services);
        }
    }
}
