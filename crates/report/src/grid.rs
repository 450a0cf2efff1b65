//! Tables that a terminal, a report and a Markdown page show alike.

use crate::svg::{escape, joined};
use crate::text::{line, printable, wrapped};

/// A table of text, the rows of one method below each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    /// What it shows.
    pub title: String,
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
        line(text, &self.title);
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

impl Grid {
    /// It in a report, below its title.
    pub fn html(&self) -> String {
        let headers = joined(&self.headers, |name| format!("<th>{}</th>", escape(name)));
        let rows = joined(&self.rows, |row| {
            let (name, cells) = row
                .split_first()
                .map_or(("", &[][..]), |(name, cells)| (name, cells));
            let cells = joined(cells, |cell| format!("<td>{}</td>", escape(cell)));
            format!("<tr><th scope=\"row\">{}</th>{cells}</tr>", escape(name))
        });
        format!(
            "<h2>{}</h2>\n<div class=\"scroll\" tabindex=\"0\"><table><thead><tr>{headers}</tr></thead>\
             <tbody>{rows}</tbody></table></div>\n",
            escape(&self.title)
        )
    }

    /// It as Markdown, below its title.
    pub fn markdown(&self) -> String {
        let row = |cells: &[String]| {
            let cells = joined(cells, |cell| format!(" {} |", in_cell(cell)));
            format!("|{cells}\n")
        };
        let numbered = self.headers.iter().enumerate();
        let rule = joined(numbered, |(column, _)| {
            if column < self.words { "---|" } else { "---:|" }.to_owned()
        });
        let rows = joined(&self.rows, |cells| row(cells));
        format!("## {}\n\n{}|{rule}\n{rows}", self.title, row(&self.headers))
    }
}

/// Text in one cell of a Markdown table: a bar would end the cell, a line's end the row.
pub fn in_cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

/// Grids for a terminal, between what was done and what the columns and the notes say. Ends with a newline.
pub fn document(introduction: &str, grids: &[Grid], reading: &[&str], notes: &[String]) -> String {
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
pub fn headers<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_is_the_same_in_text_html_and_markdown() {
        let grid = Grid {
            title: "T".to_owned(),
            words: 1,
            headers: headers(["", "p50"]),
            rows: vec![vec!["a|b<".to_owned(), "1.5".to_owned()]],
        };
        let mut text = String::new();
        grid.write(&mut text);
        assert_eq!(text, "T\n     p50\na|b< 1.5\n");
        assert_eq!(
            grid.markdown(),
            "## T\n\n|  | p50 |\n|---|---:|\n| a\\|b< | 1.5 |\n"
        );
        assert!(
            grid.html()
                .contains("<th scope=\"row\">a|b&lt;</th><td>1.5</td>")
        );
    }
}
