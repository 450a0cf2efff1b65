//! Network devices as the kernel knows them, by generic netlink: family `netdev`. Their NAPIs since Linux 6.8, whose packets may be
//! told how long to wait since 6.13, and which have a thread since 6.17; and what they do for XDP since 6.3.

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

use super::calls::{Deferral, Napi};
use super::netlink::ask;

/// Commands of include/uapi/linux/netdev.h.
const DEVICE_GET: u8 = 1;
const NAPI_GET: u8 = 11;
const NAPI_SET: u8 = 14;
/// Attributes of a device.
const DEVICE_INTERFACE: u16 = 1;
const XDP_FEATURES: u16 = 3;
/// `enum netdev_xdp_act`: runs programs, and redirects for them.
const RUNS: u64 = 1;
const REDIRECTS: u64 = 2;
/// Attributes of a NAPI.
const INTERFACE: u16 = 1;
const ID: u16 = 2;
const INTERRUPT: u16 = 3;
const THREAD: u16 = 4;
const EMPTY_POLLS: u16 = 5;
const FLUSH_TIMEOUT: u16 = 6;
const SUSPEND_TIMEOUT: u16 = 7;
const THREADED: u16 = 8;

/// A request, or an answer: attributes as they are.
#[derive(Debug)]
struct Attributes {
    command: u8,
    all: Vec<DefaultNla>,
}

impl GenlFamily for Attributes {
    fn family_name() -> &'static str {
        "netdev"
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        1
    }
}

