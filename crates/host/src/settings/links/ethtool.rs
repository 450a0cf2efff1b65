//! Flow steering rules (`ethtool -N`) and `rx-frames` (`ethtool -C`), by the ethtool ioctl: netlink
//! has no rules.

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::calls::{FlowMatch, FlowRule, FlowTable, LinkMatch, Moderation, PortProtocol};

// Commands and values of include/uapi/linux/ethtool.h.
const GET_COALESCING: u32 = 0x0e;
const SET_COALESCING: u32 = 0x0f;
const GET_FLAGS: u32 = 0x25;
const SET_FLAGS: u32 = 0x26;
const COUNT_RULES: u32 = 0x2e;
const GET_RULE: u32 = 0x2f;
const LIST_RULES: u32 = 0x30;
const DELETE_RULE: u32 = 0x31;
const INSERT_RULE: u32 = 0x32;
const FLAG_NTUPLE: u32 = 1 << 27;
const TCP_V4_FLOW: u32 = 0x01;
const UDP_V4_FLOW: u32 = 0x02;
const ETHER_FLOW: u32 = 0x12;
/// Beside a flow's type: `h_ext` and `m_ext` count, too (`FLOW_EXT`).
const WITH_EXTENSION: u32 = 0x8000_0000;
/// Set in `data` where the table has no numbered places.
const SPECIAL_PLACES: u64 = 0x8000_0000;
/// Where the destination port is in `struct ethtool_tcpip4_spec`.
const PORT_AT: usize = 10;
/// Where the EtherType is in `struct ethhdr`.
const ETHERTYPE_AT: usize = 12;
/// Where the tag's control information is in `struct ethtool_flow_ext`, and what it is made of.
const TAG_AT: usize = 10;
const TAG_VLAN: u16 = 0x0fff;
const TAG_PCP_SHIFT: u16 = 13;
/// More rules than any NIC has; bounds what a driver can make us allocate.
const MOST_RULES: usize = 65_536;

/// `struct ethtool_value`
#[repr(C)]
#[derive(Clone, Copy)]
struct Value {
    command: u32,
    data: u32,
}

/// `struct ethtool_coalesce`
#[repr(C)]
#[derive(Clone, Copy)]
struct Coalescing {
    command: u32,
    rx_us: u32,
    rx_frames: u32,
    others: [u32; 20],
}

/// `struct ethtool_rx_flow_spec`: `h_u`, `h_ext`, `m_u` and `m_ext` as bytes.
#[repr(C)]
#[derive(Clone, Copy)]
struct FlowSpecification {
    flow_type: u32,
    header: [u8; 52],
    header_extension: [u8; 20],
    mask: [u8; 52],
    mask_extension: [u8; 20],
    ring_cookie: u64,
    location: u32,
}

/// `struct ethtool_rxnfc` without its flexible array.
#[repr(C)]
#[derive(Clone, Copy)]
struct RuleCommand {
    command: u32,
    flow_type: u32,
    data: u64,
    rule: FlowSpecification,
    rule_count: u32,
}

const _: () = assert!(mem::size_of::<Coalescing>() == 92);
const _: () = assert!(mem::size_of::<FlowSpecification>() == 168);
const _: () = assert!(mem::size_of::<RuleCommand>() == 192);
/// The flexible array `rule_locs` begins behind `rule_cnt`, before the padding.
const PLACES_AT: usize = mem::offset_of!(RuleCommand, rule_count) + 4;

/// `struct ifreq` with the pointer member.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    data: *mut libc::c_void,
    padding: [u8; 16],
}

pub(super) fn flow_steering(device: &str) -> io::Result<bool> {
    flags(device).map(|flags| flags & FLAG_NTUPLE != 0)
}

pub(super) fn set_flow_steering(device: &str, on: bool) -> io::Result<()> {
    let old = flags(device)?;
    let mut value = Value {
        command: SET_FLAGS,
        data: if on {
            old | FLAG_NTUPLE
        } else {
            old & !FLAG_NTUPLE
        },
    };
    control(device, (&raw mut value).cast())
}

/// Switches GRO, without which a veth has no NAPI.
#[cfg(test)]
pub(super) fn set_merging(device: &str, on: bool) -> io::Result<()> {
    const SET_MERGING: u32 = 0x2c;
    let mut value = Value {
        command: SET_MERGING,
        data: u32::from(on),
    };
    control(device, (&raw mut value).cast())
}

