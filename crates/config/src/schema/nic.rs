//! `[[nic]]`.

use crate::{EtherType, Placed, PriorityCodePoint, VlanNumber};

table! {
    section "`[[nic]]`";
    pub struct Nic {
        /// the interface: a card, a veth or a tunnel; one that is not there is refused, and so is one twice
        name: String = "needed",
        /// a class with settings for the network
        class: String = "needed",
        /// queues with a class of their own
        #[serde(default)]
        queues: Vec<Placed<NicQueue>> = "none",
        /// what the card sends to a queue; a card that cannot: exit code 3
        #[serde(default)]
        steer: Vec<Placed<Steer>> = "none",
    }
}

table! {
    section "`queues`";
    pub struct NicQueue {
        /// one that the card has; one twice is refused
        queue: u32 = "needed",
        /// its class
        class: String = "needed",
    }
}

table! {
    section "`steer`";
    /// Exactly one of `mac`, `udp` and `tcp`; or `ethertype`, `vlan` and `pcp`, one or more of them: then all must be so.
    pub struct Steer {
        /// where the packets go
        queue: u32 = "needed",
        /// destination address, `"52:54:00:00:00:09"`
        mac: Option<String> = "none",
        /// destination port, IPv4; 0 is refused
        udp: Option<u16> = "none",
        /// the same
        tcp: Option<u16> = "none",
        /// EtherType, `"0x88ba"`, from `0x0600` on; of a tagged frame that behind its tags
        ethertype: Option<EtherType> = "any",
        /// VLAN of the outermost tag, 0 to 4094; a frame without a tag has none
        vlan: Option<VlanNumber> = "any",
        /// its priority code point, 0 to 7
        pcp: Option<PriorityCodePoint> = "any",
    }
}
