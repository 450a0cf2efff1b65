//! `perf_event_open(2)`: one ring buffer a CPU, which all tracepoints of that CPU write to.
//!
//! The kernel ends events and buffers with their descriptors, so dropping them, or dying, leaves
//! nothing behind.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::unistd::{SysconfVar, sysconf};

/// `struct perf_event_attr` of `include/uapi/linux/perf_event.h`, the third version (96 bytes),
/// the first with a clock.
#[repr(C)]
#[derive(Debug, Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock: i32,
}

const ATTRIBUTES_BYTES: u32 = size_of::<Attributes>() as u32;
const _: () = assert!(ATTRIBUTES_BYTES == 96);

const PERF_TYPE_TRACEPOINT: u32 = 2;
const PERF_SAMPLE_TIME: u64 = 1 << 2;
const PERF_SAMPLE_RAW: u64 = 1 << 10;
const DISABLED: u64 = 1;
const WATERMARK: u64 = 1 << 14;
const USE_CLOCK: u64 = 1 << 25;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

const IOC_ENABLE: libc::c_ulong = 0x2400;
const IOC_DISABLE: libc::c_ulong = 0x2401;
const IOC_SET_OUTPUT: libc::c_ulong = 0x2405;
const IOC_SET_FILTER: libc::c_ulong = 0x4008_2406;

/// A tracepoint on one CPU.
#[derive(Debug)]
pub struct Tracepoint(OwnedFd);

impl Tracepoint {
    /// Opens it, disabled. The kernel never wakes its reader, who looks in from time to time.
    pub fn open(id: u16, cpu: usize) -> io::Result<Self> {
        let attributes = Attributes {
            kind: PERF_TYPE_TRACEPOINT,
            size: ATTRIBUTES_BYTES,
            config: id.into(),
            sample_period: 1,
            sample_type: PERF_SAMPLE_TIME | PERF_SAMPLE_RAW,
            flags: DISABLED | WATERMARK | USE_CLOCK,
            wakeup_watermark: u32::MAX,
            clock: libc::CLOCK_MONOTONIC,
            ..Attributes::default()
        };
        let every_thread: libc::pid_t = -1;
        let no_group: libc::c_int = -1;
        // SAFETY: the kernel reads ATTRIBUTES_BYTES of `attributes`, a live value of that size
        // whose `size` field says so, and keeps no reference to it. (Only for a size it does not
        // know it would write that field; it knows this one.)
        let result = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                every_thread,
                cpu as libc::c_int,
                no_group,
                PERF_FLAG_FD_CLOEXEC,
            )
        };
        let descriptor = i32::try_from(result).ok().filter(|number| *number >= 0);
        let Some(descriptor) = descriptor else {
            return Err(io::Error::last_os_error());
        };
        // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Lets it write to `other`'s buffer, which must be of the same CPU.
    pub fn write_to_buffer_of(&self, other: &Self) -> io::Result<()> {
        // SAFETY: this request takes a descriptor by value and touches no memory of ours.
        checked(unsafe { libc::ioctl(self.0.as_raw_fd(), IOC_SET_OUTPUT, other.0.as_raw_fd()) })
    }

    /// Keeps only what passes a filter over the tracepoint's fields, such as `name == "eth0"`.
    pub fn set_filter(&self, filter: &CStr) -> io::Result<()> {
        // SAFETY: the kernel reads the string up to its final zero, which a CStr has, and keeps
        // no reference to it.
        checked(unsafe { libc::ioctl(self.0.as_raw_fd(), IOC_SET_FILTER, filter.as_ptr()) })
    }

    /// Begins to record.
    pub fn enable(&self) -> io::Result<()> {
        // SAFETY: this request takes a number and touches no memory of ours.
        checked(unsafe { libc::ioctl(self.0.as_raw_fd(), IOC_ENABLE, 0) })
    }

    /// Ends to record.
    pub fn disable(&self) -> io::Result<()> {
        // SAFETY: this request takes a number and touches no memory of ours.
        checked(unsafe { libc::ioctl(self.0.as_raw_fd(), IOC_DISABLE, 0) })
    }
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Places in `struct perf_event_mmap_page`, which is the mapping's first page.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// The ring buffer of one CPU.
///
/// Invariants: `base` is the start of a shared, writable mapping of `page_bytes + data_bytes`
/// bytes, that lives until this is dropped; `data_bytes` is a power of two. The kernel writes
/// records to the data and then moves `data_head`; it never writes to what lies between
/// `data_tail`, which only we move, and `data_head`.
#[derive(Debug)]
pub struct Buffer {
    base: NonNull<u8>,
    page_bytes: usize,
    data_bytes: usize,
}

impl Buffer {
    /// Maps a buffer of at least `bytes` for a tracepoint.
    pub fn map(tracepoint: &Tracepoint, bytes: usize) -> io::Result<Self> {
        let page_bytes = sysconf(SysconfVar::PAGE_SIZE)?.unwrap_or(4096) as usize;
        let data_bytes = bytes.max(page_bytes).next_power_of_two();
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                page_bytes + data_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                tracepoint.0.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self {
            base,
            page_bytes,
            data_bytes,
        })
    }

    /// Moves the records that are there to the end of `log`.
    pub fn drain(&mut self, log: &mut Vec<u8>) {
        // Acquire: the records before the head are written when the head is seen.
        let head = self.position(DATA_HEAD).load(Ordering::Acquire);
        let tail = self.position(DATA_TAIL).load(Ordering::Relaxed);
        let length = (head.wrapping_sub(tail) as usize).min(self.data_bytes);
        let start = tail as usize & (self.data_bytes - 1);
        let first = length.min(self.data_bytes - start);
        for (from, count) in [(start, first), (0, length - first)] {
            // SAFETY: `from + count` is at most `data_bytes`, so the range is within the mapping's
            // data; by the type's invariants it lives as long as `self`, and the kernel does not
            // write between tail and head.
            let piece = unsafe {
                std::slice::from_raw_parts(self.base.as_ptr().add(self.page_bytes + from), count)
            };
            log.extend_from_slice(piece);
        }
        // Release: the kernel may overwrite the records once it sees the tail.
        self.position(DATA_TAIL).store(head, Ordering::Release);
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the offset lies within the mapping's first page and is a multiple of 8; the
        // mapping is page-aligned and lives as long as `self`; kernel and program access the
        // place by atomic instructions only.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this length, and nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.page_bytes + self.data_bytes) };
    }
}
