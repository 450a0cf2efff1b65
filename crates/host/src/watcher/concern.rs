//! Whose events concern a watch: cards, and processes that may be VMs or services of the host that the file names.
//!
//! Containers come and go with their links, and any process may call its threads what it likes. What they do is no reason to look at
//! the whole host. So each message is read, and only the one link or process that it is about is looked at.

use std::collections::BTreeSet;
use std::fs;

use super::connector::Wanted;
use crate::Machine;
use crate::discover::{User, VmSelector, holds_a_vm, may_be_host_service, may_be_vm};
use crate::profile::Profile;
use netlink_packet_core::{NlaBuffer, NlasIterator};
use nix::net::if_::if_nametoindex;

/// Length of nlmsghdr, and of ifinfomsg behind it (include/uapi/linux/netlink.h, rtnetlink.h).
const HEADER: usize = 16;
const LINK: usize = 16;
/// `IFLA_IFNAME`, `IFLA_LINKINFO` and in it `IFLA_INFO_KIND` (`include/uapi/linux/if_link.h`).
const NAME: u16 = 3;
const LINK_INFO: u16 = 18;
const INFO_KIND: u16 = 1;
/// `ifi_change` of a link that is new: all flags.
const IS_NEW: u32 = u32::MAX;
/// `PROC_PID_INIT_INO` (`include/linux/proc_ns.h)`: the kernel's numbers of processes are those of this namespace.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";
/// More strangers are not remembered: their ends count then.
const MOST_STRANGERS: usize = 4096;

/// What a new VM is to a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// It may be one that the file names.
    Meant,
    /// It is none of them, as far as this process knows the files now.
    Unknown,
}

/// What a profile names.
pub struct Concern {
    machine: Machine,
    cards: BTreeSet<String>,
    /// Of the cards, as far as they are there: one that is renamed keeps it.
    indexes: BTreeSet<u32>,
    vms: Vec<(VmSelector, Vec<User>)>,
    /// Programs without a VM, by their threads.
    containers: Vec<(VmSelector, Vec<User>)>,
    services: Vec<(String, Vec<User>)>,
    /// Processes that made VMs and were none that is meant.
    strangers: BTreeSet<u32>,
    /// Whether processes have the numbers here that the kernel tells.
    knows_processes: bool,
}

impl Concern {
    /// That of a profile, on the running host.
    pub fn of(profile: &Profile) -> Self {
        let namespace = fs::read_link("/proc/self/ns/pid");
        let mut concern = Self {
            machine: Machine::real(),
            cards: BTreeSet::new(),
            indexes: BTreeSet::new(),
            vms: Vec::new(),
            containers: Vec::new(),
            services: Vec::new(),
            strangers: BTreeSet::new(),
            knows_processes: namespace.is_ok_and(|it| it.as_os_str() == FIRST_PID_NAMESPACE),
        };
        concern.follow(profile);
        concern
    }

    /// The file, or one beside it, was read anew.
    pub fn follow(&mut self, profile: &Profile) {
        let named = profile.nics.iter().map(|nic| &nic.name);
        let shared = profile.vms.iter().filter_map(|vm| vm.nic.as_ref());
        self.cards = named.chain(shared).cloned().collect();
        let cards = self.cards.iter();
        self.indexes = cards
            .filter_map(|card| if_nametoindex(card.as_str()).ok())
            .collect();
        let named = profile.vms.iter();
        (self.containers, self.vms) = named
            .map(|vm| (vm.selector(), vm.users.clone()))
            .partition(|(selector, _)| matches!(selector, VmSelector::Threads { .. }));
        let services = profile.host_services.iter();
        self.services = services
            .map(|service| (service.unit.clone(), service.users.clone()))
            .collect();
        self.strangers.clear();
    }

    /// What of programs and names concerns it: a program has its name as it begins, and its threads take others.
    pub(super) fn wants(&self) -> Wanted {
        let names = !self.containers.is_empty();
        Wanted {
            programs: names || !self.services.is_empty(),
            names,
        }
    }

    /// Whether a process that has begun a program may be of a service that is named, or its first thread one that is.
    pub(super) fn began(&self, pid: u32) -> bool {
        may_be_host_service(&self.machine, pid, &self.services)
            || may_be_vm(&self.machine, (pid, pid), &self.containers)
    }

