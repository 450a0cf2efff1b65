//! Words that files had before version 1.0, and what to write instead.
//!
//! Rule: an old word is an error with its line and the new line, and all of a file are said at once. The rows of [`instead`]
//! are all of them; `tests/old_words.rs` has an example of each.

use std::fmt::Write as _;
use std::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::Error;
use crate::duration::written;
use crate::source::Source;

/// A key of the file.
struct Found<'t> {
    /// The names from the top to it; an item of a list has its list's.
    path: Vec<&'t str>,
    /// Where its name is.
    key: Range<usize>,
    value: &'t DeValue<'t>,
    /// Where its value is.
    span: Range<usize>,
}

/// What to write instead of an old word.
struct Instead {
    /// The table, or the file, that it goes to; empty: nowhere.
    place: String,
    line: String,
}

/// Refuses old words.
///
/// # Errors
/// The first old word with its place, and the others by their lines.
pub(crate) fn refuse(source: &Source<'_>, tables: &DeTable<'_>) -> Result<(), Error> {
    let mut keys = Vec::new();
    gather(tables, &[], &mut keys);
    keys.sort_by_key(|found| found.key.start);
    let mut old = keys.iter().filter_map(|found| {
        let value = source.written(found.span.clone());
        let new = instead(found, value, tables)?;
        Some((source.place(found.key.start), sentence(&found.path, &new)))
    });
    let Some((place, mut message)) = old.next() else {
        return Ok(());
    };
    for (place, more) in old {
        // Writing to a String cannot fail.
        let _ = write!(message, "\n  line {}: {more}", place.line);
    }
    Err(Error::new(place, message))
}

fn sentence(path: &[&str], new: &Instead) -> String {
    let old = path.join(".");
    match (new.place.as_str(), new.line.as_str()) {
        ("", line) => format!("{old} is no longer a word of this file; {line}"),
        (place, "") => format!("{old} is an old word; write {place}"),
        (place, line) => format!("{old} is an old word; write {line} into {place}"),
    }
}

fn gather<'t>(table: &'t DeTable<'t>, path: &[&'t str], keys: &mut Vec<Found<'t>>) {
    for (key, value) in table {
        let mut path = path.to_vec();
        path.push(key.get_ref());
        within(value.get_ref(), &path, keys);
        keys.push(Found {
            path,
            key: key.span(),
            value: value.get_ref(),
            span: value.span(),
        });
    }
}

fn within<'t>(value: &'t DeValue<'t>, path: &[&'t str], keys: &mut Vec<Found<'t>>) {
    match value {
        DeValue::Table(table) => gather(table, path, keys),
        DeValue::Array(items) => {
            for item in items {
                within(item.get_ref(), path, keys);
            }
        }
        _ => {}
    }
}

/// What to write instead of a key; none if it is no old word. `value` is its value as it is written.
fn instead(found: &Found<'_>, value: &str, file: &DeTable<'_>) -> Option<Instead> {
    let to = |place: &str, line: String| {
        Some(Instead {
            place: place.to_owned(),
            line,
        })
    };
    let same = |place: &str, key: &str| to(place, format!("{key} = {value}"));
    let is_empty = matches!(found.value, DeValue::Table(table) if table.is_empty());
    match found.path[..] {
        ["sched"] if get(file, &["sched", "mechanism"]).is_none() => {
            to("[host]", "enforce = \"auto\"".to_owned())
        }
        ["sched", "mechanism"] => same("[host]", "enforce"),
        ["sched", "server"] | ["sched", "vm", _, "server"] => same("[host]", "server"),
        ["sched", "order" | "queue"] => to("[host]", format!("scheduler = \"{}\"", order(file))),
        ["sched", "quantum_us"] => to("[host]", format!("quantum = {}", time(value))),
        ["sched", "vm", name] => to("[[vm]]", format!("name = {}", crate::quoted(name))),
        ["sched", "vm", name, key] => {
            let place = format!("the [[vm]] of {}", crate::quoted(name));
            match key {
                "budget_us" | "period_us" | "deadline_us" => {
                    let key = key.trim_end_matches("_us");
                    to(&place, format!("{key} = {}", time(value)))
                }
                "priority" | "cpus" => same(&place, key),
                _ => None,
            }
        }
        ["host", "overheads", "quantum"] => same("[host]", "quantum"),
        ["host", "overheads", "scheduler"] => same("[host.overheads]", "decision"),
        [
            "net",
            key @ ("ksoftirqd" | "rcu" | "timers" | "device_irq"),
        ] => same("[kernel]", key),
        ["net", "fair_server_us"] => to("[kernel]", format!("fair_server = {}", time(value))),
        ["net", "budget_us"] => to("[net]", format!("budget_time = {}", time(value))),
        ["class", class, "net"] if is_empty => to(&format!("[class.{class}]"), String::new()),
        ["class", class, "net", key] => {
            let new = if key == "cpus" { "path_cpus" } else { key };
            same(&format!("[class.{class}]"), new)
        }
        ["vm" | "class", .., "tasks", "j"] => same("the task", "jitter"),
        ["vm" | "class", .., "tasks", "s"] => same("the task", "suspension"),
        ["simulate"] => to(
            "",
            "write its keys into a file of their own, for steadyvm simulate FILE --with simulate.toml"
                .to_owned(),
        ),
        ["simulate", "order"] => to("simulate.toml", format!("scheduler = \"{}\"", order(file))),
        ["random"] => to(
            "",
            "write its keys and [host] into a file of their own, for steadyvm plan FILE --random"
                .to_owned(),
        ),
        [key @ ("vms" | "services" | "flows")] if matches!(found.value, DeValue::Array(_)) => {
            to(&format!("[[{}]]", key.trim_end_matches('s')), String::new())
        }
        [key @ ("schema_version" | "unit")] => to(
            "",
            format!("leave it out ({key} is of requests in JSON)"),
        ),
        _ => None,
    }
}

/// The word of `[host] scheduler` for the order and the queue of `[sched]` or `[simulate]`.
fn order(file: &DeTable<'_>) -> String {
    let text = |path: &[&str]| match get(file, path) {
        Some(DeValue::String(text)) => Some(text.as_ref()),
        _ => None,
    };
    let hosts = text(&["host", "scheduler"]);
    let order = match text(&["sched", "order"]).or_else(|| text(&["simulate", "order"])) {
        Some("deadline-monotonic" | "dm") => "dm",
        Some("rate-monotonic" | "rm") => "rm",
        Some("explicit") => "fp",
        Some(_) => "edf",
        None => hosts.and_then(|word| word.get(1..)).unwrap_or("edf"),
    };
    let queue = match text(&["sched", "queue"]) {
        Some("partitioned") => "p",
        Some(_) => "g",
        None => hosts.and_then(|word| word.get(..1)).unwrap_or("g"),
    };
    format!("{queue}{order}")
}

fn get<'t>(file: &'t DeTable<'t>, path: &[&str]) -> Option<&'t DeValue<'t>> {
    let (first, rest) = path.split_first()?;
    let value = file.get(*first)?.get_ref();
    if rest.is_empty() {
        return Some(value);
    }
    match value {
        DeValue::Table(table) => get(table, rest),
        _ => None,
    }
}

/// Microseconds as a time.
fn time(us: &str) -> String {
    let us = us.trim().replace('_', "").parse::<i64>().ok();
    us.map_or_else(
        || "\"1ms\"".to_owned(),
        |us| written(i128::from(us) * 1_000),
    )
}
