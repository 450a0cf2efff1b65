//! What happens on this host that can make a setting obsolete: VMs, links, CPUs, signals.
//!
//! KVM says on the kernel's uevent socket that a VM was made or is gone (`kvm_uevent_notify_change`,
//! `virt/kvm/kvm_main.c`); the same socket tells of CPUs and of `sched_ext` schedulers. Link changes come from rtnetlink's group
//! `RTMGRP_LINK`. Reading needs no rights beyond those of the network namespace. That a VCPU is about to be made, a
//! thread's name says (`connector`), where this process may know. What concerns only others is left out (`concern`).

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, setsockopt,
    socket, sockopt,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use super::concern::{Concern, Meaning};
use super::connector;

/// rtnetlink's group of link changes (`RTMGRP_LINK`, include/uapi/linux/rtnetlink.h).
const LINK_GROUP: u32 = 1;
/// The kernel's own uevents; group 2 is udev's.
const UEVENT_GROUP: u32 = 1;
/// Larger than any uevent (`UEVENT_BUFFER_SIZE` is 2,048 bytes).
const BUFFER_BYTES: usize = 16 << 10;
/// Names are read so far apart at most, when the last ones were of strangers: a process can change its name a million times
/// per second.
const NAMES_APART: Duration = Duration::from_millis(10);
/// Room for a burst of events while settings are made.
const RECEIVE_BUFFER_BYTES: usize = 1 << 20;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A process made a VM that may be one of the file's. Its virtual CPUs come later.
    VmCreated,
    /// A process made a VM that is none of the file's, if the files beside have not changed.
    VmUnknown,
    /// A thread is about to make a virtual CPU, or is one that the file names.
    Vcpu,
    /// A service of the host that the file names has begun a program: it starts, or starts again. Or a program whose threads it
    /// names has.
    Service,
    /// A VM is gone.
    VmGone,
    /// A network interface came, went, was renamed or changed its state.
    Link,
    /// A CPU went on- or offline.
    Cpu,
    /// A `sched_ext` scheduler has ended: the kernel ended it, or its loader did.
    Scheduler,
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
    /// What `names` tells of.
    hears: connector::Wanted,
    /// Until then names of threads are not read.
    names_rest_until: Option<Instant>,
    hang_up: UnixStream,
    end: [UnixStream; 2],
}

impl Events {
    /// Opens all sources. From here on no event is missed. One that can be done without is told to `warn`.
    pub fn open(warn: impl Fn(&str)) -> io::Result<Self> {
        let names = connector::listen().map_err(|error| {
            warn(&format!(
                "cannot hear of threads that call themselves virtual CPUs ({error}): one that is plugged into a running VM, \
                 and a service of the host that starts, is found within 30 s"
            ));
        });
        Ok(Self {
            uevents: listen(SockProtocol::NetlinkKObjectUEvent, UEVENT_GROUP)?,
            links: listen(SockProtocol::NetlinkRoute, LINK_GROUP)?,
            names: names.ok(),
            hears: connector::Wanted::default(),
            names_rest_until: None,
            hang_up: signal(SIGHUP)?,
            end: [signal(SIGTERM)?, signal(SIGINT)?],
        })
    }

    /// Hears from here on of programs and of all names if somebody is concerned by them: a host has many. Those that begin before
    /// are not told of, so look at the host after this.
    pub fn hear(&mut self, concern: &Concern) {
        let wants = concern.wants();
        if let Some(names) = self.names.as_ref().filter(|_| wants != self.hears) {
            // Where the kernel refuses it, the look after 30 s finds what has begun.
            let _ = connector::hear(names, wants);
            self.hears = wants;
        }
    }

