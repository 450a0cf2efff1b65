//! The network namespace in which a guest's sockets are made: that of the monitor's threads.

use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::io;
use std::mem::zeroed;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::configuration::Namespace;
use crate::error::{Doing, Error, Result};

nix::ioctl_readwrite_bad!(interface_flags, libc::SIOCGIFFLAGS, libc::ifreq);
nix::ioctl_write_ptr_bad!(set_interface_flags, libc::SIOCSIFFLAGS, libc::ifreq);

/// Brings the calling thread into the namespace. Threads that it starts later are in it too; what
/// it opened before, such as tap devices, stays where it is.
pub fn enter(namespace: &Namespace) -> Result<()> {
    match namespace {
        Namespace::Current => Ok(()),
        Namespace::New => {
            unshare(CloneFlags::CLONE_NEWNET).doing_or(
                "make a network namespace for the guest's sockets",
                "run as root; or start the monitor inside a namespace (ip netns exec NAME, as \
                 root, then the user) and set sockets.namespace = \"current\"",
            )?;
            set_loopback_up().doing("set the loopback interface of a new namespace up")
        }
        Namespace::Existing(path) => enter_existing(path),
    }
}

fn enter_existing(path: &Path) -> Result<()> {
    let file = File::open(path).map_err(|error| {
        let place = format!("sockets.namespace = \"{}\"", path.display());
        Error::input(place, format!("{error}; make it with: ip netns add NAME"))
    })?;
    setns(file, CloneFlags::CLONE_NEWNET).doing_or(
        format!("enter the network namespace {}", path.display()),
        "run as root; or start the monitor inside it and set sockets.namespace = \"current\"",
    )
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
