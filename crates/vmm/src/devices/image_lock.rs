//! Who else has a disk's image open: QEMU's locks, which its tools and other monitors know (`block/file-posix.c`).
//!
//! Byte 100 + n is locked for reading by each that has permission n, byte 200 + n by each that lets no other have it. Nobody
//! locks for writing, so a lock is always had; then each looks whether others' locks stand against its own. Of two that
//! come together at least one is refused.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use std::fs::File;

/// `BLK_PERM_CONSISTENT_READ`, `BLK_PERM_WRITE` and `BLK_PERM_RESIZE`, as numbers of their bits.
const READ: i64 = 0;
const WRITE: i64 = 1;
const RESIZE: i64 = 3;
/// `RAW_LOCK_PERM_BASE` and `RAW_LOCK_SHARED_BASE`.
const HAVE: i64 = 100;
const DENY: i64 = 200;

/// Nobody else may write or change the size, whoever reads or writes here.
const DENIED: [i64; 2] = [WRITE, RESIZE];

/// Locks a disk for as long as its file is open: for writing alone, or for reading with others that read. By open file
/// (`F_OFD_SETLK`): what else closes the same file does not unlock it.
pub(super) fn take(file: &File, read_only: bool) -> Result<(), String> {
    let had: &[i64] = if read_only { &[READ] } else { &[READ, WRITE] };
    let bytes = |permissions: &[i64], base: i64| -> Vec<i64> {
        permissions.iter().map(|number| base + number).collect()
    };
    let own = [bytes(had, HAVE), bytes(&DENIED, DENY)].concat();
    let against = [bytes(had, DENY), bytes(&DENIED, HAVE)].concat();
    for byte in own {
        let lock = of_byte(byte, libc::F_RDLCK);
        match fcntl(file, FcntlArg::F_OFD_SETLK(&lock)) {
            Ok(_) => {}
            // By somebody who locks for writing, as QEMU never does.
            Err(Errno::EAGAIN | Errno::EACCES) => return Err(taken()),
            Err(error) => return Err(format!("cannot lock it: {error}")),
        }
    }
    for byte in against {
        let mut lock = of_byte(byte, libc::F_WRLCK);
        fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock))
            .map_err(|error| format!("cannot ask who has locked it: {error}"))?;
        if libc::c_int::from(lock.l_type) != libc::F_UNLCK {
            return Err(taken());
        }
    }
    Ok(())
}

fn taken() -> String {
    "another VM or a tool of QEMU has this disk: end it, or give all of them the disk to read only (read_only = true)".into()
}

fn of_byte(byte: i64, kind: libc::c_int) -> libc::flock {
    // Of zeros: by nobody's process.
    // SAFETY: a flock of zeros is valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = byte;
    lock.l_len = 1;
    lock
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::path::Path;
    use std::process::{Command, Stdio};

    fn open(path: &Path, read_only: bool) -> Result<File, String> {
        let file = OpenOptions::new().read(true).write(!read_only).open(path);
        let file = file.map_err(|error| error.to_string())?;
        take(&file, read_only).map(|()| file)
    }

    fn image() -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        file
    }

    #[test]
    fn a_disk_is_one_writers_or_several_readers() {
        let file = image();
        for (first, second, together) in [
            (true, true, true),
            (true, false, false),
            (false, true, false),
            (false, false, false),
        ] {
            let held = open(file.path(), first).unwrap();
            let other = open(file.path(), second);
            assert_eq!(other.is_ok(), together, "read only: {first}, {second}");
            drop(held);
        }
        open(file.path(), false).unwrap();
    }

    /// It is started, looks for what it needs, and ends before its first instruction.
    fn qemu_starts_with(path: &Path, read_only: bool) -> bool {
        let mode = if read_only { "on" } else { "off" };
        let drive = format!(
            "file={},if=virtio,format=raw,readonly={mode}",
            path.display()
        );
        let words = "-accel tcg -S -display none -nodefaults -monitor stdio -drive";
        let mut qemu = Command::new("qemu-system-x86_64")
            .args(words.split(' '))
            .arg(drive)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // One that has refused the disk reads nothing.
        let _ = qemu.stdin.take().unwrap().write_all(b"quit\n");
        qemu.wait().unwrap().success()
    }

    #[test]
    fn a_vm_of_qemu_and_one_of_ours_ask_about_each_other() {
        let file = image();
        for (ours, theirs, together) in [
            (true, true, true),
            (true, false, false),
            (false, true, false),
            (false, false, false),
        ] {
            let held = open(file.path(), ours).unwrap();
            let starts = qemu_starts_with(file.path(), theirs);
            assert_eq!(starts, together, "read only: {ours}, {theirs}");
            drop(held);
        }
        assert!(qemu_starts_with(file.path(), false));
    }
}
