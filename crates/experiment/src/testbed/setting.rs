//! What a host is booted with, as opposed to what is set while it runs.

use serde::{Deserialize, Serialize};
use steadyvm_host::Method;

/// What the packets go between.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Endpoints {
    /// VMs with virtio-net over vhost-net and a tap each, on one bridge.
    #[default]
    Vms,
    /// Processes in network namespaces, with a pair of veth devices each, on one bridge.
    Namespaces,
}

impl Endpoints {
    /// Their word in files.
    pub fn key(self) -> &'static str {
        match self {
            Self::Vms => "vms",
            Self::Namespaces => "namespaces",
        }
    }

    /// What they are, for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Vms => "VMs (virtio-net over vhost-net, a tap each) on one bridge",
            Self::Namespaces => "processes in network namespaces (veth) on one bridge",
        }
    }
}

/// A host's setting. Two configurations that differ in their batch only share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The method.
    pub method: Method,
    /// Whether packets are taken in batches that can be set; otherwise by the plain path.
    pub has_batches: bool,
    /// What the packets go between.
    pub endpoints: Endpoints,
}

impl Setting {
    /// A name for messages and files.
    pub fn name(self) -> String {
        let batches = if self.has_batches { "-batches" } else { "" };
        format!("{}{batches}", self.method)
    }
}
