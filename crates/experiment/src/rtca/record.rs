//! The experiment's figures in results.json.

use super::data::{Endpoints, Interference};
use super::results::{ConfigurationResult, CostResult, LevelResult, Results};
use crate::engine::Form;
use crate::engine::results::{Record, ResultsError, Version};
use serde::{Deserialize, Serialize};

/// What was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// What the packets went between.
    pub endpoints: Endpoints,
}

const BASE: &str = "base";

impl From<Results> for Record<Settings> {
    fn from(mut results: Results) -> Self {
        let mut form = Form::writing();
        describe(&mut form, results.rounds, &mut results.configurations);
        Self {
            schema_version: Version,
            experiment: "rtca".to_owned(),
            settings: Settings {
                endpoints: results.endpoints,
            },
            rounds: results.rounds,
            rows: results
                .configurations
                .into_iter()
                .map(|it| it.name)
                .collect(),
            cells: Interference::ALL.map(|it| it.key().to_owned()).into(),
            figures: form.written(),
            curves: Vec::new(),
            notes: results.notes,
        }
    }
}

impl TryFrom<Record<Settings>> for Results {
    type Error = ResultsError;

    fn try_from(record: Record<Settings>) -> Result<Self, ResultsError> {
        let at = |interference| LevelResult {
            interference,
            ..LevelResult::default()
        };
        let rows = record.rows.into_iter();
        let mut configurations: Vec<ConfigurationResult> = rows
            .map(|name| ConfigurationResult {
                name,
                levels: Interference::ALL.map(at).into(),
            })
            .collect();
        let mut form = Form::reading(record.figures);
        describe(&mut form, record.rounds, &mut configurations);
        form.read()?;
        Ok(Self {
            endpoints: record.settings.endpoints,
            rounds: record.rounds,
            configurations,
            notes: record.notes,
        })
    }
}

fn describe(form: &mut Form, rounds: u64, configurations: &mut [ConfigurationResult]) {
    let first = configurations.first().map(|it| it.name.clone());
    let first = first.unwrap_or_default();
    for ConfigurationResult { name, levels } in configurations {
        for level in levels {
            let cell = level.interference.key();
            form.at(name, cell);
            form.count("n", "round trips", &mut level.n);
            form.count("lost", "requests", &mut level.lost);
            let n = level.n;
            form.value("median", "us", n, &mut level.median_us);
            form.value("p75", "us", n, &mut level.p75_us);
            form.value("p95", "us", n, &mut level.p95_us);
            form.value("max", "us", n, &mut level.max_us);
            form.value("throughput", "Mbit/s", rounds, &mut level.mbit_per_s);
            let base = (&**name, BASE);
            form.ratio("median", base, &mut level.median_to_base);
            form.ratio("p95", base, &mut level.p95_to_base);
            form.ratio("throughput", base, &mut level.mbit_per_s_to_base);
            let first = (&*first, cell);
            cost(
                form,
                "round_trips",
                rounds,
                first,
                &mut level.round_trips_cost,
            );
            cost(form, "stream", rounds, first, &mut level.stream_cost);
        }
    }
}

/// What others had while `what` was measured.
fn cost(form: &mut Form, what: &str, rounds: u64, first: (&str, &str), cost: &mut CostResult) {
    let busy = format!("cpu_busy.{what}");
    form.value(&busy, "fraction", rounds, &mut cost.cpu_busy_fraction);
    let others = format!("others.{what}");
    form.value(&others, "packets/s", rounds, &mut cost.others_packets_per_s);
    form.ratio(&others, first, &mut cost.others_to_first);
}
