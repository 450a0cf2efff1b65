//! The Ethernet frame of both protocols: addresses, a tag, the `EtherType`, and the header with `APPID` and length.

use etherparse::{EtherType, Ethernet2Header, SingleVlanHeader, VlanId, VlanPcp};
use serde::{Deserialize, Serialize};

use super::ber::Malformed;

/// What is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Measured values, at a fixed rate.
    SampledValues,
    /// Events, repeated until the next.
    Goose,
}

impl Protocol {
    /// Its `EtherType`.
    pub fn ether_type(self) -> u16 {
        match self {
            Self::SampledValues => 0x88ba,
            Self::Goose => 0x88b8,
        }
    }

    /// The multicast address of a stream, of the range that the standard recommends.
    pub fn destination(self, stream: u8) -> [u8; 6] {
        let of_protocol = match self {
            Self::SampledValues => 4,
            Self::Goose => 1,
        };
        [0x01, 0x0c, 0xcd, of_protocol, 0, stream]
    }

    /// The `APPID` of a stream, of the protocol's range.
    pub fn app_id(self, stream: u8) -> u16 {
        match self {
            Self::SampledValues => 0x4000 + u16::from(stream),
            Self::Goose => u16::from(stream),
        }
    }
}

/// A tag of 802.1Q.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tag {
    /// The VLAN, 0 to 4094; 0: none, for the priority alone.
    pub vlan: u16,
    /// The priority code point, 0 to 7.
    pub priority: u8,
}

/// The reserved words behind `APPID` and length.
const RESERVED: [u8; 4] = [0; 4];
/// `APPID`, length, and the reserved words; the length counts them.
const HEADER: usize = 8;

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame<'b> {
    /// Who sent it.
    pub source: [u8; 6],
    /// Who gets it.
    pub destination: [u8; 6],
    /// Its tag, if it has one.
    pub tag: Option<Tag>,
    /// Of which protocol it is.
    pub protocol: Protocol,
    /// Which application it is for.
    pub app_id: u16,
    /// The protocol's data unit (`APDU`).
    pub unit: &'b [u8],
}

impl<'b> Frame<'b> {
    /// It as bytes.
    ///
    /// # Errors
    /// A VLAN, a priority or a length that a frame cannot have.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Malformed> {
        let ether_type = EtherType(self.protocol.ether_type());
        let mut ethernet = Ethernet2Header {
            source: self.source,
            destination: self.destination,
            ether_type,
        };
        let mut bytes = Vec::new();
        if let Some(Tag { vlan, priority }) = self.tag {
            ethernet.ether_type = EtherType::VLAN_TAGGED_FRAME;
            let tag = SingleVlanHeader {
                pcp: VlanPcp::try_new(priority).map_err(|_| Malformed::Value("the priority"))?,
                drop_eligible_indicator: false,
                vlan_id: VlanId::try_new(vlan).map_err(|_| Malformed::Value("the VLAN"))?,
                ether_type,
            };
            bytes.extend(ethernet.to_bytes());
            bytes.extend(tag.to_bytes());
        } else {
            bytes.extend(ethernet.to_bytes());
        }
        let length = u16::try_from(HEADER + self.unit.len());
        let length = length.map_err(|_| Malformed::Value("the length"))?;
        bytes.extend(self.app_id.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes.extend(RESERVED);
        bytes.extend(self.unit);
        Ok(bytes)
    }

    /// Reads a frame, with a tag or without. What stands behind its length is padding.
    ///
    /// # Errors
    /// Bytes that are no frame of these protocols.
    pub fn parse(bytes: &'b [u8]) -> Result<Self, Malformed> {
        let cut = |what| move |_| Malformed::Cut(what);
        let (ethernet, mut rest) =
            Ethernet2Header::from_slice(bytes).map_err(cut("the addresses"))?;
        let mut ether_type = ethernet.ether_type;
        let mut tag = None;
        if ether_type == EtherType::VLAN_TAGGED_FRAME {
            let (header, behind) = SingleVlanHeader::from_slice(rest).map_err(cut("the tag"))?;
            tag = Some(Tag {
                vlan: header.vlan_id.value(),
                priority: header.pcp.value(),
            });
            ether_type = header.ether_type;
            rest = behind;
        }
        let protocol = [Protocol::SampledValues, Protocol::Goose]
            .into_iter()
            .find(|protocol| protocol.ether_type() == ether_type.0)
            .ok_or(Malformed::Missing("the EtherType"))?;
        let [app_high, app_low, high, low, _, _, _, _, unit @ ..] = rest else {
            return Err(Malformed::Cut("the header"));
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let length = length
            .checked_sub(HEADER)
            .ok_or(Malformed::Value("the length"))?;
        Ok(Self {
            source: ethernet.source,
            destination: ethernet.destination,
            tag,
            protocol,
            app_id: u16::from_be_bytes([*app_high, *app_low]),
            unit: unit.get(..length).ok_or(Malformed::Cut("the data unit"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_no_frame_can_have_is_refused() {
        let frame = Frame {
            source: [2, 0, 0, 0, 0, 1],
            destination: Protocol::Goose.destination(1),
            tag: None,
            protocol: Protocol::Goose,
            app_id: 1,
            unit: &[],
        };
        for tag in [
            Tag {
                vlan: 4096,
                priority: 4,
            },
            Tag {
                vlan: 5,
                priority: 8,
            },
        ] {
            let tagged = Frame {
                tag: Some(tag),
                ..frame.clone()
            };
            assert!(tagged.to_bytes().is_err(), "{tag:?}");
        }
        let unit = vec![0; 1 << 16];
        let long = Frame {
            unit: &unit,
            ..frame.clone()
        };
        assert_eq!(long.to_bytes(), Err(Malformed::Value("the length")));
        let mut bytes = frame.to_bytes().unwrap();
        bytes[12] = 0x08;
        assert_eq!(
            Frame::parse(&bytes),
            Err(Malformed::Missing("the EtherType"))
        );
    }

    proptest! {
        #[test]
        fn a_frame_is_read_as_it_is_written(
            tag in prop::option::of((0_u16..4095, 0_u8..8)),
            is_goose in any::<bool>(),
            app_id in any::<u16>(),
            unit in prop::collection::vec(any::<u8>(), 0..300),
            padding in 0_usize..60,
        ) {
            let protocol = if is_goose { Protocol::Goose } else { Protocol::SampledValues };
            let frame = Frame {
                source: [2, 0, 0, 0, 0, 1],
                destination: protocol.destination(3),
                tag: tag.map(|(vlan, priority)| Tag { vlan, priority }),
                protocol,
                app_id,
                unit: &unit,
            };
            let mut bytes = frame.to_bytes().unwrap();
            bytes.extend(vec![0; padding]);
            prop_assert_eq!(Frame::parse(&bytes), Ok(frame));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Frame::parse(&bytes);
        }
    }
}
