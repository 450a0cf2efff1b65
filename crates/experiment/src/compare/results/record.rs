//! The comparison's figures in results.json: a row per method, a cell per phase.

use super::data::{Phase, Service};
use super::document::{
    BootstrapResult, DistributionPoint, LatencyResult, LatencyRound, MethodResult, RatioResult,
    Results, WakeUpResult,
};
use super::guest::GuestResult;
use crate::engine::Form;
use crate::engine::results::{Curve, Figure, Interval, Over, RATIO, Record, ResultsError, Version};
use serde::{Deserialize, Serialize};

/// What was set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Where the loads were received; files without the field are of VMs.
    pub service: Service,
    /// How the intervals were made.
    pub bootstrap: BootstrapResult,
}

/// Names of figures that have ratios: in a method's entry, and in results.json.
const NAMES: [(&str, &str); 5] = [
    ("mean_us", "mean"),
    ("sd_us", "sd"),
    ("p50_us", "p50"),
    ("p99_us", "p99"),
    ("p999_us", "p99.9"),
];
/// The figure that the distribution is of.
const ROUND_TRIP: &str = "round_trip";
const THROUGHPUT: &str = "netstream.throughput";
const BUSY: &str = "host.cpu_busy";

impl From<Results> for Record<Settings> {
    fn from(mut results: Results) -> Self {
        let mut form = Form::writing();
        let mut curves = Vec::new();
        for method in &mut results.methods {
            describe(&mut form, method);
            curves.extend(Phase::ALL.map(|phase| curve(method, phase)));
        }
        let mut figures = form.written();
        figures.extend(results.ratios.iter().map(ratio_figure));
        let rounds = results.methods.iter().map(|it| it.netrt.rounds.len());
        Self {
            schema_version: Version,
            experiment: "compare".to_owned(),
            settings: Settings {
                service: results.service,
                bootstrap: results.bootstrap,
            },
            rounds: rounds.max().unwrap_or(0) as u64,
            rows: results.methods.into_iter().map(|it| it.name).collect(),
            cells: Phase::ALL.map(|it| it.cell().to_owned()).into(),
            figures,
            curves,
            notes: results.notes,
        }
    }
}

impl TryFrom<Record<Settings>> for Results {
    type Error = ResultsError;

    fn try_from(record: Record<Settings>) -> Result<Self, ResultsError> {
        let rows = record.rows.into_iter();
        let mut methods: Vec<MethodResult> = rows
            .map(|name| MethodResult {
                name,
                ..MethodResult::default()
            })
            .collect();
        let (ratios, figures): (Vec<Figure>, Vec<Figure>) =
            record.figures.into_iter().partition(|it| it.over.is_some());
        let mut form = Form::reading(figures);
        for method in &mut methods {
            describe(&mut form, method);
            for phase in Phase::ALL {
                let points = points_of(&record.curves, &method.name, phase);
                method.latency_mut(phase).distribution = points;
            }
        }
        form.read()?;
        Ok(Self {
            service: record.settings.service,
            methods,
            ratios: ratios.into_iter().filter_map(ratio_result).collect(),
            bootstrap: record.settings.bootstrap,
            notes: record.notes,
        })
    }
}

fn describe(form: &mut Form, method: &mut MethodResult) {
    let name = method.name.clone();
    for phase in Phase::ALL {
        form.at(&name, phase.cell());
        latency(form, method.latency_mut(phase));
        let wake_up = match phase {
            Phase::Full => &mut method.wake_up,
            Phase::Equal => &mut method.wake_up_equal,
            Phase::Idle => &mut method.wake_up_idle,
        };
        if let Some(it) = form.optional("wake_up.n", wake_up) {
            traced(form, it);
        }
        let counted = match phase {
            Phase::Full => &mut method.guest,
            Phase::Equal => &mut method.guest_equal,
            Phase::Idle => &mut method.guest_idle,
        };
        if let Some(it) = form.optional("guest.requests", counted) {
            guest(form, it);
        }
        let rounds = method.netrt.rounds.len() as u64;
        let stream = &mut method.netstream;
        match phase {
            Phase::Full => {
                form.value(THROUGHPUT, "Mbit/s", rounds, &mut stream.mbit_per_s);
                form.all_rounds(THROUGHPUT, &mut stream.rounds_mbit_per_s);
                let retransmits = &mut stream.retransmits;
                if let Some(it) = form.optional("netstream.retransmits", retransmits) {
                    form.count("netstream.retransmits", "segments", it);
                }
            }
            Phase::Equal => {
                form.value(THROUGHPUT, "Mbit/s", rounds, &mut stream.equal_mbit_per_s);
                form.all_rounds(THROUGHPUT, &mut stream.rounds_equal_mbit_per_s);
            }
            Phase::Idle => {}
        }
        let host = &mut method.host;
        let busy = match phase {
            Phase::Full => &mut host.cpu_busy_fraction,
            Phase::Equal => &mut host.equal_cpu_busy_fraction,
            Phase::Idle => &mut host.idle_cpu_busy_fraction,
        };
        form.value(BUSY, "fraction", rounds, busy);
    }
}

