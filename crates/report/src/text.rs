//! Words of figures, and lines of text for a terminal.

use steadyvm_stats::bootstrap::Ratio;

/// Width of the widest line, in characters.
pub const WIDTH: usize = 100;

/// A figure of a table: whole from 1,000 on, one decimal below, a power of ten where digits would
/// not fit; "-" if there is none.
pub fn figure(value: Option<f64>) -> String {
    match value {
        Some(value) if value.is_finite() && value.abs() >= 99_999_999.5 => format!("{value:.2e}"),
        Some(value) if value.is_finite() && value.abs() >= 999.95 => format!("{value:.0}"),
        Some(value) if value.is_finite() => format!("{value:.1}"),
        _ => "-".to_owned(),
    }
}

/// Microseconds as milliseconds.
pub fn ms(us: f64) -> String {
    format!("{:.2}", us / 1e3)
}

/// `1.20 [1.10, 1.31]`, or a dash.
pub fn ratio_words(ratio: Option<Ratio>) -> String {
    let Some(ratio) = ratio else {
        return "-".to_owned();
    };
    let estimate = short(ratio.estimate);
    match ratio.interval() {
        None => estimate,
        Some((low, high)) => format!("{estimate} [{}, {}]", short(low), short(high)),
    }
}

/// Three characters or four: large ratios need no fraction, small ones all their digits.
fn short(value: f64) -> String {
    match value {
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        ..10_000.0 => format!("{value:.0}"),
        _ => format!("{value:.0e}"),
    }
}

/// With its first letter large.
pub fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(|it| it.to_uppercase().to_string());
    first.unwrap_or_default() + characters.as_str()
}

/// A name in a column of `width` characters: padded, or cut with an ellipsis.
pub fn cut(name: &str, width: usize) -> String {
    format!("{:width$}", shortened(&printable(name), width))
}

/// `text` cut to `most` characters, for places that cannot grow. Of METHOD@KERNEL the kernel is kept: rows of a table often
/// differ in nothing else.
pub fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kernel = text.rfind('@').map_or("", |at| &text[at..]);
    let (kernel, kept) = match most.checked_sub(kernel.chars().count() + 1) {
        Some(kept) if kept > 3 => (kernel, kept),
        _ => ("", most.saturating_sub(1)),
    };
    text.chars()
        .take(kept)
        .chain(['…'])
        .chain(kernel.chars())
        .collect()
}

/// Without control characters, which could move the terminal's cursor.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|it| if it.is_control() { '\u{fffd}' } else { it })
        .collect()
}

/// Adds words in lines of at most [`WIDTH`] columns; all but the first are indented.
pub fn wrapped(text: &mut String, words: &str) {
    let mut width = 0;
    for word in words.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        word.truncate(WIDTH - 4);
        if width > 0 && width + 1 + word.len() > WIDTH {
            text.push_str("\n    ");
            width = 4;
        } else if width > 0 {
            text.push(' ');
            width += 1;
        }
        width += word.len();
        text.extend(word);
    }
    text.push('\n');
}

/// Adds a line, without spaces at its end.
pub fn line(text: &mut String, content: &str) {
    text.push_str(content.trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_method_on_a_kernel_the_kernel_is_kept() {
        for (name, shown) in [
            ("preempt-rt@7.3-rt", "preempt-rt@7.3-rt"),
            ("profile-sockets@7.3-rt", "profile-s…@7.3-rt"),
            ("profile-sockets@6.12-rt", "profile-…@6.12-rt"),
            ("rt@6.12-rt-patched-debug", "rt@6.12-rt-patch…"),
            ("a-method-of-a-long-name", "a-method-of-a-lo…"),
        ] {
            assert_eq!(cut(name, 17), shown);
        }
    }
}
