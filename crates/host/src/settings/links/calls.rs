//! What only system calls know of network devices: queueing disciplines, flow steering rules, the
//! batches of taps; behind a trait, so that a fake host can stand in for the real one.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use steadyvm_demux::Protocol;

use crate::address::Address;

/// What a tap's send buffer is without a limit, in bytes: `INT_MAX`, as vhost-net compares it.
pub const UNLIMITED_BYTES: u32 = i32::MAX as u32;

/// The root queueing discipline of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qdisc {
    /// What `tc qdisc` calls it.
    pub kind: String,
    /// Whether the kernel attached it by itself (its handle is 0), so that deleting whatever
    /// replaces it brings it back.
    pub is_default: bool,
}

/// The protocol of a rule on a destination port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortProtocol {
    /// TCP over IPv4.
    Tcp4,
    /// UDP over IPv4.
    Udp4,
}

/// Frames by what stands before IP; what is none may be anything, but for one. In numbers of the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkMatch {
    /// The EtherType, behind the tags of a frame that has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ethertype: Option<u16>,
    /// The VLAN of the outermost tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Its priority code point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcp: Option<u8>,
}

/// Which packets a rule steers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowMatch {
    /// Packets to this hardware address: those of one VM.
    DestinationMac([u8; 6]),
    /// Packets to this port of any address.
    DestinationPort(PortProtocol, u16),
    /// Frames of this kind, whoever they are for.
    Link(LinkMatch),
}

/// A flow steering rule (`ethtool -N`): its packets go to one receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRule {
    /// Which packets.
    pub matches: FlowMatch,
    /// Where to.
    pub queue: u32,
}

/// A NIC's rule table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowTable {
    /// The places that hold a rule; `None`: one that steadyvm does not write.
    pub rules: BTreeMap<u32, Option<FlowRule>>,
    /// How many places there are; none where the driver does not say.
    pub size: Option<u32>,
}

/// A socket of the host that has a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortSocket {
    /// The kernel's name for it.
    pub cookie: u64,
    /// The inode that its descriptors name; 0 if no process has it.
    pub inode: u32,
    /// The protocol.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
    /// Whether it is a TCP socket that waits for connections.
    pub listens: bool,
}

/// How long a NAPI's packets may wait though nobody polls it (Documentation/networking/napi.rst, "Software IRQ coalescing").
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deferral {
    /// After a packet the interrupt stays off for so many empty polls by a timer (`defer-hard-irqs`).
    pub empty_polls: u32,
    /// The timer's time in ns, and how long packets that are merged wait for more (`gro-flush-timeout`).
    pub timeout_ns: u64,
    /// So long the interrupt stays off after a process has polled and found packets (`irq-suspend-timeout`).
    #[serde(default)]
    pub suspend_ns: u64,
}

/// A NAPI: what polls queues of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Napi {
    /// Its number.
    pub id: u32,
    /// The interrupt that starts its poll; none where the driver does not say.
    pub irq: Option<u32>,
    /// The thread that polls; none where NAPI is not threaded.
    pub thread: Option<u32>,
    /// How long its packets may wait; none before Linux 6.13, where that is a whole device's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deferral: Option<Deferral>,
    /// Whether a thread of its own polls it: 0 no, 1 yes, 2 yes and without sleep; none before Linux 6.17, where that is a whole
    /// device's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threaded: Option<u32>,
}

/// How long a device gathers received packets before it interrupts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moderation {
    /// For so long at most (`rx-usecs`).
    pub rx_us: u32,
    /// The driver changes that by the traffic (`adaptive-rx`).
    pub is_adaptive: bool,
}

