//! A VM's packets on a shared card without virtual functions. Reads, never writes.
//!
//! An XDP program on the card hands each packet to the VM's address to the VM's tap, before the host makes a buffer of it, and
//! all others to normal threads. The card's polls are short then, and have the rank of the VM's class. What the VM sends, and
//! what has no address of its own (broadcast, multicast), goes by the bridge as before.

use super::shared_card::SharedCards;
use super::step::Step;
use super::vms::Running;
use super::wanted::Wanted;
use crate::address::{Address, format_address};
use crate::error::{HostError, at};
use crate::profile::NicProfile;
use crate::settings::{
    Change, ChangeOf, Device, Machine, Program, SettingKind, Way, XdpAddress, XdpProgram,
};

/// Where a VM's packets go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Destination<'a> {
    /// The VM's tap.
    pub tap: &'a str,
    /// Its address.
    pub address: Address,
}

impl SharedCards {
    /// Plans one VM's way by the program of its card. Until the card has it that is the step that attaches it: what follows is
    /// planned again.
    pub(super) fn plan_program(
        &mut self,
        machine: &Machine,
        running: &Running<'_>,
        card: &str,
        way: Destination<'_>,
        own: &[Step],
        wanted: &mut Wanted,
    ) -> Result<(), HostError> {
        let profile = running.profile;
        // A kernel that does not tell has no thread for other packets that is worth it, either.
        if !machine.links.redirects_by_xdp(card).unwrap_or(false) {
            let what = format!(
                "{card} has no virtual functions (SR-IOV), and its driver does not redirect by XDP"
            );
            return Err(HostError::Unsupported {
                missing: at(&profile.place, &what),
                fix: "give the VM a card of its own ([[nic]] with its class), or leave `nic` out"
                    .into(),
            });
        }
        let device = Device::find(machine, card);
        let program = XdpProgram {
            card: device.clone(),
        };
        let found = program.read(machine)?;
        let made = own.iter().any(
            |step| matches!(&step.change, Change::XdpProgram(made) if made.setting.card.is(&device)),
        );
        let change = ChangeOf {
            setting: program,
            old: if made { Program::Absent } else { found },
            new: Program::Whole,
        };
        let why = "so that each VM's packets are told apart before the host handles them; the card restarts";
        self.prepared
            .insert(card.to_owned(), Step::required(change, why));
        self.rank(card, running);
        if found != Program::Whole {
            return Ok(());
        }
        let setting = XdpAddress {
            card: device,
            address: way.address,
        };
        let change = ChangeOf {
            old: setting.read(machine)?,
            setting,
            new: Way::Tap(Device::find(machine, way.tap)),
        };
        let why = format!(
            "so that packets to {} pass by those to others",
            format_address(way.address)
        );
        wanted.steps.push(Step::required(change, &why));
        Ok(())
    }

    /// The card's polls have the highest rank among its VMs'.
    fn rank(&mut self, card: &str, running: &Running<'_>) {
        let class = &running.profile.class;
        let present = self.programs.get(card);
        if present.is_some_and(|nic| nic.class.napi >= class.napi) {
            return;
        }
        let nic = NicProfile {
            name: card.to_owned(),
            class: class.clone(),
            place: running.profile.place.clone(),
            ..NicProfile::default()
        };
        self.programs.insert(card.to_owned(), nic);
    }
}