    /// Whether a message of rtnetlink's link group is about a card that is named, or about a new tap, which a named VM may
    /// have got.
    pub fn link(&mut self, message: &[u8]) -> bool {
        let mut rest = message;
        let mut counts = false;
        while let Some(length) = word(rest, 0).map(|length| length as usize) {
            let Some(one) = rest.get(..length).filter(|_| length >= HEADER) else {
                // Not understood: it may be anything.
                return true;
            };
            counts |= self.one_link(one.get(HEADER..).unwrap_or_default());
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        counts
    }

    fn one_link(&mut self, message: &[u8]) -> bool {
        let (Some(index), Some(change)) = (word(message, 4), word(message, 12)) else {
            return true;
        };
        let attributes = message.get(LINK..).unwrap_or_default();
        let name = attribute(attributes, NAME).map(|bytes| text(&bytes));
        if name.is_some_and(|name| self.cards.contains(&name)) {
            self.indexes.insert(index);
            return true;
        }
        let kind = attribute(attributes, LINK_INFO);
        let kind = kind.as_deref().and_then(|info| attribute(info, INFO_KIND));
        let kind = kind.map(|bytes| text(&bytes));
        let is_new_tap = change == IS_NEW && matches!(kind.as_deref(), Some("tun" | "macvtap"));
        self.indexes.contains(&index) || (is_new_tap && !self.vms.is_empty())
    }

    /// What a process is that has made a VM.
    pub fn made(&mut self, pid: Option<u32>) -> Meaning {
        let Some(pid) = pid.filter(|_| self.knows_processes) else {
            return Meaning::Meant;
        };
        if may_be_vm(&self.machine, (pid, pid), &self.vms) {
            self.strangers.remove(&pid);
            return Meaning::Meant;
        }
        if self.strangers.len() < MOST_STRANGERS {
            self.strangers.insert(pid);
        }
        Meaning::Unknown
    }

    /// Whether the end of a process's VM counts. That of one that was made before this process listened does.
    pub fn gone(&mut self, pid: Option<u32>) -> bool {
        !pid.is_some_and(|pid| self.strangers.remove(&pid))
    }

    /// Whether a thread that calls itself a VCPU's may be one of a VM that is named, or a thread is named itself.
    pub fn named(&mut self, thread: (u32, u32)) -> bool {
        let (pid, _) = thread;
        if !self.knows_processes {
            return true;
        }
        if may_be_vm(&self.machine, thread, &self.containers) {
            return true;
        }
        let is_meant =
            may_be_vm(&self.machine, thread, &self.vms) && holds_a_vm(&self.machine, pid);
        if is_meant {
            self.strangers.remove(&pid);
        }
        is_meant
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

fn attribute(attributes: &[u8], kind: u16) -> Option<Vec<u8>> {
    let found: Option<NlaBuffer<&[u8]>> = NlasIterator::new(attributes)
        .map_while(Result::ok)
        .find(|attribute| attribute.kind() == kind);
    Some(found?.value().to_vec())
}

/// Without the zero byte at its end.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .trim_end_matches('\0')
        .to_owned()
}

#[cfg(test)]
mod tests {
    use crate::profile::{NicProfile, VmProfile};
    use proptest::prelude::*;

    use super::*;

    fn concern(cards: &[&str], vms: &[&str]) -> Concern {
        let nics = cards.iter().map(|name| NicProfile {
            name: (*name).to_owned(),
            ..NicProfile::default()
        });
        let vms = vms.iter().map(|name| VmProfile {
            name: (*name).to_owned(),
            ..VmProfile::default()
        });
        Concern::of(&Profile {
            nics: nics.collect(),
            vms: vms.collect(),
            ..Profile::default()
        })
    }

    fn nla(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(index: u32, change: u32, name: &str, kind: &str) -> Vec<u8> {
        let kind = nla(INFO_KIND, format!("{kind}\0").as_bytes());
        let attributes = [
            nla(NAME, format!("{name}\0").as_bytes()),
            nla(LINK_INFO, &kind),
        ];
        let mut bytes = vec![0; HEADER + LINK];
        bytes[HEADER + 4..HEADER + 8].copy_from_slice(&index.to_ne_bytes());
        bytes[HEADER + 12..].copy_from_slice(&change.to_ne_bytes());
        bytes.extend(attributes.concat());
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes
    }

    #[test]
    fn only_links_that_are_named_and_new_taps_count() {
        let mut named = concern(&["steady-card0"], &["a"]);
        for (index, change, name, kind, expected) in [
            (7, IS_NEW, "veth0", "veth", false),
            (8, 1, "steady-card0", "", true),
            // Renamed, and gone by its new name.
            (8, 0, "steady-old0", "", true),
            (9, 1, "steady-card01", "", false),
            (10, IS_NEW, "tap0", "tun", true),
            (10, 1, "tap0", "tun", false),
            (12, IS_NEW, "macvtap0", "macvtap", true),
        ] {
            let message = message(index, change, name, kind);
            assert_eq!(named.link(&message), expected, "{name} {kind}");
        }
        let two = [
            message(7, 1, "veth0", "veth"),
            message(8, 1, "steady-card0", ""),
        ];
        assert!(named.link(&two.concat()));
        assert!(!concern(&[], &[]).link(&message(10, IS_NEW, "tap0", "tun")));
        // The card that a VM shares with others.
        let vm = VmProfile {
            name: "a".into(),
            nic: Some("steady-shared0".into()),
            ..VmProfile::default()
        };
        named.follow(&Profile {
            vms: vec![vm],
            ..Profile::default()
        });
        assert!(named.link(&message(11, 0, "steady-shared0", "")));
        assert!(!named.link(&message(8, 1, "steady-card0", "")));
    }

    #[test]
    fn a_process_that_claims_no_name_of_the_file_is_a_stranger_until_it_ends() {
        let mut named = concern(&[], &["steady-no-such-vm"]);
        let own = std::process::id();
        if !named.knows_processes {
            assert_eq!(named.made(Some(own)), Meaning::Meant);
            return;
        }
        assert_eq!(named.made(Some(own)), Meaning::Unknown);
        assert!(!named.named((own, own)));
        assert!(!named.gone(Some(own)));
        // One of before, and one whose process is not told.
        assert!(named.gone(Some(own)) && named.gone(None));
        assert_eq!(named.made(None), Meaning::Meant);
    }

    proptest! {
        #[test]
        fn no_message_panics(bytes in prop::collection::vec(any::<u8>(), 0..128)) {
            concern(&["a"], &["b"]).link(&bytes);
        }
    }
}
