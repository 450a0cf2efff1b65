//! results.json: one shape for every experiment.
//!
//! Rows are what is compared, such as methods; cells are the conditions that each row is measured under.
//! Every figure names its row and cell, its unit and the samples it is of. A ratio is a figure, too: over the
//! same figure of another row or cell. [`Figures`](crate::Figures) writes them; tables and plots ask the record for
//! each by its name, so that they follow from the file alone.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt::Write;
use steadyvm_stats::bootstrap::Ratio;

/// The version of the shape. Up to 4, each experiment had a shape of its own.
pub const SCHEMA_VERSION: u32 = 5;

/// The unit of a ratio.
pub const RATIO: &str = "ratio";

/// What was set, by its key.
pub type Settings = BTreeMap<String, serde_json::Value>;

/// results.json.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA_VERSION`].
    pub schema_version: Version,
    /// The experiment's name.
    pub experiment: String,
    /// What was set, as far as the words of the tables need it.
    pub settings: Settings,
    /// Rounds; with one, intervals cover variation within it only.
    pub rounds: u64,
    /// What is compared, in the order shown.
    pub rows: Vec<String>,
    /// Conditions, in the order shown.
    pub cells: Vec<String>,
    /// Every figure.
    pub figures: Vec<Figure>,
    /// Distributions, for plots.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curves: Vec<Curve>,
    /// What a reader must know.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// A figure of all rounds. One that does not exist is `null`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Whose.
    pub row: String,
    /// Under which condition.
    pub cell: String,
    /// Its name, such as `p99`.
    pub name: String,
    /// Its unit; [`RATIO`] where it is over another.
    pub unit: String,
    /// How many samples it is of; of a ratio, how many rounds.
    pub n: u64,
    /// Its value.
    pub value: Option<f64>,
    /// Its 95 % interval, if it has one.
    #[serde(default)]
    pub interval: Option<Interval>,
    /// Of a ratio: what stands below the line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<Over>,
    /// The same, round by round, where that is kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<Option<f64>>,
}

/// What bootstrap draws say of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Median of the draws.
    pub median: f64,
    /// Low end; `None` where nothing shows how much the figure varies.
    pub low: Option<f64>,
    /// High end.
    pub high: Option<f64>,
}

/// The same figure of another row, or under another condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Over {
    /// Whose.
    pub row: String,
    /// Under which condition.
    pub cell: String,
}

/// A distribution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Whose.
    pub row: String,
    /// Under which condition.
    pub cell: String,
    /// Its name.
    pub name: String,
    /// Unit of its values.
    pub unit: String,
    /// Share of the samples (0 to 1, ascending), and the value that so many are not above.
    pub points: Vec<(f64, f64)>,
}

/// [`SCHEMA_VERSION`]: no other is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Version;

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(SCHEMA_VERSION)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            SCHEMA_VERSION => Ok(Self),
            found => Err(D::Error::custom(ResultsError::Version { found })),
        }
    }
}

/// Why a results.json cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// It is not the JSON of results.
    #[error("results: {0}; the file is not a results.json of this experiment, or is cut short")]
    Json(#[from] serde_json::Error),
    /// It is of another version.
    #[error(
        "results: schema_version is {found}, this steadyvm reads {SCHEMA_VERSION}; use the steadyvm \
         that wrote it (meta.json has its revision), or measure again"
    )]
    Version {
        /// Its version.
        found: u32,
    },
    /// It is of another experiment.
    #[error("results: they are of the experiment `{found}`, not of `{wanted}`")]
    Experiment {
        /// Its experiment.
        found: String,
        /// The one that was asked for.
        wanted: String,
    },
    /// It lacks a figure.
    #[error(
        "results: there is no `{name}` of `{row}` under `{cell}`; the file is of another experiment, or damaged"
    )]
    Missing {
        /// The figure.
        name: String,
        /// Whose.
        row: String,
        /// Under which condition.
        cell: String,
    },
}

