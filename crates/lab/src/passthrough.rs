//! A virtual function of a host's card for a guest: SR-IOV and VFIO.

use crate::host::{EmulatedHost, INTERRUPTS_CPU, Network};
use crate::{Error, Result};

impl EmulatedHost {
    /// Makes a virtual function of a network's card, with this hardware address, and hands it to VFIO. Gives its PCI
    /// address, for [`Card::function`](crate::emulator::Card::function). The card leaves its bridge: the function
    /// stands between the wire and the guest in the bridge's place.
    ///
    /// # Errors
    /// The host was booted without an IOMMU, or its kernel refuses.
    pub fn make_function(&self, network: Network, mac: &str) -> Result<String> {
        let card = network.name;
        self.ip(&format!("link set dev {card} nomaster"))?;
        let script = format!(
            "card=$(readlink -f /sys/class/net/{card}/device); \
             echo 1 > $card/sriov_numvfs; \
             ip link set dev {card} vf 0 mac {mac}; \
             function=$(basename $(readlink -f $card/virtfn0)); \
             device=/sys/bus/pci/devices/$function; \
             if [ -e $device/driver ]; then echo $function > $device/driver/unbind; fi; \
             echo vfio-pci > $device/driver_override; \
             echo $function > /sys/bus/pci/drivers_probe; \
             [ $(basename $(readlink $device/driver)) = vfio-pci ]; \
             echo $function"
        );
        let made = self.connection().text(&["sh", "-euc", &script])?;
        // Its driver has asked for its interrupts anew.
        self.interrupts_to_cpu(card, INTERRUPTS_CPU)?;
        Ok(made.trim().to_owned())
    }

    /// Lets the CPU that takes all cards' interrupts take those of a guest's function, once the guest's
    /// driver has asked for them.
    ///
    /// # Errors
    /// It has none.
    pub fn function_to_interrupts_cpu(&self, function: &str) -> Result<()> {
        let script = format!(
            "for irq in $(sed -n 's/^ *\\([0-9]*\\):.*vfio-msix.*({function})$/\\1/p' /proc/interrupts); \
             do echo {INTERRUPTS_CPU} > /proc/irq/$irq/smp_affinity_list; echo $irq; done"
        );
        let moved = self.connection().text(&["sh", "-euc", &script])?;
        if !moved.trim().is_empty() {
            return Ok(());
        }
        let what = format!("find the interrupts of the function {function}");
        Err(Error::machine(what, "/proc/interrupts has none by VFIO"))
    }
}