/// The system calls on network devices.
pub trait Links: Send + Sync {
    /// The root queueing discipline.
    fn root_qdisc(&self, device: &str) -> io::Result<Qdisc>;
    /// Puts a discipline with its default options in the place of the root's.
    fn replace_root_qdisc(&self, device: &str, kind: &str) -> io::Result<()>;
    /// Deletes the root's; the kernel attaches its default.
    fn delete_root_qdisc(&self, device: &str) -> io::Result<()>;
    /// Whether the NIC's flow steering is on. `Unsupported` where it has none.
    fn flow_steering(&self, device: &str) -> io::Result<bool>;
    /// Switches it.
    fn set_flow_steering(&self, device: &str, on: bool) -> io::Result<()>;
    /// The NIC's rules. `Unsupported` where it has none.
    fn flow_rules(&self, device: &str) -> io::Result<FlowTable>;
    /// Writes a rule to a free place of the table.
    fn insert_flow_rule(&self, device: &str, place: u32, rule: &FlowRule) -> io::Result<()>;
    /// Deletes a rule.
    fn delete_flow_rule(&self, device: &str, place: u32) -> io::Result<()>;
    /// How many packets a device gathers before it handles them (`ethtool -C`, `rx-frames`).
    fn rx_frames(&self, device: &str) -> io::Result<u32>;
    /// Sets it.
    fn set_rx_frames(&self, device: &str, frames: u32) -> io::Result<()>;
    /// How long a device gathers packets before it interrupts (`ethtool -c`). `EOPNOTSUPP` if it
    /// does not.
    fn moderation(&self, device: &str) -> io::Result<Moderation>;
    /// The send buffer in bytes of the queue of a tap that a process has open by this descriptor,
    /// [`UNLIMITED_BYTES`] without a limit. `ENODEV` if the descriptor is something else.
    fn tap_send_buffer(&self, pid: u32, descriptor: u32, tap: &str) -> io::Result<u32>;
    /// Sets it for every queue of the tap that is attached.
    fn set_tap_send_buffer(
        &self,
        pid: u32,
        descriptor: u32,
        tap: &str,
        bytes: u32,
    ) -> io::Result<()>;
    /// The cutoff of broadcast queueing of the card below a macvlan or macvtap. `EOPNOTSUPP` if the device is neither.
    fn broadcast_cutoff(&self, device: &str) -> io::Result<i32>;
    /// Sets it for all macvlans and macvtaps of that card.
    fn set_broadcast_cutoff(&self, device: &str, cutoff: i32) -> io::Result<()>;
    /// The address that a card filters for one of its functions; zeros without one.
    fn function_address(&self, card: &str, number: u32) -> io::Result<Address>;
    /// Sets it.
    fn set_function_address(&self, card: &str, number: u32, address: Address) -> io::Result<()>;
    /// Switches a device on or off.
    fn set_up(&self, device: &str, is_up: bool) -> io::Result<()>;
    /// Switches a device on or off by a thread on this CPU, or on any where none of this process may run there.
    fn set_up_from(&self, device: &str, is_up: bool, cpu: usize) -> io::Result<()>;
    /// Waits until a device that is on carries packets, for `patience` at most. Whether it does.
    fn await_link(&self, device: &str, patience: Duration) -> io::Result<bool>;
    /// A device's NAPIs as the kernel knows them, in the order of their numbers. `ENOENT` before Linux 6.8.
    fn napis(&self, device: &str) -> io::Result<Vec<Napi>>;
    /// Sets how long the packets of a device's NAPI may wait. `ENOENT` without such a NAPI, `EOPNOTSUPP` before Linux 6.13.
    fn set_deferral(&self, device: &str, napi: u32, deferral: Deferral) -> io::Result<()>;
    /// Switches the thread of a device's NAPI. `ENOENT` without such a NAPI, `EOPNOTSUPP` before Linux 6.17.
    fn set_napi_threaded(&self, device: &str, napi: u32, threaded: u32) -> io::Result<()>;
    /// Whether a device's driver runs XDP programs, and redirects for them. `ENOENT` before Linux 6.3.
    fn redirects_by_xdp(&self, device: &str) -> io::Result<bool>;
    /// The host's sockets that have a port.
    fn port_sockets(&self) -> io::Result<Vec<PortSocket>>;
}

impl fmt::Display for FlowMatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DestinationMac(bytes) => {
                let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                write!(formatter, "MAC {}", bytes.join(":"))
            }
            Self::DestinationPort(PortProtocol::Tcp4, port) => {
                write!(formatter, "TCP port {port}")
            }
            Self::DestinationPort(PortProtocol::Udp4, port) => {
                write!(formatter, "UDP port {port}")
            }
            Self::Link(link) => link.fmt(formatter),
        }
    }
}

impl fmt::Display for LinkMatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ethertype = self.ethertype.map(|it| format!("EtherType 0x{it:04x}"));
        let vlan = self.vlan.map(|it| format!("VLAN {it}"));
        let pcp = self.pcp.map(|it| format!("priority code point {it}"));
        let parts: Vec<String> = ethertype.into_iter().chain(vlan).chain(pcp).collect();
        formatter.write_str(&parts.join(", "))
    }
}

impl fmt::Display for FlowRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} to queue {}", self.matches, self.queue)
    }
}
