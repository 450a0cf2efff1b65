//! iperf3's JSON, read.

use serde::{Deserialize, Serialize};

/// What one iperf3 client run measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetStreamRun {
    /// Payload the server received, of all streams, in Mbit/s (10^6 bit/s), omitted start excluded.
    pub mbit_per_s: f64,
    /// TCP segments sent again; `None` where iperf3 cannot know.
    pub retransmits: Option<u64>,
    /// How long was measured, in seconds.
    pub duration_s: f64,
    /// The sender's rates over time (iperf3 reports each second), omitted start excluded.
    pub intervals: Vec<Interval>,
    /// CPU time of the iperf3 client process as a share of one CPU.
    pub sender_cpu_fraction: f64,
    /// CPU time of the iperf3 server process as a share of one CPU.
    pub receiver_cpu_fraction: f64,
}

/// A rate over one of iperf3's reporting intervals.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Start in seconds after the start of measuring.
    pub start_s: f64,
    /// End in seconds after the start of measuring.
    pub end_s: f64,
    /// Rate of all streams in Mbit/s.
    pub mbit_per_s: f64,
}

/// Why iperf3's output gives no measurement.
#[derive(Debug, thiserror::Error)]
pub enum NetStreamError {
    /// iperf3 said so itself.
    #[error(
        "NetStream: iperf3 failed: {0}; check that its server runs and its address is reachable"
    )]
    Iperf(String),
    /// It is not iperf3's JSON.
    #[error(
        "NetStream: iperf3's output ({bytes} bytes, beginning {beginning:?}) is not the JSON of \
             a finished run: {source}; check that iperf3 >= 3.9 ran with -J and was not killed"
    )]
    Json {
        /// Length of the output.
        bytes: usize,
        /// Its first characters.
        beginning: String,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// A figure cannot be one.
    #[error("NetStream: iperf3 reports {figure} = {value}, which is not possible; measure again")]
    Impossible {
        /// The figure's path in the JSON.
        figure: &'static str,
        /// Its value.
        value: f64,
    },
}

/// Reads the standard output of `iperf3 -c … -J`.
///
/// # Errors
/// iperf3's own error, text that is not the JSON of a finished run, or figures that are negative
/// or not finite. It never panics, whatever the text.
pub fn parse(output: &str) -> Result<NetStreamRun, NetStreamError> {
    let not_json = |source| NetStreamError::Json {
        bytes: output.len(),
        beginning: output.chars().take(60).collect(),
        source,
    };
    let outcome: Outcome = serde_json::from_str(output).map_err(not_json)?;
    if let Some(message) = outcome.error {
        return Err(NetStreamError::Iperf(message));
    }
    let document: Document = serde_json::from_str(output).map_err(not_json)?;
    measured(&document)
}

fn measured(document: &Document) -> Result<NetStreamRun, NetStreamError> {
    let end = &document.end;
    let cpu = &end.cpu_utilization_percent;
    let intervals = document.intervals.iter().map(|interval| &interval.sum);
    Ok(NetStreamRun {
        mbit_per_s: possible(
            "end.sum_received.bits_per_second",
            end.sum_received.bits_per_second,
        )? / 1e6,
        retransmits: end.sum_sent.retransmits,
        duration_s: possible("end.sum_received.seconds", end.sum_received.seconds)?,
        intervals: intervals
            .filter(|sum| !sum.omitted)
            .map(|sum| {
                Ok(Interval {
                    start_s: possible("intervals.sum.start", sum.start)?,
                    end_s: possible("intervals.sum.end", sum.end)?,
                    mbit_per_s: possible("intervals.sum.bits_per_second", sum.bits_per_second)?
                        / 1e6,
                })
            })
            .collect::<Result<_, NetStreamError>>()?,
        sender_cpu_fraction: possible("end.cpu_utilization_percent.host_total", cpu.host_total)?
            / 100.0,
        receiver_cpu_fraction: possible(
            "end.cpu_utilization_percent.remote_total",
            cpu.remote_total,
        )? / 100.0,
    })
}

