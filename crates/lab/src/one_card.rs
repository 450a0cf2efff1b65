//! A host whose loads share one card.

use crate::Result;
use crate::host::{BULK, EmulatedHost, INTERRUPTS_CPU, RT};

impl EmulatedHost {
    /// Lets both networks come in by the card of the RT network: the outside's address of the other network moves there, and
    /// the tap of the other network's guest to its bridge. The second card is left without use.
    ///
    /// # Errors
    /// The host's `ip`, or that of the outside, refuses.
    pub fn share_one_card(&self, tap_of_other: &str) -> Result<()> {
        let (card, other) = (RT.name, BULK.name);
        let address = BULK.outside();
        self.outside()
            .ip(&format!("address del {address}/24 dev {other}"))?;
        self.outside()
            .ip(&format!("address add {address}/24 dev {card}"))?;
        self.ip(&format!("link set dev {other} nomaster"))?;
        self.ip(&format!("link set dev {other} down"))?;
        self.ip(&format!("address flush dev {}", BULK.bridge()))?;
        // Making a function for passthrough took the card from its bridge.
        for port in [card, tap_of_other] {
            self.ip(&format!("link set dev {port} master {}", RT.bridge()))?;
        }
        Ok(())
    }

    /// Lets the CPU that takes all cards' interrupts take those of the RT network's card, and of its functions, once more:
    /// a card that has restarted has asked for them anew.
    ///
    /// # Errors
    /// The host refuses.
    pub fn interrupts_of_shared_card(&self) -> Result<()> {
        let card = RT.name;
        let script = format!(
            "for f in /sys/class/net/{card}/device/virtfn*/net/*; do [ -e $f ] && basename $f; done; echo {card}"
        );
        let devices = self.connection().text(&["sh", "-c", &script])?;
        for device in devices.lines() {
            self.interrupts_to_cpu(device, INTERRUPTS_CPU)?;
        }
        Ok(())
    }
}
