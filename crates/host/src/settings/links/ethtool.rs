//! Flow steering rules (`ethtool -N`) and `rx-frames` (`ethtool -C`), by the ethtool ioctl: netlink
//! has no rules.

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::calls::{FlowMatch, FlowRule, FlowTable, Moderation, PortProtocol};

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
/// Set in `data` where the table has no numbered places.
const SPECIAL_PLACES: u64 = 0x8000_0000;
/// Where the destination port is in `struct ethtool_tcpip4_spec`.
const PORT_AT: usize = 10;
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
        }
        raw
    }

    /// The rule, if it is one that steadyvm writes: compared as a whole, so that a rule with
    /// further conditions is never taken for ours.
    fn read(&self) -> Option<FlowRule> {
        let port = u16::from_be_bytes([self.header[PORT_AT], self.header[PORT_AT + 1]]);
        let matches = match self.flow_type {
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
        (same.header == self.header && same.mask == self.mask).then_some(rule)
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
        ];
        (matches, any::<u32>()).prop_map(|(matches, queue)| FlowRule { matches, queue })
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
            raw.mask[at] |= bits;
            prop_assert_eq!(raw.read(), None);
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
