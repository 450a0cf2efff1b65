//! What the experiment measured, before any figure is computed.

use serde::{Deserialize, Serialize};
use steadyvm_load::netrt::ClientRun;

/// How much the low-priority endpoints send.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Interference {
    /// Nothing.
    #[default]
    Base,
    /// One of them sends.
    Light,
    /// Two of them send.
    Medium,
    /// All three send.
    Heavy,
}

impl Interference {
    /// All of them, in ascending order; the first is what the others are compared with.
    pub const ALL: [Self; 4] = [Self::Base, Self::Light, Self::Medium, Self::Heavy];

    /// The paper's word for it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Base => "Base",
            Self::Light => "Light",
            Self::Medium => "Medium",
            Self::Heavy => "Heavy",
        }
    }

    /// The level's name in files.
    pub fn key(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Light => "light",
            Self::Medium => "medium",
            Self::Heavy => "heavy",
        }
    }

    /// How many of the low-priority endpoints send. The paper has as many on each of three cores.
    pub fn senders(self) -> usize {
        match self {
            Self::Base => 0,
            Self::Light => 1,
            Self::Medium => 2,
            Self::Heavy => 3,
        }
    }
}

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
    /// What they are, for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Vms => "VMs (virtio-net over vhost-net, a tap each) on one bridge",
            Self::Namespaces => "processes in network namespaces (veth) on one bridge",
        }
    }
}

/// The whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunData {
    /// What the packets went between.
    pub endpoints: Endpoints,
    /// In the order shown.
    pub configurations: Vec<ConfigurationData>,
}

/// One configuration's rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConfigurationData {
    /// Its name, such as `rt-poll-list:1`.
    pub name: String,
    /// In the order of measuring. Rounds of different configurations with the same index were measured next
    /// to each other.
    pub rounds: Vec<RoundData>,
}

/// One round of one configuration: an entry for each of [`Interference::ALL`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoundData(pub Vec<LevelData>);

/// One level of interference in one round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LevelData {
    /// Round trips between the two high-priority endpoints.
    pub round_trips: ClientRun,
    /// What that cost.
    pub round_trips_cost: Cost,
    /// A TCP stream from the first to the second, afterwards.
    pub stream: StreamData,
}

/// A stream between the two high-priority endpoints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamData {
    /// What it carried, in Mbit/s: iperf3's seconds.
    pub mbit_per_s: Vec<f64>,
    /// What it cost.
    pub cost: Cost,
}

/// What others had meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The host's CPU time that was not idle, of all CPUs: 0 to 1.
    pub cpu_busy_fraction: f64,
    /// Packets a second that the low-priority endpoints got from one another.
    pub others_packets_per_s: f64,
}
