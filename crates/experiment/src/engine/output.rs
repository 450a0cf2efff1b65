//! The files of a run in the lab: meta.json, and all that is read again for a page.

use super::RunRecord;
use super::results::{Record, Settings, from_json};
use serde::{Deserialize, Serialize};
use std::path::Path;
use steadyvm_lab::{At, Result};
use steadyvm_report::TABLES;

/// meta.json: what a reader needs to judge the figures, or to make them again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Meta {
    /// What every run says.
    #[serde(flatten)]
    pub run: RunRecord,
    /// What else was set, by its key, such as the `seed`.
    #[serde(flatten)]
    pub set: Settings,
}

/// A run's files, read again.
#[derive(Debug)]
pub struct Stored {
    /// Its figures.
    pub record: Record,
    /// What it says of itself.
    pub run: RunRecord,
    /// Its tables, as a terminal has them.
    pub text: String,
}

/// Reads a run of the lab from its directory.
///
/// # Errors
/// A file that cannot be read, or is none of such a run.
pub fn read_run(directory: &Path) -> Result<Stored> {
    let read = |name: &str| {
        let path = directory.join(name);
        std::fs::read_to_string(&path).at("read", &path)
    };
    let meta: Meta = serde_json::from_str(&read("meta.json")?).doing("read meta.json")?;
    Ok(Stored {
        record: from_json(&read("results.json")?).doing("read results.json")?,
        run: meta.run,
        text: read(TABLES)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Disturbance, Standstills};
    use std::collections::BTreeMap;
    use steadyvm_report::{Shown, write_run};

    fn meta() -> Meta {
        Meta {
            run: RunRecord {
                schema_version: 1,
                git_revision: "abc".to_owned(),
                command_line: vec!["steadyvm".to_owned(), "x".to_owned()],
                started_unix_s: 1,
                duration_s: 2.0,
                kernels: BTreeMap::new(),
                kernel_builds: BTreeMap::new(),
                accelerator: "TCG".to_owned(),
                qemu: "10".to_owned(),
                cpu_model: "a CPU".to_owned(),
                cpus: 2,
                machine_kernel: "6.12".to_owned(),
                load_average: [0.0, 1.0],
                disturbance: Disturbance {
                    others: 0.0,
                    stolen: 0.0,
                    standstills: Standstills::default(),
                },
                dropped_rounds: Vec::new(),
            },
            set: [("seed".to_owned(), 7.into())].into(),
        }
    }

    #[test]
    fn what_a_run_has_written_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let record = Record {
            experiment: "compare".to_owned(),
            rows: vec!["a".to_owned()],
            ..Record::default()
        };
        let shown = Shown {
            text: "row a\n".to_owned(),
            html: "<html>".to_owned(),
        };
        let no_tables: &[(&str, String)] = &[];
        write_run(directory.path(), &record, &meta(), &shown, no_tables).unwrap();
        let stored = read_run(directory.path()).unwrap();
        assert_eq!((&stored.record, &*stored.text), (&record, "row a\n"));
        assert_eq!(stored.run.facts(), meta().run.facts());
        std::fs::remove_file(directory.path().join(TABLES)).unwrap();
        let said = read_run(directory.path()).unwrap_err().to_string();
        assert!(said.contains("tables.txt"), "{said}");
    }
}
