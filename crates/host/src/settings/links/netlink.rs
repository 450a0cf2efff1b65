//! One request by netlink and its answers.

use std::fmt::Debug;
use std::io;

use netlink_packet_core::{
    DecodeError, NetlinkDeserializable, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_sys::{Socket, SocketAddr};

/// Sends a request and collects the answers up to the acknowledgement or the end of the dump.
pub(super) fn ask<T>(protocol: isize, request: T, flags: u16) -> io::Result<Vec<T>>
where
    T: NetlinkSerializable + NetlinkDeserializable + Debug + Into<NetlinkPayload<T>>,
{
    let mut socket = Socket::new(protocol)?;
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
            let invalid =
                |error: DecodeError| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
            let answer = NetlinkMessage::<T>::deserialize(rest).map_err(invalid)?;
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