fn latency(form: &mut Form, it: &mut LatencyResult) {
    form.count("n", "round trips", &mut it.n);
    let n = it.n;
    form.count("lost", "requests", &mut it.lost);
    form.value("mean", "us", n, &mut it.mean_us);
    form.value("sd", "us", n, &mut it.sd_us);
    form.value("min", "us", n, &mut it.min_us);
    form.value("p50", "us", n, &mut it.p50_us);
    form.value("p90", "us", n, &mut it.p90_us);
    form.value("p99", "us", n, &mut it.p99_us);
    form.value("p99.9", "us", n, &mut it.p999_us);
    form.value("max", "us", n, &mut it.max_us);
    form.count("late", "requests", &mut it.late);
    form.count("undecided", "requests", &mut it.undecided);
    form.count("reordered", "replies", &mut it.reordered);
    form.count("duplicates", "replies", &mut it.duplicates);
    form.count("malformed", "datagrams", &mut it.malformed);
    form.count("timed_by_kernel", "round trips", &mut it.timed_by_kernel);
    form.count(
        "timed_by_monotonic",
        "round trips",
        &mut it.timed_by_monotonic,
    );
    form.count(
        "sent_over_1_ms_late",
        "requests",
        &mut it.sent_over_1_ms_late,
    );
    let rounds = &mut it.rounds;
    // Of all rounds together there is none.
    form.value("duration", "s", rounds.len() as u64, &mut None);
    let durations = rounds.iter().map(|it| Some(it.duration_s)).collect();
    let durations = form.rounds("duration", durations);
    rounds.resize(durations.len(), LatencyRound::default());
    for (round, duration_s) in rounds.iter_mut().zip(durations) {
        round.duration_s = duration_s.unwrap_or(f64::NAN);
    }
    counts(form, "n", rounds, |it| &mut it.n);
    counts(form, "lost", rounds, |it| &mut it.lost);
    column(form, "mean", rounds, |it| &mut it.mean_us);
    column(form, "sd", rounds, |it| &mut it.sd_us);
    column(form, "p50", rounds, |it| &mut it.p50_us);
    column(form, "p99", rounds, |it| &mut it.p99_us);
    column(form, "max", rounds, |it| &mut it.max_us);
}

/// One figure of all rounds.
fn column(
    form: &mut Form,
    name: &str,
    rounds: &mut [LatencyRound],
    of: fn(&mut LatencyRound) -> &mut Option<f64>,
) {
    let values = rounds.iter_mut().map(|it| *of(it)).collect();
    for (round, value) in rounds.iter_mut().zip(form.rounds(name, values)) {
        *of(round) = value;
    }
}

/// One count of all rounds.
fn counts(
    form: &mut Form,
    name: &str,
    rounds: &mut [LatencyRound],
    of: fn(&mut LatencyRound) -> &mut u64,
) {
    let values = rounds.iter_mut().map(|it| Some(*of(it) as f64)).collect();
    for (round, value) in rounds.iter_mut().zip(form.rounds(name, values)) {
        *of(round) = value.unwrap_or(0.0) as u64;
    }
}

fn traced(form: &mut Form, it: &mut WakeUpResult) {
    form.count("wake_up.n", "packets", &mut it.n);
    let n = it.n;
    form.value("wake_up.mean", "us", n, &mut it.mean_us);
    form.value("wake_up.sd", "us", n, &mut it.sd_us);
    form.value("wake_up.p50", "us", n, &mut it.p50_us);
    form.value("wake_up.p90", "us", n, &mut it.p90_us);
    form.value("wake_up.p99", "us", n, &mut it.p99_us);
    form.value("wake_up.p99.9", "us", n, &mut it.p999_us);
    form.value("wake_up.max", "us", n, &mut it.max_us);
}

