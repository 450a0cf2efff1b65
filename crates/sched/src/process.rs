//! A process that is told apart from any later one of its number.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::str::FromStr;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process: its number, and when it was started. As text, the two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessId {
    /// Its number.
    pub pid: u32,
    /// When it was started, in ticks after the boot (`starttime` of `/proc/PID/stat`).
    start_time: u64,
}

impl ProcessId {
    /// The process that has this number now; none if there is none.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // A process chooses its name, which is in brackets before everything else that is read here.
        let (_, rest) = stat.rsplit_once(')')?;
        let start_time = rest.split_ascii_whitespace().nth(19)?.parse().ok()?;
        Some(Self { pid, start_time })
    }

    /// This process.
    pub fn own() -> Option<Self> {
        Self::of(std::process::id())
    }

    /// Opens it: from then on its number means nobody else. None if it has ended.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn open(self) -> io::Result<Option<OpenProcess>> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else { return Ok(None) };
        let opened = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(opened) => opened,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Read after it was opened: whoever had the number in between is another one.
        Ok((Self::of(self.pid) == Some(self)).then_some(OpenProcess(opened)))
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.pid, self.start_time)
    }
}

impl FromStr for ProcessId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (pid, start_time) = text.trim().split_once(' ').ok_or(())?;
        Ok(Self {
            pid: pid.parse().map_err(drop)?,
            start_time: start_time.parse().map_err(drop)?,
        })
    }
}

/// A process that was opened.
#[derive(Debug)]
pub struct OpenProcess(OwnedFd);

impl OpenProcess {
    /// Asks it to end (SIGTERM). One that has ended is no error.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn ask_to_end(&self) -> io::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Ends it (SIGKILL), if it is stopped, too.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn kill(&self) -> io::Result<()> {
        self.signal(Signal::KILL)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.0, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for its end; whether it ended within this time.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wait(&self, limit: Duration) -> io::Result<bool> {
        let milliseconds = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
        let timeout = PollTimeout::try_from(milliseconds).unwrap_or(PollTimeout::MAX);
        let mut ends = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        Ok(poll(&mut ends, timeout)? > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_that_is_stopped_is_ended_and_one_of_its_number_later_is_not() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let id = ProcessId::of(child.id()).unwrap();
        assert_eq!(id.to_string().parse(), Ok(id));
        let number = nix::unistd::Pid::from_raw(child.id().cast_signed());
        nix::sys::signal::kill(number, nix::sys::signal::Signal::SIGSTOP).unwrap();
        let later = ProcessId {
            start_time: id.start_time + 1,
            ..id
        };
        assert!(later.open().unwrap().is_none(), "another process");
        let process = id.open().unwrap().unwrap();
        assert!(!process.wait(Duration::ZERO).unwrap());
        process.kill().unwrap();
        assert!(process.wait(Duration::from_secs(60)).unwrap());
        child.wait().unwrap();
        assert!(id.open().unwrap().is_none());
        process.kill().unwrap();
    }

    #[test]
    fn what_is_no_process_is_told() {
        for text in ["", "1", "x 2", "1 x", "-1 2", "1 2 3"] {
            assert_eq!(text.parse::<ProcessId>(), Err(()), "{text}");
        }
        let none = ProcessId {
            pid: u32::MAX,
            start_time: 0,
        };
        assert!(none.open().unwrap().is_none());
    }
}
