//! What whoever runs a method gives up for it.

use crate::testbed::{ComparedMethod, Price};
use std::fmt::Write as _;

/// The processors of an emulated host.
const CPUS: u32 = 2;

/// A table of the methods' prices; empty where each is nothing.
pub fn table(methods: &[ComparedMethod]) -> String {
    let prices: Vec<(String, Price)> = (methods.iter())
        .map(|method| (method.to_string(), method.row().price))
        .collect();
    if prices.iter().all(|(_, price)| *price == Price::NOTHING) {
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
