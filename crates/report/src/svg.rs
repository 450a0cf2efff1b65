//! The little SVG the report needs: escaped text, lines, scales with ticks.

use std::fmt::Write;

/// `text` for HTML and SVG content and attribute values. Control characters, which are not allowed
/// there, become U+FFFD.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(' '),
            control if control.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

/// An SVG being drawn, in user units of about a CSS pixel.
pub struct Svg {
    width: f64,
    height: f64,
    label: String,
    content: String,
}

impl Svg {
    /// An empty drawing; `label` says what it shows to those who cannot see it.
    pub fn new(width: f64, height: f64, label: &str) -> Self {
        Self {
            width,
            height,
            label: label.to_owned(),
            content: String::new(),
        }
    }

    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = write!(
            self.content,
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        );
    }

    pub fn polyline(&mut self, class: &str, points: &[(f64, f64)]) {
        let _ = write!(self.content, r#"<polyline class="{class}" points=""#);
        for (x, y) in points {
            let _ = write!(self.content, "{x:.1},{y:.1} ");
        }
        self.content.push_str("\"/>");
    }

    pub fn dot(&mut self, class: &str, (x, y): (f64, f64), radius: f64) {
        let _ = write!(
            self.content,
            r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="{radius}"/>"#
        );
    }

    pub fn bar(&mut self, class: &str, (x, y): (f64, f64), width: f64, height: f64) {
        let _ = write!(
            self.content,
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="2"/>"#
        );
    }

    pub fn text(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        let _ = write!(
            self.content,
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{}</text>"#,
            escape(text)
        );
    }

    pub fn finish(self) -> String {
        let Self {
            width,
            height,
            label,
            content,
        } = self;
        format!(
            "<svg class=\"plot\" role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {width} {height}\">\
             {content}</svg>\n",
            escape(&label)
        )
    }
}

/// What `piece` makes of each item, one after the other.
pub fn joined<T>(items: impl IntoIterator<Item = T>, piece: impl Fn(T) -> String) -> String {
    items
        .into_iter()
        .fold(String::new(), |text, item| text + &piece(item))
}

/// A logarithmic scale from values to a coordinate.
pub struct LogScale {
    low_log: f64,
    high_log: f64,
    at_low: f64,
    at_high: f64,
}

impl LogScale {
    /// From `low` to `high` (made positive and distinct) at coordinates `at_low` to `at_high`.
    pub fn new((low, high): (f64, f64), (at_low, at_high): (f64, f64)) -> Self {
        let low_log = positive(low).log10();
        let high_log = positive(high).log10().max(low_log + 0.05);
        Self {
            low_log,
            high_log,
            at_low,
            at_high,
        }
    }

    /// The coordinate of `value`, kept inside the scale.
    pub fn at(&self, value: f64) -> f64 {
        let share = (positive(value).log10() - self.low_log) / (self.high_log - self.low_log);
        self.at_low + share.clamp(0.0, 1.0) * (self.at_high - self.at_low)
    }

    /// Round values inside the scale: decades, with steps between them where few fit.
    pub fn ticks(&self) -> Vec<f64> {
        let span = self.high_log - self.low_log;
        let steps: &[f64] = match span {
            ..0.6 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0],
            ..1.3 => &[1.0, 2.0, 3.0, 5.0],
            ..2.2 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let decades = self.low_log.floor() as i32..=self.high_log.ceil() as i32;
        let values =
            decades.flat_map(|decade| steps.iter().map(move |it| it * 10_f64.powi(decade)));
        values
            .filter(|value| (self.low_log - 1e-9..=self.high_log + 1e-9).contains(&value.log10()))
            .collect()
    }
}

/// A linear scale from 0 to a value, to a coordinate.
pub struct LinearScale {
    high: f64,
    at_zero: f64,
    at_high: f64,
}

impl LinearScale {
    /// From 0 to `high` (made positive) at coordinates `at_zero` to `at_high`.
    pub fn new(high: f64, (at_zero, at_high): (f64, f64)) -> Self {
        Self {
            high: positive(high),
            at_zero,
            at_high,
        }
    }

    /// The coordinate of `value`, kept inside the scale.
    pub fn at(&self, value: f64) -> f64 {
        let share = (positive(value) / self.high).clamp(0.0, 1.0);
        self.at_zero + share * (self.at_high - self.at_zero)
    }

