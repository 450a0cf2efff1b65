//! KVM's binary statistics of a VCPU (Documentation/virt/kvm/api.rst, `KVM_GET_STATS_FD`).

use kvm_ioctls::VcpuFd;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;

const KVM: u8 = 0xae;
nix::ioctl_none!(get_stats_fd, KVM, 0xce);

/// `struct kvm_stats_header`: six 32-bit words.
const HEADER: usize = 24;
/// `struct kvm_stats_desc` before its name: flags, exponent, size, offset, bucket size.
const DESCRIPTOR: usize = 16;
/// More descriptors or longer names are not the kernel's.
const SANE: usize = 1 << 12;

/// The counters of one VCPU.
pub struct KernelCounters {
    file: File,
    /// Where in the file each single value is.
    places: Vec<(String, u64)>,
}

impl KernelCounters {
    /// Finds out which there are.
    pub fn of(vcpu: &VcpuFd) -> io::Result<Self> {
        // SAFETY: takes no pointers; the result is a new descriptor that nothing else owns.
        let file = unsafe { File::from_raw_fd(get_stats_fd(vcpu.as_raw_fd())?) };
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, 0)?;
        let word = |index: usize| word_at(&header, index * 4) as usize;
        let (name_size, count) = (word(1), word(2));
        let (descriptors, data) = (word(4), word(5));
        if name_size > SANE || count > SANE {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut table = vec![0; count * (DESCRIPTOR + name_size)];
        file.read_exact_at(&mut table, descriptors as u64)?;
        let places = table
            .chunks_exact(DESCRIPTOR + name_size)
            .filter_map(|descriptor| place(descriptor, data as u64))
            .collect();
        Ok(Self { file, places })
    }

    /// Their values now.
    pub fn read(&self) -> io::Result<BTreeMap<String, u64>> {
        let value = |(name, at): &(String, u64)| {
            let mut bytes = [0; 8];
            self.file.read_exact_at(&mut bytes, *at)?;
            Ok((name.clone(), u64::from_ne_bytes(bytes)))
        };
        self.places.iter().map(value).collect()
    }
}

/// Name and place of a descriptor's value; `None` for histograms, which have several.
fn place(descriptor: &[u8], data: u64) -> Option<(String, u64)> {
    let values = word_at(descriptor, 4) >> 16;
    let name = descriptor[DESCRIPTOR..].split(|byte| *byte == 0).next()?;
    let name = String::from_utf8(name.to_vec()).ok()?;
    (values == 1).then(|| (name, data + u64::from(word_at(descriptor, 8))))
}

fn word_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_gives_name_and_place_and_histograms_are_left_out() {
        let descriptor = |values: u16| {
            let mut bytes = vec![0; DESCRIPTOR];
            bytes[6..8].copy_from_slice(&values.to_ne_bytes());
            bytes[8..12].copy_from_slice(&40_u32.to_ne_bytes());
            bytes.extend(b"halt_exits\0\0\0\0");
            bytes
        };
        let expected = Some(("halt_exits".to_owned(), 1040));
        assert_eq!(place(&descriptor(1), 1000), expected);
        assert_eq!(place(&descriptor(32), 1000), None);
    }
}
