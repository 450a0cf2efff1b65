//! A macvtap for a guest, above a card of the host. Its monitor gets it as an open device: see carry.rs.

use crate::Result;
use crate::emulator::Card;
use crate::host::{EmulatedHost, Network};

impl EmulatedHost {
    /// Makes a guest's card a macvtap above a network's card, with the guest's hardware address, by which frames find it. The
    /// network's card leaves its bridge: a card serves one of the two.
    pub(crate) fn make_macvtap(&self, card: &Card, network: Network) -> Result<()> {
        let (name, mac, below) = (&card.tap, &card.mac, network.name);
        self.ip(&format!("link set dev {below} nomaster"))?;
        self.ip(&format!(
            "link add link {below} name {name} address {mac} type macvtap mode bridge"
        ))?;
        self.ip(&format!("link set dev {name} up"))
    }
}
