//! Virtual functions of cards (SR-IOV), by route netlink.

use std::fs;
use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    LinkAttribute, LinkExtentMask, LinkFlags, LinkMessage, LinkVfInfo, VfInfo, VfInfoMac,
};
use netlink_sys::protocols::NETLINK_ROUTE;

use super::netlink::ask;
use crate::address::Address;

/// The address that the card filters for a function. All zeros where nobody gave it one.
pub(super) fn address(card: &str, number: u32) -> io::Result<Address> {
    let mut message = of(card)?;
    let only_functions = LinkAttribute::ExtMask(vec![LinkExtentMask::Vf]);
    message.attributes.push(only_functions);
    let request = RouteNetlinkMessage::GetLink(message);
    let answers = ask(NETLINK_ROUTE, request, NLM_F_REQUEST | NLM_F_ACK)?;
    let attributes = answers.iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewLink(message) => Some(&message.attributes),
        _ => None,
    });
    attributes
        .flatten()
        .find_map(|attribute| match attribute {
            LinkAttribute::VfInfoList(functions) => Some(address_of(functions, number)),
            _ => None,
        })
        .flatten()
        .ok_or_else(|| {
            let text = format!("{card} has no function {number}");
            io::Error::new(io::ErrorKind::NotFound, text)
        })
}

fn address_of(functions: &[LinkVfInfo], number: u32) -> Option<Address> {
    let infos = functions.iter().flat_map(|function| &function.0);
    infos.into_iter().find_map(|info| match info {
        VfInfo::Mac(mac) if mac.vf_id == number => mac.mac.first_chunk().copied(),
        _ => None,
    })
}

/// Has the card put frames to this address into the function's queue.
pub(super) fn set_address(card: &str, number: u32, address: Address) -> io::Result<()> {
    let mut message = of(card)?;
    let address = VfInfo::Mac(VfInfoMac::new(number, &address));
    let function = LinkVfInfo(vec![address]);
    message
        .attributes
        .push(LinkAttribute::VfInfoList(vec![function]));
    set(message)
}

/// Switches a device on or off (`ip link set up`).
pub(super) fn set_up(device: &str, is_up: bool) -> io::Result<()> {
    let mut message = of(device)?;
    message.header.change_mask = LinkFlags::Up;
    if is_up {
        message.header.flags = LinkFlags::Up;
    }
    set(message)
}

fn set(message: LinkMessage) -> io::Result<()> {
    let request = RouteNetlinkMessage::SetLink(message);
    ask(NETLINK_ROUTE, request, NLM_F_REQUEST | NLM_F_ACK).map(drop)
}

fn of(device: &str) -> io::Result<LinkMessage> {
    let text = fs::read_to_string(format!("/sys/class/net/{device}/ifindex"))?;
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let mut message = LinkMessage::default();
    message.header.index = text.trim().parse().map_err(invalid)?;
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_s_address_is_found_among_those_of_the_card() {
        let function = |number: u32, last: u8| {
            LinkVfInfo(vec![VfInfo::Mac(VfInfoMac::new(
                number,
                &[2, 0, 0, 0, 0, last],
            ))])
        };
        let functions = [function(0, 7), function(1, 8)];
        assert_eq!(address_of(&functions, 1), Some([2, 0, 0, 0, 0, 8]));
        assert_eq!(address_of(&functions, 2), None);
        assert_eq!(address_of(&[LinkVfInfo(vec![])], 0), None);
    }

    #[test]
    fn a_device_without_functions_has_none() {
        let error = address("lo", 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains("lo has no function 0"));
    }
}
