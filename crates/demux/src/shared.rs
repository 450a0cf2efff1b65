//! What this crate and the BPF programs tell each other. Layouts are those of bpf/demux.bpf.c.

use serde::{Deserialize, Serialize};

use crate::levels::{Levels, PRIORITIES};

/// What is to be installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Specification {
    /// NICs whose packets are demultiplexed.
    pub nics: Vec<String>,
    /// The levels.
    pub levels: Levels,
    /// Where packets wait for their turn.
    pub queues: Queues,
    /// Frames whose level is given. The first that a frame is of counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<Frames>,
}

/// How many kinds of frames there can be: `FRAMES` of bpf/demux.bpf.c.
pub const FRAMES: usize = 16;

/// Frames by what stands before IP, and their level. What is none may be anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frames {
    /// The EtherType, behind the tags of a frame that has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ethertype: Option<u16>,
    /// The VLAN of the outermost tag, up to 4095.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Its priority code point, up to 7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcp: Option<u8>,
    /// The level; 0 is the lowest.
    pub level: u8,
}

impl Frames {
    /// Whether a frame must have a tag to be of them.
    pub fn has_tag(&self) -> bool {
        self.vlan.is_some() || self.pcp.is_some()
    }

    /// `struct frames`
    fn bytes(&self) -> [u8; FRAMES_BYTES] {
        let vlan = self.vlan.map_or((0, 0), |vlan| (vlan & 0xfff, 0xfff));
        let pcp = self
            .pcp
            .map_or((0, 0), |pcp| (u16::from(pcp) << 13, 7 << 13));
        let numbers = [
            self.ethertype.unwrap_or_default(),
            vlan.0 | pcp.0,
            vlan.1 | pcp.1,
        ];
        let mut bytes = [0; FRAMES_BYTES];
        for (at, number) in numbers.into_iter().enumerate() {
            bytes[2 * at..2 * at + 2].copy_from_slice(&number.to_ne_bytes());
        }
        bytes[6] = self.level;
        // One without a condition would be every frame.
        bytes[7] = u8::from(self.ethertype.is_some() || self.has_tag());
        bytes
    }
}

/// The size of `struct frames`.
const FRAMES_BYTES: usize = 8;

/// Where packets wait for their turn, level by level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Queues {
    /// Each level has a thread and its queue, all on one CPU.
    Threads {
        /// That CPU.
        cpu: u32,
    },
    /// In those of the kernel's own levels (`net.core.rtnet_xdp_prio`): packets above the lowest
    /// level are marked for them.
    Kernel,
}

/// The `skb->priority` of packets that are marked: the highest that names no traffic class, so that
/// other marks may stay below it (`net.core.rtnet_skb_prio`).
pub const MARK: u32 = 15;

/// A protocol that has ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// Its number in IP headers.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }

    /// The protocol of a number.
    pub fn of_number(number: u8) -> Option<Self> {
        [Self::Tcp, Self::Udp]
            .into_iter()
            .find(|protocol| protocol.number() == number)
    }
}

/// A socket that has a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoundSocket {
    /// The kernel's name for it.
    pub cookie: u64,
    /// The protocol.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
    /// The thread whose priority it has.
    pub thread: u32,
    /// That priority: 0, or 1 to 99 if it is real-time.
    pub priority: u32,
}

/// `struct settings`
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    pub kernel_level: u32,
    pub unknown_level: u32,
    pub cpu: u32,
    pub mark: u32,
    pub level_of_priority: [u8; PRIORITIES],
    pub frames: [[u8; FRAMES_BYTES]; FRAMES],
}

/// `struct port_key`
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PortKey {
    pub port: u16,
    pub protocol: u8,
    pub zero: u8,
}

/// `struct port_value`
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PortValue {
    pub state: u64,
    pub sockets: u32,
    pub zero: u32,
}

impl PortValue {
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (state, rest) = bytes.split_first_chunk()?;
        let (sockets, rest) = rest.split_first_chunk()?;
        Some(Self {
            state: u64::from_ne_bytes(*state),
            sockets: u32::from_ne_bytes(*sockets),
            zero: u32::from_ne_bytes(rest.try_into().ok()?),
        })
    }

    /// The highest priority of its sockets.
    pub fn priority(self) -> u32 {
        self.state as u32
    }
}

const _: () = {
    assert!(size_of::<Settings>() == 4 * 4 + PRIORITIES + FRAMES * FRAMES_BYTES);
    assert!(size_of::<PortKey>() == 4);
    assert!(size_of::<PortValue>() == 16);
};

impl PortKey {
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let [low, high, protocol, zero] = *bytes else {
            return None;
        };
        Some(Self {
            port: u16::from_ne_bytes([low, high]),
            protocol,
            zero,
        })
    }
}

impl Settings {
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (numbers, rest) = bytes.split_at_checked(16)?;
        let (levels, frames) = rest.split_at_checked(PRIORITIES)?;
        let (frames, rest) = frames.as_chunks();
        if !rest.is_empty() {
            return None;
        }
        let number = |at: usize| {
            Some(u32::from_ne_bytes(
                numbers.get(at..at + 4)?.try_into().ok()?,
            ))
        };
        Some(Self {
            kernel_level: number(0)?,
            unknown_level: number(4)?,
            cpu: number(8)?,
            mark: number(12)?,
            level_of_priority: levels.try_into().ok()?,
            frames: frames.try_into().ok()?,
        })
    }

    pub fn of(specification: &Specification) -> Self {
        let levels = &specification.levels;
        let (cpu, mark) = match specification.queues {
            Queues::Threads { cpu } => (cpu, 0),
            Queues::Kernel => (0, MARK),
        };
        Self {
            kernel_level: levels.of_kernel() as u32,
            unknown_level: 0,
            cpu,
            mark,
            level_of_priority: levels.table(),
            frames: std::array::from_fn(|at| {
                let frames = specification.frames.get(at);
                frames.map_or([0; FRAMES_BYTES], Frames::bytes)
            }),
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let numbers = [self.kernel_level, self.unknown_level, self.cpu, self.mark];
        let mut bytes: Vec<u8> = numbers
            .iter()
            .flat_map(|number| number.to_ne_bytes())
            .collect();
        bytes.extend(self.level_of_priority);
        bytes.extend(self.frames.concat());
        bytes
    }
}
