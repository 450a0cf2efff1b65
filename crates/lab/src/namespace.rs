//! Network namespaces without a name: the kernel removes one, with every device in it, when
//! the last process and the last descriptor that refer to it are gone, however that happened.

use crate::{At, Error, Result};
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

/// A network namespace, kept alive by this value.
#[derive(Debug)]
pub struct Namespace(File);

impl Namespace {
    /// Makes a new, empty network namespace.
    ///
    /// # Errors
    /// Without the right to (`CAP_SYS_ADMIN`).
    pub fn new() -> Result<Self> {
        let unshared = || -> io::Result<File> {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net")
        };
        // A namespace belongs to a thread; this one ends, the file keeps what it made.
        let made = thread::spawn(unshared)
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("panic")));
        made.map(Self).map_err(|error| {
            Error::machine("make a network namespace", error)
                .what_to_do("run as root (sudo), or in a container that has CAP_SYS_ADMIN")
        })
    }

    /// Runs `act` in a thread inside the namespace. Sockets and devices that it makes stay there.
    pub fn enter<T: Send>(&self, act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                setns(&self.0, CloneFlags::CLONE_NEWNET).doing("enter a network namespace")?;
                act()
            });
            let panic = |_| {
                Err(Error::machine(
                    "work in a network namespace",
                    "a thread panicked",
                ))
            };
            inside.join().unwrap_or_else(panic)
        })
    }

    /// Makes `command` start inside the namespace.
    pub fn hold<'c>(&self, command: &'c mut Command) -> Result<&'c mut Command> {
        let inside = self.0.try_clone().doing("keep a network namespace")?;
        // SAFETY: setns is a plain system call on a descriptor that the closure owns.
        unsafe {
            command.pre_exec(move || Ok(setns(&inside, CloneFlags::CLONE_NEWNET)?));
        }
        Ok(command)
    }

    /// Runs `ip WORDS` inside the namespace.
    pub fn ip(&self, words: &str) -> Result<()> {
        let what = || format!("ip {words}");
        let mut command = Command::new("ip");
        let done = self
            .hold(command.args(words.split_whitespace()))?
            .output()
            .doing(what())?;
        if done.status.success() {
            return Ok(());
        }
        Err(Error::machine(
            what(),
            String::from_utf8_lossy(&done.stderr).trim(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_devices_of_its_own() {
        let namespace = Namespace::new().unwrap();
        namespace
            .ip("link add one type veth peer name other")
            .unwrap();
        let inside = namespace.enter(|| {
            std::fs::read_to_string("/proc/thread-self/net/dev")
                .at("read", "/proc/thread-self/net/dev")
        });
        assert!(inside.unwrap().contains("other"));
        assert!(
            !std::fs::read_to_string("/proc/net/dev")
                .unwrap()
                .contains("other")
        );
    }

    #[test]
    fn a_refused_command_says_what_and_why() {
        let error = Namespace::new()
            .unwrap()
            .ip("link set dev nothing up")
            .unwrap_err();
        assert!(
            error.to_string().contains("ip link set dev nothing up"),
            "{error}"
        );
        assert!(error.why.contains("nothing"), "{error}");
    }
}
