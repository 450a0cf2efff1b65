//! The files of experiments that write results.json, meta.json, report.html and tables.

use super::RunRecord;
use super::results::{AnySettings, Record, from_json, to_json};
use crate::rtca::Endpoints;
use serde::{Deserialize, Serialize};
use std::path::Path;
use steadyvm_lab::{At, Result};
use steadyvm_report::ReportMeta;

/// meta.json: what a reader needs to judge the figures, or to make them again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Meta {
    /// What every run says.
    #[serde(flatten)]
    pub run: RunRecord,
    /// What the packets went between, in the experiment of RTCA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<Endpoints>,
    /// Seed of the first round's first schedule of requests or packets, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// Writes results.json, figures.csv, meta.json, report.html and tables by their file names.
pub fn write_run(
    directory: &Path,
    results: &impl Serialize,
    meta: &impl Serialize,
    report: &str,
    tables: &[(impl AsRef<Path>, String)],
) -> Result<()> {
    let write = |name: &Path, content: &str| {
        let path = directory.join(name);
        steadyvm_files::write(&path, content).at("write", &path)
    };
    let text = to_json(results).doing("write results.json")?;
    write("results.json".as_ref(), &text)?;
    // An experiment whose results have a shape of their own has none.
    if let Ok(record) = from_json::<Record<AnySettings>>(&text) {
        write("figures.csv".as_ref(), &record.csv())?;
    }
    let text = serde_json::to_string_pretty(meta).doing("write meta.json")?;
    write("meta.json".as_ref(), &(text + "\n"))?;
    for (name, table) in tables {
        write(name.as_ref(), table)?;
    }
    write("report.html".as_ref(), report)
}

/// What a report says of the run of a verb of `steadyvm lab experiment`.
pub fn report_meta(verb: &str, meta: &Meta) -> ReportMeta {
    let title = format!("steadyvm lab experiment {verb}");
    meta.run.report_meta(title, "configurations")
}