    /// Waits for events until a time-out; none that concerns happened if the answer is empty.
    pub fn wait(&mut self, timeout: Duration, concern: &mut Concern) -> io::Result<Vec<Event>> {
        let rest = self.names_rest_until.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(Instant::now())
        });
        let timeout = if rest.is_zero() {
            timeout
        } else {
            timeout.min(rest)
        };
        let milliseconds = timeout.as_millis().min(i32::MAX as u128) as i32;
        // A rest below a millisecond is waited for, not spun through.
        let milliseconds = milliseconds.max(i32::from(!timeout.is_zero()));
        let timeout = PollTimeout::try_from(milliseconds).unwrap_or(PollTimeout::MAX);
        let ready = {
            // A descriptor twice instead of one that is not there, or rests.
            let names = self.names.as_ref().filter(|_| rest.is_zero());
            let names = names.unwrap_or(&self.links);
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
            drain(&self.uevents, &mut events, |message| {
                of_uevent(message).and_then(|uevent| uevent.event(concern))
            })?;
        }
        if ready[1] {
            drain(&self.links, &mut events, |message| {
                concern.link(message).then_some(Event::Link)
            })?;
        }
        if ready[2]
            && rest.is_zero()
            && let Some(names) = &self.names
        {
            let begun = Instant::now();
            // Each thread is looked at once: the last one of a process may be none that is named.
            let mut threads = BTreeSet::new();
            let mut programs = BTreeSet::new();
            let hears = self.hears;
            drain(names, &mut events, |message| {
                threads.extend(connector::thread_of(message, hears));
                programs.extend(connector::program_of(message));
                None
            })?;
            let is_vcpu = threads.into_iter().any(|thread| concern.named(thread));
            let is_service = programs.into_iter().any(|pid| concern.began(pid));
            events.extend(is_vcpu.then_some(Event::Vcpu));
            events.extend(is_service.then_some(Event::Service));
            let is_meant = is_vcpu || is_service;
            // A tenth of the time at most is for strangers, however many threads they name.
            let rest = NAMES_APART.max(10 * begun.elapsed());
            self.names_rest_until = (!is_meant).then(|| Instant::now() + rest);
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
    mut meaning: impl FnMut(&[u8]) -> Option<Event>,
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

/// What the kernel says of VMs, with the process, of CPUs and of schedulers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Uevent {
    Created(Option<u32>),
    Gone(Option<u32>),
    Cpu,
    Scheduler,
}

impl Uevent {
    /// What it is to a watch.
    fn event(self, concern: &mut Concern) -> Option<Event> {
        match self {
            Self::Cpu => Some(Event::Cpu),
            Self::Scheduler => Some(Event::Scheduler),
            Self::Gone(pid) => concern.gone(pid).then_some(Event::VmGone),
            Self::Created(pid) => Some(match concern.made(pid) {
                Meaning::Meant => Event::VmCreated,
                Meaning::Unknown => Event::VmUnknown,
            }),
        }
    }
}

/// What a uevent means: `ACTION@DEVPATH`, then `KEY=VALUE` strings, each ended by a zero byte.
fn of_uevent(message: &[u8]) -> Option<Uevent> {
    let value = |key: &[u8]| {
        let mut fields = message.split(|&byte| byte == 0).skip(1);
        fields.find_map(|field| field.strip_prefix(key)?.strip_prefix(b"="))
    };
    let pid = || std::str::from_utf8(value(b"PID")?).ok()?.parse().ok();
    match (value(b"SUBSYSTEM")?, value(b"EVENT"), value(b"ACTION")) {
        (b"misc", Some(b"create"), _) if is_kvm(&value) => Some(Uevent::Created(pid())),
        (b"misc", Some(b"destroy"), _) if is_kvm(&value) => Some(Uevent::Gone(pid())),
        (b"cpu", _, Some(b"online" | b"offline")) => Some(Uevent::Cpu),
        // `kobject_del` of `scx_root` (kernel/sched/ext.c).
        (b"sched_ext", _, Some(b"remove")) => Some(Uevent::Scheduler),
        _ => None,
    }
}

