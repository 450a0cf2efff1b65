//! From figures to what people read: text for a terminal, HTML and Markdown. Knows no experiment.
//!
//! A [`Grid`] is a table that a terminal, a report and a Markdown page show alike. [`page`] frames a
//! report: one file with inline style and SVG, no script, nothing fetched. [`lines`], [`bars`],
//! [`forest`] and [`curves`] draw its plots, each as a card.
#![forbid(unsafe_code)]

pub mod bars;
pub mod curves;
pub mod forest;
mod grid;
pub mod lines;
pub mod page;
mod svg;
pub mod text;

pub use grid::{Grid, document, headers};
pub use page::ReportMeta;
pub use svg::{duration_words, escape, joined, shortened, tick_words};
