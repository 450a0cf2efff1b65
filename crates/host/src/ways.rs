//! The way of each VM's packets between the wire and the VM, and why: what a plan means for them, in words. It decides nothing:
//! the planner has, by its steps and by what it refused.

use serde::{Deserialize, Serialize};

use crate::address::format_address;
use crate::discover::{OPEN_VSWITCH, master};
use crate::error::HostError;
use crate::planner::{Group, Step, VmThreads, Wanted};
use crate::printable::printable;
use crate::profile::{Profile, VmProfile};
use crate::settings::links::taps;
use crate::settings::{
    Change, ChangeOf, Device, Functions, Machine, OwnFunction, Owner, XdpAddress,
};

/// The way of one VM's packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketWay {
    /// The VM, by its name in the file.
    pub vm: String,
    /// The way.
    #[serde(flatten)]
    pub way: Way,
    /// Why this one.
    pub why: String,
    /// What is left to do; empty if nothing is.
    pub to_do: String,
}

/// A way of packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "way")]
pub enum Way {
    /// By a virtual function of a shared card, which the host keeps: a queue of their own.
    VirtualFunction {
        /// The card.
        card: String,
        /// The function's number, from 0.
        number: u32,
        /// Its network device; null where it has none.
        device: Option<String>,
        /// The address whose packets the card puts there.
        address: String,
        /// Whether the card does so now.
        in_force: bool,
    },
    /// The card gets functions first, and then one is the VM's. Until then its packets wait in the card's ring.
    FunctionsFirst {
        /// The card.
        card: String,
        /// How many it gets.
        count: u32,
    },
    /// By an XDP program on a shared card, which hands the VM's packets to its tap before the host handles them.
    XdpProgram {
        /// The card.
        card: String,
        /// The address that the program looks for.
        address: String,
        /// Whether it does so now.
        in_force: bool,
    },
    /// The card gets its program first. Until then packets wait in the card's ring.
    ProgramFirst {
        /// The card.
        card: String,
    },
    /// By cards of its class.
    OwnCard {
        /// The cards.
        cards: Vec<String>,
    },
    /// By a ring of a card that has everybody's packets.
    SharedRing {
        /// The cards, as far as they are known.
        cards: Vec<String>,
    },
    /// By a program in user space (`vhost-user`), such as Open vSwitch with DPDK.
    UserSpace,
    /// By no card of this host that is known: the VM has no tap in a bridge with a card.
    NoCard,
    /// The VM does not run.
    NotRunning,
}

impl PacketWay {
    /// In one line.
    pub fn sentence(&self) -> String {
        let mut text = format!("{}: {}", self.way.words(), self.why);
        if !self.to_do.is_empty() {
            text += "; ";
            text += &self.to_do;
        }
        printable(&text).into_owned()
    }

    /// Whether the VM's packets wait behind others' though somebody wanted them not to, or could.
    pub fn waits_behind_others(&self) -> bool {
        match &self.way {
            Way::SharedRing { .. } | Way::FunctionsFirst { .. } | Way::ProgramFirst { .. } => true,
            Way::VirtualFunction { in_force, .. } | Way::XdpProgram { in_force, .. } => !in_force,
            Way::OwnCard { .. } | Way::UserSpace | Way::NoCard | Way::NotRunning => false,
        }
    }
}

impl Way {
    fn words(&self) -> String {
        match self {
            Self::VirtualFunction {
                card,
                number,
                device,
                ..
            } => {
                let device = device
                    .as_deref()
                    .map_or(String::new(), |it| format!(" ({it})"));
                format!("by function {number} of {card}{device}")
            }
            Self::FunctionsFirst { card, count } => {
                format!("by the shared ring of {card} until it has its {count} functions")
            }
            Self::XdpProgram { card, .. } => format!("by the XDP program of {card}"),
            Self::ProgramFirst { card } => {
                format!("by the shared ring of {card} until it has its XDP program")
            }
            Self::OwnCard { cards } => format!("by a card of its class, {}", cards.join(", ")),
            Self::SharedRing { cards } if cards.is_empty() => "by a shared ring".to_owned(),
            Self::SharedRing { cards } => format!("by the shared ring of {}", cards.join(", ")),
            Self::UserSpace => "by a program in user space".to_owned(),
            Self::NoCard => "by no card of this host".to_owned(),
            Self::NotRunning => "by none now".to_owned(),
        }
    }
}

