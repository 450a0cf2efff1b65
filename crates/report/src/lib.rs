//! From figures to what people read: text for a terminal, HTML and Markdown. Knows no experiment.
//!
//! A [`Grid`] is a table that a terminal, a report and a Markdown page show alike. [`page`] frames a
//! report: one file with inline style and SVG, no script, nothing fetched. [`lines`], [`bars`],
//! [`forest`] and [`curves`] draw its plots, each as a card. [`results`] is the shape of results.json,
//! [`Figures`] fills it, and [`write_run`] writes it with the other files of a run. A [`results_page`] begins with an
//! [`answer`]: one sentence, made of the figures, and a [`picture`]. [`machine`] is what a run says of where it ran.
#![forbid(unsafe_code)]

pub mod answer;
pub mod bars;
pub mod curves;
mod figures;
mod files;
pub mod forest;
mod grid;
pub mod lines;
pub mod machine;
pub mod of_record;
pub mod page;
pub mod picture;
pub mod results;
#[cfg(test)]
mod results_checks;
pub mod results_page;
mod svg;
pub mod text;

pub use answer::{Answer, Finding, Over};
pub use figures::Figures;
pub use files::{Shown, TABLES, write_run};
pub use grid::{Grid, document, headers};
pub use page::ReportMeta;
pub use picture::Picture;
pub use svg::{duration_words, escape, joined, tick_words};
