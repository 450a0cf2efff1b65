//! Whether a VM may poll the cards of its network namespace: only queues that are its own. A poll of another queue would
//! take others' packets, at the VM's expense and rank, and others' interrupts would wait for it.
//!
//! A card, or a function of one, that is in the namespace has its queues there, and nobody else is there (`namespace`). So
//! has a pair of veth devices. A macvlan has its card's, which it shares with the card's others, but for mode passthru: that
//! is the only one of its card. All else (VLANs, bridges, tunnels, ipvlans) gets packets by others' queues.

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoMacVlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, MacVlanMode,
};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use std::io;
use std::time::Duration;

use crate::configuration::Sockets;

/// How long a wait may poll in the calling thread's namespace: as long as was asked for, or not at all, which is said.
pub fn granted(sockets: &Sockets) -> Duration {
    let asked = Duration::from_micros(sockets.poll_us.into());
    if asked.is_zero() {
        return asked;
    }
    match may_poll(sockets) {
        Ok(()) => asked,
        Err(why) => {
            eprintln!("steadyvm up: sockets.poll_us: waits sleep and do not poll: {why}");
            Duration::ZERO
        }
    }
}

fn may_poll(sockets: &Sockets) -> Result<(), String> {
    if sockets.allow_host_network {
        return Err("the host's own network is not this VM's alone".into());
    }
    steadyvm_sockets::can_busy_poll().map_err(|error| {
        format!("this kernel has no busy polling of epoll ({error}); it takes Linux 6.9 with NET_RX_BUSY_POLL")
    })?;
    let links = links().map_err(|error| format!("the network devices are not told: {error}"))?;
    all_own(&links)
}

/// All network devices of the calling thread's namespace.
fn links() -> io::Result<Vec<LinkMessage>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut message = NetlinkMessage::from(RouteNetlinkMessage::GetLink(LinkMessage::default()));
    message.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut links = Vec::new();
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        let mut rest = datagram.as_slice();
        while !rest.is_empty() {
            let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
            let answer =
                NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(invalid)?;
            // Messages begin at multiples of four bytes.
            let length = (answer.header.length as usize).next_multiple_of(4);
            rest = rest.get(length.max(4)..).unwrap_or_default();
            match answer.payload {
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                    links.push(link);
                }
                NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(links),
                _ => {}
            }
        }
    }
}

/// Whether all devices that bring packets have queues that are the namespace's own, and there are any.
fn all_own(links: &[LinkMessage]) -> Result<(), String> {
    let mut cards = links.iter().filter(|link| {
        let flags = link.header.flags;
        flags.contains(LinkFlags::Up) && !flags.contains(LinkFlags::Loopback)
    });
    let mut any = false;
    cards.try_for_each(|card| {
        any = true;
        is_own(card)
    })?;
    if any {
        Ok(())
    } else {
        Err("no card of its network namespace is up".into())
    }
}

fn is_own(link: &LinkMessage) -> Result<(), String> {
    let name = link
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name.as_str()),
            _ => None,
        });
    let name = name.unwrap_or("a device");
    let infos = link
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::LinkInfo(infos) => Some(infos.as_slice()),
            _ => None,
        });
    let infos = infos.unwrap_or_default();
    let kind = infos.iter().find_map(|info| match info {
        LinkInfo::Kind(kind) => Some(kind),
        _ => None,
    });
    match kind {
        None | Some(InfoKind::Veth) => Ok(()),
        Some(InfoKind::MacVlan) if is_alone(infos) => Ok(()),
        Some(InfoKind::MacVlan) => Err(format!(
            "{name} is a macvlan of a card that others use; use mode passthru, or put the card or a function of it into the namespace"
        )),
        Some(kind) => Err(format!(
            "{name} is a {kind}, which has no queue of its own; put a card or a function of one into the namespace"
        )),
    }
}

fn is_alone(infos: &[LinkInfo]) -> bool {
    infos.iter().any(|info| match info {
        LinkInfo::Data(InfoData::MacVlan(data)) => {
            data.contains(&InfoMacVlan::Mode(MacVlanMode::Passthrough))
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::thread;

    /// What is said in a namespace of its own that is set up by these commands of `ip`.
    fn judged(commands: &'static [&'static str]) -> Result<(), String> {
        let judge = move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
                .expect("these tests make network namespaces: run them as root");
            for words in commands {
                let done = Command::new("ip").args(words.split(' ')).status();
                assert!(done.unwrap().success(), "ip {words}");
            }
            all_own(&links().unwrap())
        };
        // A thread of its own: the namespace goes with it.
        thread::spawn(judge).join().unwrap()
    }

    const PAIR: &str = "link add lower type veth peer name other";

    #[test]
    fn queues_of_the_namespaces_own_devices_are_polled() {
        assert_eq!(judged(&[PAIR, "link set lower up"]), Ok(()));
        let passthru = &[
            PAIR,
            "link set lower up",
            "link add eth0 link lower type macvlan mode passthru",
            "link set eth0 up",
        ];
        assert_eq!(judged(passthru), Ok(()));
    }

    #[test]
    fn queues_that_others_may_use_are_not_polled() {
        let shared: [(&'static [&'static str], &str); 3] = [
            (
                &[
                    PAIR,
                    "link set lower up",
                    "link add eth0 link lower type macvlan mode bridge",
                    "link set eth0 up",
                ],
                "eth0 is a macvlan",
            ),
            (
                &[
                    PAIR,
                    "link set lower up",
                    "link add bridge0 type bridge",
                    "link set bridge0 up",
                ],
                "bridge0 is a bridge",
            ),
            (
                &["link set lo up"],
                "no card of its network namespace is up",
            ),
        ];
        for (commands, said) in shared {
            let why = judged(commands).unwrap_err();
            assert!(why.starts_with(said), "{why}");
        }
    }

    #[test]
    fn the_hosts_own_network_is_never_polled() {
        let sockets = Sockets {
            poll_us: 50,
            allow_host_network: true,
            ..Sockets::default()
        };
        let why = may_poll(&sockets).unwrap_err();
        assert!(why.starts_with("the host's own network"), "{why}");
        assert_eq!(granted(&sockets), Duration::ZERO);
    }
}
