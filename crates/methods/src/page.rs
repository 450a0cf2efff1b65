//! The table of methods as people read it: in the help of `compare --methods` and in docs/guide/methods.md.

use std::fmt::Write as _;

use crate::row::{MethodRow, Need, Role};
use crate::{Guests, Method};

/// Their names, settings and guests, and what the controls show: lines of at most 70 columns, since a terminal indents them.
pub fn help() -> String {
    let line = |name: &str, host: &str, guests: &str| format!("  {name:<15} {host:<13} {guests}\n");
    let mut text = line("method", "host settings", "guests");
    for method in in_order() {
        let row = method.row();
        let settings = match row.switches.alias() {
            Some(Method::Vanilla) => "none".to_owned(),
            _ => row.switches.to_string(),
        };
        text += &line(row.name, &settings, row.guests.words());
    }
    for (title, is_one) in [
        (
            "The papers' mechanism, reproduced on the kernel that it patches:",
            Role::is_reproduction as fn(Role) -> bool,
        ),
        (
            "Peers, which others use in steadyvm's place:",
            Role::is_peer,
        ),
        ("Controls:", Role::is_control),
    ] {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n{title}\n");
        for method in Method::ALL {
            let row = method.row();
            if is_one(row.role) {
                let words = match row.role {
                    Role::Control(shows) => shows,
                    _ => row.sets,
                };
                let _ = writeln!(text, "  {:<15} {}", row.name, words.replace('`', ""));
            }
        }
    }
    text
}

/// A row a method for the guide.
pub fn markdown() -> String {
    let mut text = String::from("| method | kernel | what it sets | guests |\n|---|---|---|---|\n");
    for method in in_order() {
        let row = method.row();
        let role = match row.role {
            Role::Own => String::new(),
            Role::Reproduction => " (a reproduction)".to_owned(),
            Role::Peer => " (a peer)".to_owned(),
            Role::Control(shows) => format!(" (a control: {shows})"),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| `{}`{role} | {} | {} | {} |",
            row.name,
            kernel(row),
            row.sets,
            guests(row.guests)
        );
    }
    text
}

/// Those for a host's owner first, then those to measure by.
fn in_order() -> Vec<Method> {
    let mut methods = Method::ALL.to_vec();
    methods.sort_by_key(|method| match method.row().role {
        Role::Own => 0,
        Role::Reproduction => 1,
        Role::Peer => 2,
        Role::Control(_) => 3,
    });
    methods
}

fn guests(guests: Guests) -> String {
    guests.words().replace("steadyvm up", "`steadyvm up`")
}

/// The kernel that a method needs, and how it is booted.
fn kernel(row: &MethodRow) -> String {
    let has = |need| row.needs.contains(&need);
    let mut words = match (has(Need::PreemptRt), has(Need::Levels)) {
        (false, _) if !row.kernel.row().has_levels => "any",
        (true, false) if !row.kernel.row().has_levels => "PREEMPT_RT",
        _ => "PREEMPT_RT with our patches",
    }
    .to_owned();
    for (need, booted) in [
        (Need::IsolatedCpus, ", booted with CPUs set aside"),
        (Need::Iommu, ", an IOMMU in use"),
    ] {
        if has(need) {
            words += booted;
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_has_every_method_and_fits() {
        let help = help();
        for method in Method::ALL {
            assert!(help.contains(&format!("\n  {method} ")), "{method}: {help}");
        }
        assert!(help.lines().all(|line| line.len() <= 70), "{help}");
    }

    /// Renew it: the table is what this test prints.
    #[test]
    fn the_guide_has_the_table() {
        let guide = include_str!("../../../docs/guide/methods.md");
        let table = markdown();
        assert!(
            guide.contains(&table),
            "docs/guide/methods.md lacks:\n{table}"
        );
    }
}
