//! Any file as a kernel, any length of initramfs and any command line: an error or a machine that boots.

use linux_loader::loader::bootparam::boot_params;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};

use super::Source;
use crate::boot::Image;
use crate::configuration::Configuration;
use crate::layout;

/// Behind the end of the header that a bzImage begins with.
const HEADER_END: usize = 0x270;
/// Memory of the guest in MiB: enough for both.
const MEMORY_MIB: u64 = 8;

fn file(bytes: &[u8]) -> File {
    let flags = nix::sys::memfd::MFdFlags::empty();
    let descriptor = nix::sys::memfd::memfd_create(c"steadyvm-fuzz", flags);
    let mut file = File::from(descriptor.expect("a file in memory"));
    file.write_all(bytes).expect("a file in memory");
    file
}

fn path(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// A bzImage's header in front of the bytes: as a kernel's, but for what the bytes change.
fn kernel(source: &mut Source) -> Vec<u8> {
    let mut kernel = vec![0; 0x400];
    let set = |kernel: &mut Vec<u8>, at: usize, bytes: &[u8]| {
        kernel[at..at + bytes.len()].copy_from_slice(bytes);
    };
    set(&mut kernel, 0x1f1, &[1]);
    set(&mut kernel, 0x1fe, &0xaa55_u16.to_le_bytes());
    set(&mut kernel, 0x202, b"HdrS");
    set(&mut kernel, 0x206, &0x20f_u16.to_le_bytes());
    set(&mut kernel, 0x211, &[1]);
    set(&mut kernel, 0x214, &0x10_0000_u32.to_le_bytes());
    set(&mut kernel, 0x236, &1_u16.to_le_bytes());
    set(&mut kernel, 0x258, &0x100_0000_u64.to_le_bytes());
    set(&mut kernel, 0x260, &0x10_0000_u32.to_le_bytes());
    set(&mut kernel, 0x22c, &0x7fff_ffff_u32.to_le_bytes());
    for _ in 0..source.below(12) {
        let at = 0x1f0 + source.below(HEADER_END - 0x1f0);
        let len = 1 + source.below(8);
        let bytes = source.bytes(len.min(HEADER_END - at));
        set(&mut kernel, at, bytes);
    }
    let cut = source.word(2) as usize;
    kernel.truncate(if cut < kernel.len() {
        cut
    } else {
        kernel.len()
    });
    kernel
}

/// Loads what the bytes make up.
///
/// # Panics
/// Where what is loaded does not lie as the boot protocol wants it, or over something else.
pub fn boot(bytes: &[u8]) {
    let mut source = Source(bytes);
    let raw = source.byte();
    let vcpus = 1 + source.byte() % 4;
    let initramfs_mib = source.below(MEMORY_MIB as usize + 1);
    let initramfs_bytes = initramfs_mib << 20 | source.word(2) as usize;
    let line_bytes = source.word(2) as usize % 3000;
    let line: String = (source.bytes(16).iter().cycle().take(line_bytes))
        .map(|byte| char::from(*byte))
        .collect();
    let mut image = if raw == 0 {
        Vec::new()
    } else {
        kernel(&mut source)
    };
    image.extend(source.bytes(usize::MAX));
    let kernel = file(&image);
    let initramfs = file(b"initramfs");
    initramfs
        .set_len(initramfs_bytes as u64)
        .expect("a file in memory");
    let toml = format!(
        "name = \"a\"\nkernel = \"{}\"\nmemory_mib = 64\nvcpus = {vcpus}\n",
        path(&kernel)
    );
    let mut configuration = Configuration::parse(&toml, "vm.toml").expect("a good file");
    configuration.memory_mib = MEMORY_MIB;
    configuration.initramfs = (raw & 1 == 1).then(|| path(&initramfs).into());
    configuration.cmdline = line;
    let memory = layout::allocate(MEMORY_MIB << 20).expect("memory");
    let mut opened = Image::open(&configuration).expect("files that are there");
    let Ok(entry) = opened.load(&memory, &configuration) else {
        return;
    };
    assert_eq!(entry, layout::KERNEL + 0x200);
    let parameters: boot_params = memory
        .read_obj(GuestAddress(layout::BOOT_PARAMETERS))
        .expect("parameters");
    let header = parameters.hdr;
    let (magic, image_at, image_bytes, pref, init, last) = (
        header.header,
        u64::from(header.ramdisk_image),
        u64::from(header.ramdisk_size),
        header.pref_address,
        u64::from(header.init_size),
        header.initrd_addr_max,
    );
    assert_eq!(
        magic,
        u32::from_le_bytes(*b"HdrS"),
        "its kernel has a header"
    );
    if configuration.initramfs.is_some() {
        let end = image_at + image_bytes;
        assert_eq!(image_bytes, initramfs_bytes as u64);
        assert!(
            image_at >= pref.max(layout::KERNEL) + init,
            "over the kernel"
        );
        assert!(end <= MEMORY_MIB << 20 && (last == 0 || end <= u64::from(last) + 1));
        // An empty one may lie behind the last byte of memory.
        let mut first = [0; 9];
        let count = initramfs_bytes.min(first.len());
        let read = memory.read_slice(&mut first[..count], GuestAddress(image_at));
        read.expect("memory");
        assert_eq!(first[..count], b"initramfs"[..count]);
    }
    let entries = parameters.e820_table;
    for entry in entries.iter().take(parameters.e820_entries.into()) {
        let (start, size, kind) = (entry.addr, entry.size, entry.r#type);
        let end = start
            .checked_add(size)
            .expect("a range of the address space");
        let there = size > 0 && memory.check_range(GuestAddress(start), size as usize);
        assert!(
            kind != 1 || there,
            "{start:#x} to {end:#x} is called memory"
        );
    }
    // The loader takes white space off both ends (linux-loader, Cmdline::insert_str).
    let given = configuration.cmdline.trim();
    let mut command_line = vec![0; given.len() + 1];
    memory
        .read_slice(&mut command_line, GuestAddress(layout::COMMAND_LINE))
        .expect("a command line");
    assert_eq!(command_line.strip_suffix(&[0]), Some(given.as_bytes()));
    assert!(command_line.len() <= layout::COMMAND_LINE_SIZE);
}
