//! results.json: one shape for every experiment.
//!
//! Rows are what is compared, such as methods; cells are the conditions that each row is measured under.
//! Every figure names its row and cell, its unit and the samples it is of. A ratio is a figure, too: over the
//! same figure of another row or cell. An experiment's own types are views of this: a [`Form`](super::Form)
//! writes and reads them by one list of names, so that tables and plots follow from the file alone.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The version of the shape. Up to 4, each experiment had a shape of its own.
pub const SCHEMA_VERSION: u32 = 5;

/// The unit of a ratio.
pub const RATIO: &str = "ratio";

/// Settings of an experiment that has none, and what reads any experiment's.
pub type AnySettings = BTreeMap<String, serde_json::Value>;

/// results.json.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record<S> {
    /// [`SCHEMA_VERSION`].
    pub schema_version: Version,
    /// The experiment's name.
    pub experiment: String,
    /// What was set, as far as the words of the tables need it.
    pub settings: S,
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

/// Reads results.json as an experiment's own type.
///
/// # Errors
/// Text that is not results, of another version, or of another experiment.
pub fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, ResultsError> {
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

/// results.json as text, with a final newline.
///
/// # Errors
/// None that is known: every field has a JSON form.
pub fn to_json(results: &impl Serialize) -> Result<String, ResultsError> {
    Ok(serde_json::to_string_pretty(results)? + "\n")
}

impl<S> Record<S> {
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

/// A field of a CSV line (RFC 4180).
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fmt::Debug;

    /// What is shown of results is the same when nothing but results.json is left of the run.
    pub fn require_shown_from_json<T>(results: &T, show: impl Fn(&T) -> String)
    where
        T: Serialize + DeserializeOwned + PartialEq + Debug,
    {
        let json = to_json(results).unwrap();
        let again: T = from_json(&json).unwrap();
        assert_eq!(&again, results);
        assert_eq!(show(&again), show(results));
        let record: Record<AnySettings> = from_json(&json).unwrap();
        for it in &record.figures {
            let known = record.rows.contains(&it.row) && record.cells.contains(&it.cell);
            assert!(known && !it.unit.is_empty(), "{it:?}");
            assert_eq!(it.unit == RATIO, it.over.is_some(), "{it:?}");
        }
        assert_eq!(record.csv().lines().count(), 1 + record.figures.len());
    }

    /// A file in the shape that an experiment had for itself is refused, and the error says what to do.
    pub fn require_old_shape_refused<T: DeserializeOwned + Debug>(old: &str) {
        let refused = [
            from_json::<T>(old).unwrap_err().to_string(),
            serde_json::from_str::<T>(old).unwrap_err().to_string(),
        ];
        for said in refused {
            let clear = said.contains("this steadyvm reads 5") && said.contains("measure again");
            assert!(clear, "{said}");
        }
    }

    fn record() -> Record<AnySettings> {
        Record {
            schema_version: Version,
            experiment: "x".to_owned(),
            settings: AnySettings::new(),
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
        require_shown_from_json(&record(), Record::csv);
        let csv = record().csv();
        let line = csv.lines().nth(1).unwrap();
        assert_eq!(
            line,
            "a,\"GET, alone\",p99,ratio,2,0.5,0.25,,\"b \"\"c\"\"\",GET"
        );
    }

    #[test]
    fn other_versions_are_refused_before_anything_else_is_looked_at() {
        require_old_shape_refused::<Record<AnySettings>>("{\"schema_version\":4,\"methods\":[]}");
        let error = from_json::<Record<AnySettings>>("{}").unwrap_err();
        assert!(matches!(error, ResultsError::Json(_)), "{error}");
    }
}
