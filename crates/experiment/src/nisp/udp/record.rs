//! The experiment's figures in results.json.

use super::results::{MethodResult, Point, Results};
use crate::engine::Form;
use crate::engine::results::{Record, ResultsError, Version};
use serde::{Deserialize, Serialize};

/// What was set, and what was looked for before the rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// From one job's release to the next, in microseconds.
    pub period_us: u64,
    /// What a job takes on the idle host, in microseconds.
    pub execution_us: u64,
    /// The deadlines, in microseconds after the release.
    pub deadlines_us: Vec<u64>,
    /// The highest of the methods' peaks, in packets a second: the last rate.
    pub peak_packets_per_s: f64,
    /// The rate of the source at which that was found, in packets a second.
    pub alone_asked_packets_per_s: f64,
    /// The mean rates of the source, in packets a second, in ascending order.
    pub asked_packets_per_s: Vec<f64>,
}

/// Next to jobs of no length.
const ALONE: &str = "without jobs";

/// The condition of one rate.
fn cell(asked_packets_per_s: f64) -> String {
    format!("{asked_packets_per_s} packets/s")
}

impl From<Results> for Record<Settings> {
    fn from(mut results: Results) -> Self {
        let points = results.methods.first().map_or(&[][..], |it| &it.points);
        let settings = Settings {
            period_us: results.period_us,
            execution_us: results.execution_us,
            deadlines_us: results.deadlines_us,
            peak_packets_per_s: results.peak_packets_per_s,
            alone_asked_packets_per_s: results.alone_asked_packets_per_s,
            asked_packets_per_s: points.iter().map(|it| it.asked_packets_per_s).collect(),
        };
        let mut form = Form::writing();
        describe(
            &mut form,
            results.rounds,
            &settings.deadlines_us,
            &mut results.methods,
        );
        let rates = settings.asked_packets_per_s.iter().map(|it| cell(*it));
        Self {
            schema_version: Version,
            experiment: "nisp-udp".to_owned(),
            rounds: results.rounds,
            rows: results.methods.into_iter().map(|it| it.name).collect(),
            cells: std::iter::once(ALONE.to_owned()).chain(rates).collect(),
            settings,
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
        let point = |&asked_packets_per_s: &f64| Point {
            asked_packets_per_s,
            ..Point::default()
        };
        let rows = record.rows.into_iter();
        let mut methods: Vec<MethodResult> = rows
            .map(|name| MethodResult {
                name,
                points: settings.asked_packets_per_s.iter().map(point).collect(),
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
            peak_packets_per_s: settings.peak_packets_per_s,
            alone_asked_packets_per_s: settings.alone_asked_packets_per_s,
            rounds: record.rounds,
            methods,
            notes: record.notes,
        })
    }
}

fn describe(form: &mut Form, rounds: u64, deadlines_us: &[u64], methods: &mut [MethodResult]) {
    let first = methods.first().map(|it| it.name.clone());
    let first = first.unwrap_or_default();
    for method in methods {
        form.at(&method.name, ALONE);
        form.number("peak", "packets/s", 1, &mut method.peak_packets_per_s);
        form.number(
            "received",
            "packets/s",
            rounds,
            &mut method.alone_packets_per_s,
        );
        form.all_rounds("received", &mut method.rounds_alone_packets_per_s);
        form.ratio("received", (&first, ALONE), &mut method.alone_to_first);
        let unloaded = method.points.first().map(|it| cell(it.asked_packets_per_s));
        let unloaded = (&*method.name, &*unloaded.unwrap_or_default());
        for it in &mut method.points {
            let cell = cell(it.asked_packets_per_s);
            form.at(&method.name, &cell);
            form.number("sent", "packets/s", rounds, &mut it.sent_packets_per_s);
            form.number(
                "received",
                "packets/s",
                rounds,
                &mut it.received_packets_per_s,
            );
            form.all_rounds("received", &mut it.rounds_received_packets_per_s);
            form.number("cpu_busy", "fraction", rounds, &mut it.cpu_busy_fraction);
            it.jobs.describe(form, deadlines_us);
            form.ratio("received", (&first, &cell), &mut it.received_to_first);
            form.ratio("response_mean", unloaded, &mut it.response_mean_to_unloaded);
            form.ratio("jitter_sd", unloaded, &mut it.jitter_sd_to_unloaded);
        }
    }
}