/// Reads results.json of any experiment.
///
/// # Errors
/// Text that is not results, or of another version.
pub fn from_json(text: &str) -> Result<Record, ResultsError> {
    #[derive(Deserialize)]
    struct Any {
        schema_version: u32,
    }
    let Any {
        schema_version: found,
    } = serde_json::from_str(text)?;
    if found != SCHEMA_VERSION {
        return Err(ResultsError::Version { found });
    }
    Ok(serde_json::from_str(text)?)
}

/// Reads results.json of one experiment, each of whose rows has under each condition the figures that `required` says.
///
/// # Errors
/// As [`from_json`]; results of another experiment, or without a figure.
pub fn from_json_of(
    text: &str,
    experiment: &str,
    required: impl Fn(&str) -> &'static [&'static str],
) -> Result<Record, ResultsError> {
    let record = from_json(text)?;
    if record.experiment != experiment {
        return Err(ResultsError::Experiment {
            found: record.experiment,
            wanted: experiment.to_owned(),
        });
    }
    for (row, cell) in record.places() {
        let missing = |name: &&&str| record.at(row, cell).figure(name).is_none();
        if let Some(name) = required(cell).iter().find(missing) {
            return Err(ResultsError::Missing {
                name: (*name).to_owned(),
                row: row.to_owned(),
                cell: cell.to_owned(),
            });
        }
    }
    Ok(record)
}

/// results.json as text, with a final newline.
///
/// # Errors
/// None that is known: every field has a JSON form.
pub fn to_json(record: &Record) -> Result<String, ResultsError> {
    Ok(serde_json::to_string_pretty(record)? + "\n")
}

impl Record {
    /// What was set by this key, if it is of the type.
    pub fn setting<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let value = self.settings.get(key)?;
        serde_json::from_value(value.clone()).ok()
    }

    /// Every row under every condition.
    pub fn places(&self) -> impl Iterator<Item = (&str, &str)> {
        let of = |row| self.cells.iter().map(move |cell: &String| (row, &**cell));
        self.rows.iter().flat_map(move |row| of(&**row))
    }

    /// The figures of one row under one condition.
    pub fn at<'r>(&'r self, row: &'r str, cell: &'r str) -> At<'r> {
        At {
            record: self,
            row,
            cell,
        }
    }

    /// figures.csv: a line per figure.
    pub fn csv(&self) -> String {
        let mut table = String::from("row,cell,figure,unit,n,value,low,high,over_row,over_cell\n");
        let number = |value: Option<f64>| value.map_or_else(String::new, |it| it.to_string());
        for it in &self.figures {
            let over = it.over.as_ref();
            let words = [&it.row, &it.cell, &it.name, &it.unit].map(|it| field(it));
            let ends = it.interval.map_or((None, None), |it| (it.low, it.high));
            let [row, cell] = over.map_or_else(Default::default, |it| {
                [&it.row, &it.cell].map(|it| field(it))
            });
            // Writing to a string cannot fail.
            let _ = writeln!(
                table,
                "{},{},{},{},{},{row},{cell}",
                words.join(","),
                it.n,
                number(it.value),
                number(ends.0),
                number(ends.1)
            );
        }
        table
    }
}

/// The figures of one row under one condition, by their names.
#[derive(Debug, Clone, Copy)]
pub struct At<'r> {
    record: &'r Record,
    /// The row.
    pub row: &'r str,
    /// The condition.
    pub cell: &'r str,
}

