//! The network namespace in which a guest's sockets are made: that of the monitor's threads.

use nix::sched::{CloneFlags, setns, unshare};
use std::fs::{self, File, TryLockError};
use std::io;
use std::mem::zeroed;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::configuration::{Namespace, Sockets};
use steadyvm_fault::{At, Fault as Error, Result};

nix::ioctl_readwrite_bad!(interface_flags, libc::SIOCGIFFLAGS, libc::ifreq);
nix::ioctl_write_ptr_bad!(set_interface_flags, libc::SIOCSIFFLAGS, libc::ifreq);

/// A file of which there is one in each network namespace, and who may see a process may look at that
/// of its namespace. (/proc/PID/ns/net takes the right to trace the process.)
const MARK: &str = "net/dev";

/// The most bytes that TCP's own tuning may give to one socket, each way, in a namespace that the monitor
/// makes: the kernel's default is 6 and 4 MiB, and the limit of buffers does not know of them.
const MOST_TCP_BYTES: u64 = 1 << 20;

/// A network namespace that the calling thread is in, for one VM alone.
pub struct Entered {
    /// Locked as long as it is open.
    _lock: Option<File>,
}

/// Brings the calling thread into the namespace. Threads that it starts later are in it too; what
/// it opened before, such as tap devices, stays where it is.
///
/// # Errors
/// Where it is the host's own and that was not asked for, or another VM's.
pub fn enter(sockets: &Sockets) -> Result<Entered> {
    match &sockets.namespace {
        Namespace::Current => {}
        Namespace::New => {
            unshare(CloneFlags::CLONE_NEWNET).cannot_or(
                "make a network namespace for the guest's sockets",
                "run as root; or start the monitor inside a namespace (ip netns exec NAME, as \
                 root, then the user) and set sockets.namespace = \"current\"",
            )?;
            set_loopback_up().cannot("set the loopback interface of a new namespace up")?;
            // As where /proc/sys is read-only; the VM runs all the same.
            if let Err(error) = bound_tcp_tuning() {
                eprintln!("steadyvm: {error}");
            }
            return Ok(Entered { _lock: None });
        }
        Namespace::Existing(path) => enter_existing(path)?,
    }
    if sockets.allow_host_network {
        return Ok(Entered { _lock: None });
    }
    if is_the_hosts() {
        return Err(Error::input(
            "sockets.namespace",
            "this is the host's own network: the guest would reach its loopback, metadata services and \
             neighbours with the host's addresses. Give it one of its own (\"new\", or ip netns add NAME), \
             or say sockets.allow_host_network = true (--allow-host-network)",
        ));
    }
    Ok(Entered {
        _lock: Some(lock()?),
    })
}

/// Whether the calling thread is in the network namespace of the machine's first process; also where
/// that cannot be told.
fn is_the_hosts() -> bool {
    let mark = |process: &str| {
        let file = fs::metadata(format!("/proc/{process}/{MARK}"))?;
        Ok::<_, io::Error>((file.dev(), file.ino()))
    };
    match (mark("1"), mark("thread-self")) {
        (Ok(first), Ok(own)) => first == own,
        _ => true,
    }
}

/// Two VMs in one namespace would have each other's loopback and ports.
fn lock() -> Result<File> {
    let what = "have the network namespace of the guest's sockets alone";
    let file = File::open("/proc/thread-self/ns/net").cannot(what)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::input(
            "sockets.namespace",
            "another VM has this network namespace: make one for each (ip netns add NAME)",
        )),
        Err(TryLockError::Error(error)) => Err(error).cannot(what),
    }
}

fn enter_existing(path: &Path) -> Result<()> {
    let file = File::open(path).map_err(|error| {
        let place = format!("sockets.namespace = \"{}\"", path.display());
        Error::input(place, format!("{error}; make it with: ip netns add NAME"))
    })?;
    setns(file, CloneFlags::CLONE_NEWNET).cannot_or(
        format!("enter the network namespace {}", path.display()),
        "run as root; or start the monitor inside it and set sockets.namespace = \"current\"",
    )
}

/// Lowers what TCP gives to a socket by itself, in a namespace that has nobody else.
fn bound_tcp_tuning() -> Result<()> {
    for name in ["tcp_rmem", "tcp_wmem"] {
        let path = format!("/proc/sys/net/ipv4/{name}");
        let what = format!("bound {path} of a new namespace");
        let text = fs::read_to_string(&path).cannot(&what)?;
        let sizes: Vec<u64> = text
            .split_whitespace()
            .map_while(|size| size.parse().ok())
            .collect();
        let [least, usual, most] = sizes[..] else {
            return Err(format!("\"{}\" is not three sizes", text.trim())).cannot(what);
        };
        let most = most.min(MOST_TCP_BYTES).max(usual);
        fs::write(&path, format!("{least} {usual} {most}")).cannot(what)?;
    }
    Ok(())
}
fn set_loopback_up() -> io::Result<()> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: an ifreq of zeros is valid: an empty name and flags of zero.
    let mut request: libc::ifreq = unsafe { zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(*b"lo") {
        *to = from as _;
    }
    // SAFETY: the call reads the name and writes the flags of one ifreq, which `request` is.
    unsafe { interface_flags(socket.as_raw_fd(), &raw mut request) }?;
    // SAFETY: the call before has set the flags, the member of the union that is read here.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
    // SAFETY: the call reads one ifreq.
    unsafe { set_interface_flags(socket.as_raw_fd(), &raw const request) }?;
    Ok(())
}
