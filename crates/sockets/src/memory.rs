//! Pieces of guest memory, in the order of a descriptor chain.

use rustix::io::Errno;
use smallvec::SmallVec;
use vm_memory::{Bytes, GuestAddress, GuestMemory, GuestMemoryMmap, Permissions, VolatileSlice};

/// The guest's memory. It has no dirty bitmap: the kernel writes to it directly.
pub type Memory = GuestMemoryMmap<()>;

/// A part of a request or response: bytes of guest memory that need not be contiguous.
#[derive(Clone, Debug, Default)]
pub struct Segments<'m>(SmallVec<[VolatileSlice<'m>; 8]>);

impl<'m> Segments<'m> {
    /// Adds `len` bytes at `address`.
    ///
    /// # Errors
    /// EFAULT where that is not all guest memory.
    pub fn push(
        &mut self,
        memory: &'m Memory,
        address: GuestAddress,
        len: u32,
    ) -> Result<(), Errno> {
        let slices = memory
            .get_slices(address, len as usize, Permissions::ReadWrite)
            .map_err(|_| Errno::FAULT)?;
        for slice in slices {
            self.0.push(slice.map_err(|_| Errno::FAULT)?);
        }
        Ok(())
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.0.iter().map(VolatileSlice::len).sum()
    }

    /// Pieces.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The pieces in order.
    pub fn iter(&self) -> impl Iterator<Item = &VolatileSlice<'m>> {
        self.0.iter()
    }

    /// Takes `len` bytes off the front.
    ///
    /// # Errors
    /// EPROTO where there are fewer.
    pub fn take(&mut self, mut len: usize) -> Result<Self, Errno> {
        let mut taken = SmallVec::new();
        let mut whole = 0;
        while len > 0 {
            let first = self.0.get_mut(whole).ok_or(Errno::PROTO)?;
            if first.len() <= len {
                len -= first.len();
                taken.push(*first);
                whole += 1;
            } else {
                let (front, rest) = first.split_at(len).map_err(|_| Errno::PROTO)?;
                taken.push(front);
                *first = rest;
                len = 0;
            }
        }
        self.0.drain(..whole);
        Ok(Self(taken))
    }

    /// Copies to `bytes`, as many as both have.
    pub fn read(&self, mut bytes: &mut [u8]) {
        for segment in &self.0 {
            let done = segment.copy_to(bytes);
            bytes = &mut bytes[done..];
        }
    }

    /// Copies `bytes` here, as many as both have: how many that is.
    pub fn write(&self, bytes: &[u8]) -> usize {
        let mut done = 0;
        for segment in &self.0 {
            let part = segment.len().min(bytes.len() - done);
            // Bounds were checked: this writes `part` bytes.
            if segment.write_slice(&bytes[done..done + part], 0).is_err() {
                break;
            }
            done += part;
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn taking_and_copying_agree_with_bytes(
            lens in prop::collection::vec(0_u32..40, 0..12),
            cuts in prop::collection::vec(0_usize..60, 0..6),
        ) {
            let memory = Memory::from_ranges(&[(GuestAddress(0), 0x1000)]).unwrap();
            let mut model = Vec::new();
            let mut segments = Segments::default();
            for (index, len) in lens.iter().enumerate() {
                let at = GuestAddress(index as u64 * 0x100);
                let bytes: Vec<u8> = (0..*len).map(|byte| (byte * 7 + index as u32) as u8).collect();
                memory.write_slice(&bytes, at).unwrap();
                segments.push(&memory, at, *len).unwrap();
                model.extend(bytes);
            }
            for cut in cuts {
                prop_assert_eq!(segments.len(), model.len());
                if cut > model.len() {
                    prop_assert!(segments.clone().take(cut).is_err());
                    continue;
                }
                let rest = model.split_off(cut);
                let front = segments.take(cut).unwrap();
                let mut bytes = vec![0; cut];
                front.read(&mut bytes);
                prop_assert_eq!(&bytes, &model);
                bytes.reverse();
                prop_assert_eq!(front.write(&bytes), cut);
                let mut again = vec![0; cut];
                front.read(&mut again);
                prop_assert_eq!(bytes, again);
                model = rest;
            }
        }
    }

    #[test]
    fn what_is_not_guest_memory_is_refused() {
        let memory = Memory::from_ranges(&[(GuestAddress(0), 0x1000)]).unwrap();
        for (address, len) in [
            (0x1000, 1),
            (0xfff, 2),
            (u64::MAX, 1),
            (u64::MAX, u32::MAX),
            (0, 0x1001),
        ] {
            let mut segments = Segments::default();
            assert_eq!(
                segments.push(&memory, GuestAddress(address), len),
                Err(Errno::FAULT)
            );
        }
    }
}