fn possible(figure: &'static str, value: f64) -> Result<f64, NetStreamError> {
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(NetStreamError::Impossible { figure, value })
    }
}

#[derive(Deserialize)]
struct Outcome {
    error: Option<String>,
}

#[derive(Deserialize)]
struct Document {
    intervals: Vec<IntervalDocument>,
    end: EndDocument,
}

#[derive(Deserialize)]
struct IntervalDocument {
    sum: SumDocument,
}

#[derive(Deserialize)]
struct SumDocument {
    start: f64,
    end: f64,
    bits_per_second: f64,
    #[serde(default)]
    omitted: bool,
}

#[derive(Deserialize)]
struct EndDocument {
    sum_sent: SentDocument,
    sum_received: ReceivedDocument,
    cpu_utilization_percent: CpuDocument,
}

#[derive(Deserialize)]
struct SentDocument {
    retransmits: Option<u64>,
}

#[derive(Deserialize)]
struct ReceivedDocument {
    seconds: f64,
    bits_per_second: f64,
}

#[derive(Deserialize)]
struct CpuDocument {
    host_total: f64,
    remote_total: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FINISHED: &str = r#"{"start":{"version":"iperf 3.12"},
        "intervals":[
          {"streams":[],"sum":{"start":0,"end":1.0,"seconds":1.0,"bits_per_second":9e9,"omitted":true,"sender":true}},
          {"streams":[],"sum":{"start":0,"end":1.5,"seconds":1.5,"bits_per_second":2.5e8,"omitted":false,"sender":true}}],
        "end":{"streams":[],
          "sum_sent":{"seconds":1.5,"bytes":3,"bits_per_second":3e8,"retransmits":7,"sender":true},
          "sum_received":{"seconds":1.6,"bytes":3,"bits_per_second":2.4e8,"sender":true},
          "cpu_utilization_percent":{"host_total":12.5,"host_user":1,"remote_total":50}}}"#;

    #[test]
    fn the_servers_rate_is_the_one_taken() {
        let run = parse(FINISHED).unwrap();
        assert_eq!(
            run,
            NetStreamRun {
                mbit_per_s: 240.0,
                retransmits: Some(7),
                duration_s: 1.6,
                intervals: vec![Interval {
                    start_s: 0.0,
                    end_s: 1.5,
                    mbit_per_s: 250.0
                }],
                sender_cpu_fraction: 0.125,
                receiver_cpu_fraction: 0.5,
            }
        );
    }

    #[test]
    fn iperfs_own_error_is_passed_on() {
        let error = parse(r#"{"start":{},"intervals":[],"end":{},"error":"unable to connect"}"#);
        assert!(
            matches!(error, Err(NetStreamError::Iperf(message)) if message == "unable to connect")
        );
    }

    #[test]
    fn what_is_no_finished_run_is_refused() {
        for output in [
            "",
            "{",
            "[]",
            "null",
            "{}",
            r#"{"end":{}}"#,
            "iperf3: error",
            "{\"end\":1}",
        ] {
            let error = parse(output).unwrap_err();
            assert!(
                matches!(error, NetStreamError::Json { .. }),
                "{output}: {error}"
            );
        }
        // Every truncation, as a killed iperf3 leaves behind.
        for length in 0..FINISHED.len() {
            assert!(parse(&FINISHED[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn impossible_figures_are_refused() {
        let negative = FINISHED.replace("2.4e8", "-1");
        assert!(matches!(
            parse(&negative),
            Err(NetStreamError::Impossible { .. })
        ));
        assert!(parse(&FINISHED.replace("2.4e8", "1e999")).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in ".{0,200}") {
            prop_assert!(parse(&text).is_err());
        }

        #[test]
        fn any_damaged_document_is_read_without_panic(at in 0..FINISHED.len(), byte: u8) {
            let mut bytes = FINISHED.as_bytes().to_vec();
            bytes[at] = byte;
            let _ = parse(&String::from_utf8_lossy(&bytes));
        }
    }
}
