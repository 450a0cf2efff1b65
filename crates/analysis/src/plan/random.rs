//! Acceptance curves: how many random task sets each combination of schedulers holds, by their utilisation.
//!
//! Model: a file of its own, with the host. Tasks are drawn until a total utilisation is reached, dealt to the VMs in turn,
//! and every combination plans the same sets on that host.
//! Generators: `uunifast` (Bini and Buttazzo 2005): `tasks` utilisations with the total as their sum, none above 1;
//! `bimodal` (the dissertation's, section 3.4): two thirds uniform in 0.0001 to 0.5, one third in 0.5 to 0.9, the last
//! one cut to the total. The same seed gives the same sets.

use std::fmt::Write;
use std::ops::Deref;

use serde::Serialize;
use serde_json::{Value, json};
use steadyvm_config::{Column, Distribution, Written};

use super::{
    InputError, Report, svg,
    value::{self, Object},
};
use crate::{error::positive, time::Time};

const MOST_SETS: u32 = 100_000;
const MOST_ROWS: usize = 1_000;
const MOST_TASKS: usize = 1_000;

/// What sets are drawn.
#[derive(Debug, Clone)]
pub struct Random(steadyvm_config::Random);

impl Deref for Random {
    type Target = steadyvm_config::Random;

    fn deref(&self) -> &steadyvm_config::Random {
        &self.0
    }
}

/// What was found: a row a utilisation.
#[derive(Debug, Clone, Serialize)]
pub struct Curves {
    /// Task sets a row.
    pub sets: u32,
    /// Host scheduler, guest scheduler and interface.
    pub columns: Vec<String>,
    /// By rising utilisation.
    pub rows: Vec<Row>,
}

/// A utilisation.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Of the tasks in all.
    pub utilization: f64,
    /// For each column, sets whose plan is feasible.
    pub accepted: Vec<u32>,
    /// For each column, CPUs that the interfaces take in the mean, of the sets with an interface for every VM.
    pub mean_bandwidth: Vec<Option<f64>>,
}

/// `SplitMix64` (Steele, Lea and Flood, OOPSLA 2014).
struct Generator(u64);

impl Generator {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In [0, 1).
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.share()
    }
}

impl Random {
    /// Reads a file of random task sets, or the same in JSON.
    ///
    /// # Errors
    /// One that describes no sets.
    pub fn of(text: &str) -> Result<Self, InputError> {
        let read = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|error| InputError::new("random sets", error))?
        } else {
            steadyvm_config::Random::parse("", text)?
        };
        let read = Self(read);
        (read.check()).map_err(|message| InputError::new("the file", message))?;
        Ok(read)
    }

    fn check(&self) -> Result<(), String> {
        let time = |what, time: Written| positive(what, time.0).map_err(|error| error.to_string());
        let (low, high) = (
            time("periods.from", self.periods.from)?,
            time("periods.to", self.periods.to)?,
        );
        for &period in &self.vcpu_periods {
            time("a VCPU period", period)?;
        }
        let needs_tasks = matches!(self.distribution, Distribution::UUniFast);
        for (bad, message) in [
            (
                self.sets == 0 || self.sets > MOST_SETS,
                "sets must be between 1 and 100000",
            ),
            (low > high, "periods.from exceeds periods.to"),
            (
                self.vcpu_periods.is_empty() || self.columns.is_empty(),
                "vcpu_periods and columns need an entry",
            ),
            (
                self.vms == 0 || self.vms > 1_000,
                "vms must be between 1 and 1000",
            ),
            (
                needs_tasks && !(1..=MOST_TASKS).contains(&self.tasks),
                "uunifast needs tasks, between 1 and 1000",
            ),
            (
                needs_tasks && self.to > self.tasks as f64 * 0.9,
                "to is more than 0.9 of tasks; no task has a utilisation above 1: raise tasks",
            ),
            (
                !(self.from > 0.0 && self.step > 0.0 && self.to >= self.from && self.to <= 1_000.0)
                    || (self.to - self.from) / self.step > MOST_ROWS as f64,
                "from, to and step are utilisations: 0 < from <= to <= 1000, at most 1000 steps",
            ),
        ] {
            if bad {
                return Err(message.to_owned());
            }
        }
        Ok(())
    }

    fn rows(&self) -> impl Iterator<Item = f64> + '_ {
        let count = ((self.to - self.from) / self.step + 1e-9) as u32;
        (0..=count).map(|row| self.from + f64::from(row) * self.step)
    }

    /// (execution, period) of each task.
    fn draw(&self, total: f64, generator: &mut Generator) -> Vec<(Time, Time)> {
        let shares = match self.distribution {
            Distribution::Bimodal => bimodal(total, generator),
            Distribution::UUniFast => uunifast(total, self.tasks, generator),
        };
        let (low, high) = (self.periods.from.0 as f64, self.periods.to.0 as f64);
        (shares.into_iter())
            .map(|share| {
                let period = generator.between(low, high) as Time;
                (((period as f64 * share) as Time).clamp(1, period), period)
            })
            .collect()
    }

    fn vms(&self, tasks: &[(Time, Time)], column: Column) -> Vec<Value> {
        (0..self.vms as usize)
            .filter_map(|vm| {
                let dealt: Vec<Value> = (tasks.iter().skip(vm).step_by(self.vms as usize))
                    .map(|(c, t)| json!({"c": c, "t": t}))
                    .collect();
                let period = self.vcpu_periods[vm % self.vcpu_periods.len()].0;
                let (scheduler, interface) = (column.guest.word(), column.interface.word());
                (!dealt.is_empty()).then(|| {
                    json!({"name": format!("vm{vm}"), "scheduler": scheduler, "interface": interface,
                           "period": period, "tasks": dealt})
                })
            })
            .collect()
    }
}

