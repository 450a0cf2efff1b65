//! The NAPIs of network devices as the kernel knows them, by generic netlink: family `netdev`, Linux 6.8.

use std::fs;
use std::io;

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, Nla, NlasIterator,
    Parseable, ParseableParametrized,
};
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use netlink_sys::protocols::NETLINK_GENERIC;

use super::calls::Napi;
use super::netlink::ask;

/// `enum` of include/uapi/linux/netdev.h: commands and attributes of a NAPI.
const NAPI_GET: u8 = 11;
const INTERFACE: u16 = 1;
const ID: u16 = 2;
const INTERRUPT: u16 = 3;
const THREAD: u16 = 4;

/// A request for NAPIs, or one of them: attributes as they are.
#[derive(Debug)]
struct Attributes(Vec<DefaultNla>);

impl GenlFamily for Attributes {
    fn family_name() -> &'static str {
        "netdev"
    }

    fn command(&self) -> u8 {
        NAPI_GET
    }

    fn version(&self) -> u8 {
        1
    }
}

impl Emitable for Attributes {
    fn buffer_len(&self) -> usize {
        self.0.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.0.as_slice().emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Attributes {
    fn parse_with_param(buffer: &[u8], _header: GenlHeader) -> Result<Self, DecodeError> {
        let attributes = NlasIterator::new(buffer);
        let attributes = attributes.map(|attribute| DefaultNla::parse(&attribute?));
        attributes.collect::<Result<_, _>>().map(Self)
    }
}

impl Attributes {
    fn number(&self, kind: u16) -> Option<u32> {
        let found = self.0.iter().find(|attribute| attribute.kind() == kind)?;
        let mut bytes = [0; size_of::<u32>()];
        if found.value_len() != bytes.len() {
            return None;
        }
        found.emit_value(&mut bytes);
        Some(u32::from_ne_bytes(bytes))
    }

    fn napi(&self) -> Option<Napi> {
        Some(Napi {
            id: self.number(ID)?,
            irq: self.number(INTERRUPT),
            thread: self.number(THREAD),
        })
    }
}

/// The NAPIs of a device. `ENOENT` before Linux 6.8.
pub(super) fn of(device: &str) -> io::Result<Vec<Napi>> {
    let index = fs::read_to_string(format!("/sys/class/net/{device}/ifindex"))?;
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let index: u32 = index.trim().parse().map_err(invalid)?;
    let interface = DefaultNla::new(INTERFACE, index.to_ne_bytes().to_vec());
    let mut request = GenlMessage::from_payload(Attributes(vec![interface]));
    request.set_resolved_family_id(family()?);
    let answers = ask(NETLINK_GENERIC, request, NLM_F_REQUEST | NLM_F_DUMP)?;
    let mut napis: Vec<Napi> = answers
        .iter()
        .filter_map(|answer| answer.payload.napi())
        .collect();
    napis.sort_unstable_by_key(|napi| napi.id);
    Ok(napis)
}

/// The number that this boot gave the family.
fn family() -> io::Result<u16> {
    let request = GenlMessage::from_payload(GenlCtrl {
        cmd: GenlCtrlCmd::GetFamily,
        nlas: vec![GenlCtrlAttrs::FamilyName(
            Attributes::family_name().to_owned(),
        )],
    });
    let answers = ask(NETLINK_GENERIC, request, NLM_F_REQUEST | NLM_F_ACK)?;
    let attributes = answers.iter().flat_map(|answer| &answer.payload.nlas);
    let number = attributes
        .into_iter()
        .find_map(|attribute| match attribute {
            GenlCtrlAttrs::FamilyId(number) => Some(*number),
            _ => None,
        });
    number.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_napi_is_read_from_its_attributes() {
        let number = |kind, value: u32| DefaultNla::new(kind, value.to_ne_bytes().to_vec());
        let whole = Attributes(vec![
            number(ID, 8193),
            number(INTERRUPT, 30),
            number(THREAD, 77),
        ]);
        let expected = Napi {
            id: 8193,
            irq: Some(30),
            thread: Some(77),
        };
        assert_eq!(whole.napi(), Some(expected));
        let cut = Attributes(vec![DefaultNla::new(ID, vec![1, 2])]);
        assert_eq!(cut.napi(), None);
        let without_thread = Attributes(vec![number(ID, 8194)]);
        assert_eq!(without_thread.napi().unwrap().thread, None);
    }

    /// The running kernel's answer, where it has one: the loopback device has no NAPI.
    #[test]
    fn a_device_without_napis_has_none() {
        match of("lo") {
            Ok(napis) => assert_eq!(napis, []),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{error}"),
        }
    }
}
