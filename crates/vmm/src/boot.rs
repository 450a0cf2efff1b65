//! The kernel, its command line and initramfs in guest memory, by Linux's 64-bit boot protocol.

use linux_loader::configurator::linux::LinuxBootConfigurator;
use linux_loader::configurator::{BootConfigurator, BootParams};
use linux_loader::loader::bootparam::{boot_e820_entry, boot_params};
use linux_loader::loader::{BzImage, Cmdline, KernelLoader, load_cmdline};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::Path;
use steadyvm_sockets::Memory;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryRegion};

use crate::acpi;
use crate::configuration::Configuration;
use crate::cpu;
use crate::layout;
use steadyvm_fault::{At, Fault as Error, Result};

/// The 64-bit entry point lies so far behind the kernel's beginning.
const ENTRY: u64 = 0x200;
/// `XLF_KERNEL_64`: the kernel has that entry point.
const HAS_64_BIT_ENTRY: u16 = 1;
/// A boot loader without a number of its own.
const UNKNOWN_LOADER: u8 = 0xff;
/// Types of the memory map.
const MEMORY: u32 = 1;
const RESERVED: u32 = 2;

const POWER_PORT: [u8; 2] = layout::POWER_PORT.to_le_bytes();
/// All of the BIOS that there is: asks for a reset. A Linux that finds hardware-reduced ACPI restarts,
/// also after a panic, by EFI, and where there is none by a jump to the BIOS: it never tries the
/// reset register that ACPI names (`efi_reboot_required()`).
#[rustfmt::skip]
const FIRMWARE: [u8; 9] = [
    0xba, POWER_PORT[0], POWER_PORT[1], // mov dx, POWER_PORT
    0xb0, acpi::RESET,                  // mov al, RESET
    0xee,                               // out dx, al
    0xf4,                               // hlt
    0xeb, 0xfd,                         // jmp to the hlt
];

/// The files that a VM boots.
pub struct Image {
    kernel: File,
    initramfs: Option<File>,
}

impl Image {
    /// Opens them.
    pub fn open(configuration: &Configuration) -> Result<Self> {
        let open = |path: &Path, key: &str| {
            open_file(path)
                .map_err(|error| Error::input(format!("{key} = \"{}\"", path.display()), error))
        };
        let initramfs = configuration.initramfs.as_deref();
        Ok(Self {
            kernel: open(&configuration.kernel, "kernel")?,
            initramfs: initramfs.map(|path| open(path, "initramfs")).transpose()?,
        })
    }

    /// Whether the VM can boot them: puts them into memory that is thrown away.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn check(&mut self, configuration: &Configuration) -> Result<()> {
        let memory = layout::allocate(configuration.memory_mib << 20)?;
        self.load(&memory, configuration).map(drop)
    }

    /// Puts everything that the boot VCPU needs into memory: where it starts.
    pub fn load(&mut self, memory: &Memory, configuration: &Configuration) -> Result<u64> {
        let place = || format!("kernel = \"{}\"", configuration.kernel.display());
        let loaded = BzImage::load(
            memory,
            Some(GuestAddress(layout::KERNEL)),
            &mut self.kernel,
            Some(GuestAddress(layout::KERNEL)),
        )
        .map_err(|error| Error::input(place(), format!("{error}; it must be a bzImage")))?;
        let header = loaded
            .setup_header
            .filter(|header| header.xloadflags & HAS_64_BIT_ENTRY != 0)
            .ok_or_else(|| Error::input(place(), "it has no 64-bit entry point"))?;
        let mut parameters = boot_params {
            hdr: header,
            acpi_rsdp_addr: layout::ACPI_TABLES,
            ..Default::default()
        };
        // The decompressor works in place, in so much memory.
        let unpacked = header.pref_address.max(layout::KERNEL);
        let unpacked = unpacked
            .checked_add(header.init_size.into())
            .ok_or_else(|| {
                Error::input(place(), "its header asks for an address that there is not")
            })?;
        let kernel_end = loaded.kernel_end.max(unpacked);
        parameters.hdr.type_of_loader = UNKNOWN_LOADER;
        parameters.hdr.cmd_line_ptr = layout::COMMAND_LINE as u32;
        self.load_initramfs(memory, configuration, kernel_end, &mut parameters)?;
        write_command_line(memory, &configuration.cmdline)?;
        write_acpi_tables(memory, configuration)?;
        memory
            .write_slice(&FIRMWARE, GuestAddress(layout::RESET_VECTOR))
            .cannot("write the guest's firmware")?;
        write_memory_map(memory, &mut parameters);
        let parameters = BootParams::new(&parameters, GuestAddress(layout::BOOT_PARAMETERS));
        LinuxBootConfigurator::write_bootparams(&parameters, memory)
            .cannot("write the kernel's boot parameters")?;
        cpu::write_tables(memory)?;
        Ok(layout::KERNEL + ENTRY)
    }

    fn load_initramfs(
        &mut self,
        memory: &Memory,
        configuration: &Configuration,
        kernel_end: u64,
        parameters: &mut boot_params,
    ) -> Result<()> {
        let Some(file) = &mut self.initramfs else {
            return Ok(());
        };
        let size = file.seek(SeekFrom::End(0)).cannot("read the initramfs")?;
        file.rewind().cannot("read the initramfs")?;
        let address =
            layout::initramfs_address(memory, size, kernel_end, parameters.hdr.initrd_addr_max)
                .ok_or_else(|| {
                    let why = format!(
                        "{} is too little for the kernel and an initramfs of {} MiB",
                        configuration.memory_mib,
                        size >> 20
                    );
                    Error::input("memory_mib", why)
                })?;
        memory
            .read_exact_volatile_from(GuestAddress(address), file, size as usize)
            .cannot("read the initramfs")?;
        parameters.hdr.ramdisk_image = address as u32;
        parameters.hdr.ramdisk_size = size as u32;
        Ok(())
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    Ok(file)
}

fn write_command_line(memory: &Memory, text: &str) -> Result<()> {
    let mut line = Cmdline::new(layout::COMMAND_LINE_SIZE).cannot("write the command line")?;
    line.insert_str(text)
        .map_err(|error| Error::input("cmdline", error))?;
    load_cmdline(memory, GuestAddress(layout::COMMAND_LINE), &line)
        .cannot("write the kernel's command line")
}

fn write_acpi_tables(memory: &Memory, configuration: &Configuration) -> Result<()> {
    let tables = acpi::tables(
        layout::ACPI_TABLES,
        configuration.vcpus,
        configuration.virtio_devices(),
    );
    memory
        .write_slice(&tables, GuestAddress(layout::ACPI_TABLES))
        .cannot("write the ACPI tables")
}

fn write_memory_map(memory: &Memory, parameters: &mut boot_params) {
    let high = memory.iter().map(|region| {
        let start = region.start_addr().0.max(layout::KERNEL);
        let end = region.start_addr().0 + region.len();
        (start, end, MEMORY)
    });
    let low = [
        (0, layout::LOW_MEMORY_END, MEMORY),
        (layout::ACPI_TABLES, layout::FIRMWARE_END, RESERVED),
    ];
    for (entry, (start, end, kind)) in parameters
        .e820_table
        .iter_mut()
        .zip(low.into_iter().chain(high))
    {
        *entry = boot_e820_entry {
            addr: start,
            size: end - start,
            r#type: kind,
        };
        parameters.e820_entries += 1;
    }
}
