//! Flow steering by the NIC itself: rules that put a VM's or a service's packets into a queue of
//! their own, whose interrupt and NAPI thread then have a class of their own.

use super::step::Step;
use crate::error::{HostError, at};
use crate::profile::NicProfile;
use crate::settings::{Change, ChangeOf, Device, FlowPlace, FlowRuleAt, FlowSteering, Machine};

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
            fix: "leave `steer` out for it; [net.demux] sorts packets by a program, frames by EtherType, VLAN and priority \
                  code point, too"
                .into(),
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
