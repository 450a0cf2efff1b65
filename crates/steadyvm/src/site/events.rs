//! What happens on this host that can make a setting obsolete: VMs, links, CPUs, signals.
//!
//! KVM says on the kernel's uevent socket that a VM was made or is gone (`kvm_uevent_notify_change`,
//! `virt/kvm/kvm_main.c`); the same socket tells of CPUs. Link changes come from rtnetlink's group
//! `RTMGRP_LINK`. Reading needs no rights beyond those of the network namespace. That a VCPU is about to be made, a
//! thread's name says (`connector`), where this process may know.

use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, setsockopt,
    socket, sockopt,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use super::connector;

/// rtnetlink's group of link changes (`RTMGRP_LINK`, include/uapi/linux/rtnetlink.h).
const LINK_GROUP: u32 = 1;
/// The kernel's own uevents; group 2 is udev's.
const UEVENT_GROUP: u32 = 1;
/// Larger than any uevent (`UEVENT_BUFFER_SIZE` is 2,048 bytes).
const BUFFER_BYTES: usize = 16 << 10;
/// Room for a burst of events while settings are made.
const RECEIVE_BUFFER_BYTES: usize = 1 << 20;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A process made a VM. Its virtual CPUs come later.
    VmCreated,
    /// A thread is about to make a virtual CPU.
    Vcpu,
    /// A VM is gone.
    VmGone,
    /// A network interface came, went, was renamed or changed its state.
    Link,
    /// A CPU went on- or offline.
    Cpu,
    /// Events were lost: anything may have changed.
    Lost,
    /// SIGHUP: read the file again.
    Reload,
    /// SIGTERM or SIGINT: end.
    End,
}

/// The sources of events.
pub struct Events {
    uevents: OwnedFd,
    links: OwnedFd,
    /// None where the kernel has no connector, or this process no right to listen.
    names: Option<OwnedFd>,
    hang_up: UnixStream,
    end: [UnixStream; 2],
}

impl Events {
    /// Opens all sources. From here on no event is missed.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            uevents: listen(SockProtocol::NetlinkKObjectUEvent, UEVENT_GROUP)?,
            links: listen(SockProtocol::NetlinkRoute, LINK_GROUP)?,
            names: connector::listen().ok(),
            hang_up: signal(SIGHUP)?,
            end: [signal(SIGTERM)?, signal(SIGINT)?],
        })
    }

    /// Waits for events until a time-out; none happened if the answer is empty.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<Vec<Event>> {
        let milliseconds = timeout.as_millis().min(i32::MAX as u128) as i32;
        // A rest below a millisecond is waited for, not spun through.
        let milliseconds = milliseconds.max(i32::from(!timeout.is_zero()));
        let timeout = PollTimeout::try_from(milliseconds).unwrap_or(PollTimeout::MAX);
        let ready = {
            // A descriptor twice instead of one that is not there.
            let names = self.names.as_ref().unwrap_or(&self.links);
            let mut sources = [
                PollFd::new(self.uevents.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.links.as_fd(), PollFlags::POLLIN),
                PollFd::new(names.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.hang_up.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.end[0].as_fd(), PollFlags::POLLIN),
                PollFd::new(self.end[1].as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut sources, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            sources.map(|source| source.any().unwrap_or(false))
        };
        let mut events = Vec::new();
        if ready[0] {
            drain(&self.uevents, &mut events, of_uevent)?;
        }
        if ready[1] {
            drain(&self.links, &mut events, |_| Some(Event::Link))?;
        }
        if ready[2]
            && let Some(names) = &self.names
        {
            drain(names, &mut events, |message| {
                connector::is_of_vcpu(message).then_some(Event::Vcpu)
            })?;
        }
        if ready[3] && was_raised(&mut self.hang_up)? {
            events.push(Event::Reload);
        }
        for (stream, ready) in self.end.iter_mut().zip(&ready[4..]) {
            if *ready && was_raised(stream)? {
                events.push(Event::End);
            }
        }
        events.sort_unstable();
        events.dedup();
        Ok(events)
    }
}

fn listen(protocol: SockProtocol, groups: u32) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
    // Above net.core.rmem_max only where this process may; what does not fit is `Lost`.
    let _ = setsockopt(&listener, sockopt::RcvBufForce, &RECEIVE_BUFFER_BYTES);
    bind(listener.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
    Ok(listener)
}

