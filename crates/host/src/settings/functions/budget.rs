//! What a VM's packets may cost the host, on a card whose packets a program sorts.

use std::io;

use serde::{Deserialize, Serialize};

use super::calls::{PacketBudget, Program};
use super::xdp::name_of;
use crate::address::{Address, format_address};
use crate::error::HostError;
use crate::settings::{Device, Entries, Machine, SettingKind};

/// The budget of a VM's packets. Those that are over it the card's program drops, before the host works for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpBudget {
    /// The card.
    #[serde(flatten)]
    pub card: Device,
    /// The VM's address.
    pub address: Address,
}

impl SettingKind for XdpBudget {
    type Value = Option<PacketBudget>;

    fn subject(&self) -> String {
        format!(
            "budget of packets to {} on {}",
            format_address(self.address),
            self.card.name
        )
    }

    fn text(&self, value: &Self::Value) -> String {
        let us = |ns: u64| ns as f64 / 1e3;
        match value {
            None => "none".to_owned(),
            Some(it) => format!(
                "{}/{} us, {} us a packet",
                us(it.runtime_ns),
                us(it.period_ns),
                us(it.packet_ns.into())
            ),
        }
    }

    fn is_same_setting(&self, other: &Self) -> bool {
        self.card.is(&other.card) && self.address == other.address
    }

    fn read(&self, machine: &Machine) -> Result<Self::Value, HostError> {
        let budgets = machine.redirects.budgets(&name_of(&self.card));
        let mut budgets = budgets.map_err(|cause| HostError::io("read", self.subject(), cause))?;
        Ok(budgets.remove(&self.address))
    }

    fn write(&self, machine: &Machine, _from: &Self::Value, to: &Self::Value) -> io::Result<()> {
        let name = name_of(&self.card);
        machine.redirects.limit(&name, self.address, *to)
    }

    fn hint(&self, _machine: &Machine, _to: &Self::Value, _errno: i32) -> Option<&'static str> {
        Some(
            "; a program of an earlier steadyvm has no budgets: run `steadyvm undo` and then `steadyvm apply`",
        )
    }

    fn snapshot(machine: &Machine, entries: &mut Entries) -> Result<(), HostError> {
        for card in machine.tree.list("/sys/class/net").unwrap_or_default() {
            let card = Device::find(machine, &card);
            let name = name_of(&card);
            if machine.redirects.program(&name).ok() != Some(Program::Whole) {
                continue;
            }
            let budgets = machine.redirects.budgets(&name).unwrap_or_default();
            let all = budgets.into_iter().map(|(address, budget)| {
                let card = card.clone();
                let setting = Self { card, address };
                let value = setting.text(&Some(budget));
                format!("{} {value}", format_address(address))
            });
            let all: Vec<String> = all.collect();
            entries.insert(
                format!("budgets of packets on {}", card.name),
                all.join(", "),
            );
        }
        Ok(())
    }

    #[cfg(any(test, feature = "fake"))]
    fn example(host: &crate::settings::fake::FakeHost) -> crate::settings::ChangeOf<Self> {
        let address = [2, 0, 0, 0, 0, 7];
        host.file("/sys/class/net/card4/ifindex", "98\n");
        host.edit(|state| {
            let served = [(address, 83)].into();
            state.programs.insert("98-xdp".into(), served)
        });
        crate::settings::ChangeOf {
            setting: Self {
                card: Device::find(&host.machine(), "card4"),
                address,
            },
            old: None,
            new: Some(PacketBudget {
                runtime_ns: 2_000_000,
                period_ns: 10_000_000,
                packet_ns: 5_000,
            }),
        }
    }
}
