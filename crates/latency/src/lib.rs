//! Load, recording, statistics and reports of steadyvm's comparisons.
//!
//! ```text
//! netrt ──┐                      ┌─ table   (text, for a terminal)
//!         ├─ results::assemble ──┤  report  (one HTML file)
//! netstream┘   │                 └─ results.json, .hgrm
//!              └ statistics, bootstrap (pure: no I/O)
//! ```
//!
//! [`mmpp`], [`flood`], [`stream`] and [`job`] are the loads of the experiment of NISP: bursts of packets
//! or a TCP stream for one process, next to a periodic job of another; [`nisp`] has its results. [`rtca`] has the data, figures
//! and table of the experiment of RTCA: round trips between two endpoints of a host while others send.
//!
//! [`netrt`] measures: a UDP request/response service under requests at random intervals, every
//! round trip kept. [`netstream`] describes the bulk traffic beside it (iperf3) and reads what it
//! reports. [`statistics`] and [`bootstrap`] turn samples into figures and intervals;
//! [`results`] puts them into one structure, which [`table`] and [`report`] show.
//!
//! The crate starts no process and knows no namespace: callers hand it sockets and text.
#![forbid(unsafe_code)]

pub mod bootstrap;
pub mod flood;
pub mod job;
pub mod mmpp;
pub mod netrt;
pub mod netstream;
pub mod nisp;
pub mod report;
pub mod results;
pub mod rtca;
pub mod statistics;
pub mod stream;
pub mod table;