    /// Round values inside the scale, 0 among them: steps of 1, 2 or 5 times a power of ten.
    pub fn ticks(&self) -> Vec<f64> {
        let fewest_between = self.high / 6.0;
        let decade = 10_f64.powf(fewest_between.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
        let step = steps.into_iter().find(|step| *step >= fewest_between);
        let step = step.unwrap_or(self.high);
        let count = (self.high / step + 1e-9).floor() as u32;
        (0..=count).map(|number| f64::from(number) * step).collect()
    }
}

/// At least a picosecond in microseconds, at most a century: what a logarithm can take.
fn positive(value: f64) -> f64 {
    if value.is_finite() {
        value.clamp(1e-6, 1e16)
    } else {
        1e-6
    }
}

/// A duration in the unit that suits it: `350 µs`, `2.5 ms`, `1 s`.
pub fn duration_words(us: f64) -> String {
    let (value, unit) = match us {
        ..1e3 => (us, "µs"),
        ..1e6 => (us / 1e3, "ms"),
        _ => (us / 1e6, "s"),
    };
    let digits = match value.abs() {
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    let number = format!("{value:.digits$}");
    let number = if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        &number
    };
    format!("{number} {unit}")
}

/// A tick of a scale without a unit: as many digits as it has, three after the point at most.
pub fn tick_words(tick: f64) -> String {
    format!("{tick:.3}")
        .trim_end_matches('0')
        .trim_end_matches('.')
        .to_owned()
}

/// A line for each label, in HTML, as methods number 0, 1 and so on are drawn.
pub fn legend(labels: impl IntoIterator<Item = String>) -> String {
    let labels = labels.into_iter().enumerate();
    let items = joined(labels, |(index, label)| {
        format!(
            "<li><svg viewBox=\"0 0 34 10\" aria-hidden=\"true\"><line class=\"curve {}\" x1=\"0\" \
             y1=\"5\" x2=\"34\" y2=\"5\"/></svg>{label}</li>",
            line_classes(index)
        )
    });
    format!("<ul class=\"legend\">{items}</ul>")
}

/// Colour and dash classes of method number `index`: thirty methods before any two look alike.
pub fn line_classes(index: usize) -> String {
    format!("c{} d{}", index % 6, index % 5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn escaped_text_cannot_leave_its_place(text in any::<String>()) {
            let escaped = escape(&text);
            prop_assert!(!escaped.contains(['<', '>', '"', '\'']));
            prop_assert!(!escaped.chars().any(char::is_control));
        }

        #[test]
        fn any_scale_gives_finite_coordinates_and_few_ticks(low: f64, high: f64, value: f64) {
            let scale = LogScale::new((low, high), (10.0, 200.0));
            prop_assert!((10.0..=200.0).contains(&scale.at(value)));
            prop_assert!(scale.ticks().len() < 40);
        }

        #[test]
        fn any_linear_scale_gives_finite_coordinates_and_few_ticks(high: f64, value: f64) {
            let scale = LinearScale::new(high, (200.0, 10.0));
            prop_assert!((10.0..=200.0).contains(&scale.at(value)));
            prop_assert!((2..=7).contains(&scale.ticks().len()), "{:?}", scale.ticks());
        }
    }

    #[test]
    fn durations_in_words() {
        let words = [0.5, 350.0, 999.0, 1000.0, 2500.0, 12_340.0, 1e6].map(duration_words);
        assert_eq!(
            words,
            [
                "0.5 µs", "350 µs", "999 µs", "1 ms", "2.5 ms", "12.3 ms", "1 s"
            ]
        );
    }

    #[test]
    fn ticks_are_round() {
        let scale = LogScale::new((900.0, 110_000.0), (0.0, 1.0));
        assert_eq!(scale.ticks(), [1e3, 3e3, 1e4, 3e4, 1e5]);
        let scale = LinearScale::new(16_625.0, (0.0, 1.0));
        assert_eq!(scale.ticks(), [0.0, 5e3, 1e4, 1.5e4]);
        let words = LinearScale::new(1.0, (0.0, 1.0)).ticks().into_iter();
        let words: Vec<String> = words.map(tick_words).collect();
        assert_eq!(words, ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
    }
}
