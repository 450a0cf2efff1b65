//! Rules of flow steering, as a file writes them.

use steadyvm_config::Steer;

use crate::address::parse_address;
use crate::settings::links::{FlowMatch, FlowRule, LinkMatch, PortProtocol};

/// A rule of a file: `{ queue = 1, mac = "52:54:00:00:00:01" }`, `{ queue = 1, udp = 7 }`, or
/// `{ queue = 1, ethertype = "0x88ba", vlan = 5, pcp = 4 }`.
pub(super) fn rule(table: &Steer) -> Result<FlowRule, String> {
    let link = LinkMatch {
        ethertype: table.ethertype.map(|it| it.0),
        vlan: table.vlan.map(|it| it.0),
        pcp: table.pcp.map(|it| it.0),
    };
    let by_link = (link != LinkMatch::default()).then_some(link);
    let matches = match (&table.mac, table.udp, table.tcp, by_link) {
        (Some(mac), None, None, None) => FlowMatch::DestinationMac(
            parse_address(mac).ok_or_else(|| format!("`{mac}` is no hardware address"))?,
        ),
        (None, Some(port), None, None) if port > 0 => {
            FlowMatch::DestinationPort(PortProtocol::Udp4, port)
        }
        (None, None, Some(port), None) if port > 0 => {
            FlowMatch::DestinationPort(PortProtocol::Tcp4, port)
        }
        (None, None, None, Some(link)) => FlowMatch::Link(link),
        (None, Some(0), None, None) | (None, None, Some(0), None) => {
            return Err("port 0 receives nothing".into());
        }
        _ => {
            return Err(
                "a rule steers exactly one of mac, udp or tcp, or by ethertype, vlan and pcp"
                    .into(),
            );
        }
    };
    Ok(FlowRule {
        matches,
        queue: table.queue,
    })
}
