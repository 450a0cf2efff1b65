//! Throughput and CPU time as bars, rounds as dots on them.

use crate::compare::results::{MethodResult, Results, Service};
use steadyvm_report::bars::{Bar, draw};

const BUSY: &str = "Host CPU time busy, % of all CPUs";

/// Two cards: what NetStream carried, and how busy the host was; the second alone without `NetStream`.
pub(super) fn cards(results: &Results) -> String {
    if results.service == Service::Own {
        return of_methods(results, BUSY, |method| {
            let percent = method.host.idle_cpu_busy_fraction.map(|it| it * 100.0);
            vec![Bar {
                name: "host",
                value: percent,
                rounds: &[],
            }]
        });
    }
    let throughput = of_methods(results, "NetStream received, Mbit/s", |method| {
        let stream = &method.netstream;
        vec![
            Bar {
                name: "full speed",
                value: stream.mbit_per_s,
                rounds: &stream.rounds_mbit_per_s,
            },
            Bar {
                name: "equal rate",
                value: stream.equal_mbit_per_s,
                rounds: &stream.rounds_equal_mbit_per_s,
            },
        ]
    });
    let busy = of_methods(results, BUSY, |method| {
        let percent = |fraction: Option<f64>| fraction.map(|it| it * 100.0);
        let host = &method.host;
        vec![
            Bar {
                name: "full speed",
                value: percent(host.cpu_busy_fraction),
                rounds: &[],
            },
            Bar {
                name: "equal rate",
                value: percent(host.equal_cpu_busy_fraction),
                rounds: &[],
            },
            Bar {
                name: "no NetStream",
                value: percent(host.idle_cpu_busy_fraction),
                rounds: &[],
            },
        ]
    });
    throughput + &busy
}

fn of_methods<'a>(
    results: &'a Results,
    title: &str,
    bars_of: impl Fn(&'a MethodResult) -> Vec<Bar<'a>>,
) -> String {
    let groups: Vec<(&str, Vec<Bar>)> = results
        .methods
        .iter()
        .map(|method| (&*method.name, bars_of(method)))
        .collect();
    draw(&groups, title)
}
