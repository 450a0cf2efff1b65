//! What steadyvm's comparisons measured: results, tables and reports.
//!
//! ```text
//! netrt ──┐                      ┌─ table   (text, for a terminal)
//!         ├─ results::assemble ──┤  report  (one HTML file)
//! netstream┘                     └─ results.json, .hgrm
//! ```
//!
//! [`nisp`] has the results of the experiment of NISP, [`rtca`] those of the experiment of RTCA.
#![forbid(unsafe_code)]

pub mod nisp;
pub mod report;
pub mod results;
pub mod rtca;
pub mod table;
