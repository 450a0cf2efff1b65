//! The network of a VM as QEMU's command line has it: which card is behind which tap, and how many vhost devices that has.
//!
//! A process may write whatever it likes there. What is read serves to tell the VM's own threads and taps apart, and never to
//! find those of others.

use std::collections::BTreeMap;

use crate::address::{Address, is_unicast, parse_address};

/// A backend of one card (`-netdev tap`), in the order in which QEMU makes them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Netdev {
    /// The hardware address of its card; none where the command line has none.
    pub address: Option<Address>,
    /// The descriptors of its tap that QEMU was handed.
    pub descriptors: Vec<u32>,
    /// The tap that QEMU opens by name.
    pub tap: Option<String>,
    /// How many vhost devices it has: one for each pair of queues, or none.
    pub vhosts: usize,
}

/// The options of one word, by key; what has no key is the `type`.
type Options = BTreeMap<String, String>;

/// The taps that a command line asks for. None if it has `-net`, the way before `-netdev`, whose hubs join cards with several
/// backends.
pub(super) fn netdevs(command_line: &[u8]) -> Option<Vec<Netdev>> {
    let text = String::from_utf8_lossy(command_line);
    let words: Vec<&str> = text.split('\0').collect();
    // net_init_clients() makes those in JSON first, then other `-netdev`, then `-nic`.
    let (mut in_json, mut in_words, mut with_card) = (Vec::new(), Vec::new(), Vec::new());
    let mut addresses: BTreeMap<String, Address> = BTreeMap::new();
    for pair in words.windows(2) {
        let Some(option) = pair[0].strip_prefix('-') else {
            continue;
        };
        let value = pair[1];
        match option.strip_prefix('-').unwrap_or(option) {
            "netdev" if value.starts_with('{') => in_json.push(options(value)?),
            "netdev" => in_words.push(options(value)?),
            "nic" => with_card.push(options(value)?),
            "net" if value != "none" => return None,
            "device" => {
                // A device that cannot be read is no card of a tap that is known.
                let device = options(value).unwrap_or_default();
                let address = device.get("mac").and_then(|mac| address_of(mac));
                if let (Some(of), Some(address)) = (device.get("netdev"), address) {
                    addresses.insert(of.clone(), address);
                }
            }
            _ => {}
        }
    }
    let all = in_json.into_iter().chain(in_words).chain(with_card);
    let taps = all.filter(|options| options.get("type").is_some_and(|kind| kind == "tap"));
    let read = |options: Options| {
        let own = options.get("mac").and_then(|mac| address_of(mac));
        let by_id = options.get("id").and_then(|id| addresses.get(id).copied());
        netdev(&options, own.or(by_id))
    };
    taps.map(read).collect()
}

/// How many backends are another program's in user space (`-netdev vhost-user`).
pub(super) fn by_user_space(command_line: &[u8]) -> usize {
    let text = String::from_utf8_lossy(command_line);
    let words: Vec<&str> = text.split('\0').collect();
    let netdevs = words.windows(2).filter_map(|pair| match pair[0] {
        "-netdev" | "--netdev" => options(pair[1]),
        _ => None,
    });
    netdevs
        .filter(|options| options.get("type").is_some_and(|kind| kind == "vhost-user"))
        .count()
}

fn address_of(text: &str) -> Option<Address> {
    parse_address(text).filter(|address| is_unicast(*address))
}

/// `net_init_tap()`: a tap that is handed over has a vhost device of each descriptor, another one of each queue.
fn netdev(options: &Options, address: Option<Address>) -> Option<Netdev> {
    let is_on = |key: &str| options.get(key).map(|value| is_true(value));
    let handed = options.get("fds").or_else(|| options.get("fd"));
    let descriptors: Vec<&str> = handed.map_or(Vec::new(), |list| list.split(':').collect());
    let queues = match (&descriptors[..], options.get("queues")) {
        ([], Some(number)) => number.parse().ok()?,
        ([], None) => 1,
        (several, _) => several.len(),
    };
    let has_vhost = options.contains_key("vhostfd") || options.contains_key("vhostfds");
    let has_vhost = has_vhost || is_on("vhostforce") == Some(true);
    let with_vhost = is_on("vhost").unwrap_or(has_vhost);
    Some(Netdev {
        address,
        // One that has a name (`getfd`) is not known by number.
        descriptors: descriptors
            .iter()
            .filter_map(|number| number.parse().ok())
            .collect(),
        tap: options.get("ifname").cloned(),
        vhosts: if with_vhost { queues } else { 0 },
    })
}

/// `qapi_bool_parse()`
fn is_true(value: &str) -> bool {
    matches!(value, "on" | "yes" | "true" | "y")
}

/// `KEY=VALUE[,KEY=VALUE]...`, whose first word may be the type alone, or the same as JSON.
fn options(value: &str) -> Option<Options> {
    if value.starts_with('{') {
        let object: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(value).ok()?;
        let text = |value: serde_json::Value| match value {
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        };
        return Some(
            object
                .into_iter()
                .map(|(key, it)| (key, text(it)))
                .collect(),
        );
    }
    let mut found = Options::new();
    for (place, option) in comma_separated(value).into_iter().enumerate() {
        match option.split_once('=') {
            Some((key, value)) => drop(found.insert(key.to_owned(), value.to_owned())),
            None if place == 0 => drop(found.insert("type".to_owned(), option)),
            // A key alone is switched on.
            None => drop(found.insert(option, "on".to_owned())),
        }
    }
    Some(found)
}

