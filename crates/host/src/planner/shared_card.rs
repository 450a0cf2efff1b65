//! A VM's packets on a card that others use, too. Reads, never writes.
//!
//! The card sorts packets by their address into the queue of a virtual function, which the host keeps: so the VM's packets have
//! interrupts, a NAPI and threads of their own. They go from the function to the VM's tap past the bridge, and back. The tap
//! stays a port of its bridge, which carries multicast, what other VMs of this host send, and whatever has another address.

use std::collections::{BTreeMap, BTreeSet};

use steadyvm_config::CardWay;

use super::group::Group;
use super::step::Step;
use super::vms::Running;
use super::wanted::Wanted;
use super::xdp_card;
use crate::address::{Address, format_address, is_unicast, parse_address};
use crate::discover::{self, OPEN_VSWITCH};
use crate::error::{HostError, at};
use crate::profile::{Class, NicProfile, Profile, VcpuBudget, VmProfile};
use crate::settings::device::is_up;
use crate::settings::{
    Change, ChangeOf, Device, File, Form, Functions, Machine, OwnFunction, Owner, SettingKind,
};

/// The cards that VMs share, while a host is planned.
#[derive(Debug, Default)]
pub(super) struct SharedCards {
    /// Functions that have a VM: the card's interface and the number.
    taken: BTreeSet<(String, u32)>,
    /// The functions' devices, with the class of their VMs.
    nics: Vec<NicProfile>,
    /// The cards themselves.
    cards: BTreeSet<String>,
    /// By card the step that gives it functions or a program. VMs share it, so it is no VM's.
    prepared: BTreeMap<String, Step>,
    /// Cards with a program, with the highest class of its VMs.
    programs: BTreeMap<String, NicProfile>,
}

impl SharedCards {
    /// The steps that prepare cards, each a group of its own: before those of the VMs, which use them.
    pub fn add_preparations(&mut self, wanted: &mut Wanted, first_of_vms: usize) {
        for (card, mut step) in std::mem::take(&mut self.prepared) {
            step.group = Group::SharedCard(card);
            wanted.steps.insert(first_of_vms, step);
        }
    }

    /// Keeps what was made of a card that the file names while none of its VMs runs: to take it away, and make it again for the
    /// next one, would restart the card under everybody else's VMs.
    pub fn keep(&mut self, machine: &Machine, host: &Profile, own: &[Step]) {
        for card in host.vms.iter().filter_map(|vm| vm.nic.as_ref()) {
            let device = Device::find(machine, card);
            let is_of_card = |step: &&Step| match &step.change {
                Change::Functions(made) => made.setting.card.is(&device),
                Change::XdpProgram(made) => made.setting.card.is(&device),
                _ => false,
            };
            let holds = |step: &&Step| step.change.read(machine).is_ok_and(|now| now.is_new);
            if let Some(step) = own.iter().filter(is_of_card).find(holds) {
                self.prepared
                    .entry(card.clone())
                    .or_insert_with(|| step.clone());
            }
        }
    }

    /// The functions' devices and the cards with a program as cards of their VMs' classes, and the other shared cards: what the
    /// file does not name is polled in threads of its own, below every rank.
    pub fn into_nics(self, profile: &Profile) -> Vec<NicProfile> {
        let named: BTreeSet<&str> = profile.nics.iter().map(|nic| nic.name.as_str()).collect();
        let shared = self.cards.into_iter().map(|name| NicProfile {
            name,
            class: Class::built_in("best-effort").unwrap_or_default(),
            ..NicProfile::default()
        });
        let all = self.nics.into_iter().chain(self.programs.into_values());
        let all = all.chain(shared);
        all.filter(|nic| !named.contains(nic.name.as_str()))
            .collect()
    }

