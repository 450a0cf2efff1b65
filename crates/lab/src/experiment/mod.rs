//! Experiments of the papers that are no comparison of NetRT next to NetStream.

pub mod nisp;
pub mod rtca;
