//! A flow steering rule, at a place of the NIC's table that was free.

use std::io;

use serde::{Deserialize, Serialize};

use super::calls::{FlowMatch, FlowRule};
use crate::error::HostError;
use crate::settings::{Device, Entries, Machine, SettingKind};

/// A rule at a place of a NIC's table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRuleAt {
    /// The NIC.
    #[serde(flatten)]
    pub device: Device,
    /// The place.
    pub place: u32,
    /// The rule.
    pub rule: FlowRule,
}

/// What a place of a NIC's table holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowPlace {
    /// Nothing.
    Free,
    /// The rule.
    Rule,
    /// Another rule, for people.
    Other(String),
}

impl SettingKind for FlowRuleAt {
    type Value = FlowPlace;

    fn subject(&self) -> String {
        format!("flow steering rule {} of {}", self.place, self.device.name)
    }

    fn text(&self, value: &FlowPlace) -> String {
        match value {
            FlowPlace::Free => "none".to_owned(),
            FlowPlace::Rule => self.rule.to_string(),
            FlowPlace::Other(text) => text.clone(),
        }
    }

    fn is_same_setting(&self, other: &Self) -> bool {
        self.device.is(&other.device) && self.place == other.place && self.rule == other.rule
    }

    fn read(&self, machine: &Machine) -> Result<FlowPlace, HostError> {
        let table = self
            .device
            .current_name(machine)
            .and_then(|name| machine.links.flow_rules(&name))
            .map_err(|cause| HostError::io("read", self.subject(), cause))?;
        Ok(match table.rules.get(&self.place) {
            None => FlowPlace::Free,
            Some(Some(now)) if *now == self.rule => FlowPlace::Rule,
            Some(Some(now)) => FlowPlace::Other(now.to_string()),
            Some(None) => FlowPlace::Other("a rule of someone else".to_owned()),
        })
    }

    fn write(&self, machine: &Machine, _from: &FlowPlace, to: &FlowPlace) -> io::Result<()> {
        let name = self.device.current_name(machine)?;
        if *to == FlowPlace::Rule {
            machine
                .links
                .insert_flow_rule(&name, self.place, &self.rule)
        } else {
            machine.links.delete_flow_rule(&name, self.place)
        }
    }

    fn hint(&self, _machine: &Machine, _to: &FlowPlace, errno: i32) -> Option<&'static str> {
        let hint = match self.rule.matches {
            FlowMatch::Link(_) => {
                "; the NIC's driver cannot match on this, or steer it to this queue: write it into `frames` of [net.demux], \
                 where a program sorts, or give the whole NIC a class, and leave the rule out"
            }
            FlowMatch::DestinationMac(_) | FlowMatch::DestinationPort(..) => {
                "; the NIC's driver cannot match on this, or steer it to this queue: try a rule on `mac`, or leave the rule out"
            }
        };
        matches!(errno, libc::EINVAL | libc::EOPNOTSUPP | libc::ERANGE).then_some(hint)
    }

    fn snapshot(machine: &Machine, entries: &mut Entries) -> Result<(), HostError> {
        for nic in machine.tree.list("/sys/class/net").unwrap_or_default() {
            let Ok(table) = machine.links.flow_rules(&nic) else {
                continue;
            };
            let rules = table.rules.iter().map(|(place, rule)| match rule {
                Some(rule) => format!("{place}: {rule}"),
                None => format!("{place}: other"),
            });
            // One entry per NIC, so that a rule that was added is a difference.
            entries.insert(nic, rules.collect::<Vec<_>>().join(", "));
        }
        Ok(())
    }

    #[cfg(any(test, feature = "fake"))]
    fn example(host: &crate::settings::fake::FakeHost) -> crate::settings::ChangeOf<Self> {
        host.file("/sys/class/net/example2/ifindex", "79\n");
        host.edit(|state| {
            let steering = crate::settings::fake::FakeFlowSteering {
                on: true,
                ..Default::default()
            };
            state.flow_steering.insert("example2".into(), steering);
        });
        crate::settings::ChangeOf {
            setting: Self {
                device: Device::find(&host.machine(), "example2"),
                place: 3,
                rule: FlowRule {
                    matches: FlowMatch::DestinationMac([2, 0, 0, 0, 0, 1]),
                    queue: 1,
                },
            },
            old: FlowPlace::Free,
            new: FlowPlace::Rule,
        }
    }
}
