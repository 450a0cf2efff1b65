//! Root queueing disciplines, by route netlink.

use std::fs;
use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE, NLM_F_REQUEST};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};
use netlink_sys::protocols::NETLINK_ROUTE;

use super::calls::Qdisc;
use super::netlink::ask;

/// A device without a root discipline has none to speak of: the kernel lists none for it.
const NONE: &str = "noqueue";

pub(super) fn root(device: &str) -> io::Result<Qdisc> {
    let index = index_of(device)?;
    let request = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(index));
    let answers = ask(NETLINK_ROUTE, request, NLM_F_REQUEST | NLM_F_DUMP)?;
    for answer in answers {
        let RouteNetlinkMessage::NewQueueDiscipline(message) = answer else {
            continue;
        };
        if message.header.index != index || message.header.parent != TcHandle::ROOT {
            continue;
        }
        let kind = message
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                TcAttribute::Kind(kind) => Some(kind.clone()),
                _ => None,
            });
        return Ok(Qdisc {
            kind: kind.unwrap_or_else(|| NONE.to_owned()),
            is_default: message.header.handle == TcHandle::from(0),
        });
    }
    Ok(Qdisc {
        kind: NONE.to_owned(),
        is_default: true,
    })
}

pub(super) fn replace_root(device: &str, kind: &str) -> io::Result<()> {
    let mut message = at_root(device)?;
    message.attributes.push(TcAttribute::Kind(kind.to_owned()));
    let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
    ask(
        NETLINK_ROUTE,
        RouteNetlinkMessage::NewQueueDiscipline(message),
        flags,
    )
    .map(drop)
}

pub(super) fn delete_root(device: &str) -> io::Result<()> {
    let message = at_root(device)?;
    let request = RouteNetlinkMessage::DelQueueDiscipline(message);
    ask(NETLINK_ROUTE, request, NLM_F_REQUEST | NLM_F_ACK).map(drop)
}

fn at_root(device: &str) -> io::Result<TcMessage> {
    let mut message = TcMessage::with_index(index_of(device)?);
    message.header.parent = TcHandle::ROOT;
    Ok(message)
}

fn index_of(device: &str) -> io::Result<i32> {
    let text = fs::read_to_string(format!("/sys/class/net/{device}/ifindex"))?;
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    text.trim().parse().map_err(invalid)
}
