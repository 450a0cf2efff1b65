//! The reports of the experiment of NISP.

mod rates;
mod tcp;
mod udp;

pub use tcp::render_nisp_tcp;
pub use udp::render_nisp_udp;
