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
    /// The same, and a reservation for each VCPU.
    Budgets,
}

/// A VCPU's reservation: 20 of them take 1.6 of 2 CPUs.
pub const BUDGET: Duration = Duration::from_millis(2);
/// Its period.
pub const PERIOD: Duration = Duration::from_millis(25);

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
        if kept == Kept::Budgets {
            let (budget, period) = (BUDGET.as_millis(), PERIOD.as_millis());
            let _ = write!(text, "budget = \"{budget}ms\"\nperiod = \"{period}ms\"\n");
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_vm_is_named_once_and_has_a_budget_where_the_row_has_them() {
        assert_eq!(text(Kept::Stock, 3), None);
        for kept in [Kept::Ranks, Kept::Budgets] {
            let text = text(kept, 12).unwrap();
            assert_eq!(text.matches("[[vm]]").count(), 12);
            for number in 0..12 {
                assert_eq!(text.matches(&format!("\"{}\"", name(number))).count(), 1);
            }
            let budgets = text.matches("budget = \"2ms\"").count();
            assert_eq!(budgets, if kept == Kept::Budgets { 12 } else { 0 });
        }
    }
}
