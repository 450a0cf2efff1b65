//! Interfaces of a VM with a class of their own, as a file writes them.

use steadyvm_config::{Placed, VmInterface};

use super::class::Class;
use super::classes::{Classes, class};
use super::fields::wrong;
use super::parts::InterfaceProfile;
use crate::address::{is_unicast, parse_address};
use crate::error::HostError;
use crate::printable::printable;

/// The longest name of an interface (`IFNAMSIZ`), without its zero.
const LONGEST_NAME: usize = 15;

/// The interfaces of VM `vm`, or what is wrong with one.
pub(super) fn read(
    vm: &str,
    tables: &[Placed<VmInterface>],
    classes: &Classes,
) -> Result<Vec<InterfaceProfile>, HostError> {
    let mut found: Vec<InterfaceProfile> = Vec::new();
    for table in tables {
        let at = &table.place;
        let refuse = |what: String, fix: &str| Err(wrong(at, &format!("VM \"{vm}\": {what}"), fix));
        let (address, tap) = match (&table.mac, &table.tap) {
            (Some(mac), None) => {
                let address = parse_address(mac).filter(|address| is_unicast(*address));
                let Some(address) = address else {
                    let text = printable(mac);
                    let what = format!("`{text}` is no hardware address of one interface");
                    let fix = "write it as the VM has it, such as \"52:54:00:12:34:56\"";
                    return refuse(what, fix);
                };
                (Some(address), None)
            }
            (None, Some(tap)) if is_name(tap) => (None, Some(tap.clone())),
            (None, Some(tap)) => {
                let what = format!("`{}` is no name of a tap", printable(tap));
                return refuse(what, "write it as `ip link` shows it, such as \"tap100i1\"");
            }
            _ => {
                let what = "an interface is named by exactly one of mac and tap".to_owned();
                return refuse(what, "keep `mac`, unless its tap always has the same name");
            }
        };
        let class = class(&table.class, at, classes)?.unwrap_or_else(|| Class {
            name: table.class.clone(),
            ..Class::default()
        });
        let read = InterfaceProfile {
            address,
            tap,
            class,
            place: at.to_string(),
        };
        let mut others = found.iter();
        if others.any(|other| (other.address, &other.tap) == (read.address, &read.tap)) {
            let what = format!("interface {read} is there twice");
            return refuse(what, "give each interface one class");
        }
        found.push(read);
    }
    Ok(found)
}

/// Whether a network device may be called so (`dev_valid_name()`).
fn is_name(text: &str) -> bool {
    let is_one = |it: char| !it.is_whitespace() && !it.is_control() && it != '/' && it != ':';
    (1..=LONGEST_NAME).contains(&text.len())
        && text != "."
        && text != ".."
        && text.chars().all(is_one)
}