pub(super) fn rx_frames(device: &str) -> io::Result<u32> {
    coalescing(device).map(|coalescing| coalescing.rx_frames)
}

/// `use_adaptive_rx_coalesce` is the eleventh word of `struct ethtool_coalesce`.
const ADAPTIVE: usize = 10 - 3;

pub(super) fn moderation(device: &str) -> io::Result<Moderation> {
    coalescing(device).map(|coalescing| Moderation {
        rx_us: coalescing.rx_us,
        is_adaptive: coalescing.others[ADAPTIVE] != 0,
    })
}

/// Leaves the device's other values as they are.
pub(super) fn set_rx_frames(device: &str, frames: u32) -> io::Result<()> {
    let mut coalescing = Coalescing {
        command: SET_COALESCING,
        rx_frames: frames,
        ..coalescing(device)?
    };
    control(device, (&raw mut coalescing).cast())
}

fn coalescing(device: &str) -> io::Result<Coalescing> {
    let mut coalescing = Coalescing {
        command: GET_COALESCING,
        rx_us: 0,
        rx_frames: 0,
        others: [0; 20],
    };
    control(device, (&raw mut coalescing).cast())?;
    Ok(coalescing)
}

pub(super) fn flow_rules(device: &str) -> io::Result<FlowTable> {
    let mut counted = RuleCommand::new(COUNT_RULES);
    control(device, (&raw mut counted).cast())?;
    let count = (counted.rule_count as usize).min(MOST_RULES);
    // In words of eight bytes, so that the structure is aligned.
    let mut words = vec![0_u64; (PLACES_AT + 4 * count).div_ceil(8).max(24)];
    let mut list = RuleCommand::new(LIST_RULES);
    list.rule_count = count as u32;
    // SAFETY: `words` holds at least 24 words of 8 bytes, the size of a `RuleCommand`, is
    // aligned for one, and is not borrowed elsewhere.
    unsafe { words.as_mut_ptr().cast::<RuleCommand>().write(list) };
    control(device, words.as_mut_ptr().cast())?;
    // SAFETY: the kernel keeps the structure's layout, for which every bit pattern is valid, and
    // `words` is as large and aligned as above.
    let listed = unsafe { words.as_ptr().cast::<RuleCommand>().read() };
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let places = bytes[PLACES_AT..]
        .chunks_exact(4)
        .take((listed.rule_count as usize).min(count))
        .map(|place| u32::from_ne_bytes([place[0], place[1], place[2], place[3]]));
    let mut rules = BTreeMap::new();
    for place in places {
        let mut asked = RuleCommand::new(GET_RULE);
        asked.rule.location = place;
        control(device, (&raw mut asked).cast())?;
        rules.insert(place, asked.rule.read());
    }
    let size = (listed.data & !SPECIAL_PLACES) as u32;
    Ok(FlowTable {
        rules,
        size: (size > 0).then_some(size),
    })
}

pub(super) fn insert_flow_rule(device: &str, place: u32, rule: &FlowRule) -> io::Result<()> {
    let mut command = RuleCommand::new(INSERT_RULE);
    command.rule = FlowSpecification::of(rule);
    command.rule.location = place;
    control(device, (&raw mut command).cast())
}

pub(super) fn delete_flow_rule(device: &str, place: u32) -> io::Result<()> {
    let mut command = RuleCommand::new(DELETE_RULE);
    command.rule.location = place;
    control(device, (&raw mut command).cast())
}

fn flags(device: &str) -> io::Result<u32> {
    let mut value = Value {
        command: GET_FLAGS,
        data: 0,
    };
    control(device, (&raw mut value).cast())?;
    Ok(value.data)
}

