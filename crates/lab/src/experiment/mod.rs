//! Experiments of the papers that are no comparison of NetRT next to NetStream.

pub mod nisp;
mod output;
pub mod rtca;

pub use output::Meta;
