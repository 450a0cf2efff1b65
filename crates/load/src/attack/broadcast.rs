//! The shortest UDP packets to everybody: each machine of the network, each VM of each bridge, has to look at them.

use std::io;

use super::ends::Ends;
use super::udp_small;

pub(super) fn write(ends: &Ends, number: u64, frame: &mut Vec<u8>) -> io::Result<()> {
    udp_small::write(ends, number, frame)
}
