//! What whoever runs a method gives up for it.

use crate::testbed::{ComparedMethod, Guests};
use std::fmt::Write as _;
use steadyvm_host::Method;

/// The processors of an emulated host.
const CPUS: u32 = 2;

/// What a method takes away from the host's other tenants and from its operator. The default takes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    /// CPUs that nothing but the latency-critical VM may use, however little it does.
    pub cpus_set_aside: u32,
    /// Whether VMs may share the latency-critical VM's CPUs, so that VCPUs can be more than CPUs.
    pub cpus_are_shared: bool,
    /// Whether its memory may be shared or swapped: neither locked nor pinned for a device.
    pub memory_is_shared: bool,
    /// Whether its monitor can move it to another host while it runs.
    pub migrates: bool,
}

impl Default for Price {
    fn default() -> Self {
        Self {
            cpus_set_aside: 0,
            cpus_are_shared: true,
            memory_is_shared: true,
            migrates: true,
        }
    }
}

impl ComparedMethod {
    /// What whoever runs it gives up.
    pub fn price(self) -> Price {
        let nothing = Price::default();
        match (self.host, self.guests) {
            (Method::Tuned, _) => Price {
                cpus_set_aside: 1,
                cpus_are_shared: false,
                memory_is_shared: false,
                ..nothing
            },
            (Method::Dedicated, _) => Price {
                cpus_set_aside: 1,
                cpus_are_shared: false,
                ..nothing
            },
            (_, Guests::Steadyvm | Guests::Outsourced | Guests::OutsourcedBulk) => Price {
                migrates: false,
                ..nothing
            },
            // A device writes to all of the guest's memory, and igbvf has no driver for migration.
            (_, Guests::Passthrough) => Price {
                memory_is_shared: false,
                migrates: false,
                ..nothing
            },
            (_, Guests::Qemu | Guests::RealTime) => nothing,
        }
    }
}

/// A table of the methods' prices; empty where each is nothing.
pub fn table(methods: &[ComparedMethod]) -> String {
    let prices: Vec<(String, Price)> = (methods.iter())
        .map(|method| (method.to_string(), method.price()))
        .collect();
    if prices.iter().all(|(_, price)| *price == Price::default()) {
        return String::new();
    }
    let mut text = String::from(
        "\nThe price: what the latency-critical VM takes from others, and what is no longer possible\n",
    );
    let _ = writeln!(
        text,
        "  {:<17} {:>14} {:>14} {:>17} {:>10}",
        "method", "CPUs set aside", "CPU overcommit", "memory overcommit", "migration"
    );
    let word = |possible: bool| if possible { "yes" } else { "no" };
    for (name, price) in prices {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "  {name:<17} {:>14} {:>14} {:>17} {:>10}",
            format!("{} of {CPUS}", price.cpus_set_aside),
            word(price.cpus_are_shared),
            word(price.memory_is_shared),
            word(price.migrates),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(names: &[&str]) -> Vec<ComparedMethod> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    #[test]
    fn prices_stand_in_a_row_a_method_and_fit() {
        let text = table(&parse(&["preempt-rt", "rt-sockets", "vf", "tuned@6.12-rt"]));
        let rows: Vec<Vec<&str>> = (text.lines().skip(3))
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            rows,
            [
                ["preempt-rt", "0", "of", "2", "yes", "yes", "yes"],
                ["rt-sockets", "0", "of", "2", "yes", "yes", "no"],
                ["vf", "0", "of", "2", "yes", "no", "no"],
                ["tuned@6.12-rt", "1", "of", "2", "no", "no", "yes"],
            ]
        );
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    }

    #[test]
    fn where_nothing_is_given_up_nothing_is_said() {
        assert_eq!(table(&parse(&["vanilla", "preempt-rt", "rt-profile"])), "");
    }
}
