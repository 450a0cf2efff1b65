//! The head of a bzImage, which boot loaders read: whether a file is one, and of which release.
//!
//! The kernel's Documentation/arch/x86/boot.rst has the format. Nothing past the head is looked at.

/// So much of a file is enough: a 16-bit offset leads to the release, and it is short.
pub const HEAD_BYTES: u64 = 0x200 + 0x1_0000 + RELEASE_BYTES as u64;
const MAGIC: &[u8] = b"HdrS";
const MAGIC_AT: usize = 0x202;
/// A 16-bit number: where the version stands, counted from the second sector.
const VERSION_POINTER_AT: usize = 0x20e;
const SECTOR_BYTES: usize = 0x200;
/// The longest release of a kernel (`__NEW_UTS_LEN`).
const RELEASE_BYTES: usize = 64;

/// Why bytes are no kernel that the lab can boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoBzImage {
    /// They do not start as a bzImage does.
    #[error("it has no boot header (\"HdrS\" at 0x202)")]
    NoBootHeader,
    /// There is no version where the header says.
    #[error("its boot header names no release")]
    NoRelease,
}

/// The release of the kernel that starts with these bytes: what `uname -r` says on it.
pub fn release(head: &[u8]) -> Result<&str, NoBzImage> {
    if !from(head, MAGIC_AT).starts_with(MAGIC) {
        return Err(NoBzImage::NoBootHeader);
    }
    version(head)
        .and_then(release_of_version)
        .ok_or(NoBzImage::NoRelease)
}

/// What the header's pointer leads to, "6.12.1 (who@where) #1 SMP ..."; it ends with a zero somewhere.
fn version(head: &[u8]) -> Option<&[u8]> {
    let pointer = from(head, VERSION_POINTER_AT).first_chunk()?;
    match u16::from_le_bytes(*pointer) {
        0 => None,
        offset => head.get(SECTOR_BYTES + usize::from(offset)..),
    }
}

/// Its first word, if a kernel can be called so. A directory is named by it: it has no slash.
fn release_of_version(version: &[u8]) -> Option<&str> {
    let end = version.iter().position(|byte| b" \0".contains(byte))?;
    let release = std::str::from_utf8(&version[..end]).ok()?;
    let possible = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
    let fits = (1..=RELEASE_BYTES).contains(&end) && release.bytes().all(possible);
    fits.then_some(release)
}

fn from(bytes: &[u8], at: usize) -> &[u8] {
    bytes.get(at..).unwrap_or_default()
}

/// The head of a bzImage with this version.
#[cfg(test)]
pub(super) fn head_with(version: &[u8]) -> Vec<u8> {
    let mut head = vec![0; 0x400];
    head[MAGIC_AT..][..MAGIC.len()].copy_from_slice(MAGIC);
    head[VERSION_POINTER_AT..][..2].copy_from_slice(&0x200_u16.to_le_bytes());
    head.extend(version);
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_release_is_the_first_word_of_the_version() {
        let head = head_with(b"6.12.1-mine+ (me@here) #1 SMP PREEMPT_RT\0");
        assert_eq!(release(&head), Ok("6.12.1-mine+"));
        assert_eq!(release(&head_with(b"6.12.1\0")), Ok("6.12.1"));
    }

    #[test]
    fn what_names_no_release_is_refused() {
        let mut unset = head_with(b"6.12.1 \0");
        unset[VERSION_POINTER_AT..][..2].fill(0);
        let long = [b'6'; RELEASE_BYTES + 1];
        for head in [
            unset,
            head_with(b""),
            head_with(b" (me@here)\0"),
            head_with(b"../../etc \0"),
            head_with(b"6.12\n \0"),
            head_with(b"\xff \0"),
            head_with(&[&long[..], b" \0"].concat()),
            head_with(b"6.12.1 without an end")[..0x404].to_vec(),
        ] {
            assert_eq!(release(&head), Err(NoBzImage::NoRelease));
        }
        assert_eq!(release(b"\x7fELF"), Err(NoBzImage::NoBootHeader));
    }

    #[test]
    fn a_head_that_is_cut_anywhere_is_refused() {
        let head = head_with(b"6.12.1 ");
        for length in 0..head.len() {
            assert!(release(&head[..length]).is_err(), "{length} bytes");
        }
        assert_eq!(release(&head), Ok("6.12.1"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..0x500),
            pointer: u16,
        ) {
            let _ = release(&bytes);
            let mut head = head_with(&bytes);
            head[VERSION_POINTER_AT..][..2].copy_from_slice(&pointer.to_le_bytes());
            if let Ok(release) = release(&head) {
                prop_assert!((1..=RELEASE_BYTES).contains(&release.len()));
            }
        }
    }
}
