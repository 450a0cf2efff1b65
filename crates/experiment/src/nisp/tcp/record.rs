//! The experiment's figures in results.json.

use super::results::{MethodResult, Results, StreamResult};
use crate::engine::Form;
use crate::engine::results::{Record, ResultsError, Version};
use crate::nisp::JobsResult;
use serde::{Deserialize, Serialize};

/// What was set.
#[allow(clippy::struct_field_names, reason = "a name has its unit")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// From one job's release to the next, in microseconds.
    pub period_us: u64,
    /// What a job takes on the idle host, in microseconds.
    pub execution_us: u64,
    /// The deadlines, in microseconds after the release.
    pub deadlines_us: Vec<u64>,
}

const BEFORE: &str = "before";
const FIRST_SECOND: &str = "first second after";
/// Jobs without and with the stream; the stream before, during and after the jobs.
const CELLS: [&str; 6] = [
    "unloaded",
    "loaded",
    BEFORE,
    "during",
    "after",
    FIRST_SECOND,
];

impl From<Results> for Record<Settings> {
    fn from(mut results: Results) -> Self {
        let mut form = Form::writing();
        describe(
            &mut form,
            results.rounds,
            &results.deadlines_us,
            &mut results.methods,
        );
        Self {
            schema_version: Version,
            experiment: "nisp-tcp".to_owned(),
            settings: Settings {
                period_us: results.period_us,
                execution_us: results.execution_us,
                deadlines_us: results.deadlines_us,
            },
            rounds: results.rounds,
            rows: results.methods.into_iter().map(|it| it.name).collect(),
            cells: CELLS.map(str::to_owned).into(),
            figures: form.written(),
            curves: Vec::new(),
            notes: results.notes,
        }
    }
}

impl TryFrom<Record<Settings>> for Results {
    type Error = ResultsError;

    fn try_from(record: Record<Settings>) -> Result<Self, ResultsError> {
        let settings = record.settings;
        let rows = record.rows.into_iter();
        let mut methods: Vec<MethodResult> = rows
            .map(|name| MethodResult {
                name,
                ..MethodResult::default()
            })
            .collect();
        let mut form = Form::reading(record.figures);
        describe(
            &mut form,
            record.rounds,
            &settings.deadlines_us,
            &mut methods,
        );
        form.read()?;
        Ok(Self {
            period_us: settings.period_us,
            execution_us: settings.execution_us,
            deadlines_us: settings.deadlines_us,
            rounds: record.rounds,
            methods,
            notes: record.notes,
        })
    }
}

fn describe(form: &mut Form, rounds: u64, deadlines_us: &[u64], methods: &mut [MethodResult]) {
    for method in methods {
        let name = method.name.clone();
        let mut jobs = |cell, jobs: &mut JobsResult| {
            form.at(&name, cell);
            jobs.describe(form, deadlines_us);
        };
        jobs("unloaded", &mut method.unloaded);
        jobs("loaded", &mut method.loaded);
        let (jitter, n) = (
            &mut method.jitter_sd_to_unloaded,
            method.loaded.punctuality.jobs,
        );
        form.plain_ratio("jitter_sd", (&name, "unloaded"), n, jitter);
        let before = (&*name, BEFORE);
        form.at(&name, BEFORE);
        stream(form, rounds, &mut method.before);
        form.at(&name, "during");
        stream(form, rounds, &mut method.during);
        form.ratio("throughput", before, &mut method.during_to_before);
        form.at(&name, "after");
        stream(form, rounds, &mut method.after);
        form.ratio("throughput", before, &mut method.after_to_before);
        form.at(&name, FIRST_SECOND);
        let first = &mut method.first_second_mbit_per_s;
        form.value("throughput", "Mbit/s", rounds, first);
        form.ratio("throughput", before, &mut method.first_second_to_before);
    }
}

fn stream(form: &mut Form, rounds: u64, it: &mut StreamResult) {
    form.value("throughput", "Mbit/s", rounds, &mut it.mbit_per_s);
    form.all_rounds("throughput", &mut it.rounds_mbit_per_s);
    let segments = &mut it.segments;
    form.count("segments", "segments", &mut segments.segments);
    form.count("retransmitted", "segments", &mut segments.retransmitted);
    form.count("loss_probes", "segments", &mut segments.loss_probes);
    form.count("timeouts", "timeouts", &mut segments.timeouts);
    let (share, n) = (&mut it.retransmitted_fraction, segments.segments);
    form.value("retransmitted_share", "fraction", n, share);
}
