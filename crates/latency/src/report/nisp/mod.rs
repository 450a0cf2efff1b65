//! The reports of the experiment of NISP.

mod rates;
mod tcp;
mod udp;

pub use tcp::render_nisp_tcp;
pub use udp::render_nisp_udp;

use super::svg::{escape, joined};
use crate::nisp::Grid;

fn table(grid: &Grid) -> String {
    let headers = joined(&grid.headers, |name| format!("<th>{}</th>", escape(name)));
    let rows = joined(&grid.rows, |row| {
        let (name, cells) = row
            .split_first()
            .map_or(("", &[][..]), |(name, cells)| (name, cells));
        let cells = joined(cells, |cell| format!("<td>{}</td>", escape(cell)));
        format!("<tr><th scope=\"row\">{}</th>{cells}</tr>", escape(name))
    });
    format!(
        "<h2>{}</h2>\n<div class=\"scroll\" tabindex=\"0\"><table><thead><tr>{headers}</tr></thead>\
         <tbody>{rows}</tbody></table></div>\n",
        grid.title
    )
}

/// What the columns mean, and the page's end.
fn reading(sentences: &[&str]) -> String {
    let sentences = joined(sentences, |sentence| {
        format!("<p class=\"quiet\">{}</p>\n", escape(sentence))
    });
    format!("<h2>How to read this</h2>\n{sentences}</main>\n</body>\n</html>\n")
}
