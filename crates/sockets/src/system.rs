//! The system calls that take raw addresses: the only unsafe code of this crate.
//!
//! Buffers on the host are ordinary slices. Guest memory is reached by `iovec`s made from
//! [`Segments`], which borrow the mapping, so that it stays mapped during the call. Nothing else is
//! assumed of guest memory: the guest may change it at any time, and a page that cannot be had is
//! the kernel's EFAULT.

use crate::abi;
use crate::memory::Segments;
use libc::{c_int, c_void, iovec, msghdr, sockaddr, socklen_t};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A socket address as bytes: what it says is the kernel's to judge.
#[derive(Clone, Copy)]
pub struct Name {
    bytes: [u8; abi::MAX_NAME],
    len: socklen_t,
}

impl Name {
    /// Room for the longest name.
    pub const fn room() -> Self {
        Self {
            bytes: [0; abi::MAX_NAME],
            len: abi::MAX_NAME as socklen_t,
        }
    }

    /// A name of `len` bytes to be filled in.
    pub fn of_len(len: usize) -> Result<Self, Errno> {
        if len > abi::MAX_NAME {
            return Err(Errno::INVAL);
        }
        Ok(Self {
            len: len as socklen_t,
            ..Self::room()
        })
    }

    /// The name's bytes, at most [`abi::MAX_NAME`].
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..(self.len as usize).min(abi::MAX_NAME)]
    }

    /// The same to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..(self.len as usize).min(abi::MAX_NAME)]
    }

    /// The length of the name itself.
    pub const fn len(&self) -> u32 {
        self.len
    }
}

fn checked(result: c_int) -> Result<c_int, Errno> {
    if result < 0 {
        Err(last_error())
    } else {
        Ok(result)
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// A host socket, which never lingers: close(2) waits for `SO_LINGER`, even of a non-blocking socket,
/// and a VCPU must not. A linger time of 0, which resets the connection, is kept.
pub struct HostSocket(OwnedFd);

impl AsFd for HostSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl HostSocket {
    /// Whether close(2) waits (`None`: it does not), and for how many seconds.
    pub fn linger(&self) -> Option<i32> {
        let mut linger = [0; size_of::<libc::linger>()];
        get_option(self.as_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &mut linger).ok()?;
        let [a, b, c, d, time @ ..] = linger;
        (i32::from_ne_bytes([a, b, c, d]) != 0).then(|| i32::from_ne_bytes(time))
    }
}

impl Drop for HostSocket {
    fn drop(&mut self) {
        if self.linger().is_some_and(|time| time != 0) {
            let off = [0; size_of::<libc::linger>()];
            let _ = set_option(self.as_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &off);
        }
    }
}

/// socket(2), non-blocking and close-on-exec.
pub fn socket(family: c_int, kind: c_int, protocol: c_int) -> Result<HostSocket, Errno> {
    let kind = kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes no pointers.
    let fd = checked(unsafe { libc::socket(family, kind, protocol) })?;
    // SAFETY: the call returned a new descriptor that nothing else owns.
    Ok(HostSocket(unsafe { OwnedFd::from_raw_fd(fd) }))
}

type Naming = unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int;
type Asking = unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;

fn give_name(call: Naming, fd: BorrowedFd, name: &Name) -> Result<(), Errno> {
    let address = name.bytes().as_ptr().cast();
    // SAFETY: `address` is valid for reads of `bytes().len()` bytes, and the call reads no more.
    checked(unsafe { call(fd.as_raw_fd(), address, name.bytes().len() as socklen_t) }).map(drop)
}

fn ask_name(call: Asking, fd: BorrowedFd) -> Result<Name, Errno> {
    let mut name = Name::room();
    // SAFETY: `bytes` is valid for writes of `len` = MAX_NAME bytes, which the call reads first and
    // never exceeds; `len` is valid for reads and writes.
    checked(unsafe {
        call(
            fd.as_raw_fd(),
            name.bytes.as_mut_ptr().cast(),
            &raw mut name.len,
        )
    })?;
    Ok(name)
}

/// bind(2).
pub fn bind(fd: BorrowedFd, name: &Name) -> Result<(), Errno> {
    give_name(libc::bind, fd, name)
}

/// connect(2).
pub fn connect(fd: BorrowedFd, name: &Name) -> Result<(), Errno> {
    give_name(libc::connect, fd, name)
}

/// getsockname(2).
pub fn getsockname(fd: BorrowedFd) -> Result<Name, Errno> {
    ask_name(libc::getsockname, fd)
}

/// getpeername(2).
pub fn getpeername(fd: BorrowedFd) -> Result<Name, Errno> {
    ask_name(libc::getpeername, fd)
}

/// accept4(2), non-blocking and close-on-exec.
pub fn accept(fd: BorrowedFd) -> Result<(HostSocket, Name), Errno> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let mut name = Name::room();
    // SAFETY: as in `ask_name`.
    let accepted = checked(unsafe {
        libc::accept4(
            fd.as_raw_fd(),
            name.bytes.as_mut_ptr().cast(),
            &raw mut name.len,
            flags,
        )
    })?;
    // SAFETY: the call returned a new descriptor that nothing else owns.
    let accepted = HostSocket(unsafe { OwnedFd::from_raw_fd(accepted) });
    Ok((accepted, name))
}

/// setsockopt(2).
pub fn set_option(fd: BorrowedFd, level: i32, option: i32, value: &[u8]) -> Result<(), Errno> {
    let len = value.len() as socklen_t;
    // SAFETY: `value` is valid for reads of `len` bytes. No option on the list of `option.rs` has
    // a pointer in its value.
    checked(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, value.as_ptr().cast(), len) })
        .map(drop)
}

