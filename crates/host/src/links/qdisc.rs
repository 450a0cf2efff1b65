//! Root queueing disciplines, by route netlink.

use std::fs;
use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::Qdisc;

/// A device without a root discipline has none to speak of: the kernel lists none for it.
const NONE: &str = "noqueue";

pub(super) fn root(device: &str) -> io::Result<Qdisc> {
    let index = index_of(device)?;
    let request = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(index));
    let answers = ask(request, NLM_F_REQUEST | NLM_F_DUMP)?;
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
    ask(RouteNetlinkMessage::NewQueueDiscipline(message), flags).map(drop)
}

pub(super) fn delete_root(device: &str) -> io::Result<()> {
    let message = at_root(device)?;
    let request = RouteNetlinkMessage::DelQueueDiscipline(message);
    ask(request, NLM_F_REQUEST | NLM_F_ACK).map(drop)
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

/// Sends a request and collects the answers up to the acknowledgement or the end of the dump.
fn ask(request: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut message = NetlinkMessage::from(request);
    message.header.flags = flags;
    message.header.sequence_number = 1;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut answers = Vec::new();
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        let mut rest = datagram.as_slice();
        while !rest.is_empty() {
            let invalid = |error: netlink_packet_core::DecodeError| {
                io::Error::new(io::ErrorKind::InvalidData, error.to_string())
            };
            let answer =
                NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(invalid)?;
            // Messages begin at multiples of four bytes.
            let length = (answer.header.length as usize).next_multiple_of(4);
            rest = rest.get(length.max(4)..).unwrap_or_default();
            match answer.payload {
                NetlinkPayload::InnerMessage(message) => answers.push(message),
                NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(answers),
                _ => {}
            }
        }
    }
}
