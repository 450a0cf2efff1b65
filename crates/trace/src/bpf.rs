//! What all BPF programs of this crate need.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;

use libbpf_rs::set_print;
use steadyvm_fault::{Fault, Result};

/// `FILTER_BITS / 64` of `bpf/filter.h`.
const FILTER_WORDS: usize = 1024;

/// libbpf has one place for what it prints.
static PRINTING: Mutex<()> = Mutex::new(());

/// Refuses a kernel without BTF, which finds the programs' tracepoints.
pub fn require_btf() -> Result<()> {
    if Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Ok(());
    }
    Err(Fault::lack(
        "cannot trace by BPF",
        "the kernel lacks BTF (CONFIG_DEBUG_INFO_BTF)",
    ))
}

/// libbpf prints why it fails, but there is another way.
pub fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let _alone = PRINTING.lock();
    let before = set_print(None);
    let done = work();
    set_print(before);
    done
}

/// `struct filter`.
pub fn thread_filter(tids: &BTreeSet<u32>) -> Vec<u8> {
    let mut words = [0_u64; FILTER_WORDS];
    for tid in tids {
        words[*tid as usize / 64 % FILTER_WORDS] |= 1 << (tid % 64);
    }
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_one_bit_of_the_filter() {
        let bytes = thread_filter(&[0, 65, 4_194_303].into());
        let ones: u32 = bytes.iter().map(|byte| byte.count_ones()).sum();
        assert_eq!((bytes.len(), ones), (FILTER_WORDS * 8, 3));
        assert_eq!(
            (bytes[0], bytes[8], bytes[FILTER_WORDS * 8 - 1]),
            (1, 2, 128)
        );
    }
}
