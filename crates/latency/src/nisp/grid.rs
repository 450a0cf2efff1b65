//! Tables that a terminal and a report show alike.

use crate::table::{line, printable, wrapped};

/// A table of text, the rows of one method below each other.
pub(crate) struct Grid {
    /// What it shows.
    pub title: &'static str,
    /// How many columns from the left are words, the first a method's name; the others are figures.
    pub words: usize,
    /// A title for each column.
    pub headers: Vec<String>,
    /// As many cells each.
    pub rows: Vec<Vec<String>>,
}

impl Grid {
    /// Adds it to text for a terminal: columns as wide as their widest cell, a name once for all of its
    /// rows.
    pub fn write(&self, text: &mut String) {
        line(text, self.title);
        let rows = || std::iter::once(&self.headers).chain(&self.rows);
        let width = |column: usize| {
            let cells = rows().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.headers.len()).map(width).collect();
        let mut name = None;
        for row in rows() {
            let cells = row.iter().zip(&widths).enumerate();
            let columns = cells.map(|(column, (cell, &width))| {
                let cell = printable(cell);
                if column == 0 && name == Some(&row[0]) {
                    " ".repeat(width)
                } else if column < self.words {
                    format!("{cell:width$}")
                } else {
                    format!("{cell:>width$}")
                }
            });
            line(text, &columns.collect::<Vec<_>>().join(" "));
            name = row.first();
        }
    }
}

/// Grids for a terminal, between what was done and what the columns and the notes say. Ends with a newline.
pub(super) fn document(
    introduction: &str,
    grids: &[Grid],
    reading: &[&str],
    notes: &[String],
) -> String {
    let mut text = String::new();
    wrapped(&mut text, introduction);
    for grid in grids {
        line(&mut text, "");
        grid.write(&mut text);
    }
    line(&mut text, "");
    for sentence in reading {
        wrapped(&mut text, sentence);
    }
    for note in notes {
        wrapped(&mut text, &format!("note: {}", printable(note)));
    }
    text
}

/// Titles of columns.
pub(super) fn headers<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).into()
}

/// Microseconds as milliseconds.
pub(super) fn ms(us: f64) -> String {
    format!("{:.2}", us / 1e3)
}