    /// Plans one VM's way on its card. Until the card has functions that is the step that makes them: what follows is
    /// planned again.
    pub fn plan(
        &mut self,
        machine: &Machine,
        running: &Running<'_>,
        host: &Profile,
        own: &[Step],
        wanted: &mut Wanted,
    ) -> Result<(), HostError> {
        let Running { profile, taps, .. } = running;
        let Some(card) = &profile.nic else {
            return Ok(());
        };
        let refuse = |what: String, fix: &str| HostError::BadInput {
            what: at(&profile.place, &what),
            fix: fix.to_owned(),
        };
        if card.contains('/') || !machine.tree.exists(&format!("/sys/class/net/{card}")) {
            let what = format!("nic: there is no network interface `{card}`");
            return Err(refuse(what, "name a card of this host"));
        }
        let tap = tap_behind(machine, card, taps).map_err(|(what, fix)| refuse(what, fix))?;
        let address = address_of(machine, running, &tap).map_err(|what| {
            let fix = "write `mac = \"52:54:00:…\"` as the VM has it";
            refuse(what, fix)
        })?;
        let total = number_in(machine, card, "sriov_totalvfs").unwrap_or(0);
        let by_program = match profile.way {
            Some(CardWay::Xdp) => true,
            Some(CardWay::Function) => false,
            None => total == 0,
        };
        if by_program {
            let planned = xdp_card::plan(machine, running, card, (&tap, address), own)?;
            self.prepared.insert(card.clone(), planned.program);
            wanted.steps.extend(planned.address);
            self.rank(card, running, running.class_of_tap(&tap));
            return Ok(());
        }
        if total == 0 {
            let what = format!("{card} has no virtual functions (SR-IOV)");
            return Err(HostError::Unsupported {
                missing: at(&profile.place, &what),
                fix: "leave `way` out, or write `way = \"xdp\"`".into(),
            });
        }
        let napi_budgets = napi_budgets(profile).map_err(|(what, fix)| refuse(what, fix))?;
        let device = Device::find(machine, card);
        let present = number_in(machine, card, "sriov_numvfs").unwrap_or(0);
        if present == 0 {
            let tenants = host.vms.iter().filter(|vm| vm.nic.as_ref() == Some(card));
            let count = u32::try_from(tenants.count()).unwrap_or(total).min(total);
            let change = ChangeOf {
                setting: Functions { card: device },
                old: 0,
                new: count,
            };
            let why = "so that each VM's packets have a queue of their own; the card restarts";
            self.prepared
                .insert(card.clone(), Step::required(change, why));
            return Ok(());
        }
        self.prepared
            .extend(made_before(&device, present, own).map(|step| (card.clone(), step)));
        let number = self
            .choose(machine, &device, card, &tap, present, own)
            .ok_or_else(|| {
                let what = format!(
                    "all {present} functions of {card} are taken, of {total} that it can have"
                );
                refuse(
                    what,
                    "make more of them while no VM runs, or leave `nic` out",
                )
            })?;
        let setting = OwnFunction {
            card: device,
            number,
        };
        let function = setting
            .device(machine)
            .map_err(|cause| HostError::io("find the device of", setting.subject(), cause))?;
        let change = ChangeOf {
            old: setting.read(machine)?,
            setting,
            new: Owner::Vm {
                tap: Device::find(machine, &tap),
                address,
            },
        };
        let why = format!(
            "so that packets to {} come by a queue of their own",
            format_address(address)
        );
        wanted.steps.extend(without_ipv6(machine, &function));
        wanted.steps.push(Step::required(change, &why));
        for flag in ["unicast_flood", "broadcast_flood"] {
            wanted.steps.push(without(machine, &tap, flag)?);
        }
        self.cards.insert(card.clone());
        // Its driver asks for interrupts when it goes up: they are planned then.
        if !is_up(machine, &function) {
            return Ok(());
        }
        let class = running.class_of_tap(&tap);
        self.nics
            .push(nic_of(function, class, profile, napi_budgets));
        Ok(())
    }

