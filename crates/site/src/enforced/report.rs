//! What guests report of their jobs' deadlines.
//!
//! A guest alone knows whether its jobs are in time. `steadyvm-lab load job --report` writes a line such as
//! `{"jobs":120,"misses":0}` at most once a second, both counted since it began. On the host there is a file or a FIFO of the
//! VM's name in one directory; a virtio-serial port carries the lines there. The last whole line counts.
//!
//! The guest is not trusted: of what it writes, so much is read and not more, and a FIFO holds no more than the kernel
//! gives it. With a file, a guest can fill the host's disk.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use steadyvm_sched::show::GuestReport;

/// Where the lines of each VM are.
pub const DIRECTORY: &str = "/run/steadyvm/reports";

/// As much of a file is looked at, and as much of a FIFO is read at once, in bytes.
const TAIL: u64 = 4096;
/// A FIFO's lines are read so often at most in one look: the kernel keeps 64 KiB, 1 MiB by request.
const MOST_READS: usize = 256;

/// The last reports.
#[derive(Debug)]
pub struct Reports {
    directory: PathBuf,
    last: BTreeMap<String, GuestReport>,
}

impl Reports {
    /// Of the VMs in a directory.
    pub fn at(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            last: BTreeMap::new(),
        }
    }

    /// What the guest of this VM said last; none if it never did.
    pub fn of(&mut self, vm: &str) -> Option<GuestReport> {
        // A name is one component of a path, or it names no report.
        let is_name = !vm.is_empty() && !vm.contains('/') && vm != "." && vm != "..";
        if let Some(report) = is_name.then(|| read(&self.directory.join(vm))).flatten() {
            self.last.insert(vm.to_owned(), report);
        }
        self.last.get(vm).copied()
    }
}

fn read(path: &Path) -> Option<GuestReport> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
    let mut options = OpenOptions::new();
    let mut file = options
        .read(true)
        .custom_flags(flags.bits())
        .open(path)
        .ok()?;
    let metadata = file.metadata().ok()?;
    let kind = metadata.file_type();
    if kind.is_fifo() {
        return drain(&mut file);
    }
    if !kind.is_file() {
        return None;
    }
    let from = metadata.len().saturating_sub(TAIL);
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut tail = Vec::new();
    file.take(TAIL).read_to_end(&mut tail).ok()?;
    last(&tail)
}

/// Takes all lines that are there.
fn drain(file: &mut File) -> Option<GuestReport> {
    let mut tail = Vec::new();
    let mut piece = [0; TAIL as usize];
    for _ in 0..MOST_READS {
        match file.read(&mut piece) {
            // Nobody writes, or nothing is there now.
            Ok(0) | Err(_) => break,
            Ok(count) => tail.extend_from_slice(&piece[..count]),
        }
        let surplus = tail.len().saturating_sub(TAIL as usize);
        tail.drain(..surplus);
    }
    last(&tail)
}

/// The last whole line that is a report.
fn last(text: &[u8]) -> Option<GuestReport> {
    let end = text.iter().rposition(|&byte| byte == b'\n')?;
    let mut lines = text[..end].rsplit(|&byte| byte == b'\n');
    lines.find_map(|line| serde_json::from_slice(line).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    const fn report(jobs: u64, misses: u64) -> GuestReport {
        GuestReport { jobs, misses }
    }

    #[test]
    fn the_last_whole_line_of_a_file_counts() {
        let place = tempfile::tempdir().unwrap();
        let mut reports = Reports::at(place.path());
        assert_eq!(reports.of("rt"), None);
        let mut file = File::create(place.path().join("rt")).unwrap();
        for jobs in 0..1000 {
            writeln!(file, "{{\"jobs\":{jobs},\"misses\":1}}").unwrap();
        }
        write!(file, "{{\"jobs\":5").unwrap();
        assert_eq!(reports.of("rt"), Some(report(999, 1)));
        assert_eq!(reports.of("../rt"), None);
        assert_eq!(reports.of(""), None);
    }

    #[test]
    fn a_fifo_is_emptied_and_what_it_said_stays() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("rt");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut reports = Reports::at(place.path());
        assert_eq!(reports.of("rt"), None);
        let mut both = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        both.write_all(b"{\"jobs\":1,\"misses\":0}\n{\"jobs\":2,\"misses\":1}\n")
            .unwrap();
        assert_eq!(reports.of("rt"), Some(report(2, 1)));
        assert_eq!(reports.of("rt"), Some(report(2, 1)));
    }

    proptest! {
        #[test]
        fn nothing_that_a_guest_writes_panics(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = last(&text);
        }
    }
}
