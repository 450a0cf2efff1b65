//! Flow steering by the NIC itself: rules that put a VM's or a service's packets into a queue of
//! their own, whose interrupt and NAPI thread then have a class of their own.

use steadyvm_config::Steer;

use super::profile::{NicProfile, at};
use crate::engine::Step;
use crate::error::HostError;
use crate::links::{FlowMatch, FlowRule, PortProtocol};
use crate::machine::Machine;
use crate::settings::{Change, ChangeOf, Device, FlowPlace, FlowRuleAt, FlowSteering};

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

/// The steps that give a NIC its rules: each at the first free place of the table. A rule that
/// is there already is left to whoever made it.
pub(super) fn steer(
    machine: &Machine,
    nic: &NicProfile,
    own: &[Step],
    steps: &mut Vec<Step>,
) -> Result<(), HostError> {
    if nic.steer.is_empty() {
        return Ok(());
    }
    let device = &nic.name;
    let table = machine.links.flow_rules(device).map_err(|error| {
        if error.raw_os_error() != Some(libc::EOPNOTSUPP) {
            return HostError::io("read the flow steering rules of", device, error);
        }
        HostError::Unsupported {
            missing: at(&nic.place, &format!("{device} cannot steer flows by rules")),
            fix: "leave `steer` out for it".into(),
        }
    })?;
    let queues = machine
        .tree
        .list(&format!("/sys/class/net/{device}/queues"))
        .unwrap_or_default()
        .iter()
        .filter(|name| name.starts_with("rx-"))
        .count();
    if let Some(rule) = nic.steer.iter().find(|rule| rule.queue as usize >= queues) {
        return Err(HostError::BadInput {
            what: at(&nic.place, &format!("{device} has no queue {}", rule.queue)),
            fix: format!("it has queues 0 to {}", queues.saturating_sub(1)),
        });
    }
    let old = machine
        .links
        .flow_steering(device)
        .map_err(|error| HostError::io("read the flow steering of", device, error))?;
    let device = Device::find(machine, device);
    let switch = ChangeOf {
        setting: FlowSteering {
            device: device.clone(),
        },
        old,
        new: true,
    };
    steps.push(Step::required(switch, "so that the NIC steers by rules"));
    let mut taken: Vec<u32> = table.rules.keys().copied().collect();
    for rule in &nic.steer {
        let ours = own.iter().find_map(|step| match &step.change {
            Change::FlowRuleAt(made)
                if made.setting.device.is(&device) && made.setting.rule == *rule =>
            {
                Some(made.setting.place)
            }
            _ => None,
        });
        let there = table
            .rules
            .values()
            .any(|other| other.as_ref() == Some(rule));
        if there && ours.is_none() {
            continue;
        }
        let free = || (0..table.size.unwrap_or(u32::MAX)).find(|place| !taken.contains(place));
        let Some(place) = ours.or_else(free) else {
            return Err(HostError::Unsupported {
                missing: at(
                    &nic.place,
                    &format!("the rule table of {} is full", nic.name),
                ),
                fix: "steer fewer flows, or delete rules (ethtool -N)".into(),
            });
        };
        taken.push(place);
        let change = ChangeOf {
            setting: FlowRuleAt {
                device: device.clone(),
                place,
                rule: *rule,
            },
            old: FlowPlace::Free,
            new: FlowPlace::Rule,
        };
        let why = "so that these packets come by a queue of their own";
        steps.push(Step::required(change, why));
    }
    Ok(())
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
