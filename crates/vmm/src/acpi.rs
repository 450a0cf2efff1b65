//! The ACPI tables: what stock kernels find a machine's processors and devices by.
//!
//! Hardware-reduced ACPI (no PIC, PIT, RTC or 8042): local APICs and the I/O APIC in the MADT, the
//! serial port, a pvpanic device (`QEMU0001`) and one virtio-mmio device (`LNRO0005`) a page in the DSDT. The reason for ACPI is
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
/// VGA (bit 2), ASPM (4) and the CMOS clock (5) are not there; legacy devices (0) and the
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
    panic_port(&mut aml);
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

/// A stock kernel's pvpanic-mmio is loaded for it.
fn panic_port(aml: &mut Vec<u8>) {
    let id = Name::new(Path::new("_HID"), &"QEMU0001");
    let ports = IO::new(layout::PANIC_PORT, layout::PANIC_PORT, 1, 1);
    let resources = ResourceTemplate::new(vec![&ports]);
    let resources = Name::new(Path::new("_CRS"), &resources);
    let device = Device::new(Path::new("PEVT"), vec![&id, &resources]);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A table's bytes, by its address.
    fn table(image: &[u8], address: u64) -> &[u8] {
        let at = (address - layout::ACPI_TABLES) as usize;
        let length = u32::from_le_bytes(image[at + 4..at + 8].try_into().unwrap());
        &image[at..at + length as usize]
    }

    fn address(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    fn sum(bytes: &[u8]) -> u8 {
        bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
    }

    /// All tables, found as an operating system finds them.
    fn found(image: &[u8]) -> Vec<&[u8]> {
        assert_eq!(&image[..8], b"RSD PTR ");
        assert_eq!((sum(&image[..20]), sum(&image[..36])), (0, 0));
        let xsdt = table(image, address(image, 24));
        let mut tables: Vec<_> = xsdt[36..]
            .chunks(8)
            .map(|entry| table(image, address(entry, 0)))
            .collect();
        // X_DSDT of the FADT.
        tables.push(table(image, address(tables[0], 140)));
        tables.push(xsdt);
        tables
    }

    #[test]
    fn every_table_is_found_from_the_rsdp_and_sums_to_zero() {
        for (vcpus, devices) in [(1, 0), (2, 3), (4, layout::MAX_DEVICES)] {
            let image = tables(layout::ACPI_TABLES, vcpus, devices);
            assert!(layout::ACPI_TABLES + image.len() as u64 <= layout::RESET_VECTOR);
            let found = found(&image);
            let names: Vec<_> = found.iter().map(|table| &table[..4]).collect();
            assert_eq!(names, [b"FACP", b"APIC", b"DSDT", b"XSDT"]);
            for table in found {
                assert_eq!(sum(table), 0, "{:?}", &table[..4]);
            }
        }
    }

    #[test]
    fn the_madt_has_every_vcpu_and_the_io_apic() {
        let image = tables(layout::ACPI_TABLES, 3, 0);
        let found = found(&image);
        let entries = &found[1][44..];
        let expected: [&[u8]; 3] = [&[0, 8, 0, 0, 1], &[0, 8, 1, 1, 1], &[0, 8, 2, 2, 1]];
        for (entry, expected) in entries.chunks(8).zip(expected) {
            assert_eq!(&entry[..5], expected);
        }
        assert_eq!(entries[24..26], [1, 12]);
        assert_eq!(entries[28..32], layout::IO_APIC.to_le_bytes());
    }

    /// The disassembler of ACPICA reads the DSDT back.
    #[test]
    fn iasl_reads_the_devices_back() {
        let image = tables(layout::ACPI_TABLES, 2, 2);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("dsdt.aml");
        std::fs::write(&file, found(&image)[2]).unwrap();
        let done = Command::new("iasl").arg("-d").arg(&file).output();
        let done = done.expect("iasl: tools/set-up for-tests installs it (acpica-tools)");
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
        let text = std::fs::read_to_string(directory.path().join("dsdt.dsl")).unwrap();
        for part in [
            "Name (_S5, Package (0x02)",
            "Name (_HID, EisaId (\"PNP0501\")",
            "Name (_HID, \"QEMU0001\")",
            "0x0505,             // Range Minimum",
            "Device (V001)",
            "Name (_HID, \"LNRO0005\")",
            "0xD0001000,         // Address Base",
            "0x00000006,",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }
}
