//! Where an exporter listens: on this host alone.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use steadyvm_fault::{At as _, Result};

/// A port of loopback, or a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A port of this host's loopback.
    Loopback(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return if path.is_absolute() {
                Ok(Self::Unix(path))
            } else {
                Err("write the whole path, as in unix:/run/steadyvm-exporter/socket".to_owned())
            };
        }
        let address: SocketAddr = text
            .parse()
            .map_err(|_| "write ADDRESS:PORT, as in 127.0.0.1:9979, or unix:PATH".to_owned())?;
        if address.ip().is_loopback() {
            Ok(Self::Loopback(address))
        } else {
            Err(format!(
                "{} is no address of loopback: other hosts could read this host's VMs without a password; put a proxy \
                 with TLS before 127.0.0.1",
                address.ip()
            ))
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback(address) => write!(formatter, "http://{address}/metrics"),
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// Listens at an address; a Unix socket's file goes with it.
#[derive(Debug)]
pub enum Listener {
    /// At a port.
    Tcp(TcpListener),
    /// At a file.
    Unix {
        /// The socket.
        listener: UnixListener,
        /// Its file, in the first of those who share it.
        _file: Option<Unlink>,
    },
}

/// Removes a file when it is dropped.
#[derive(Debug)]
pub struct Unlink(PathBuf);

impl Drop for Unlink {
    fn drop(&mut self) {
        // Nobody is left to be told; the next exporter takes the place of a socket that nobody listens at.
        let _ = fs::remove_file(&self.0);
    }
}

impl Listener {
    /// Begins to listen.
    ///
    /// # Errors
    /// An address that another process has, and the kernel's.
    pub fn open(address: &Address) -> Result<Self> {
        let what = format!("listen at {address}");
        let to_do = "end the process that has this address, or choose another with --listen";
        match address {
            Address::Loopback(address) => TcpListener::bind(address)
                .map(Self::Tcp)
                .cannot_or(what, to_do),
            Address::Unix(path) => {
                remove_what_is_left(path).cannot_or(&what, to_do)?;
                let listener = UnixListener::bind(path).cannot_or(what, to_do)?;
                Ok(Self::Unix {
                    listener,
                    _file: Some(Unlink(path.clone())),
                })
            }
        }
    }

    /// Where it listens; of port 0, the port that the kernel chose.
    ///
    /// # Errors
    /// The kernel's.
    pub fn address(&self) -> Result<Address> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Address::Loopback),
            Self::Unix { listener, .. } => listener.local_addr().map(|address| {
                Address::Unix(address.as_pathname().unwrap_or(Path::new("")).to_owned())
            }),
        }
        .cannot("find out where it listens")
    }

    /// The same for another thread; the file goes with the first.
    ///
    /// # Errors
    /// The kernel's.
    pub fn share(&self) -> Result<Self> {
        match self {
            Self::Tcp(listener) => listener.try_clone().map(Self::Tcp),
            Self::Unix { listener, .. } => listener.try_clone().map(|listener| Self::Unix {
                listener,
                _file: None,
            }),
        }
        .cannot("share a socket among threads")
    }

    /// Waits for a client.
    ///
    /// # Errors
    /// The kernel's.
    pub fn accept(&self) -> io::Result<Box<dyn Client>> {
        match self {
            Self::Tcp(listener) => Ok(Box::new(listener.accept()?.0)),
            Self::Unix { listener, .. } => Ok(Box::new(listener.accept()?.0)),
        }
    }
}

/// A socket that nobody listens at is of an exporter that was killed. Any other file is somebody's.
fn remove_what_is_left(path: &Path) -> Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
    if is_socket
        && UnixStream::connect(path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    {
        fs::remove_file(path).at("remove", path)?;
    }
    Ok(())
}

/// A connection.
pub trait Client: Read + Write + Send {
    /// How long one read and one write may take.
    ///
    /// # Errors
    /// The kernel's.
    fn limit(&self, time: Duration) -> io::Result<()>;
}

impl Client for TcpStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

impl Client for UnixStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_host_are_taken() {
        for good in ["127.0.0.1:9979", "[::1]:0", "127.9.9.9:80"] {
            assert!(matches!(good.parse(), Ok(Address::Loopback(_))), "{good}");
        }
        assert_eq!(
            "unix:/run/x".parse(),
            Ok(Address::Unix(PathBuf::from("/run/x")))
        );
        for bad in [
            "0.0.0.0:9979",
            "[::]:9979",
            "192.0.2.1:9979",
            "9979",
            "unix:x",
            "",
        ] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_place_of_a_killed_exporter_is_taken_and_no_others() {
        let place = tempfile::tempdir().unwrap();
        let address = |name| Address::Unix(place.path().join(name));
        drop(UnixListener::bind(place.path().join("left")).unwrap());
        let listener = Listener::open(&address("left")).unwrap();
        assert_eq!(listener.address().unwrap(), address("left"));
        Listener::open(&address("left")).unwrap_err();
        drop(listener);
        assert!(!place.path().join("left").exists());
        fs::write(place.path().join("file"), "kept").unwrap();
        Listener::open(&address("file")).unwrap_err();
        assert_eq!(
            fs::read_to_string(place.path().join("file")).unwrap(),
            "kept"
        );
    }
}