/// The ways of the VMs that a plan has looked for, in the plan's order. Reads only.
pub(crate) fn ways(machine: &Machine, profile: &Profile, wanted: &Wanted) -> Vec<PacketWay> {
    let of = |found: &VmThreads| {
        let vm = profile.vms.iter().find(|vm| vm.name == found.name)?;
        let looked = Looked {
            machine,
            profile,
            wanted,
            vm,
        };
        Some(looked.way(found))
    };
    wanted.vms.iter().filter_map(of).collect()
}

/// A VM, and what was planned.
struct Looked<'a> {
    machine: &'a Machine,
    profile: &'a Profile,
    wanted: &'a Wanted,
    vm: &'a VmProfile,
}

impl Looked<'_> {
    fn way(&self, found: &VmThreads) -> PacketWay {
        let Some(pid) = found.pid else {
            return self.is(Way::NotRunning, "the VM does not run", "");
        };
        match &self.vm.nic {
            Some(card) => self.on_shared(card),
            None => self.without_nic(pid, found),
        }
    }

    fn is(&self, way: Way, why: impl Into<String>, to_do: impl Into<String>) -> PacketWay {
        PacketWay {
            vm: self.vm.name.clone(),
            way,
            why: why.into(),
            to_do: to_do.into(),
        }
    }

    /// A VM whose file names the card.
    fn on_shared(&self, card: &str) -> PacketWay {
        let group = Group::Vm(self.vm.name.clone());
        let mut failed = self.wanted.failed.iter();
        if let Some((_, error)) = failed.find(|(failed, _)| *failed == group) {
            let cards = vec![card.to_owned()];
            let (why, to_do) = parts(error);
            return self.is(Way::SharedRing { cards }, why, to_do);
        }
        let steps = || self.wanted.steps.iter();
        let mut mine = steps().filter(|step| step.group == group);
        let own = mine.find_map(|step| match &step.change {
            Change::OwnFunction(change) => Some(self.by_function(step, change, card)),
            Change::XdpAddress(change) => Some(self.by_program(step, change, card)),
            _ => None,
        });
        own.unwrap_or_else(|| self.prepared(card))
    }

    /// A VM whose card is prepared first.
    fn prepared(&self, card: &str) -> PacketWay {
        let of_card = Group::SharedCard(card.to_owned());
        let mut steps = self.wanted.steps.iter();
        let card = card.to_owned();
        let (way, lacks) = steps
            .find_map(|step| match &step.change {
                _ if step.group != of_card => None,
                Change::Functions(change) => {
                    let count = change.new;
                    let card = card.clone();
                    Some((Way::FunctionsFirst { card, count }, "functions"))
                }
                Change::XdpProgram(_) => {
                    let card = card.clone();
                    Some((Way::ProgramFirst { card }, "XDP program"))
                }
                _ => None,
            })
            .unwrap_or_else(|| {
                let cards = vec![card.clone()];
                (Way::SharedRing { cards }, "functions")
            });
        let to_do = "run `steadyvm apply` before VMs start: the card restarts, and has no link for a second or two";
        self.is(way, format!("{card} has no {lacks} yet"), to_do)
    }

    fn by_program(&self, step: &Step, change: &ChangeOf<XdpAddress>, card: &str) -> PacketWay {
        let (in_force, to_do) = self.force(step);
        let address = format_address(change.setting.address);
        let why = format!(
            "a program on {card} hands packets to {address} to the VM before all others are handled"
        );
        let way = Way::XdpProgram {
            card: card.to_owned(),
            address,
            in_force,
        };
        self.is(way, why, to_do)
    }

    /// Whether a step is in force, and what is to be done if not.
    fn force(&self, step: &Step) -> (bool, &'static str) {
        match step.change.read(self.machine) {
            Ok(now) if now.is_new => (true, ""),
            _ => (false, "not in force yet: run `steadyvm apply`"),
        }
    }

    fn by_function(&self, step: &Step, change: &ChangeOf<OwnFunction>, card: &str) -> PacketWay {
        let (in_force, to_do) = self.force(step);
        let address = match &change.new {
            Owner::Vm { address, .. } => format_address(*address),
            Owner::Free { .. } | Owner::Partly => String::new(),
        };
        let why = format!("{card} puts packets to {address} into a queue of their own");
        let way = Way::VirtualFunction {
            card: card.to_owned(),
            number: change.setting.number,
            device: change.setting.device(self.machine).ok(),
            address,
            in_force,
        };
        self.is(way, why, to_do)
    }

    /// A VM whose file names no card: its packets come by those that are in the bridges of its taps.
    fn without_nic(&self, pid: u32, found: &VmThreads) -> PacketWay {
        let (mut taps, _) = taps(self.machine, pid);
        taps.retain(|tap| !found.taps_of_other_classes.contains(tap));
        if taps.is_empty() && found.interfaces_of_user_space > 0 {
            let why = "it has vhost-user, as of Open vSwitch with DPDK: that is not steadyvm's, which changes nothing of it";
            return self.is(Way::UserSpace, why, "");
        }
        let mut bridges: Vec<String> = taps.iter().filter_map(|it| self.bridge(it)).collect();
        bridges.dedup();
        let cards = self.machine.tree.list("/sys/class/net").unwrap_or_default();
        let cards = cards.into_iter().filter(|card| {
            let device = format!("/sys/class/net/{card}/device");
            let bridge = self.bridge(card);
            self.machine.tree.exists(&device) && bridge.is_some_and(|it| bridges.contains(&it))
        });
        let cards: Vec<String> = cards.collect();
        let by_open_vswitch = bridges.iter().any(|bridge| bridge == OPEN_VSWITCH);
        let by = if by_open_vswitch {
            "; OVS kernel datapath, whose ports are not told apart by bridge"
        } else {
            ""
        };
        if cards.is_empty() {
            let why = format!("none of its taps is in a bridge with a card{by}");
            return self.is(Way::NoCard, why, "");
        }
        let is_of_class = |card: &&String| {
            let mut named = self.profile.nics.iter().filter(|nic| !nic.is_other);
            named.any(|nic| nic.name == **card && nic.class.name == self.vm.class.name)
        };
        let own: Vec<String> = cards.iter().filter(is_of_class).cloned().collect();
        if own.len() == cards.len() {
            let why = format!("the file gives it class \"{}\"{by}", self.vm.class.name);
            return self.is(Way::OwnCard { cards }, why, "");
        }
        if by_open_vswitch {
            let to_do = "give it a card of its own ([[nic]] with its class)";
            let why = format!("its packets wait behind those of all others there{by}");
            return self.is(Way::SharedRing { cards }, why, to_do);
        }
        let functions = |card: &String| {
            let device = Device::find(self.machine, card);
            Functions { card: device }
                .most(self.machine)
                .map(|most| (card.clone(), most))
        };
        let to_do = match cards.iter().find_map(functions) {
            Some((card, most)) => format!(
                "write `nic = \"{card}\"` in its table: {card} can have {most} virtual functions"
            ),
            None => match cards.iter().find(|card| self.redirects(card)) {
                Some(card) => {
                    format!("write `nic = \"{card}\"` in its table: {card} can sort by an XDP program")
                }
                None => "give it a card of its own ([[nic]] with its class): this one has no virtual functions, and its \
                         driver does not redirect by XDP"
                    .into(),
            },
        };
        let why = "its packets wait behind those of all others there";
        self.is(Way::SharedRing { cards }, why, to_do)
    }

    fn redirects(&self, card: &str) -> bool {
        let found = self.machine.links.redirects_by_xdp(card);
        found.unwrap_or(false)
    }

    fn bridge(&self, device: &str) -> Option<String> {
        master(self.machine, device)
    }
}

/// What is wrong, and what to do.
fn parts(error: &HostError) -> (String, String) {
    match error {
        HostError::BadInput { what, fix } => (what.clone(), fix.clone()),
        HostError::Unsupported { missing, fix } => (missing.clone(), fix.clone()),
        other => (other.to_string(), String::new()),
    }
}
