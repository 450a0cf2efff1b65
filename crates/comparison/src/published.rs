//! The published figures, for orientation.

use crate::Service;
use crate::record::service_of;
use steadyvm_report::results::Record;
use steadyvm_report::{Grid, headers};

const OVER: &str = "preempt-rt";

/// Table 2 and section 4.2 of Garcia, Shinjo and Pu 2018: method, mean, SD, p99 in µs, NetStream in Gbit/s where it is told.
const PUBLISHED: [(&str, [f64; 3], Option<f64>); 6] = [
    ("vanilla", [123.0, 22.0, 184.9], Some(18.8)),
    (OVER, [91.8, 11.8, 120.5], Some(16.0)),
    ("dedicated", [58.1, 7.7, 80.8], Some(8.6)),
    ("outsourcing", [32.6, 2.8, 49.5], Some(18.8)),
    ("rt-poll-list", [93.2, 11.4, 131.1], None),
    ("rt-sockets", [41.1, 12.2, 64.0], None),
];

/// The paper's figures of the methods that were compared; none where it has none.
pub(crate) fn grid(record: &Record) -> Option<Grid> {
    // The paper has no measurement without VMs.
    if service_of(record) != Service::Vm {
        return None;
    }
    let of = |name: &str| PUBLISHED.iter().find(|it| it.0 == name);
    let base = of(OVER)?.1;
    let row = |name: &String| {
        let (name, times, traffic) = of(name)?;
        let times_words = times.iter().map(|time| format!("{time:.1}"));
        let over = times
            .iter()
            .zip(base)
            .map(|(time, base)| format!("{:.2}", time / base));
        let traffic = traffic.map_or("-".to_owned(), |it| format!("{it:.1}"));
        let cells = times_words.chain([traffic]).chain(over);
        Some(std::iter::once((*name).to_owned()).chain(cells).collect())
    };
    let rows: Vec<Vec<String>> = record.rows.iter().filter_map(row).collect();
    (!rows.is_empty()).then(|| Grid {
        title: "The paper, on hardware, beside NetStream: µs, Gbit/s, and ratios to preempt-rt"
            .to_owned(),
        words: 1,
        headers: headers([
            "method",
            "mean",
            "SD",
            "p99",
            "NetStream",
            "mean ratio",
            "SD ratio",
            "p99 ratio",
        ]),
        rows,
    })
}

/// Where they are from.
pub(crate) const SOURCE: &str = "Garcia, Shinjo and Pu 2018, table 2 and section 4.2: two cores of an Intel i7-6700K, 10 Gbit/s Ethernet, Linux \
     4.1. Compare the order and the ratios of the methods, never the microseconds";
