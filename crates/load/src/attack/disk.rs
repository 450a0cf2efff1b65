//! Small writes that each have to reach the disk (`fdatasync`): a flush of its cache, or of the journal, per write.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;

use nix::fcntl::OFlag;

use super::AttackError;
use super::pace::{Attacked, Pace, Tried};

const BLOCK: [u8; 4096] = [0x5a; 4096];
/// So many blocks, 1 MiB, are written over and over.
const BLOCKS: u64 = 256;

/// Writes in a file of its own in a directory, and removes the file.
///
/// A disk that does not answer keeps the thread in the kernel past the attack's end.
///
/// # Errors
/// No such directory, no right to write there; no room is counted as refused.
pub fn disk(directory: &Path, pace: &Pace) -> Result<Attacked, AttackError> {
    let path = directory.join(format!(".steadyvm-attack-{}", process::id()));
    let file = File::create_new(&path)?;
    let _removed = Removed(path);
    write(&file, pace)
}

/// Writes over the first MiB of a disk. The kernel refuses one that is mounted or has another such user (`O_EXCL`).
///
/// # Errors
/// No disk, one in use, no right to write there.
pub fn device(path: &Path, pace: &Pace) -> Result<Attacked, AttackError> {
    if !fs::metadata(path)?.file_type().is_block_device() {
        return Err(AttackError::NoDisk);
    }
    let file = OpenOptions::new()
        .write(true)
        .custom_flags(OFlag::O_EXCL.bits())
        .open(path)?;
    write(&file, pace)
}

fn write(file: &File, pace: &Pace) -> Result<Attacked, AttackError> {
    let done = pace.run(|number| {
        let written = file
            .write_all_at(&BLOCK, number % BLOCKS * BLOCK.len() as u64)
            .and_then(|()| file.sync_data());
        match written {
            Ok(()) => Ok(Tried::Sent),
            Err(error) if is_full(&error) => Ok(Tried::Refused),
            Err(error) => Err(error),
        }
    });
    Ok(done?)
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | Interrupted)
}

/// A file that is gone at the end, whatever the end is.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
