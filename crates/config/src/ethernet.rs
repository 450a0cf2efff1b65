//! What tells Ethernet frames apart without IP: the EtherType, the VLAN and the priority code point of their tag.

use serde::{Deserialize, Deserializer, Serialize, de};

/// Smaller numbers are lengths of frames (IEEE 802.3, 3.2.6).
const LOWEST_ETHERTYPE: u16 = 0x0600;

/// Of tags (IEEE 802.1Q): what stands behind a tag is the frame's EtherType.
const TAGS: [u16; 2] = [0x8100, 0x88a8];

/// The highest number of a VLAN: 4095 is reserved (IEEE 802.1Q, table 9-2).
const HIGHEST_VLAN: u16 = 4094;

/// A priority has three bits.
const HIGHEST_PCP: u8 = 7;

/// An EtherType: `0x88ba`, or `"0x88ba"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct EtherType(pub u16);

/// The number of a VLAN; 0 is that of frames that have a priority alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct VlanNumber(pub u16);

/// A priority code point of a VLAN's tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PriorityCodePoint(pub u8);

impl EtherType {
    fn of<E: de::Error>(number: u64) -> Result<Self, E> {
        let Ok(ethertype) = u16::try_from(number) else {
            return Err(E::custom(format!(
                "EtherType 0x{number:x} has more than 16 bits; the highest is 0xffff"
            )));
        };
        if ethertype < LOWEST_ETHERTYPE {
            return Err(E::custom(format!(
                "EtherType 0x{ethertype:04x} is a frame's length; EtherTypes begin at 0x0600"
            )));
        }
        if TAGS.contains(&ethertype) {
            return Err(E::custom(format!(
                "EtherType 0x{ethertype:04x} is a VLAN tag's; write vlan and pcp, and the EtherType behind the tag"
            )));
        }
        Ok(Self(ethertype))
    }
}

impl std::fmt::Display for EtherType {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "0x{:04x}", self.0)
    }
}

impl<'de> Deserialize<'de> for EtherType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = EtherType;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an EtherType such as \"0x88ba\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<EtherType, E> {
                let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
                let is_number = |digits: &&str| digits.bytes().all(|it| it.is_ascii_hexdigit());
                let digits = digits.filter(is_number);
                let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
                let number =
                    number.ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))?;
                EtherType::of(number)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<EtherType, E> {
                let unsigned = u64::try_from(number);
                let refused = |_| E::invalid_value(de::Unexpected::Signed(number), &self);
                EtherType::of(unsigned.map_err(refused)?)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<EtherType, E> {
                EtherType::of(number)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl<'de> Deserialize<'de> for VlanNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(deserializer)?;
        let vlan = u16::try_from(number).ok().filter(|it| *it <= HIGHEST_VLAN);
        let refused = || format!("VLAN {number} is not one of 0 to {HIGHEST_VLAN}");
        vlan.map(Self).ok_or_else(|| de::Error::custom(refused()))
    }
}

impl<'de> Deserialize<'de> for PriorityCodePoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(deserializer)?;
        let pcp = u8::try_from(number).ok().filter(|it| *it <= HIGHEST_PCP);
        let refused =
            || format!("priority code point (pcp) {number} is not one of 0 to {HIGHEST_PCP}");
        pcp.map(Self).ok_or_else(|| de::Error::custom(refused()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::File;

    fn read(rule: &str) -> Result<crate::Steer, String> {
        let text =
            format!("[[nic]]\nname = \"a\"\nclass = \"rt\"\nsteer = [{{ queue = 1, {rule} }}]\n");
        let file = File::parse("steadyvm.toml", &text).map_err(|error| error.to_string())?;
        Ok(file.nic[0].value.steer[0].value.clone())
    }

    #[test]
    fn an_ethertype_is_read_as_text_and_as_number() {
        for text in ["\"0x88ba\"", "\"0X88BA\"", "0x88ba", "35002"] {
            let steer = read(&format!("ethertype = {text}")).unwrap();
            assert_eq!(steer.ethertype, Some(EtherType(0x88ba)), "{text}");
        }
        let steer = read("vlan = 4094, pcp = 7").unwrap();
        let expected = (Some(VlanNumber(4094)), Some(PriorityCodePoint(7)));
        assert_eq!((steer.vlan, steer.pcp), expected);
    }

    #[test]
    fn what_no_frame_has_is_told_with_its_place() {
        for (rule, expected) in [
            ("ethertype = 0x05ff", "EtherType 0x05ff is a frame's length"),
            ("ethertype = \"0x0\"", "EtherTypes begin at 0x0600"),
            ("ethertype = 0x10000", "more than 16 bits"),
            ("ethertype = -1", "such as \"0x88ba\""),
            ("ethertype = \"88ba\"", "such as \"0x88ba\""),
            ("ethertype = \"0x+88ba\"", "such as \"0x88ba\""),
            ("ethertype = \"0x8100\"", "is a VLAN tag's"),
            ("vlan = 4095", "VLAN 4095 is not one of 0 to 4094"),
            ("vlan = -1", "VLAN -1 is not one of"),
            ("pcp = 8", "(pcp) 8 is not one of 0 to 7"),
            ("pcp = 256", "(pcp) 256 is not one of 0 to 7"),
        ] {
            let error = read(rule).unwrap_err();
            assert!(error.contains(expected), "{rule}: {error}");
            assert!(error.contains("line 4"), "{rule}: {error}");
        }
    }

    proptest! {
        #[test]
        fn every_ethertype_is_read_back(number in any::<u16>()) {
            let read = read(&format!("ethertype = \"{}\"", EtherType(number)));
            prop_assert_eq!(read.is_ok(), number >= 0x0600 && !TAGS.contains(&number));
            if let Ok(steer) = read {
                prop_assert_eq!(steer.ethertype, Some(EtherType(number)));
            }
        }
    }
}