impl Emitable for Attributes {
    fn buffer_len(&self) -> usize {
        self.all.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.all.as_slice().emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Attributes {
    fn parse_with_param(buffer: &[u8], header: GenlHeader) -> Result<Self, DecodeError> {
        let attributes = NlasIterator::new(buffer);
        let attributes = attributes.map(|attribute| DefaultNla::parse(&attribute?));
        Ok(Self {
            command: header.cmd,
            all: attributes.collect::<Result<_, _>>()?,
        })
    }
}

impl Attributes {
    fn bytes<const LENGTH: usize>(&self, kind: u16) -> Option<[u8; LENGTH]> {
        let found = self.all.iter().find(|attribute| attribute.kind() == kind)?;
        let mut bytes = [0; LENGTH];
        if found.value_len() != bytes.len() {
            return None;
        }
        found.emit_value(&mut bytes);
        Some(bytes)
    }

    fn number(&self, kind: u16) -> Option<u32> {
        self.bytes(kind).map(u32::from_ne_bytes)
    }

    /// A number of either width, as `nla_put_uint()` writes it.
    fn wide_number(&self, kind: u16) -> Option<u64> {
        let wide = self.bytes(kind).map(u64::from_ne_bytes);
        wide.or_else(|| self.number(kind).map(u64::from))
    }

    fn deferral(&self) -> Option<Deferral> {
        Some(Deferral {
            empty_polls: self.number(EMPTY_POLLS)?,
            timeout_ns: self.wide_number(FLUSH_TIMEOUT)?,
            suspend_ns: self.wide_number(SUSPEND_TIMEOUT)?,
        })
    }

    fn redirects_by_xdp(&self) -> bool {
        let features = self.bytes(XDP_FEATURES).map_or(0, u64::from_ne_bytes);
        features & RUNS != 0 && features & REDIRECTS != 0
    }

    fn napi(&self) -> Option<Napi> {
        Some(Napi {
            id: self.number(ID)?,
            irq: self.number(INTERRUPT),
            thread: self.number(THREAD),
            deferral: self.deferral(),
            threaded: self.number(THREADED),
        })
    }
}

/// The NAPIs of a device. `ENOENT` before Linux 6.8.
pub(super) fn napis(device: &str) -> io::Result<Vec<Napi>> {
    let request = request(NAPI_GET, INTERFACE, device)?;
    let answers = ask(NETLINK_GENERIC, request, NLM_F_REQUEST | NLM_F_DUMP)?;
    let mut napis: Vec<Napi> = answers
        .iter()
        .filter_map(|answer| answer.payload.napi())
        .collect();
    napis.sort_unstable_by_key(|napi| napi.id);
    Ok(napis)
}

/// Sets how long the packets of a device's NAPI may wait. `ENOENT` without such a NAPI, `EOPNOTSUPP` before Linux 6.13.
pub(super) fn set_deferral(device: &str, napi: u32, deferral: Deferral) -> io::Result<()> {
    must_tell(device, napi, |found| found.deferral.is_some())?;
    set(vec![
        DefaultNla::new(ID, napi.to_ne_bytes().to_vec()),
        DefaultNla::new(EMPTY_POLLS, deferral.empty_polls.to_ne_bytes().to_vec()),
        DefaultNla::new(FLUSH_TIMEOUT, deferral.timeout_ns.to_ne_bytes().to_vec()),
        DefaultNla::new(SUSPEND_TIMEOUT, deferral.suspend_ns.to_ne_bytes().to_vec()),
    ])
}

/// Switches the thread of a device's NAPI. `ENOENT` without such a NAPI, `EOPNOTSUPP` before Linux 6.17.
pub(super) fn set_threaded(device: &str, napi: u32, threaded: u32) -> io::Result<()> {
    must_tell(device, napi, |found| found.threaded.is_some())?;
    set(vec![
        DefaultNla::new(ID, napi.to_ne_bytes().to_vec()),
        DefaultNla::new(THREADED, threaded.to_ne_bytes().to_vec()),
    ])
}

/// A number may be another device's by now: the driver made its NAPIs anew.
fn must_tell(device: &str, napi: u32, tells: impl Fn(&Napi) -> bool) -> io::Result<()> {
    let of_device = napis(device)?;
    let found = of_device.iter().find(|it| it.id == napi);
    let found = found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;
    if tells(found) {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }
}

fn set(all: Vec<DefaultNla>) -> io::Result<()> {
    let command = NAPI_SET;
    let mut request = GenlMessage::from_payload(Attributes { command, all });
    request.set_resolved_family_id(family()?);
    ask(NETLINK_GENERIC, request, NLM_F_REQUEST | NLM_F_ACK).map(drop)
}

/// Whether a device's driver runs XDP programs, and redirects for them. `ENOENT` before Linux 6.3.
pub(super) fn redirects_by_xdp(device: &str) -> io::Result<bool> {
    let request = request(DEVICE_GET, DEVICE_INTERFACE, device)?;
    let answers = ask(NETLINK_GENERIC, request, NLM_F_REQUEST | NLM_F_ACK)?;
    let mut answers = answers.iter();
    Ok(answers.any(|answer| answer.payload.redirects_by_xdp()))
}

fn request(command: u8, interface: u16, device: &str) -> io::Result<GenlMessage<Attributes>> {
    let index = fs::read_to_string(format!("/sys/class/net/{device}/ifindex"))?;
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let index: u32 = index.trim().parse().map_err(invalid)?;
    let all = vec![DefaultNla::new(interface, index.to_ne_bytes().to_vec())];
    let mut request = GenlMessage::from_payload(Attributes { command, all });
    request.set_resolved_family_id(family()?);
    Ok(request)
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
    use super::super::ethtool;
    use super::*;
    use crate::tests::namespace::{in_own_namespace, ip};

    #[test]
    fn a_napi_is_read_from_its_attributes() {
        let number = |kind, value: u32| DefaultNla::new(kind, value.to_ne_bytes().to_vec());
        let attributes = |all| Attributes {
            command: NAPI_GET,
            all,
        };
        let whole = attributes(vec![
            number(ID, 8193),
            number(INTERRUPT, 30),
            number(THREAD, 77),
            number(THREADED, 1),
        ]);
        let expected = Napi {
            id: 8193,
            irq: Some(30),
            thread: Some(77),
            deferral: None,
            threaded: Some(1),
        };
        assert_eq!(whole.napi(), Some(expected));
        // The kernel writes a time in as few bytes as hold it.
        let wide = DefaultNla::new(FLUSH_TIMEOUT, (1_u64 << 33).to_ne_bytes().to_vec());
        for (timeout, timeout_ns) in [(number(FLUSH_TIMEOUT, 20_000), 20_000), (wide, 1 << 33)] {
            let all = [
                number(ID, 8193),
                number(EMPTY_POLLS, 2),
                timeout,
                number(SUSPEND_TIMEOUT, 3),
            ];
            let expected = Deferral {
                empty_polls: 2,
                timeout_ns,
                suspend_ns: 3,
            };
            let told = attributes(all.to_vec());
            assert_eq!(told.napi().unwrap().deferral, Some(expected));
        }
        let cut = attributes(vec![DefaultNla::new(ID, vec![1, 2])]);
        assert_eq!(cut.napi(), None);
        let without_thread = attributes(vec![number(ID, 8194)]);
        assert_eq!(without_thread.napi().unwrap().thread, None);
    }

    #[test]
    fn the_kernel_keeps_a_napis_deferral() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("not tested: only root makes network namespaces");
            return;
        }
        in_own_namespace(|| {
            ip("link add card0 type veth peer name wire0");
            ethtool::set_merging("card0", true).unwrap();
            ip("link set card0 up");
            let found = napis("card0").unwrap();
            let Some(old) = found.iter().find_map(|napi| napi.deferral) else {
                eprintln!("not tested: this kernel's NAPIs have no deferral (Linux 6.13)");
                return;
            };
            assert_eq!(old, Deferral::default());
            let asked = Deferral {
                empty_polls: 2,
                timeout_ns: 20_000,
                suspend_ns: 1 << 33,
            };
            let deferral_of = |id: u32| {
                let napis = napis("card0").unwrap();
                let found = napis.iter().find(|napi| napi.id == id);
                found.and_then(|napi| napi.deferral)
            };
            for wanted in [asked, old] {
                for napi in &found {
                    set_deferral("card0", napi.id, wanted).unwrap();
                    assert_eq!(deferral_of(napi.id), Some(wanted));
                }
            }
            let absent = found.iter().map(|napi| napi.id).max().unwrap() + 1000;
            let refused = set_deferral("card0", absent, asked).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::ENOENT));
        });
    }

    /// The running kernel's answer, where it has one: the loopback device has no NAPI.
    #[test]
    fn a_device_without_napis_has_none() {
        match napis("lo") {
            Ok(napis) => assert_eq!(napis, []),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{error}"),
        }
    }

    #[test]
    fn the_loopback_device_runs_no_program_by_itself() {
        match redirects_by_xdp("lo") {
            Ok(redirects) => assert!(!redirects),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{error}"),
        }
    }
}