fn is_kvm<'m>(value: &impl Fn(&[u8]) -> Option<&'m [u8]>) -> bool {
    value(b"DEVNAME") == Some(b"kvm")
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::{Child, Command, Stdio};

    use crate::profile::{Profile, VmProfile};

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
                Some(Uevent::Created(Some(7))),
            ),
            (
                [&kvm[..], &["EVENT=destroy"]].concat(),
                Some(Uevent::Gone(Some(7))),
            ),
            (kvm.to_vec(), None),
            (
                vec![
                    "ACTION=online",
                    "SUBSYSTEM=cpu",
                    "DEVPATH=/devices/system/cpu/cpu1",
                ],
                Some(Uevent::Cpu),
            ),
            (
                vec!["ACTION=remove", "SUBSYSTEM=sched_ext", "SCXOPS=steadyvm"],
                Some(Uevent::Scheduler),
            ),
            (vec!["ACTION=add", "SUBSYSTEM=sched_ext"], None),
            (vec!["ACTION=add", "SUBSYSTEM=block"], None),
            (vec!["EVENT=create", "SUBSYSTEM=misc", "DEVNAME=fuse"], None),
        ] {
            assert_eq!(of_uevent(&message(&fields)), expected, "{fields:?}");
        }
        assert_eq!(of_uevent(b""), None);
        assert_eq!(of_uevent(b"\0\0\0=\0"), None);
    }

    /// The first look of a watch comes between the two.
    #[test]
    fn a_thread_that_begins_before_the_wait_is_heard_of() {
        if let Err(error) = connector::listen() {
            eprintln!("skipped: {error}");
            return;
        }
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let paths = own.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        let Some(own) = paths.into_iter().find(|path| *path != "/") else {
            eprintln!("skipped: this process is in no cgroup");
            return;
        };
        let name = format!("heard-{}", std::process::id());
        let profile = Profile {
            vms: vec![VmProfile {
                name: "pod".to_owned(),
                cgroup: Some(own.to_owned()),
                threads: Some(name.clone()),
                ..VmProfile::default()
            }],
            ..Profile::default()
        };
        let mut concern = Concern::of(&profile);
        let mut events = Events::open(|_| ()).unwrap();
        events.hear(&concern);
        // Both are told of at once, the one that is meant first.
        let (begun, begins) = std::sync::mpsc::channel();
        let threads = [name, "a stranger".to_owned()].map(|name| {
            let begun = begun.clone();
            let (end, ends) = std::sync::mpsc::channel::<()>();
            let named = std::thread::Builder::new().name(name);
            let named = named.spawn(move || {
                begun.send(()).unwrap();
                ends.recv()
            });
            begins.recv().unwrap();
            (end, named.unwrap())
        });
        let mut seen = Vec::new();
        let begun = Instant::now();
        while !seen.contains(&Event::Vcpu) && begun.elapsed() < PATIENCE {
            seen.extend(events.wait(PATIENCE, &mut concern).unwrap());
        }
        for (end, named) in threads {
            drop(end);
            assert!(named.join().unwrap().is_err());
        }
        assert!(seen.contains(&Event::Vcpu), "only {seen:?}");
    }

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A process that makes a VM (`KVM_CREATE_VM` of include/uapi/linux/kvm.h) and ends with its input, and the VM with it.
    fn make_a_vm(name: &str) -> Child {
        let program = "import fcntl, os, sys; fcntl.ioctl(os.open('/dev/kvm', os.O_RDWR), 0xAE01, 0); sys.stdin.read()";
        let mut maker = Command::new("python3");
        let maker = maker
            .args(["-c", program, "-name", name])
            .stdin(Stdio::piped());
        maker.spawn().unwrap()
    }

    #[test]
    fn a_vm_that_is_made_and_goes_is_an_event_of_the_kernel_if_it_is_meant() {
        let profile = Profile {
            vms: vec![VmProfile {
                name: format!("events-{}", std::process::id()),
                ..VmProfile::default()
            }],
            ..Profile::default()
        };
        let mut concern = Concern::of(&profile);
        let mut events = Events::open(|_| ()).unwrap();
        if File::options().write(true).open("/dev/kvm").is_err() {
            eprintln!("skipped: this machine has no usable /dev/kvm");
            return;
        }
        let begun = Instant::now();
        let mut makers = ["a stranger", &profile.vms[0].name].map(make_a_vm);
        let mut seen = Vec::new();
        while !seen.contains(&Event::VmGone) {
            assert!(begun.elapsed() < PATIENCE, "only {seen:?}");
            // Nothing, where only the stranger's VM has gone.
            seen.extend(events.wait(PATIENCE, &mut concern).unwrap());
            if [Event::VmCreated, Event::VmUnknown]
                .iter()
                .all(|it| seen.contains(it))
            {
                for maker in &mut makers {
                    drop(maker.stdin.take());
                }
            }
        }
        for mut maker in makers {
            maker.wait().unwrap();
        }
    }
}
