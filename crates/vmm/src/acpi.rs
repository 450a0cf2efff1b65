//! The ACPI tables: what stock kernels find a machine's processors and devices by.
//!
//! Hardware-reduced ACPI (no PIC, PIT, RTC or 8042): local APICs and the I/O APIC in the MADT, the
//! serial port and one virtio-mmio device (`LNRO0005`) a page in the DSDT. The reason for ACPI is
//! that Debian's kernels have `VIRTIO_MMIO=m` and no `VIRTIO_MMIO_CMDLINE_DEVICES`.

use acpi_tables::Aml;
use acpi_tables::aml::{
    Device, EISAName, IO, Interrupt, Memory32Fixed, Name, Package, Path, ResourceTemplate, Scope,
};
use acpi_tables::fadt::{FADTBuilder, Flags};
use acpi_tables::gas::{AccessSize, AddressSpace, GAS};
use acpi_tables::madt::{
    EnabledStatus, IoApic, LocalInterruptController, MADT, ProcessorLocalApic,
};
use acpi_tables::rsdp::Rsdp;
use acpi_tables::sdt::Sdt;
use acpi_tables::xsdt::XSDT;
use std::ops::Range;

use crate::layout;

const OEM: [u8; 6] = *b"STDYVM";
const TABLE: [u8; 8] = *b"STEADYVM";
const REVISION: u32 = 1;
/// VGA (bit 2), PCIe's ASPM (4) and the CMOS clock (5) are not there; legacy devices (0) and the
/// 8042 (1) would have to be announced.
const NO_LEGACY_DEVICES: u16 = 1 << 2 | 1 << 4 | 1 << 5;
/// `SLP_TYP` of S5, and `SLP_EN` with it in the sleep control register (ACPI 6.5, 4.8.3.7).
const S5: u8 = 5;
/// What the guest writes to [`layout::POWER_PORT`] to power off.
pub const POWER_OFF: u8 = S5 << 2 | 1 << 5;
/// What it writes to reset.
pub const RESET: u8 = 1;

/// All tables as they lie in memory from `address` on, the RSDP at its beginning.
pub fn tables(address: u64, vcpus: u8, virtio_devices: usize) -> Vec<u8> {
    let mut image = Image::new(address, Rsdp::len());
    let dsdt = image.add(&dsdt(virtio_devices));
    let fadt = image.add(&fadt(dsdt.start));
    let madt = image.add(&madt(vcpus));
    let mut xsdt = XSDT::new(OEM, TABLE, REVISION);
    xsdt.add_entry(fadt.start);
    xsdt.add_entry(madt.start);
    let xsdt = image.add(&xsdt);
    let mut rsdp = Vec::new();
    Rsdp::new(OEM, xsdt.start).to_aml_bytes(&mut rsdp);
    image.bytes[..rsdp.len()].copy_from_slice(&rsdp);
    image.bytes
}

struct Image {
    address: u64,
    bytes: Vec<u8>,
}

impl Image {
    fn new(address: u64, head: usize) -> Self {
        Self {
            address,
            bytes: vec![0; head],
        }
    }

    /// Adds a table, 16-aligned: its addresses.
    fn add(&mut self, table: &dyn Aml) -> Range<u64> {
        self.bytes.resize(self.bytes.len().next_multiple_of(16), 0);
        let start = self.address + self.bytes.len() as u64;
        table.to_aml_bytes(&mut self.bytes);
        start..self.address + self.bytes.len() as u64
    }
}

fn dsdt(virtio_devices: usize) -> Sdt {
    let mut aml = Vec::new();
    let sleep = Package::new(vec![&S5, &S5]);
    Name::new(Path::new("_S5_"), &sleep).to_aml_bytes(&mut aml);
    serial_port(&mut aml);
    for index in 0..virtio_devices {
        virtio_device(index, &mut aml);
    }
    let header = 36;
    let mut dsdt = Sdt::new(*b"DSDT", header, 6, OEM, TABLE, REVISION);
    dsdt.append_slice(&aml);
    dsdt
}

fn serial_port(aml: &mut Vec<u8>) {
    let id = Name::new(Path::new("_HID"), &EISAName::new("PNP0501"));
    let unique = Name::new(Path::new("_UID"), &0_u8);
    let ports = IO::new(layout::SERIAL_PORT, layout::SERIAL_PORT, 1, 8);
    let line = Interrupt::new(true, true, false, false, layout::SERIAL_LINE);
    let resources = ResourceTemplate::new(vec![&ports, &line]);
    let resources = Name::new(Path::new("_CRS"), &resources);
    let device = Device::new(Path::new("COM1"), vec![&id, &unique, &resources]);
    Scope::new(Path::new("_SB_"), vec![&device]).to_aml_bytes(aml);
}

fn virtio_device(index: usize, aml: &mut Vec<u8>) {
    let id = Name::new(Path::new("_HID"), &"LNRO0005");
    let unique = Name::new(Path::new("_UID"), &(index as u8));
    // Otherwise the guest would keep its caches coherent by hand.
    let coherent = Name::new(Path::new("_CCA"), &1_u8);
    let registers = Memory32Fixed::new(
        true,
        layout::device_address(index) as u32,
        layout::DEVICE_SIZE as u32,
    );
    let line = Interrupt::new(true, true, false, false, layout::device_line(index));
    let resources = ResourceTemplate::new(vec![&registers, &line]);
    let resources = Name::new(Path::new("_CRS"), &resources);
    let name = format!("V{index:03}");
    let device = Device::new(Path::new(&name), vec![&id, &unique, &coherent, &resources]);
    Scope::new(Path::new("_SB_"), vec![&device]).to_aml_bytes(aml);
}

fn fadt(dsdt: u64) -> acpi_tables::fadt::FADT {
    let power = || {
        GAS::new(
            AddressSpace::SystemIo,
            8,
            0,
            AccessSize::ByteAccess,
            layout::POWER_PORT.into(),
        )
    };
    let mut fadt = FADTBuilder::new(OEM, TABLE, REVISION)
        .dsdt_64(dsdt)
        .flag(Flags::HwReducedAcpi)
        .flag(Flags::ResetRegSup)
        .flag(Flags::Wbinvd)
        .flag(Flags::Headless)
        .flag(Flags::PwrButton)
        .flag(Flags::SlpButton);
    fadt.iapc_boot_arch = NO_LEGACY_DEVICES.into();
    fadt.reset_reg = power();
    fadt.reset_value = RESET;
    fadt.sleep_control_reg = power();
    fadt.sleep_status_reg = power();
    fadt.finalize()
}

fn madt(vcpus: u8) -> MADT {
    let mut madt = MADT::new(
        OEM,
        TABLE,
        REVISION,
        LocalInterruptController::Address(layout::LOCAL_APIC),
    );
    for vcpu in 0..vcpus {
        madt.add_structure(ProcessorLocalApic::new(vcpu, vcpu, EnabledStatus::Enabled));
    }
    madt.add_structure(IoApic::new(0, layout::IO_APIC, 0));
    madt
}