/// Runs the command that `data` points to: a [`Value`], a [`Coalescing`], or a [`RuleCommand`] with
/// its places.
fn control(device: &str, data: *mut libc::c_void) -> io::Result<()> {
    let mut request = InterfaceRequest {
        name: [0; 16],
        data,
        padding: [0; 16],
    };
    if device.len() >= request.name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    request.name[..device.len()].copy_from_slice(device.as_bytes());
    let (family, flags) = (AddressFamily::Inet, SockFlag::SOCK_CLOEXEC);
    let socket = socket(family, SockType::Datagram, flags, None)?;
    // SAFETY: `request` is a live `struct ifreq` with a terminated name. Its data is a live,
    // writable structure whose first word is the command, and large enough for what that
    // command reads and writes: every caller passes a `Value` for flags, a `Coalescing` for
    // coalescing, and for rules a `RuleCommand` followed by as many places as its `rule_count`
    // says.
    let result = unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCETHTOOL as libc::Ioctl,
            &raw mut request,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

impl RuleCommand {
    fn new(command: u32) -> Self {
        Self {
            command,
            flow_type: 0,
            data: 0,
            rule: FlowSpecification::empty(),
            rule_count: 0,
        }
    }
}

impl FlowSpecification {
    fn empty() -> Self {
        Self {
            flow_type: 0,
            header: [0; 52],
            header_extension: [0; 20],
            mask: [0; 52],
            mask_extension: [0; 20],
            ring_cookie: 0,
            location: 0,
        }
    }

    fn of(rule: &FlowRule) -> Self {
        let mut raw = Self::empty();
        raw.ring_cookie = rule.queue.into();
        match rule.matches {
            FlowMatch::DestinationMac(address) => {
                raw.flow_type = ETHER_FLOW;
                raw.header[..6].copy_from_slice(&address);
                raw.mask[..6].fill(0xff);
            }
            FlowMatch::DestinationPort(protocol, port) => {
                raw.flow_type = match protocol {
                    PortProtocol::Tcp4 => TCP_V4_FLOW,
                    PortProtocol::Udp4 => UDP_V4_FLOW,
                };
                raw.header[PORT_AT..PORT_AT + 2].copy_from_slice(&port.to_be_bytes());
                raw.mask[PORT_AT..PORT_AT + 2].fill(0xff);
            }
            FlowMatch::Link(link) => raw.set_link(&link),
        }
        raw
    }

    fn set_link(&mut self, link: &LinkMatch) {
        self.flow_type = ETHER_FLOW;
        if let Some(ethertype) = link.ethertype {
            let at = ETHERTYPE_AT..ETHERTYPE_AT + 2;
            self.header[at.clone()].copy_from_slice(&ethertype.to_be_bytes());
            self.mask[at].fill(0xff);
        }
        if link.vlan.is_none() && link.pcp.is_none() {
            return;
        }
        self.flow_type |= WITH_EXTENSION;
        let vlan = link.vlan.map_or((0, 0), |vlan| (vlan & TAG_VLAN, TAG_VLAN));
        let pcp = link.pcp.map_or((0, 0), |pcp| {
            (u16::from(pcp) << TAG_PCP_SHIFT, 7 << TAG_PCP_SHIFT)
        });
        let at = TAG_AT..TAG_AT + 2;
        self.header_extension[at.clone()].copy_from_slice(&(vlan.0 | pcp.0).to_be_bytes());
        self.mask_extension[at].copy_from_slice(&(vlan.1 | pcp.1).to_be_bytes());
    }

    /// What it matches before IP, if that is of a form that steadyvm writes.
    fn link(&self) -> LinkMatch {
        let number = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let has_ethertype = number(&self.mask, ETHERTYPE_AT) != 0;
        let tag = number(&self.header_extension, TAG_AT);
        let counts = match self.flow_type & WITH_EXTENSION {
            0 => 0,
            _ => number(&self.mask_extension, TAG_AT),
        };
        LinkMatch {
            ethertype: has_ethertype.then(|| number(&self.header, ETHERTYPE_AT)),
            vlan: (counts & TAG_VLAN != 0).then_some(tag & TAG_VLAN),
            pcp: (counts >> TAG_PCP_SHIFT != 0).then_some((tag >> TAG_PCP_SHIFT) as u8),
        }
    }

    /// The rule, if it is one that steadyvm writes: compared as a whole, so that a rule with
    /// further conditions is never taken for ours.
    fn read(&self) -> Option<FlowRule> {
        let port = u16::from_be_bytes([self.header[PORT_AT], self.header[PORT_AT + 1]]);
        let matches = match self.flow_type & !WITH_EXTENSION {
            ETHER_FLOW if self.mask[..6] == [0; 6] => {
                // One without a condition is everything's, and nobody's that we write.
                FlowMatch::Link(Some(self.link()).filter(|it| *it != LinkMatch::default())?)
            }
            ETHER_FLOW => {
                let mut address = [0; 6];
                address.copy_from_slice(&self.header[..6]);
                FlowMatch::DestinationMac(address)
            }
            TCP_V4_FLOW => FlowMatch::DestinationPort(PortProtocol::Tcp4, port),
            UDP_V4_FLOW => FlowMatch::DestinationPort(PortProtocol::Udp4, port),
            _ => return None,
        };
        let queue = u32::try_from(self.ring_cookie).ok()?;
        let rule = FlowRule { matches, queue };
        let same = Self::of(&rule);
        // Without its flag the extension is not looked at, and a driver may leave anything there.
        let extensions = |raw: &Self| match raw.flow_type & WITH_EXTENSION {
            0 => None,
            _ => Some((raw.header_extension, raw.mask_extension)),
        };
        let is_same = same.flow_type == self.flow_type
            && (same.header, same.mask) == (self.header, self.mask)
            && extensions(&same) == extensions(self);
        is_same.then_some(rule)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_rule() -> impl Strategy<Value = FlowRule> {
        let matches = prop_oneof![
            any::<[u8; 6]>().prop_map(FlowMatch::DestinationMac),
            any::<u16>().prop_map(|port| FlowMatch::DestinationPort(PortProtocol::Tcp4, port)),
            any::<u16>().prop_map(|port| FlowMatch::DestinationPort(PortProtocol::Udp4, port)),
            any_link().prop_map(FlowMatch::Link),
        ];
        (matches, any::<u32>()).prop_map(|(matches, queue)| FlowRule { matches, queue })
    }

    fn any_link() -> impl Strategy<Value = LinkMatch> {
        let parts = (
            prop::option::of(0x600_u16..),
            prop::option::of(0_u16..4095),
            prop::option::of(0_u8..8),
        );
        let link = parts.prop_map(|(ethertype, vlan, pcp)| LinkMatch {
            ethertype,
            vlan,
            pcp,
        });
        link.prop_filter("a rule has a condition", |link| {
            *link != LinkMatch::default()
        })
    }

    /// As `ethtool -N nic flow-type ether proto 0x88ba vlan 0x8005 vlan-mask 0x1000 queue 1` writes it.
    #[test]
    fn a_rule_of_ethertype_and_tag_has_the_kernels_layout() {
        let matches = FlowMatch::Link(LinkMatch {
            ethertype: Some(0x88ba),
            vlan: Some(5),
            pcp: Some(4),
        });
        let raw = FlowSpecification::of(&FlowRule { matches, queue: 1 });
        assert_eq!(raw.flow_type, 0x8000_0012);
        assert_eq!(
            (&raw.header[12..14], &raw.mask[12..14]),
            (&[0x88, 0xba][..], &[0xff; 2][..])
        );
        assert_eq!(raw.header_extension[10..12], [0x80, 0x05]);
        assert_eq!(raw.mask_extension[10..12], [0xef, 0xff]);
        let set: usize = raw.mask.iter().filter(|byte| **byte != 0).count();
        assert_eq!((set, raw.ring_cookie), (2, 1));
        // A priority alone leaves the VLAN open.
        let matches = FlowMatch::Link(LinkMatch {
            pcp: Some(4),
            ..LinkMatch::default()
        });
        let raw = FlowSpecification::of(&FlowRule { matches, queue: 1 });
        assert_eq!(raw.mask_extension[10..12], [0xe0, 0x00]);
    }

    proptest! {
        #[test]
        fn a_rule_comes_back(rule in any_rule()) {
            prop_assert_eq!(FlowSpecification::of(&rule).read(), Some(rule));
        }

        #[test]
        fn a_rule_with_another_condition_is_not_ours(
            rule in any_rule(), at in 12_usize..52, bits in 1_u8..,
        ) {
            let mut raw = FlowSpecification::of(&rule);
            // The EtherType is a condition that we write, where it is whole.
            prop_assume!(raw.flow_type & 0xff != ETHER_FLOW || at > 13);
            raw.mask[at] |= bits;
            prop_assert_eq!(raw.read(), None);
        }

        #[test]
        fn a_rule_with_another_condition_behind_ip_s_place_is_not_ours(
            rule in any_rule(), at in 0_usize..20, bits in 1_u8..,
        ) {
            let mut raw = FlowSpecification::of(&rule);
            raw.flow_type |= WITH_EXTENSION;
            let before = raw.mask_extension;
            raw.mask_extension[at] |= bits;
            prop_assume!(raw.mask_extension != before);
            // A whole VLAN or priority is one of ours.
            let found = raw.read();
            prop_assert!(found.is_none_or(|found| FlowSpecification::of(&found).mask_extension == raw.mask_extension));
            prop_assert_ne!(found, Some(rule));
        }
    }

    #[test]
    fn the_loopback_device_steers_no_flows() {
        let error = flow_rules("lo").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
        let error = flow_rules("no-such-device-at-all").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