fn bimodal(total: f64, generator: &mut Generator) -> Vec<f64> {
    let (mut shares, mut sum) = (Vec::new(), 0.0);
    while sum < total - 0.001 {
        let (low, high) = if generator.share() < 2.0 / 3.0 {
            (0.0001, 0.5)
        } else {
            (0.5, 0.9)
        };
        let share = generator.between(low, high).min(total - sum);
        shares.push(share);
        sum += share;
    }
    shares
}

fn uunifast(total: f64, count: usize, generator: &mut Generator) -> Vec<f64> {
    // Drawn again while one is above 1 (Davis and Burns 2009); `check` keeps that likely.
    for _ in 0..10_000 {
        let (mut shares, mut rest) = (Vec::with_capacity(count), total);
        for left in (1..count).rev() {
            let next = rest * generator.share().powf(1.0 / left as f64);
            shares.push(rest - next);
            rest = next;
        }
        shares.push(rest);
        if shares.iter().all(|&share| share <= 1.0) {
            return shares;
        }
    }
    vec![total / count as f64; count]
}

/// Plans the random sets of the file `text` and shows each: the number of its utilisation, that of its column, the plan.
///
/// # Errors
/// A host that no plan can be made of.
pub fn each(
    text: &str,
    random: &Random,
    mut see: impl FnMut(usize, usize, &Report),
) -> Result<(), InputError> {
    let mut object = value::of(text)?;
    object.retain(|name, _| name == "host");
    let mut generator = Generator(random.seed);
    for (row, utilization) in random.rows().enumerate() {
        for _ in 0..random.sets {
            let tasks = random.draw(utilization, &mut generator);
            for (number, &column) in random.columns.iter().enumerate() {
                let report = value::plan(request(&object, random.vms(&tasks, column), column)?)?;
                see(row, number, &report);
            }
        }
    }
    Ok(())
}

