# The devices of an emulated host, and no other: what crates/lab/src/emulator.rs asks for.
CONFIG_Q35=y
CONFIG_IGB_PCI_EXPRESS=y
# igb.c uses its code.
CONFIG_E1000E_PCI_EXPRESS=y
CONFIG_PCIE_PORT=y
CONFIG_VIRTIO_PCI=y
CONFIG_VIRTIO_BLK=y
CONFIG_VIRTIO_SERIAL=y
CONFIG_HPET=y
# An IOMMU that remaps interrupts, for hosts that pass a function of a card to a guest.
CONFIG_VTD=y
