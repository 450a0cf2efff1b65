//! The files that every run writes: results.json, figures.csv, meta.json, tables.txt, report.html, and tables of its own.

use crate::results::{Record, to_json};
use serde::Serialize;
use std::path::Path;
use steadyvm_fault::{At, Result};

/// What a run prints.
pub const TABLES: &str = "tables.txt";

/// What a run's figures are shown as.
#[derive(Debug, Clone)]
pub struct Shown {
    /// The tables, as a terminal and a page have them. Ends with a newline.
    pub text: String,
    /// The report.
    pub html: String,
}

/// Writes results.json, figures.csv, meta.json, tables.txt, report.html and tables by their file names.
///
/// # Errors
/// A file that cannot be written.
pub fn write_run(
    directory: &Path,
    record: &Record,
    meta: &impl Serialize,
    shown: &Shown,
    tables: &[(impl AsRef<Path>, String)],
) -> Result<()> {
    let write = |name: &Path, content: &str| {
        let path = directory.join(name);
        steadyvm_files::write(&path, content).at("write", &path)
    };
    let text = to_json(record).doing("write results.json")?;
    write("results.json".as_ref(), &text)?;
    write("figures.csv".as_ref(), &record.csv())?;
    let text = serde_json::to_string_pretty(meta).doing("write meta.json")?;
    write("meta.json".as_ref(), &(text + "\n"))?;
    for (name, table) in tables {
        write(name.as_ref(), table)?;
    }
    write(TABLES.as_ref(), &shown.text)?;
    write("report.html".as_ref(), &shown.html)
}