impl<'r> At<'r> {
    /// Those of it that are over no other.
    pub fn figures(self) -> impl Iterator<Item = &'r Figure> {
        self.all().filter(|it| it.over.is_none())
    }

    /// One of these.
    pub fn figure(self, name: &str) -> Option<&'r Figure> {
        self.figures().find(|it| it.name == name)
    }

    /// Its value, if it exists.
    pub fn value(self, name: &str) -> Option<f64> {
        self.figure(name)?.value
    }

    /// The value of a figure that is a number of things; 0 if it does not exist.
    pub fn count(self, name: &str) -> u64 {
        // Saturates at what no count is.
        self.value(name).unwrap_or(0.0) as u64
    }

    /// Its values of the rounds that have one.
    pub fn rounds(self, name: &str) -> Vec<f64> {
        let rounds = self.figure(name).map_or(&[][..], |it| &it.rounds);
        rounds.iter().copied().flatten().collect()
    }

    /// The first ratio of this name, with its interval.
    pub fn ratio(self, name: &str) -> Option<Ratio> {
        self.over(name)?.ratio()
    }

    /// The first ratio of this name, which may have no interval.
    pub fn over(self, name: &str) -> Option<&'r Figure> {
        self.all().find(|it| it.over.is_some() && it.name == name)
    }

    fn all(self) -> impl Iterator<Item = &'r Figure> {
        let figures = self.record.figures.iter();
        figures.filter(move |it| (&*it.row, &*it.cell) == (self.row, self.cell))
    }
}

impl Figure {
    /// As a ratio, if it is one with an interval.
    pub fn ratio(&self) -> Option<Ratio> {
        let interval = self.interval?;
        Some(Ratio {
            estimate: self.value?,
            median: interval.median,
            low: interval.low,
            high: interval.high,
            rounds: self.n as usize,
        })
    }
}

/// A field of a CSV line (RFC 4180).
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results_checks::{require_old_shape_refused, require_shown_from_json};

    fn record() -> Record {
        Record {
            schema_version: Version,
            experiment: "x".to_owned(),
            settings: Settings::new(),
            rounds: 2,
            rows: vec!["a".to_owned()],
            cells: vec!["GET, alone".to_owned()],
            figures: vec![Figure {
                row: "a".to_owned(),
                cell: "GET, alone".to_owned(),
                name: "p99".to_owned(),
                unit: RATIO.to_owned(),
                n: 2,
                value: Some(0.5),
                interval: Some(Interval {
                    median: 0.5,
                    low: Some(0.25),
                    high: None,
                }),
                over: Some(Over {
                    row: "b \"c\"".to_owned(),
                    cell: "GET".to_owned(),
                }),
                rounds: vec![None, Some(0.5)],
            }],
            curves: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_record_survives_json_and_its_csv_quotes_what_must_be() {
        require_shown_from_json(&record(), |_| &[], Record::csv);
        let csv = record().csv();
        let line = csv.lines().nth(1).unwrap();
        assert_eq!(
            line,
            "a,\"GET, alone\",p99,ratio,2,0.5,0.25,,\"b \"\"c\"\"\",GET"
        );
    }

    #[test]
    fn other_versions_are_refused_before_anything_else_is_looked_at() {
        require_old_shape_refused("{\"schema_version\":4,\"methods\":[]}");
        let error = from_json("{}").unwrap_err();
        assert!(matches!(error, ResultsError::Json(_)), "{error}");
    }

    #[test]
    fn a_record_of_another_experiment_or_without_a_figure_is_refused() {
        let mut whole = record();
        whole.figures[0].over = None;
        let json = to_json(&whole).unwrap();
        from_json_of(&json, "x", |_| &["p99"]).unwrap();
        let other = from_json_of(&json, "y", |_| &[]).unwrap_err().to_string();
        assert!(other.contains("`x`, not of `y`"), "{other}");
        let lacks = from_json_of(&json, "x", |_| &["p50"])
            .unwrap_err()
            .to_string();
        assert!(
            lacks.contains("no `p50` of `a` under `GET, alone`"),
            "{lacks}"
        );
    }

    #[test]
    fn figures_are_found_by_row_condition_and_name() {
        let record = record();
        let at = record.at("a", "GET, alone");
        assert_eq!(
            (at.value("p99"), at.count("p99")),
            (None, 0),
            "it is over another"
        );
        let ratio = at.ratio("p99").unwrap();
        assert_eq!((ratio.estimate, ratio.high, ratio.rounds), (0.5, None, 2));
        assert!(at.over("p50").is_none() && record.at("b", "GET").over("p99").is_none());
    }
}
