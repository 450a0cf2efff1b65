//! The cards below the macvtaps of VMs: no multicast frame waits for a normal thread.
//!
//! A port queues multicast frames for a work queue where more than one macvtap may want them, and with some flags of the card
//! always; the work's thread is normal and free to move, so frames wait for all ranks and overtake each other. The flags tell it
//! only at the next change of an address, so that the cutoff is set whatever they say.

use std::collections::BTreeMap;

use super::group::Group;
use super::step::Step;
use super::vms::Running;
use super::wanted::Wanted;
use crate::error::{HostError, unless_vanished};
use crate::parse;
use crate::printable::printable;
use crate::settings::links::{NOTHING_QUEUED, card_below};
use crate::settings::{BroadcastCutoff, ChangeOf, Device, Machine, SettingKind};

/// The first kernel with a cutoff.
const SINCE: (u32, u32) = (6, 4);

/// Whether a kernel lets the cutoff be set.
pub(crate) fn kernel_has_cutoff(machine: &Machine) -> bool {
    let release = machine.kernel_release().unwrap_or_default();
    parse::kernel_version(&release).is_none_or(|version| version >= SINCE)
}

/// The cards below macvtaps of VMs, each with one of these VMs for messages.
#[derive(Default)]
pub(super) struct Ports(BTreeMap<String, String>);

impl Ports {
    /// Notes those of a VM that runs.
    pub fn add(&mut self, machine: &Machine, running: &Running<'_>, warnings: &mut Vec<String>) {
        let vm = printable(&running.profile.name);
        for macvtap in &running.vm.macvtaps {
            let Some(card) = card_below(machine, macvtap) else {
                warnings.push(format!(
                    "VM \"{vm}\": the card below {} is in another network namespace, where its multicast cutoff has to be set",
                    printable(macvtap)
                ));
                continue;
            };
            self.0.entry(card).or_insert_with(|| vm.to_string());
        }
    }

    /// The steps of all cards.
    pub fn plan(self, machine: &Machine, wanted: &mut Wanted) {
        let has_cutoff = kernel_has_cutoff(machine);
        for (card, vm) in self.0 {
            if !has_cutoff {
                wanted.warnings.push(format!(
                    "VM \"{vm}\": before Linux 6.4 a normal thread hands multicast frames to macvtaps on {}, late and out of \
                     order; give the VM a tap on a bridge",
                    printable(&card)
                ));
                continue;
            }
            let group = Group::Macvtaps(card.clone());
            wanted.of_group(&group, |wanted| {
                unless_vanished(cutoff(machine, &card).map(|step| wanted.steps.push(step)))
            });
        }
    }
}

fn cutoff(machine: &Machine, card: &str) -> Result<Step, HostError> {
    let setting = BroadcastCutoff {
        card: Device::find(machine, card),
    };
    let old = setting.read(machine)?;
    let change = ChangeOf {
        setting,
        old,
        new: NOTHING_QUEUED,
    };
    let why = "so that no normal thread hands multicast frames to VMs, late and out of order";
    Ok(Step::required(change, why))
}
