//! Where loads are received.

use serde::{Deserialize, Serialize};

/// Where the loads are received: the latency-critical service and the bulk stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Service {
    /// In a VM each.
    #[default]
    Vm,
    /// By processes of the host itself; there is no VM.
    Host,
    /// The latency-critical service by a process in a network namespace, behind a veth and a bridge, as in a container; the
    /// bulk stream by the host itself.
    Container,
    /// By a service of the user's own host, beside whatever that host does: `steadyvm measure`. There is
    /// one phase then, [`Phase::Idle`](crate::Phase::Idle), and no `NetStream` of ours.
    Own,
}

impl Service {
    /// The service in words.
    pub fn title(self) -> &'static str {
        match self {
            Self::Vm => "NetRT and NetStream are received in a VM each",
            Self::Host => "NetRT and NetStream are received by the host itself, without VMs",
            Self::Container => {
                "NetRT is received in a network namespace behind a veth and a bridge, NetStream by the host itself, without VMs"
            }
            Self::Own => "NetRT is received by a service of this host, beside the host's own load",
        }
    }
}
