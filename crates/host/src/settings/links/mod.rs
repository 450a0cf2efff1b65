//! Network devices: queueing disciplines, flow steering rules, the batches of taps.

mod broadcast_cutoff;
mod calls;
mod ethtool;
#[cfg(any(test, feature = "fake"))]
mod fake;
mod flow_rule;
mod flow_steering;
mod function;
mod kernel;
mod link;
mod macvlan;
mod macvtaps;
mod napi_deferral;
mod napi_threading;
mod netdev;
mod netlink;
mod qdisc;
mod root_qdisc;
mod rx_frames;
mod sockets;
mod tap;
mod tap_send_buffer;
mod taps;

pub(crate) use broadcast_cutoff::of_card as cutoff_of_card;
pub use broadcast_cutoff::{BroadcastCutoff, NOTHING_QUEUED};
#[cfg(test)]
pub use calls::Deferral;
pub use calls::{
    FlowMatch, FlowRule, FlowTable, LinkMatch, Links, Moderation, Napi, PortProtocol, PortSocket,
    Qdisc, UNLIMITED_BYTES,
};
pub use flow_rule::{FlowPlace, FlowRuleAt};
pub use flow_steering::FlowSteering;
pub use kernel::KernelLinks;
pub(crate) use macvtaps::{card_below, macvtap_of, macvtaps_above};
pub use napi_deferral::NapiDeferral;
pub use napi_threading::NapiThreading;
pub use root_qdisc::RootQdisc;
pub use rx_frames::RxFrames;
pub use tap_send_buffer::TapSendBuffer;
pub(crate) use taps::{send_buffers, tap_of_descriptor, taps};
