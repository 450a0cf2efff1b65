//! The files of a host, `/proc`, `/sys` and `/dev`, behind a trait, so that a fake host can
//! stand in for the real one.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::cpu_set::CpuSet;
use crate::settings::threads::{KernelThreads, Scheduling, Threads, calling_thread};

/// No file this crate reads is larger; `/proc/interrupts` of a machine with 512 CPUs and 4096
/// interrupts is about 25 MB.
const LARGEST_FILE: u64 = 64 << 20;

/// Access to a host's files. Paths are absolute (`/proc/...`), whatever directory the
/// implementation keeps them in.
pub trait HostTree: Send + Sync {
    /// The whole content of a file.
    fn read_bytes(&self, path: &str) -> io::Result<Vec<u8>>;

    /// Writes `value` to an existing file in one write, as sysfs and procfs want it.
    fn write(&self, path: &str, value: &str) -> io::Result<()>;

    /// The same from a normal thread that runs on `cpu`.
    fn write_from(&self, cpu: usize, path: &str, value: &str) -> io::Result<()>;

    /// The names in a directory, sorted.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;

    /// The path with all symbolic links resolved.
    fn real_path(&self, path: &str) -> io::Result<String>;

    /// What a symbolic link says, which need not be a path (`socket:[4711]`).
    fn link(&self, path: &str) -> io::Result<String>;

    /// The numbers of a character device, as sysfs writes them (`10:238`), with links followed; none of other files.
    fn character_device(&self, path: &str) -> io::Result<Option<String>>;

    /// Whether a file can be opened for reading and writing (device nodes).
    fn can_open(&self, path: &str) -> io::Result<()>;

    /// Waits. A fake host returns at once.
    fn wait(&self, time: Duration) {
        thread::sleep(time);
    }

    /// The content of a file as text; bytes that are not UTF-8 are replaced.
    fn read(&self, path: &str) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&self.read_bytes(path)?).into_owned())
    }

    /// Whether a file or directory exists.
    fn exists(&self, path: &str) -> bool {
        self.real_path(path).is_ok()
    }
}

/// The files below a directory: `/` for the host itself, a directory of a test otherwise.
#[derive(Debug, Clone)]
pub struct RootedTree {
    root: PathBuf,
}

impl RootedTree {
    /// The files below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn place(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

impl HostTree for RootedTree {
    fn read_bytes(&self, path: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        fs::File::open(self.place(path))?
            .take(LARGEST_FILE)
            .read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(self.place(path))?;
        file.write_all(value.as_bytes())
    }

    fn write_from(&self, cpu: usize, path: &str, value: &str) -> io::Result<()> {
        let from_there = || {
            let own = calling_thread();
            KernelThreads.set_scheduling(own, &Scheduling::normal())?;
            KernelThreads.set_affinity(own, &CpuSet::single(cpu))?;
            self.write(path, value)
        };
        // A thread of its own, so that the caller's keeps what it has, whatever fails.
        let panicked = |_| Err(io::Error::other("the thread that writes panicked"));
        thread::scope(|scope| scope.spawn(from_there).join().unwrap_or_else(panicked))
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.place(path))? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn real_path(&self, path: &str) -> io::Result<String> {
        let root = fs::canonicalize(&self.root)?;
        let real = fs::canonicalize(self.place(path))?;
        let below = real.strip_prefix(&root).unwrap_or(&real);
        Ok(Path::new("/").join(below).to_string_lossy().into_owned())
    }

    fn link(&self, path: &str) -> io::Result<String> {
        let target = fs::read_link(self.place(path))?;
        Ok(target.to_string_lossy().into_owned())
    }

    fn character_device(&self, path: &str) -> io::Result<Option<String>> {
        let file = fs::metadata(self.place(path))?;
        let numbers = || {
            let device = file.rdev();
            format!(
                "{}:{}",
                nix::sys::stat::major(device),
                nix::sys::stat::minor(device)
            )
        };
        Ok(file.file_type().is_char_device().then(numbers))
    }

    fn can_open(&self, path: &str) -> io::Result<()> {
        fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.place(path))
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_below_a_directory_answers_with_absolute_paths() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("sys/devices/pci0/net/eth0")).unwrap();
        fs::create_dir_all(root.join("sys/class/net")).unwrap();
        fs::write(root.join("sys/devices/pci0/net/eth0/mtu"), "1500\n").unwrap();
        std::os::unix::fs::symlink(
            "../../devices/pci0/net/eth0",
            root.join("sys/class/net/eth0"),
        )
        .unwrap();
        let tree = RootedTree::new(root);
        assert_eq!(
            tree.real_path("/sys/class/net/eth0").unwrap(),
            "/sys/devices/pci0/net/eth0"
        );
        tree.write("/sys/class/net/eth0/mtu", "90").unwrap();
        assert_eq!(tree.read("/sys/class/net/eth0/mtu").unwrap(), "90");
        assert_eq!(tree.list("/sys/class/net").unwrap(), ["eth0"]);
        let missing = tree.write("/sys/class/net/eth0/absent", "1").unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(!tree.exists("/sys/class/net/eth1"));
    }

    #[test]
    fn a_character_device_is_told_by_its_numbers() {
        let tree = RootedTree::new("/");
        let null = tree.character_device("/dev/null").unwrap();
        assert_eq!(null.as_deref(), Some("1:3"));
        assert_eq!(tree.character_device("/proc/self/exe").unwrap(), None);
        assert!(tree.character_device("/absent").is_err());
    }
}
