//! The door: how QEMU's `ivshmem-doorbell` gets memory and doorbells, by the protocol of its
//! `docs/specs/ivshmem-spec.rst`. The server alone speaks; whatever the client says ends its connection. So
//! nothing of it is ever parsed.

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::sys::stat::{Mode, umask};
use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::chown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use steadyvm_sockets::abi::shared::SERVER;
use vmm_sys_util::eventfd::EventFd;

use steadyvm_fault::{At, Fault as Error, Result};

/// The protocol's version.
const VERSION: i64 = 0;
/// The guest's number among the peers: the server has the other.
pub const GUEST: i64 = 1;
/// The message that comes with the memory.
const MEMORY: i64 = -1;

/// The socket on which the front end is waited for. Its file goes with this value.
pub struct Door {
    listener: UnixListener,
    path: PathBuf,
}

impl Door {
    /// A socket at `path` that this user alone may connect to, or `user`.
    ///
    /// # Errors
    /// Where somebody listens there already; the kernel's.
    pub fn open(path: &Path, user: Option<u32>) -> Result<Self> {
        let what = format!("listen on {}", path.display());
        if UnixStream::connect(path).is_ok() {
            return Err(Error::input(
                path.display().to_string(),
                "another program listens on this socket: each VM has a path of its own",
            ));
        }
        // What a program left that was killed.
        let is_socket = |path: &Path| {
            use std::os::unix::fs::FileTypeExt;
            fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
        };
        if is_socket(path) {
            fs::remove_file(path).cannot(&what)?;
        }
        let before = umask(Mode::S_IRWXG | Mode::S_IRWXO);
        let bound = UnixListener::bind(path);
        umask(before);
        let door = Self {
            listener: bound.cannot_or(&what, "give a path in a directory that you can write to")?,
            path: path.to_owned(),
        };
        if let Some(user) = user {
            chown(path, Some(user), None).cannot(format!("give {} to {user}", path.display()))?;
        }
        Ok(door)
    }

    /// Readable when a front end is there.
    pub const fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// The front end that came: there is one, and the door closes behind it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn accept(self) -> Result<UnixStream> {
        let accepted = self.listener.accept();
        accepted
            .map(|(client, _)| client)
            .cannot("accept the front end")
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Gives a front end the memory, what rings the server (`kicks`) and what interrupts the guest (`calls`),
/// one of each a vector.
///
/// # Errors
/// Where it has gone, or does not read.
pub fn introduce(
    client: &UnixStream,
    memory: RawFd,
    kicks: &[EventFd],
    calls: &[EventFd],
) -> io::Result<()> {
    client.set_nonblocking(true)?;
    say(client, VERSION, None)?;
    say(client, GUEST, None)?;
    say(client, MEMORY, Some(memory))?;
    for kick in kicks {
        say(client, SERVER.into(), Some(kick.as_raw_fd()))?;
    }
    for call in calls {
        say(client, GUEST, Some(call.as_raw_fd()))?;
    }
    Ok(())
}

fn say(client: &UnixStream, message: i64, descriptor: Option<RawFd>) -> io::Result<()> {
    let bytes = message.to_le_bytes();
    let descriptors: Vec<RawFd> = descriptor.into_iter().collect();
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let control = if descriptors.is_empty() {
        &[][..]
    } else {
        &rights[..]
    };
    let data = [IoSlice::new(&bytes)];
    let flags = MsgFlags::MSG_NOSIGNAL;
    let sent = sendmsg::<()>(client.as_raw_fd(), &data, control, flags, None)?;
    if sent == bytes.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}
