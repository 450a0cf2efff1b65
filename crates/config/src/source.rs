//! A text, and where its lines are.

use std::ops::Range;

use crate::Place;

/// A text, and what it is called.
pub(crate) struct Source<'s> {
    name: &'s str,
    pub(crate) text: &'s str,
    /// Where lines begin.
    lines: Vec<usize>,
}

impl<'s> Source<'s> {
    pub fn new(name: &'s str, text: &'s str) -> Self {
        let ends = text.match_indices('\n').map(|(end, _)| end + 1);
        Self {
            name,
            text,
            lines: std::iter::once(0).chain(ends).collect(),
        }
    }

    /// The place of a byte.
    pub fn place(&self, offset: usize) -> Place {
        let line = self.lines.partition_point(|&start| start <= offset);
        let start = self.lines.get(line - 1).copied().unwrap_or(0);
        let before = self.text.get(start..offset).unwrap_or_default();
        // A byte-order mark is no character of its line.
        let before = before.trim_start_matches('\u{feff}');
        Place {
            file: self.name.to_owned(),
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(before.chars().count() + 1).unwrap_or(u32::MAX),
        }
    }

    /// The text of a value, as it is written.
    pub fn written(&self, span: Range<usize>) -> &'s str {
        self.text.get(span).unwrap_or_default()
    }
}
