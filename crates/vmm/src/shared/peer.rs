//! The door: how QEMU's `ivshmem-doorbell` gets memory and doorbells, by the protocol of its
//! `docs/specs/ivshmem-spec.rst`. The server alone speaks; whatever the client says ends its connection. So
//! nothing of it is ever parsed.

use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{ControlMessage, MsgFlags, getsockopt, sendmsg};
use nix::sys::stat::{Mode, umask};
use nix::unistd::geteuid;
use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use steadyvm_files::{Directory, FileType, Others};
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
///
/// It is made in a directory that was opened once and that nobody else can change: whoever could put something else in its
/// place would have root's process remove it, or give it away. The client's user owns nothing of it: all may connect, as
/// the file system goes, and the kernel's word of who did decides.
pub struct Door {
    listener: UnixListener,
    directory: Directory,
    name: OsString,
    client_user: Option<u32>,
}

impl Door {
    /// A socket at `path` that this user alone may connect to, or `client_user`.
    ///
    /// # Errors
    /// Where somebody listens there already; a directory that others can change; the kernel's.
    pub fn open(path: &Path, client_user: Option<u32>) -> Result<Self> {
        let what = format!("listen on {}", path.display());
        let own = geteuid().as_raw();
        if own != 0 && client_user.is_some_and(|user| user != own) {
            return Err(Error::input(
                "--client-user",
                "only root's process can let another user connect: start it as root",
            ));
        }
        let opened = Directory::of(path, Others::Refused);
        let (directory, name) = opened.map_err(|error| {
            Error::input(&what, error).what_to_do(
                "give a path in a directory that you can write to and nobody else, such as /run/steadyvm",
            )
        })?;
        let reached = directory.reach(&name);
        if UnixStream::connect(&reached).is_ok() {
            return Err(Error::input(
                path.display().to_string(),
                "another program listens on this socket: each VM has a path of its own",
            ));
        }
        // What a program left that was killed.
        if directory.kind(&name).cannot(&what)? == Some(FileType::Socket) {
            directory.remove(&name).cannot(&what)?;
        }
        let others = if client_user.is_some() {
            Mode::S_IXUSR | Mode::S_IXGRP | Mode::S_IXOTH
        } else {
            Mode::S_IXUSR | Mode::S_IRWXG | Mode::S_IRWXO
        };
        let before = umask(others);
        let bound = UnixListener::bind(&reached);
        umask(before);
        Ok(Self {
            listener: bound.cannot_or(&what, "give a path in a directory that you can write to")?,
            directory,
            name,
            client_user,
        })
    }

    /// Readable when somebody is there.
    pub const fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Who came; none if it was none of those who may. After the front end, the door is to be closed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn accept(&self) -> Result<Option<UnixStream>> {
        let what = "accept the front end";
        let (client, _) = self.listener.accept().cannot(what)?;
        let user = getsockopt(&client, PeerCredentials).cannot(what)?.uid();
        let may_come = user == 0 || user == geteuid().as_raw() || Some(user) == self.client_user;
        if !may_come {
            eprintln!(
                "steadyvm sockets: user {user} may not connect, and is sent away: --client-user names who may"
            );
        }
        Ok(may_come.then_some(client))
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = self.directory.remove(&self.name);
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

    use super::*;

    const NOBODY: u32 = 65534;

    fn is_root() -> bool {
        let is_root = geteuid().is_root();
        if !is_root {
            eprintln!("not tested: only root lets others connect");
        }
        is_root
    }

    #[test]
    fn nothing_is_given_to_the_clients_user() {
        if !is_root() {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("web.sock");
        let door = Door::open(&path, Some(NOBODY)).unwrap();
        let socket = fs::symlink_metadata(&path).unwrap();
        assert_eq!(
            (socket.uid(), socket.permissions().mode() & 0o777),
            (0, 0o666)
        );
        assert!(Door::open(&path, None).is_err(), "somebody listens there");
        drop(door);
        assert!(!path.exists());
        let _own = Door::open(&path, None).unwrap();
        let socket = fs::symlink_metadata(&path).unwrap();
        assert_eq!(socket.permissions().mode() & 0o777, 0o600);
    }

    /// Whose directory it was could exchange the socket by a link before it was given away by its name, and had root's file.
    #[test]
    fn the_directory_of_the_clients_user_is_refused() {
        if !is_root() {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let victim = place.path().join("victim");
        fs::write(&victim, "").unwrap();
        let of_client = place.path().join("qemu");
        fs::create_dir(&of_client).unwrap();
        chown(&of_client, Some(NOBODY), None).unwrap();
        let path = of_client.join("web.sock");
        for prepare in [false, true] {
            if prepare {
                symlink(&victim, &path).unwrap();
            }
            let said = Door::open(&path, Some(NOBODY)).map(drop).unwrap_err();
            assert_eq!(said.blame.exit_code(), 2);
            let said = said.to_string();
            assert!(
                said.contains("user 65534") && said.contains("/run/steadyvm"),
                "{said}"
            );
            assert_eq!(fs::metadata(&victim).unwrap().uid(), 0);
            assert_eq!(fs::symlink_metadata(&path).is_ok(), prepare);
        }
        // In root's own, a link is left, too.
        let path = place.path().join("web.sock");
        symlink(&victim, &path).unwrap();
        assert!(Door::open(&path, Some(NOBODY)).is_err());
        assert!(victim.exists() && path.is_symlink());
    }

    #[test]
    fn a_directory_that_is_exchanged_meanwhile_is_not_touched() {
        let place = tempfile::tempdir().unwrap();
        let (first, moved) = (place.path().join("a"), place.path().join("b"));
        fs::create_dir(&first).unwrap();
        let door = Door::open(&first.join("s"), None).unwrap();
        fs::rename(&first, &moved).unwrap();
        fs::create_dir(&first).unwrap();
        fs::write(first.join("s"), "another's").unwrap();
        drop(door);
        assert!(first.join("s").exists() && !moved.join("s").exists());
    }
}