/// Counts the random sets of the file `text` that are accepted.
///
/// # Errors
/// A host that no plan can be made of.
pub fn run(text: &str, random: &Random) -> Result<Curves, InputError> {
    // Of each column: sets accepted; the sum of their bandwidths, and of how many it is.
    type Found = (f64, Vec<u32>, Vec<(f64, u32)>);
    let empty = |utilization| -> Found {
        let columns = random.columns.len();
        (utilization, vec![0; columns], vec![(0.0, 0); columns])
    };
    let mut found: Vec<Found> = random.rows().map(empty).collect();
    each(text, random, |row, number, report| {
        let (_, accepted, sums) = &mut found[row];
        accepted[number] += u32::from(report.feasible);
        let all: Option<f64> = (report.vms.iter())
            .map(|vm| vm.interface.as_ref().map(|interface| interface.bandwidth))
            .sum();
        if let Some(bandwidth) = all {
            sums[number] = (sums[number].0 + bandwidth, sums[number].1 + 1);
        }
    })?;
    let mean = |&(sum, count): &(f64, u32)| (count > 0).then(|| sum / f64::from(count));
    let rows = (found.into_iter())
        .map(|(utilization, accepted, sums)| Row {
            utilization,
            accepted,
            mean_bandwidth: sums.iter().map(mean).collect(),
        })
        .collect();
    let name = |column: &Column| {
        format!(
            "{} host, {} {}",
            column.host.word(),
            column.guest.word(),
            column.interface.word()
        )
    };
    Ok(Curves {
        sets: random.sets,
        columns: random.columns.iter().map(name).collect(),
        rows,
    })
}

fn request(object: &Object, vms: Vec<Value>, column: Column) -> Result<Object, InputError> {
    let mut object = object.clone();
    let Some(Value::Object(host)) = object.get_mut("host") else {
        return Err(InputError::new(
            "host",
            "missing: random sets are planned on a host; give [host]",
        ));
    };
    host.insert("scheduler".to_owned(), column.host.word().into());
    object.insert("vms".to_owned(), vms.into());
    Ok(object)
}

/// A table for people.
pub fn text(curves: &Curves) -> String {
    let mut out = format!(
        "task sets accepted of {} (mean CPUs of their interfaces)\n",
        curves.sets
    );
    for (number, column) in curves.columns.iter().enumerate() {
        let _ = writeln!(out, "  {}: {column}", number + 1);
    }
    out.push_str("     U");
    for number in 1..=curves.columns.len() {
        let _ = write!(out, "  {number:>14}");
    }
    for row in &curves.rows {
        let _ = write!(out, "\n{:6.2}", row.utilization);
        for (accepted, mean) in row.accepted.iter().zip(&row.mean_bandwidth) {
            let mean = mean.map_or("-".to_owned(), |mean| format!("{mean:.2}"));
            let _ = write!(out, "  {:>14}", format!("{accepted} ({mean})"));
        }
    }
    out.push('\n');
    out
}

/// The same as comma-separated values.
pub fn csv(curves: &Curves) -> String {
    let mut out = String::from("utilization,sets");
    for column in &curves.columns {
        let _ = write!(out, ",\"{column}: accepted\",\"{column}: mean CPUs\"");
    }
    for row in &curves.rows {
        let _ = write!(out, "\n{:.4},{}", row.utilization, curves.sets);
        for (accepted, mean) in row.accepted.iter().zip(&row.mean_bandwidth) {
            let _ = write!(
                out,
                ",{accepted},{}",
                mean.map_or(String::new(), |mean| format!("{mean:.4}"))
            );
        }
    }
    out.push('\n');
    out
}

/// The shares accepted.
pub fn svg(curves: &Curves) -> String {
    let marks = |number: usize| {
        let mark = |row: &Row| {
            (
                row.utilization,
                f64::from(row.accepted[number]) / f64::from(curves.sets),
                true,
            )
        };
        curves.rows.iter().map(mark).collect()
    };
    let drawn: Vec<svg::Curve> = (curves.columns.iter().enumerate())
        .map(|(number, name)| svg::Curve {
            name: name.clone(),
            marks: marks(number),
        })
        .collect();
    let end =
        |row: Option<&Row>| row.map_or(String::new(), |row| format!("U = {:.2}", row.utilization));
    let ends = [end(curves.rows.first()), end(curves.rows.last())];
    svg::curves("share of task sets accepted, by utilisation", &ends, &drawn)
}