/// The parts of a value; a comma in one is written twice (`get_opt_value()`).
pub(super) fn comma_separated(value: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut rest = value.chars().peekable();
    while let Some(character) = rest.next() {
        if character == ',' && rest.next_if_eq(&',').is_none() {
            parts.push(String::new());
        } else if let Some(last) = parts.last_mut() {
            last.push(character);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(words: &[&str]) -> Option<Vec<Netdev>> {
        netdevs(words.join("\0").as_bytes())
    }

    fn address(last: u8) -> Address {
        [0x52, 0x54, 0, 0, 0, last]
    }

    #[test]
    fn libvirts_taps_are_read_in_both_of_its_forms() {
        let expected = Some(vec![
            Netdev {
                address: Some(address(1)),
                descriptors: vec![33],
                tap: None,
                vhosts: 1,
            },
            Netdev {
                address: Some(address(2)),
                descriptors: vec![34, 35],
                tap: None,
                vhosts: 2,
            },
        ]);
        let in_json = read(&[
            "qemu",
            "-netdev",
            r#"{"type":"tap","fd":"33","vhost":true,"vhostfd":"36","id":"hostnet0"}"#,
            "-device",
            r#"{"driver":"virtio-net-pci","netdev":"hostnet0","id":"net0","mac":"52:54:00:00:00:01"}"#,
            "-netdev",
            r#"{"type":"tap","fds":"34:35","vhost":true,"vhostfds":"37:38","id":"hostnet1"}"#,
            "-device",
            r#"{"driver":"virtio-net-pci","mq":true,"netdev":"hostnet1","mac":"52:54:00:00:00:02"}"#,
        ]);
        assert_eq!(in_json, expected);
        let in_words = read(&[
            "qemu",
            "-netdev",
            "tap,fd=33,id=hostnet0,vhost=on,vhostfd=36",
            "-device",
            "virtio-net-pci,netdev=hostnet0,id=net0,mac=52:54:00:00:00:01,bus=pci.1",
            "-netdev",
            "tap,fds=34:35,id=hostnet1,vhost=on,vhostfds=37:38",
            "-device",
            "virtio-net-pci,mq=on,netdev=hostnet1,mac=52:54:00:00:00:02",
        ]);
        assert_eq!(in_words, expected);
    }

    #[test]
    fn taps_by_name_and_cards_in_one_word_are_read() {
        // Proxmox VE's, and QEMU's short form; `-nic` comes last, wherever it stands.
        let found = read(&[
            "kvm",
            "-nic",
            "tap,ifname=tap2,vhost=on,mac=52:54:00:00:00:03",
            "-netdev",
            "type=tap,id=net0,ifname=tap100i0,script=/usr/libexec/x,vhost=on,queues=4",
            "-device",
            "virtio-net-pci,mac=52:54:00:00:00:01,netdev=net0,bus=pci.0",
            "-netdev",
            "user,id=u0",
            "-netdev",
            "tap,id=net1,ifname=tap100i1",
            "-device",
            "e1000,mac=52:54:00:00:00:02,netdev=net1",
        ]);
        let found = found.unwrap();
        let rows: Vec<_> = found
            .iter()
            .map(|it| (it.address.unwrap(), it.tap.as_deref().unwrap(), it.vhosts))
            .collect();
        let expected = [
            (address(1), "tap100i0", 4),
            (address(2), "tap100i1", 0),
            (address(3), "tap2", 1),
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn backends_of_other_programs_are_counted() {
        let words = [
            "qemu",
            "-chardev",
            "socket,id=char0,path=/run/openvswitch/vhu0",
            "-netdev",
            "vhost-user,chardev=char0,id=hostnet0,queues=2",
            "-netdev",
            r#"{"type":"vhost-user","chardev":"char1","id":"hostnet1"}"#,
            "-netdev",
            "tap,id=net2,vhost=on",
            "-device",
            "vhost-user,netdev=x",
        ];
        assert_eq!(by_user_space(words.join("\0").as_bytes()), 2);
        assert_eq!(read(&words).unwrap().len(), 1);
        assert_eq!(by_user_space(b"qemu\0-netdev"), 0);
    }

    #[test]
    fn what_cannot_be_read_is_not_guessed_at() {
        assert_eq!(read(&["qemu", "-net", "nic", "-net", "tap,vhost=on"]), None);
        assert_eq!(read(&["qemu", "-netdev", "{\"type\":\"tap\""]), None);
        assert_eq!(read(&["qemu", "-netdev", "tap,id=a,queues=x"]), None);
        assert_eq!(read(&["qemu", "-net", "none"]), Some(Vec::new()));
        // A card with an address that is a group's has none.
        let group = read(&["qemu", "-nic", "tap,mac=01:00:5e:00:00:01"]).unwrap();
        assert_eq!(group[0].address, None);
    }

    proptest! {
        #[test]
        fn no_command_line_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64), value in ".{0,32}") {
            let _ = netdevs(&bytes);
            let _ = read(&["-netdev", &value, "-device", &value, "-nic", &value]);
        }
    }
}
