//! The process that a description of a VM depends on: its monitor, or who is about to start that.

use std::fmt;
use std::fs;

use steadyvm_host::Machine;

/// A process, told from a later one of the same number by when it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    pub pid: u32,
    /// In clock ticks after boot.
    pub start_ticks: u64,
}

impl Holder {
    /// The process of this number; none if there is none.
    pub fn of(machine: &Machine, pid: u32) -> Option<Self> {
        let leader = machine.thread(pid, pid)?;
        Some(Self {
            pid,
            start_ticks: leader.id.start_time,
        })
    }

    /// Who has called this hook: the nearest process above it that is no shell.
    pub fn caller(machine: &Machine) -> Option<Self> {
        let mut pid = std::process::id();
        loop {
            let parent = machine.thread(pid, pid)?.parent;
            let comm = machine.thread(parent, parent)?.id.comm;
            if !matches!(comm.as_str(), "sh" | "dash" | "bash") {
                return Self::of(machine, parent);
            }
            pid = parent;
        }
    }

    /// Whether this very process still runs.
    pub fn lives(&self, machine: &Machine) -> bool {
        Self::of(machine, self.pid).as_ref() == Some(self)
    }
}

impl From<steadyvm_config::Holder> for Holder {
    fn from(written: steadyvm_config::Holder) -> Self {
        let steadyvm_config::Holder { pid, start_ticks } = written;
        Self { pid, start_ticks }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, start_ticks } = self;
        write!(formatter, "{{ pid = {pid}, start_ticks = {start_ticks} }}")
    }
}

/// Whether a process was started with two words one after the other, such as `-uuid` and a VM's.
pub fn was_told(pid: u32, option: &str, value: &str) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    (words.windows(2)).any(|pair| pair[0] == option.as_bytes() && pair[1] == value.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_process_lives_until_it_is_reaped_or_its_number_is_anothers() {
        let machine = Machine::real();
        let own = Holder::of(&machine, std::process::id()).unwrap();
        assert!(own.lives(&machine));
        let earlier = Holder {
            start_ticks: own.start_ticks.wrapping_sub(1),
            ..own
        };
        assert!(!earlier.lives(&machine));
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let held = Holder::of(&machine, child.id()).unwrap();
        assert!(held.lives(&machine));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!held.lives(&machine));
        assert!(Holder::caller(&machine).is_some());
    }

    #[test]
    fn a_command_line_tells_which_vm_it_is() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "echo; read line", "-uuid", "abc"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // It is that program once it speaks: a process that has just been made has no words yet.
        let mut spoken = [0];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut spoken)
            .unwrap();
        assert!(was_told(child.id(), "-uuid", "abc"));
        assert!(!was_told(child.id(), "-uuid", "ab"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!was_told(child.id(), "-uuid", "abc"));
    }
}
