//! `[[nic]]`.

use crate::Placed;

table! {
    section "`[[nic]]`";
    pub struct Nic {
        /// the interface; one that is not there is refused, and so is one twice
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
    /// Exactly one of `mac`, `udp` and `tcp`.
    pub struct Steer {
        /// where the packets go
        queue: u32 = "needed",
        /// destination address, `"52:54:00:00:00:09"`
        mac: Option<String> = "none",
        /// destination port, IPv4; 0 is refused
        udp: Option<u16> = "none",
        /// the same
        tcp: Option<u16> = "none",
    }
}
