//! A tap device as the backend of vhost-net. All unsafe code here is system calls on it.

use std::ffi::{c_int, c_short, c_uint};
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::zeroed;
use std::os::fd::AsRawFd;

use steadyvm_fault::{At, Result};

/// The header before each frame: `struct virtio_net_hdr_v1`.
static HEADER: c_int = 12;

nix::ioctl_write_ptr_bad!(set_interface, libc::TUNSETIFF, libc::ifreq);
nix::ioctl_write_ptr_bad!(set_header_size, libc::TUNSETVNETHDRSZ, c_int);
nix::ioctl_write_int_bad!(set_offloads, libc::TUNSETOFFLOAD);

/// An open tap device.
pub struct Tap(File);

impl Tap {
    /// Opens an existing tap device of the calling thread's network namespace.
    ///
    /// # Errors
    /// Where there is none, or it is not this user's.
    pub fn open(name: &str) -> Result<Self> {
        Self::check(name)?;
        Self::attach(name).cannot_or(Self::what(name), Self::remedy(name))
    }

    /// Whether the calling thread's network namespace has such an interface.
    ///
    /// # Errors
    /// Where it does not.
    pub fn check(name: &str) -> Result<()> {
        // Not /sys/class/net, which shows the namespace of whoever mounted it.
        nix::net::if_::if_nametoindex(name)
            .map(drop)
            .map_err(|_| "there is no such interface here")
            .cannot_or(Self::what(name), Self::remedy(name))
    }

    fn what(name: &str) -> String {
        format!("open the tap device \"{name}\"")
    }

    fn remedy(name: &str) -> String {
        format!(
            "make it first, as root: ip tuntap add dev {name} mode tap vnet_hdr user USER; \
             ip link set dev {name} up"
        )
    }

    fn attach(name: &str) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/net/tun")?;
        // SAFETY: an ifreq of zeros is valid: an empty name and flags of zero.
        let mut request: libc::ifreq = unsafe { zeroed() };
        // The name was checked to be shorter than the array, whose last byte stays NUL.
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(15)) {
            *to = from as _;
        }
        request.ifr_ifru.ifru_flags =
            (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as c_short;
        // SAFETY: the call reads and writes one ifreq, which `request` is.
        unsafe { set_interface(file.as_raw_fd(), &raw const request) }?;
        // SAFETY: the call reads one int.
        unsafe { set_header_size(file.as_raw_fd(), &raw const HEADER) }?;
        Ok(Self(file))
    }

    /// Which offloads the reader, the guest, can take: `TUN_F_` bits.
    pub fn set_offloads(&self, offloads: c_uint) -> io::Result<()> {
        // SAFETY: takes no pointers.
        unsafe { set_offloads(self.0.as_raw_fd(), offloads as c_int) }?;
        Ok(())
    }

    /// For vhost.
    pub const fn file(&self) -> &File {
        &self.0
    }
}
