//! Rules of flow steering, as a file writes them.

use steadyvm_config::Steer;

use crate::address::parse_address;
use crate::settings::links::{FlowMatch, FlowRule, PortProtocol};

/// A rule of a file: `{ queue = 1, mac = "52:54:00:00:00:01" }`, or `{ queue = 1, udp = 7 }`.
pub(super) fn rule(table: &Steer) -> Result<FlowRule, String> {
    let matches = match (&table.mac, table.udp, table.tcp) {
        (Some(mac), None, None) => FlowMatch::DestinationMac(
            parse_address(mac).ok_or_else(|| format!("`{mac}` is no hardware address"))?,
        ),
        (None, Some(port), None) if port > 0 => {
            FlowMatch::DestinationPort(PortProtocol::Udp4, port)
        }
        (None, None, Some(port)) if port > 0 => {
            FlowMatch::DestinationPort(PortProtocol::Tcp4, port)
        }
        (None, Some(0), None) | (None, None, Some(0)) => {
            return Err("port 0 receives nothing".into());
        }
        _ => return Err("a rule steers exactly one of mac, udp or tcp".into()),
    };
    Ok(FlowRule {
        matches,
        queue: table.queue,
    })
}