fn signal(number: i32) -> io::Result<UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    pipe::register(number, writer)?;
    Ok(reader)
}

fn was_raised(stream: &mut UnixStream) -> io::Result<bool> {
    let mut bytes = [0; 64];
    match stream.read(&mut bytes) {
        Ok(count) => Ok(count > 0),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads all messages that are there.
fn drain(
    listener: &OwnedFd,
    events: &mut Vec<Event>,
    meaning: impl Fn(&[u8]) -> Option<Event>,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match recv(listener.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(0) | Err(Errno::EAGAIN) => return Ok(()),
            Ok(count) => events.extend(meaning(&buffer[..count])),
            Err(Errno::ENOBUFS) => events.push(Event::Lost),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// What a uevent means: `ACTION@DEVPATH`, then `KEY=VALUE` strings, each ended by a zero byte.
fn of_uevent(message: &[u8]) -> Option<Event> {
    let value = |key: &[u8]| {
        let mut fields = message.split(|&byte| byte == 0).skip(1);
        fields.find_map(|field| field.strip_prefix(key)?.strip_prefix(b"="))
    };
    match (value(b"SUBSYSTEM")?, value(b"EVENT"), value(b"ACTION")) {
        (b"misc", Some(b"create"), _) if is_kvm(&value) => Some(Event::VmCreated),
        (b"misc", Some(b"destroy"), _) if is_kvm(&value) => Some(Event::VmGone),
        (b"cpu", _, Some(b"online" | b"offline")) => Some(Event::Cpu),
        _ => None,
    }
}

fn is_kvm<'m>(value: &impl Fn(&[u8]) -> Option<&'m [u8]>) -> bool {
    value(b"DEVNAME") == Some(b"kvm")
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn message(fields: &[&str]) -> Vec<u8> {
        let mut bytes = b"change@/devices/virtual/misc/kvm\0".to_vec();
        for field in fields {
            bytes.extend(field.as_bytes());
            bytes.push(0);
        }
        bytes
    }

    #[test]
    fn uevents_of_kvm_and_of_cpus_are_known_and_others_are_not() {
        let kvm = ["ACTION=change", "SUBSYSTEM=misc", "DEVNAME=kvm", "PID=7"];
        for (fields, expected) in [
            (
                [&kvm[..], &["EVENT=create"]].concat(),
                Some(Event::VmCreated),
            ),
            ([&kvm[..], &["EVENT=destroy"]].concat(), Some(Event::VmGone)),
            (kvm.to_vec(), None),
            (
                vec![
                    "ACTION=online",
                    "SUBSYSTEM=cpu",
                    "DEVPATH=/devices/system/cpu/cpu1",
                ],
                Some(Event::Cpu),
            ),
            (vec!["ACTION=add", "SUBSYSTEM=block"], None),
            (vec!["EVENT=create", "SUBSYSTEM=misc", "DEVNAME=fuse"], None),
        ] {
            assert_eq!(of_uevent(&message(&fields)), expected, "{fields:?}");
        }
        assert_eq!(of_uevent(b""), None);
        assert_eq!(of_uevent(b"\0\0\0=\0"), None);
    }

    #[test]
    fn a_vm_that_is_made_and_goes_is_an_event_of_the_kernel() {
        // KVM_CREATE_VM of include/uapi/linux/kvm.h, by a process of its own: what it made goes with it.
        let mut maker = Command::new("python3");
        maker.args([
            "-c",
            "import fcntl, os; fcntl.ioctl(os.open('/dev/kvm', os.O_RDWR), 0xAE01, 0)",
        ]);
        maker.stderr(Stdio::null());
        let mut events = Events::open().unwrap();
        if !maker.status().unwrap().success() {
            eprintln!("skipped: this machine has no usable /dev/kvm");
            return;
        }
        let mut seen = Vec::new();
        while !seen.contains(&Event::VmGone) {
            let now = events.wait(Duration::from_secs(20)).unwrap();
            assert!(!now.is_empty(), "only {seen:?} within 20 s");
            seen.extend(now);
        }
        assert!(seen.contains(&Event::VmCreated), "{seen:?}");
    }
}