fn guest(form: &mut Form, it: &mut GuestResult) {
    form.count("guest.requests", "requests", &mut it.requests);
    let n = it.requests;
    form.count(
        "guest.network_interrupts",
        "interrupts",
        &mut it.network_interrupts,
    );
    form.count(
        "guest.network_softirqs",
        "softirqs",
        &mut it.network_softirqs,
    );
    let (timer, injected) = (
        &mut it.timer_interrupts_per_request,
        &mut it.injected_interrupts_per_request,
    );
    form.number("guest.timer_interrupts", "per request", n, timer);
    form.number("guest.injected_interrupts", "per request", n, injected);
    form.number("guest.exits", "per request", n, &mut it.exits_per_request);
    let reasons = &mut it.exit_reasons_per_request;
    form.keyed("guest.exits.", "per request", n, reasons);
}

fn curve(method: &MethodResult, phase: Phase) -> Curve {
    let points = method.latency(phase).distribution.iter();
    Curve {
        row: method.name.clone(),
        cell: phase.cell().to_owned(),
        name: ROUND_TRIP.to_owned(),
        unit: "us".to_owned(),
        points: points.map(|it| (it.fraction, it.us)).collect(),
    }
}

fn points_of(curves: &[Curve], row: &str, phase: Phase) -> Vec<DistributionPoint> {
    let wanted = (row, phase.cell(), ROUND_TRIP);
    let mut curves = curves.iter();
    let found = curves.find(|it| (&*it.row, &*it.cell, &*it.name) == wanted);
    let points = found.map_or(&[][..], |it| &it.points);
    let point = |&(fraction, us): &(f64, f64)| DistributionPoint { fraction, us };
    points.iter().map(point).collect()
}

/// The figures that have ratios: the path in a method's entry, the phase, and the name in results.json.
fn paths() -> impl Iterator<Item = (String, Phase, String)> {
    Phase::ALL.into_iter().flat_map(|phase| {
        let before = match phase {
            Phase::Full => "",
            Phase::Equal => "equal_",
            Phase::Idle => "idle_",
        };
        let times = NAMES.into_iter().flat_map(move |(path, name)| {
            let round_trip = (format!("{}.{path}", phase.key()), phase, name.to_owned());
            let key = phase.wake_up_key();
            [
                round_trip,
                (format!("{key}.{path}"), phase, format!("wake_up.{name}")),
            ]
        });
        let rates = [
            (
                format!("netstream.{before}mbit_per_s"),
                phase,
                THROUGHPUT.to_owned(),
            ),
            (
                format!("host.{before}cpu_busy_fraction"),
                phase,
                BUSY.to_owned(),
            ),
        ];
        times.chain(rates)
    })
}

fn ratio_figure(ratio: &RatioResult) -> Figure {
    let known = paths().find(|(path, ..)| *path == ratio.figure);
    let (cell, name) = known.map_or_else(
        || (Phase::Full.cell(), ratio.figure.clone()),
        |(_, phase, name)| (phase.cell(), name),
    );
    Figure {
        row: ratio.of.clone(),
        cell: cell.to_owned(),
        name,
        unit: RATIO.to_owned(),
        n: ratio.rounds,
        value: ratio.estimate,
        interval: Some(Interval {
            median: ratio.median,
            low: ratio.low,
            high: ratio.high,
        }),
        over: Some(Over {
            row: ratio.to.clone(),
            cell: cell.to_owned(),
        }),
        rounds: Vec::new(),
    }
}

fn ratio_result(figure: Figure) -> Option<RatioResult> {
    let (interval, over) = (figure.interval?, figure.over?);
    let is_it = |(_, phase, name): &(String, Phase, String)| {
        phase.cell() == figure.cell && *name == figure.name
    };
    let known = paths().find(is_it);
    Some(RatioResult {
        of: figure.row,
        to: over.row,
        figure: known.map_or(figure.name, |(path, ..)| path),
        median: interval.median,
        low: interval.low,
        high: interval.high,
        estimate: figure.value,
        rounds: figure.n,
    })
}
