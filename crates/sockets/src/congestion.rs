//! TCP's congestion control: which algorithms a guest may choose.
//!
//! With `CAP_NET_ADMIN` the kernel lets a socket use restricted algorithms, and loads a module by the name
//! that was asked for (`tcp_ca_find_autoload()`). A guest is to have what a program without capabilities
//! has, so names are judged here, by the lists that the namespace had when the device was made.

use crate::system;
use rustix::io::Errno;
use std::fs;
use std::os::fd::BorrowedFd;

/// The algorithms of a network namespace.
#[derive(Debug, Default)]
pub struct Algorithms {
    allowed: Vec<Vec<u8>>,
    available: Vec<Vec<u8>>,
}

impl Algorithms {
    /// Those of the calling thread's namespace. Where /proc does not say them, a socket keeps what it has.
    pub fn read() -> Self {
        let names = |file: &str| {
            let path = format!("/proc/sys/net/ipv4/{file}");
            let text = fs::read_to_string(path).unwrap_or_default();
            let names = text.split_whitespace().map(|name| name.as_bytes().to_vec());
            names.collect()
        };
        Self {
            allowed: names("tcp_allowed_congestion_control"),
            available: names("tcp_available_congestion_control"),
        }
    }

    /// Whether a socket may be given an algorithm.
    ///
    /// # Errors
    /// EPERM for one that is restricted, ENOENT for one that the host does not have now.
    pub fn check(&self, fd: BorrowedFd, name: &[u8]) -> Result<(), Errno> {
        let has = |list: &[Vec<u8>]| list.iter().any(|known| known == name);
        if has(&self.allowed) {
            return Ok(());
        }
        let mut current = [0; 16];
        let got = system::get_option(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, &mut current);
        let Ok(len) = got else {
            // No TCP: the host says so.
            return Ok(());
        };
        let current = current[..len].split(|byte| *byte == 0).next();
        if current == Some(name) {
            return Ok(());
        }
        Err(if has(&self.available) {
            Errno::PERM
        } else {
            Errno::NOENT
        })
    }
}
