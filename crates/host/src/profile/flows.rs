//! Rules of flow steering, as a file writes them.

use steadyvm_config::Steer;

use crate::settings::links::{FlowMatch, FlowRule, PortProtocol};

/// A rule of a file: `{ queue = 1, mac = "52:54:00:00:00:01" }`, or `{ queue = 1, udp = 7 }`.
pub(super) fn rule(table: &Steer) -> Result<FlowRule, String> {
    let matches = match (&table.mac, table.udp, table.tcp) {
        (Some(mac), None, None) => FlowMatch::DestinationMac(
            read_mac(mac).ok_or_else(|| format!("`{mac}` is no hardware address"))?,
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

fn read_mac(text: &str) -> Option<[u8; 6]> {
    let mut address = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut address {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_addresses_are_read_whole() {
        assert_eq!(
            read_mac("52:54:00:0a:0B:ff"),
            Some([0x52, 0x54, 0, 10, 11, 255])
        );
        for text in [
            "",
            "52:54:00:0a:0b",
            "52:54:00:0a:0b:ff:00",
            "5:4:0:a:b:f",
            "52-54-00-0a-0b-ff",
        ] {
            assert_eq!(read_mac(text), None, "{text}");
        }
    }
}
