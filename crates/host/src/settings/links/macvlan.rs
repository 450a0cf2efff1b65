//! How a card's macvlans and macvtaps get multicast frames, by route netlink.
//!
//! `IFLA_MACVLAN_BC_CUTOFF` (`bclim` of ip-link(8)) is a port's, that is, of all macvlans of one card, and is set through any of
//! them: `macvlan_changelink()` of drivers/net/macvlan.c, Linux 6.4. Older kernels take the attribute and do nothing.

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoMacVlan, InfoMacVtap, LinkAttribute, LinkInfo, LinkMessage,
};
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::net::if_::if_nametoindex;

use super::netlink::ask;

/// The kernel's cutoff, which it tells only where it is another (`macvlan_fill_info()`).
pub(super) const DEFAULT_CUTOFF: i32 = 1;

/// The cutoff of the port that a macvlan or macvtap is of. `EOPNOTSUPP` if the device is neither.
pub(super) fn broadcast_cutoff(device: &str) -> io::Result<i32> {
    let request = RouteNetlinkMessage::GetLink(of(device)?);
    let answers = ask(NETLINK_ROUTE, request, NLM_F_REQUEST | NLM_F_ACK)?;
    let attributes = answers.iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewLink(message) => Some(&message.attributes),
        _ => None,
    });
    let cutoff = attributes.flatten().find_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => cutoff_of(infos),
        _ => None,
    });
    cutoff.ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))
}

/// Sets it.
pub(super) fn set_broadcast_cutoff(device: &str, cutoff: i32) -> io::Result<()> {
    let mut message = of(device)?;
    let request = RouteNetlinkMessage::GetLink(message.clone());
    let answers = ask(NETLINK_ROUTE, request, NLM_F_REQUEST | NLM_F_ACK)?;
    let is_macvtap = answers.iter().any(|answer| match answer {
        RouteNetlinkMessage::NewLink(message) => is_macvtap(message),
        _ => false,
    });
    let (kind, data) = if is_macvtap {
        let data = vec![InfoMacVtap::BcCutoff(cutoff)];
        (InfoKind::MacVtap, InfoData::MacVtap(data))
    } else {
        let data = vec![InfoMacVlan::BcCutoff(cutoff)];
        (InfoKind::MacVlan, InfoData::MacVlan(data))
    };
    let info = vec![LinkInfo::Kind(kind), LinkInfo::Data(data)];
    message.attributes.push(LinkAttribute::LinkInfo(info));
    // Of a link that is there: RTM_SETLINK looks at no link's own attributes.
    let request = RouteNetlinkMessage::NewLink(message);
    ask(NETLINK_ROUTE, request, NLM_F_REQUEST | NLM_F_ACK).map(drop)
}

fn is_macvtap(message: &LinkMessage) -> bool {
    message.attributes.iter().any(|attribute| {
        matches!(attribute, LinkAttribute::LinkInfo(infos)
            if infos.contains(&LinkInfo::Kind(InfoKind::MacVtap)))
    })
}

/// None of a device that is neither.
fn cutoff_of(infos: &[LinkInfo]) -> Option<i32> {
    let kinds = [InfoKind::MacVlan, InfoKind::MacVtap].map(LinkInfo::Kind);
    if !infos.iter().any(|info| kinds.contains(info)) {
        return None;
    }
    let told = infos.iter().find_map(|info| match info {
        LinkInfo::Data(InfoData::MacVlan(data)) => data.iter().find_map(|one| match one {
            InfoMacVlan::BcCutoff(cutoff) => Some(*cutoff),
            _ => None,
        }),
        LinkInfo::Data(InfoData::MacVtap(data)) => data.iter().find_map(|one| match one {
            InfoMacVtap::BcCutoff(cutoff) => Some(*cutoff),
            _ => None,
        }),
        _ => None,
    });
    Some(told.unwrap_or(DEFAULT_CUTOFF))
}

fn of(device: &str) -> io::Result<LinkMessage> {
    let mut message = LinkMessage::default();
    message.header.index = if_nametoindex(device)?;
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cutoff_that_is_not_told_is_the_kernels() {
        let info = |kind, data| vec![LinkInfo::Kind(kind), LinkInfo::Data(data)];
        let macvtap = |data| info(InfoKind::MacVtap, InfoData::MacVtap(data));
        assert_eq!(cutoff_of(&macvtap(vec![])), Some(1));
        let set = macvtap(vec![InfoMacVtap::BcCutoff(-1)]);
        assert_eq!(cutoff_of(&set), Some(-1));
        let macvlan = InfoData::MacVlan(vec![InfoMacVlan::BcCutoff(0)]);
        assert_eq!(cutoff_of(&info(InfoKind::MacVlan, macvlan)), Some(0));
        assert_eq!(cutoff_of(&[LinkInfo::Kind(InfoKind::Veth)]), None);
    }

    #[test]
    fn a_device_that_is_no_macvlan_has_none() {
        let error = broadcast_cutoff("lo").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP), "{error}");
        let error = broadcast_cutoff("steady-absent").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{error}");
    }
}