/// getsockopt(2): the length of the value, which is at the beginning of `value`.
pub fn get_option(
    fd: BorrowedFd,
    level: i32,
    option: i32,
    value: &mut [u8],
) -> Result<usize, Errno> {
    let mut len = value.len() as socklen_t;
    // SAFETY: `value` is valid for writes of `len` bytes, which the call reads first and never
    // exceeds; `len` is valid for reads and writes.
    checked(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            option,
            value.as_mut_ptr().cast(),
            &raw mut len,
        )
    })?;
    Ok((len as usize).min(value.len()))
}

/// getsockopt(2) of an int.
pub fn get_int_option(fd: BorrowedFd, level: i32, option: i32) -> Result<i32, Errno> {
    let mut value = [0; 4];
    get_option(fd, level, option, &mut value)?;
    Ok(i32::from_ne_bytes(value))
}

/// ioctl(2) with an argument that is `argument.len()` bytes without pointers.
pub fn ioctl(fd: BorrowedFd, request: u32, argument: &mut [u8]) -> Result<(), Errno> {
    let address = argument.as_mut_ptr().cast::<c_void>();
    // SAFETY: the requests on the list of `ioctl.rs` and `SET_BUSY_POLL`, all that callers make, read and
    // write at most the bytes that the list and `set_busy_poll` give, and `argument` is valid for so many;
    // none has pointers in it.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), libc::c_ulong::from(request), address) }).map(drop)
}

/// `EPIOCSPARAMS` of linux/eventpoll.h: how waits in an epoll set poll the card of its sockets (Linux 6.9).
pub const SET_BUSY_POLL: u32 = 0x4008_8a01;

/// Lets waits in an epoll set poll the card of its sockets for `microseconds` before they sleep; 0: not at all. While it
/// polls, the card's interrupts stay off where they may.
///
/// # Errors
/// ENOTTY before Linux 6.9; EOPNOTSUPP or EINVAL of a kernel without `NET_RX_BUSY_POLL`.
pub fn set_busy_poll(epoll: BorrowedFd, microseconds: u32) -> Result<(), Errno> {
    // `struct epoll_params`: the time, how many packets a poll takes (0: the kernel's own number), whether polls come
    // before interrupts, and a byte of zero.
    let mut parameters = [0; 8];
    parameters[..4].copy_from_slice(&microseconds.to_ne_bytes());
    parameters[6] = u8::from(microseconds > 0);
    ioctl(epoll, SET_BUSY_POLL, &mut parameters)
}

type Vectors = SmallVec<[iovec; 16]>;

fn vectors(data: &Segments) -> Vectors {
    let one = |segment: &vm_memory::VolatileSlice| iovec {
        iov_base: segment.ptr_guard_mut().as_ptr().cast(),
        iov_len: segment.len(),
    };
    data.iter().map(one).collect()
}

fn message(data: &mut Vectors, control: &mut [u8]) -> msghdr {
    // SAFETY: a msghdr of zeros is valid: null pointers with lengths of zero.
    let mut message: msghdr = unsafe { zeroed() };
    message.msg_iov = data.as_mut_ptr();
    message.msg_iovlen = data.len() as _;
    if !control.is_empty() {
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = control.len() as _;
    }
    message
}

fn moved(result: isize) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| last_error())
}

/// sendmsg(2) from guest memory. The caller has checked `control`.
pub fn send(
    fd: BorrowedFd,
    name: Option<&Name>,
    control: &mut [u8],
    data: &Segments,
    flags: c_int,
) -> Result<usize, Errno> {
    let mut vectors = vectors(data);
    let mut message = message(&mut vectors, control);
    if let Some(name) = name {
        message.msg_name = name.bytes().as_ptr().cast_mut().cast();
        message.msg_namelen = name.bytes().len() as socklen_t;
    }
    // SAFETY: every pointer of `message` is null with length 0 or comes from a value that outlives
    // the call, with that value's length: name, control and vectors are on the host; the vectors
    // point into guest memory, mapped as long as `data` borrows it. sendmsg writes to none.
    moved(unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, flags) })
}

/// What recvmsg(2) gives besides data.
pub struct Received {
    /// Its return value.
    pub value: usize,
    /// The sender's name; its length is 0 where there is none.
    pub name: Name,
    /// Bytes of control messages.
    pub control_len: usize,
    /// `MSG_` flags.
    pub flags: c_int,
}

/// recvmsg(2) into guest memory; control messages go to `control`.
pub fn receive(
    fd: BorrowedFd,
    control: &mut [u8],
    data: &Segments,
    flags: c_int,
) -> Result<Received, Errno> {
    let mut name = Name::room();
    let mut vectors = vectors(data);
    let mut message = message(&mut vectors, control);
    message.msg_name = name.bytes.as_mut_ptr().cast();
    message.msg_namelen = name.len;
    // SAFETY: as in `send`, and all of it is valid for writes: guest memory is only ever reached
    // through volatile accesses and system calls, so that no reference to it exists.
    let value = moved(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) })?;
    name.len = message.msg_namelen;
    Ok(Received {
        value,
        name,
        control_len: (message.msg_controllen as usize).min(control.len()),
        flags: message.msg_flags,
    })
}
