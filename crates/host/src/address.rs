//! Hardware addresses of network devices.

use std::fmt::Write;

/// A hardware address.
pub type Address = [u8; 6];

/// `52:54:00:00:00:01` as bytes; none if it is something else.
pub(crate) fn parse_address(text: &str) -> Option<Address> {
    let mut address = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut address {
        let is_digits =
            |part: &&str| part.len() == 2 && part.bytes().all(|it| it.is_ascii_hexdigit());
        let part = parts.next().filter(is_digits)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(address)
}

/// The bytes as text.
pub(crate) fn format_address(address: Address) -> String {
    let mut text = String::new();
    for byte in address {
        let separator = if text.is_empty() { "" } else { ":" };
        // Writing to a text does not fail.
        let _ = write!(text, "{separator}{byte:02x}");
    }
    text
}

/// Whether it is one device's: neither of a group nor empty.
pub(crate) fn is_unicast(address: Address) -> bool {
    address[0] & 1 == 0 && address != [0; 6]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown() {
        let address = [0x52, 0x54, 0, 0x0a, 0x0b, 0xff];
        assert_eq!(parse_address("52:54:00:0a:0B:ff"), Some(address));
        assert_eq!(format_address(address), "52:54:00:0a:0b:ff");
        for text in [
            "",
            "52:54:00:0a:0b",
            "52:54:00:0a:0b:ff:01",
            "52-54-00-0a-0b-ff",
            "5:54:00:0a:0b:ff",
            "g2:54:00:0a:0b:ff",
            "+2:54:00:0a:0b:ff",
        ] {
            assert_eq!(parse_address(text), None, "{text}");
        }
    }

    #[test]
    fn a_vm_s_address_is_of_one_device() {
        assert!(is_unicast([0x52, 0x54, 0, 0, 0, 1]));
        assert!(!is_unicast([1, 0, 0x5e, 0, 0, 1]));
        assert!(!is_unicast([0; 6]));
    }
}
