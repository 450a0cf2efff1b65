//! A smaller plan file of which something still holds.
//!
//! Whatever can be left out is: tables, keys, elements of lists. Then times and numbers are made rounder and smaller.

use toml::{Table, Value};

/// Tries so many files at most.
const MOST_TRIES: usize = 1_000;

/// Times stay above what no kernel schedules at, us.
const SHORTEST_US: i64 = 100;

/// A path to a value: keys, and positions in lists.
#[derive(Clone)]
enum Step {
    Key(String),
    Position(usize),
}

/// `file` made smaller while `holds`.
pub(super) fn smaller(file: Table, holds: impl Fn(&Table) -> bool) -> Table {
    let mut best = Value::Table(file);
    let mut tries = 0;
    'again: loop {
        let mut paths = Vec::new();
        collect(&best, &mut Vec::new(), &mut paths);
        for path in paths {
            for change in [Change::LeaveOut, Change::Halve, Change::Round, Change::Less] {
                let mut next = best.clone();
                if !at(&mut next, &path, change) {
                    continue;
                }
                tries += 1;
                if tries > MOST_TRIES {
                    break 'again;
                }
                let Value::Table(table) = &next else { continue };
                if holds(table) {
                    best = next;
                    continue 'again;
                }
            }
        }
        break;
    }
    match best {
        Value::Table(table) => table,
        _ => Table::new(),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Change {
    LeaveOut,
    Halve,
    Round,
    Less,
}

/// All values below `value`, outer ones first.
fn collect(value: &Value, path: &mut Vec<Step>, paths: &mut Vec<Vec<Step>>) {
    let steps: Vec<(Step, &Value)> = match value {
        Value::Table(table) => (table.iter())
            .map(|(key, value)| (Step::Key(key.clone()), value))
            .collect(),
        Value::Array(list) => (list.iter().enumerate())
            .map(|(position, value)| (Step::Position(position), value))
            .collect(),
        _ => return,
    };
    for (step, inner) in steps {
        path.push(step);
        paths.push(path.clone());
        collect(inner, path, paths);
        path.pop();
    }
}

/// Changes the value at `path`; false if there is nothing to change.
fn at(value: &mut Value, path: &[Step], change: Change) -> bool {
    let Some((step, rest)) = path.split_first() else {
        return false;
    };
    if rest.is_empty() && change == Change::LeaveOut {
        return match (value, step) {
            // A file without one is played for 10 s.
            (Value::Table(table), Step::Key(key)) => {
                key != "duration" && key != "simulate" && table.remove(key).is_some()
            }
            (Value::Array(list), Step::Position(position)) if *position < list.len() => {
                list.remove(*position);
                true
            }
            _ => false,
        };
    }
    let inner = match (value, step) {
        (Value::Table(table), Step::Key(key)) => table.get_mut(key),
        (Value::Array(list), Step::Position(position)) => list.get_mut(*position),
        _ => None,
    };
    match inner {
        Some(inner) if rest.is_empty() => reduce(inner, change),
        Some(inner) => at(inner, rest, change),
        None => false,
    }
}

fn reduce(value: &mut Value, change: Change) -> bool {
    match value {
        Value::Integer(number) => less(*number, change).map(|next| *number = next).is_some(),
        Value::String(text) => {
            let us = text.strip_suffix("us").and_then(|text| text.parse().ok());
            us.and_then(|us| less(us, change))
                .filter(|&us| us >= SHORTEST_US)
                .map(|next| *text = format!("{next}us"))
                .is_some()
        }
        _ => false,
    }
}

fn less(number: i64, change: Change) -> Option<i64> {
    let next = match change {
        Change::LeaveOut => return None,
        Change::Halve => number / 2,
        Change::Round => {
            let mut digit = 1;
            while number % (digit * 10) == 0 && digit < 1_000_000 {
                digit *= 10;
            }
            number / (digit * 10) * (digit * 10)
        }
        Change::Less => number - 1,
    };
    // Steps of 1 are for what is small already.
    let is_step = change != Change::Less || number <= 32;
    (next < number && next > 0 && is_step).then_some(next)
}