    /// The polls of a card with a program have the highest rank among its VMs'.
    fn rank(&mut self, card: &str, running: &Running<'_>, class: &Class) {
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

    /// The function that the VM has already, or the first that nobody uses.
    fn choose(
        &mut self,
        machine: &Machine,
        device: &Device,
        card: &str,
        tap: &str,
        present: u32,
        own: &[Step],
    ) -> Option<u32> {
        let tap = Device::find(machine, tap);
        let made = own.iter().filter_map(|step| match &step.change {
            Change::OwnFunction(made) if made.setting.card.is(device) => Some(made),
            _ => None,
        });
        let (mine, others): (Vec<_>, Vec<_>) =
            made.partition(|made| matches!(&made.new, Owner::Vm { tap: of, .. } if of.is(&tap)));
        let has_one = mine.first().map(|made| made.setting.number);
        let is_free = |number: &u32| {
            let setting = OwnFunction {
                card: device.clone(),
                number: *number,
            };
            let of_others = others.iter().any(|made| made.setting.number == *number);
            // One that is up is somebody else's, such as a port of another bridge.
            let is_idle = matches!(setting.read(machine), Ok(Owner::Free { is_up: false, .. }));
            !of_others && is_idle && !self.taken.contains(&(card.to_owned(), *number))
        };
        let number = has_one
            .filter(|number| *number < present)
            .or_else(|| (0..present).find(is_free))?;
        self.taken.insert((card.to_owned(), number));
        Some(number)
    }
}

/// A function's device as a card of its VM's class.
fn nic_of(
    function: String,
    class: &Class,
    profile: &VmProfile,
    napi_budgets: Vec<VcpuBudget>,
) -> NicProfile {
    let mut class = class.clone();
    if !napi_budgets.is_empty() {
        // In an interrupt's thread a poll has the interrupt's rank, and no bound.
        class.threaded_napi = Some(true);
    }
    NicProfile {
        name: function,
        class,
        place: profile.place.clone(),
        napi_budgets,
        ..NicProfile::default()
    }
}

/// What bounds the polls of a VM's function: `SCHED_DEADLINE`, which runs a thread before all ranks for so long. The plan has
/// counted that, and has a CPU for the thread or lets it run anywhere.
fn napi_budgets(profile: &VmProfile) -> Result<Vec<VcpuBudget>, (String, &'static str)> {
    if profile.poll_budgets.is_empty() {
        return Ok(Vec::new());
    }
    without_path_cpus(&profile.class).map_err(|what| {
        let fix = "leave `path_cpus` or `receive` out, or write `way = \"xdp\"`";
        (what, fix)
    })?;
    for budget in &profile.poll_budgets {
        let fits = budget.check();
        fits.map_err(|what| {
            let what = format!("receive: {what}");
            (what, "choose another period or budget")
        })?;
    }
    Ok(profile.poll_budgets.clone())
}

/// Refuses CPUs of a class for a thread with a budget.
pub(super) fn without_path_cpus(class: &Class) -> Result<(), String> {
    if class.cpus.is_none() {
        return Ok(());
    }
    let what = "receive: a thread with a budget of SCHED_DEADLINE may run on all CPUs, or on that of its plan, and the VM's class \
                has `path_cpus`";
    Err(what.to_owned())
}

/// The VM's address: the file's, or that of its monitor's command line.
fn address_of(machine: &Machine, running: &Running<'_>, tap: &str) -> Result<Address, String> {
    if let Some(address) = running.profile.mac {
        return Ok(address);
    }
    let found = addresses_of_command(machine, running.vm.pid);
    // libvirt gives a tap the address of its card, but for the first byte.
    let of_tap = machine.tree.read(&format!("/sys/class/net/{tap}/address"));
    let of_tap = of_tap.ok().and_then(|text| parse_address(text.trim()));
    let twin = of_tap.and_then(|tap| found.iter().find(|address| address[1..] == tap[1..]));
    let only = (found.len() == 1).then(|| found.first()).flatten();
    twin.or(only).copied().ok_or_else(|| {
        let name = &running.profile.name;
        format!("nic: the address of VM \"{name}\" behind {tap} is not known")
    })
}

/// The step that made a card's functions: they stay as long as a VM has one.
fn made_before(device: &Device, present: u32, own: &[Step]) -> Option<Step> {
    let made = own.iter().find(
        |step| matches!(&step.change, Change::Functions(made) if made.setting.card.is(device)),
    )?;
    let change = ChangeOf {
        setting: Functions {
            card: device.clone(),
        },
        old: 0,
        new: present,
    };
    Some(Step::required(change, &made.why))
}

/// The one tap of a VM whose packets come by the card: both are ports of one bridge.
fn tap_behind(
    machine: &Machine,
    card: &str,
    taps: &[String],
) -> Result<String, (String, &'static str)> {
    let master = |device: &str| discover::master(machine, device);
    let Some(bridge) = master(card) else {
        let what = format!("nic: {card} is no port of a bridge, so no VM's packets come by it");
        return Err((what, "name the card that is in the VM's bridge"));
    };
    if bridge == OPEN_VSWITCH {
        let what =
            format!("nic: {card} is a port of Open vSwitch, whose flows a function would pass by");
        let fix = "leave `nic` out, and give the VM a card of its own: a [[nic]] with its class";
        return Err((what, fix));
    }
    let of_bridge = format!("/sys/class/net/{bridge}/bridge");
    if !machine.tree.exists(&of_bridge) {
        let what = format!("nic: {card} belongs to {bridge}, which is no bridge of the kernel");
        return Err((what, "leave `nic` out: only Linux bridges are known yet"));
    }
    let filters = machine.tree.read(&format!("{of_bridge}/vlan_filtering"));
    if filters.is_ok_and(|text| text.trim() == "1") {
        let what = format!("nic: {bridge} tells VLANs apart, which a function would pass by");
        return Err((what, "leave `nic` out for VMs of a bridge with VLANs"));
    }
    let behind: Vec<&String> = taps
        .iter()
        .filter(|tap| master(tap).as_deref() == Some(bridge.as_str()))
        .collect();
    match behind[..] {
        [tap] => Ok(tap.clone()),
        [] => Err((
            format!("nic: the VM has no tap in {bridge}, the bridge of {card}"),
            "name the card that is in the VM's bridge",
        )),
        _ => Err((
            format!("nic: the VM has {} taps in {bridge}", behind.len()),
            "give it one, or leave `nic` out",
        )),
    }
}

/// The hardware addresses that a monitor was told (QEMU's `mac=`), each once.
fn addresses_of_command(machine: &Machine, pid: u32) -> Vec<Address> {
    let command = machine.tree.read(&format!("/proc/{pid}/cmdline"));
    let command = command.unwrap_or_default();
    let words = command.split(['\0', ',', '{', '}']);
    let mut found: Vec<Address> = words
        .filter_map(|word| {
            let value = word.strip_prefix("mac=").or_else(|| {
                // libvirt writes devices as JSON.
                let (_, value) = word.split_once("\"mac\":")?;
                Some(value)
            })?;
            parse_address(value.trim_matches('"')).filter(|address| is_unicast(*address))
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn without(machine: &Machine, tap: &str, flag: &str) -> Result<Step, HostError> {
    let path = format!("/sys/class/net/{tap}/brport/{flag}");
    let old = machine.must_read(&path)?.trim().to_owned();
    let change = ChangeOf {
        setting: File::new(machine, path, Form::Text),
        old,
        new: "0".to_owned(),
    };
    let why = "so that the VM gets each of these packets once";
    Ok(Step::required(change, why))
}

/// The function is the VM's way, and nobody's on the host. IPv6 would join groups by it, from whichever CPU, and igbvf may lose its
/// link by that (`OwnFunction`). None where the host has no IPv6.
fn without_ipv6(machine: &Machine, function: &str) -> Option<Step> {
    let path = format!("/proc/sys/net/ipv6/conf/{function}/disable_ipv6");
    let why = "so that the host itself speaks to nobody by the VM's function";
    Step::file(machine, path, Form::Text, "1", why)
}

fn number_in(machine: &Machine, card: &str, file: &str) -> Option<u32> {
    let path = format!("/sys/class/net/{card}/device/{file}");
    machine.tree.read(&path).ok()?.trim().parse().ok()
}
