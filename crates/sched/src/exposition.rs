//! Metrics as text, in the two forms that collectors read.
//!
//! They differ in what a counter and a constant with labels are called, and an `OpenMetrics` file has a mark at its
//! end. `node_exporter`'s textfile collector reads Prometheus's text alone: one word that it does not know, and it takes
//! nothing of the file.

use std::fmt::Write as _;

/// A form of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `OpenMetrics` 1.0.
    OpenMetrics,
    /// Prometheus's text format 0.0.4.
    Prometheus,
}

/// What a family of samples is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows; its samples are called `NAME_total`.
    Counter,
    /// It goes up and down.
    Gauge,
    /// 1, with labels that say something; it is called `NAME_info`.
    Info,
}

impl Kind {
    fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Gauge => "",
            Self::Info => "_info",
        }
    }

    fn word(self, format: Format) -> &'static str {
        match (self, format) {
            (Self::Counter, _) => "counter",
            (Self::Info, Format::OpenMetrics) => "info",
            (Self::Gauge, _) | (Self::Info, Format::Prometheus) => "gauge",
        }
    }
}

/// The text, family by family.
#[derive(Debug)]
pub struct Exposition {
    format: Format,
    text: String,
}

impl Exposition {
    /// One without families.
    pub fn new(format: Format) -> Self {
        let text = String::new();
        Self { format, text }
    }

    /// A family: of each sample its labels as [`labels`] writes them, and its value.
    pub fn family(&mut self, name: &str, help: &str, kind: Kind, samples: &[(String, f64)]) {
        let sample = format!("{name}{}", kind.suffix());
        let family = match self.format {
            Format::OpenMetrics => name,
            Format::Prometheus => &sample,
        };
        self.head(family, help, kind.word(self.format));
        for (labels, value) in samples {
            self.line(&format!("{sample}{labels} {value}"));
        }
    }

    /// A histogram: of each step its end and how many are up to there, beyond it none; how many there are, and their sum.
    pub fn histogram(
        &mut self,
        name: &str,
        help: &str,
        steps: &[(f64, u64)],
        count: u64,
        sum: f64,
    ) {
        self.head(name, help, "histogram");
        for (end, below) in steps {
            self.line(&format!("{name}_bucket{{le=\"{end}\"}} {below}"));
        }
        self.line(&format!("{name}_bucket{{le=\"+Inf\"}} {count}"));
        self.line(&format!("{name}_sum {sum}"));
        self.line(&format!("{name}_count {count}"));
    }

    /// All of it.
    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.line("# EOF");
        }
        self.text
    }

    fn head(&mut self, family: &str, help: &str, word: &str) {
        self.line(&format!("# HELP {family} {help}"));
        self.line(&format!("# TYPE {family} {word}"));
    }

    fn line(&mut self, line: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{line}");
    }
}

/// Labels by name and value. Of a value `\`, `"` and line feeds are written by two characters.
pub fn labels(of: &[(&str, &str)]) -> String {
    let label = |(name, value): &(&str, &str)| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        format!("{name}=\"{}\"", value.replace('\n', "\\n"))
    };
    let labels: Vec<String> = of.iter().map(label).collect();
    format!("{{{}}}", labels.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_differ_in_names_of_families_and_in_the_end() {
        let text = |format| {
            let mut text = Exposition::new(format);
            let vm = labels(&[("vm", "a\"\\\n"), ("vcpu", "0")]);
            text.family("x_jobs", "Jobs.", Kind::Counter, &[(vm, 2.0)]);
            let from = labels(&[("from", "bpf")]);
            text.family("x_source", "Where from.", Kind::Info, &[(from, 1.0)]);
            text.family("x_on", "On.", Kind::Gauge, &[(String::new(), 0.5)]);
            text.finish()
        };
        let samples = [
            "x_jobs_total{vm=\"a\\\"\\\\\\n\",vcpu=\"0\"} 2",
            "x_source_info{from=\"bpf\"} 1",
            "x_on 0.5",
        ];
        assert_eq!(
            text(Format::OpenMetrics),
            format!(
                "# HELP x_jobs Jobs.\n# TYPE x_jobs counter\n{}\n# HELP x_source Where from.\n# TYPE x_source info\n\
                 {}\n# HELP x_on On.\n# TYPE x_on gauge\n{}\n# EOF\n",
                samples[0], samples[1], samples[2]
            )
        );
        assert_eq!(
            text(Format::Prometheus),
            format!(
                "# HELP x_jobs_total Jobs.\n# TYPE x_jobs_total counter\n{}\n# HELP x_source_info Where from.\n\
                 # TYPE x_source_info gauge\n{}\n# HELP x_on On.\n# TYPE x_on gauge\n{}\n",
                samples[0], samples[1], samples[2]
            )
        );
    }
}
