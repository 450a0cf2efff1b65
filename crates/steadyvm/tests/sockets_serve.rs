//! `steadyvm sockets serve` on this machine: who is served, what the process may do then, and its end. The front end
//! is this test, on the real socket; as root.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

const STEADYVM: &str = env!("CARGO_BIN_EXE_steadyvm");

/// A version, a number, the memory, and three vectors of each of two peers, in eight bytes each.
const HANDSHAKE_BYTES: usize = 8 * (3 + 3 + 3);

struct Server {
    process: Child,
    errors: BufReader<std::process::ChildStderr>,
    place: tempfile::TempDir,
}

impl Server {
    fn start(options: &[&str]) -> Self {
        let place = tempfile::tempdir().unwrap();
        let mut process = Command::new(STEADYVM)
            .args(["sockets", "serve", "--channels", "2", "--no-lock-memory"])
            .arg("--socket")
            .arg(place.path().join("door"))
            .args(options)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let errors = BufReader::new(process.stderr.take().unwrap());
        Self {
            process,
            errors,
            place,
        }
    }

    fn door(&self) -> PathBuf {
        self.place.path().join("door")
    }

    /// Its first line.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.errors.read_line(&mut line).unwrap();
        line
    }

    /// A front end that has heard all.
    fn connect(&mut self) -> UnixStream {
        let line = self.line();
        assert!(line.contains("is waited for"), "{line}");
        let mut front = UnixStream::connect(self.door()).unwrap();
        let mut said = [0; HANDSHAKE_BYTES];
        front.read_exact(&mut said).unwrap();
        front
    }

    fn signal(&self, signal: i32) {
        // SAFETY: takes no pointers; the child has not been waited for.
        assert_eq!(unsafe { libc::kill(self.process.id() as i32, signal) }, 0);
    }

    fn end(&mut self) -> (ExitStatus, String) {
        let mut said = String::new();
        self.errors.read_to_string(&mut said).unwrap();
        (self.process.wait().unwrap(), said)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits for the confinement of a thread, which comes after the front end has heard all.
fn status_once_filtered(thread: &Path) -> String {
    loop {
        let status = fs::read_to_string(thread.join("status")).unwrap();
        if status.contains("Seccomp:\t2") {
            return status;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_server_is_confined_while_it_serves_and_ends_with_its_front_end() {
    let mut server = Server::start(&["--namespace", "new", "--name", "t"]);
    let front = server.connect();
    assert!(!server.door().exists(), "one front end, one door");
    let proc = Path::new("/proc").join(server.process.id().to_string());
    status_once_filtered(&proc);
    let mut names = Vec::new();
    for thread in fs::read_dir(proc.join("task")).unwrap() {
        let thread = thread.unwrap().path();
        let status = status_once_filtered(&thread);
        let name = fs::read_to_string(thread.join("comm")).unwrap();
        let kept = if name.starts_with("sockets") {
            1 << 10
        } else {
            0
        };
        assert!(
            status.contains(&format!("CapEff:\t{kept:016x}")),
            "{name}{status}"
        );
        assert!(status.contains("NoNewPrivs:\t1"), "{status}");
        names.push(name.trim().to_owned());
    }
    for name in ["sockets0/t", "sockets1/t", "output/t"] {
        assert!(names.iter().any(|one| one == name), "{names:?}");
    }
    assert_eq!(fs::read_dir(proc.join("root")).unwrap().count(), 0);
    drop(front);
    let (status, said) = server.end();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(
        said.contains("ended by the front end, which has gone"),
        "{said}"
    );
}

#[test]
fn sigterm_ends_a_server_before_and_after_its_front_end_came() {
    for connected in [false, true] {
        let mut server = Server::start(&["--namespace", "new"]);
        let front = if connected {
            Some(server.connect())
        } else {
            server.line();
            None
        };
        server.signal(libc::SIGTERM);
        let (status, said) = server.end();
        assert_eq!((status.code(), status.signal()), (Some(0), None), "{said}");
        assert!(said.contains("ended by SIGTERM"), "{said}");
        assert!(!server.door().exists());
        drop(front);
    }
}

#[test]
fn what_cannot_be_served_is_refused() {
    for (options, why) in [
        (&["--namespace", "current"][..], "the host's own network"),
        (&["--namespace", "none-such"], "make it with: ip netns add"),
        (
            &["--namespace", "new", "--max-priority", "7"],
            "is not 0 to 6",
        ),
        (
            &["--namespace", "new", "--rt-priority", "99"],
            "is not 1 to 98",
        ),
        (
            &["--namespace", "new", "--request-kib", "65"],
            "is not 4 to 64",
        ),
    ] {
        let mut server = Server::start(options);
        let (status, said) = server.end();
        assert_eq!(status.code(), Some(2), "{said}");
        assert!(said.contains(why), "{said}");
        assert!(!server.door().exists());
    }
}

/// Connects to a socket as a user, and says whether the whole handshake was heard. (A front end that leaves within it
/// breaks the server's pipe.)
fn is_served_as(user: u32, door: &Path) -> bool {
    let script = "my $s = IO::Socket::UNIX->new(Peer => shift) or die $!;\n\
        my $count = 0;\n\
        while ($count < $ARGV[0] and my $more = sysread($s, my $said, 8)) { $count += $more }\n\
        print \"$count\\n\"";
    let asked = Command::new("setpriv")
        .args(["--reuid", &user.to_string(), "--clear-groups"])
        .args(["perl", "-MIO::Socket::UNIX", "-e", script])
        .arg(door)
        .arg(HANDSHAKE_BYTES.to_string())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&asked.stderr);
    assert!(asked.status.success(), "{error}");
    let heard: usize = String::from_utf8_lossy(&asked.stdout)
        .trim()
        .parse()
        .unwrap();
    assert!(heard == 0 || heard == HANDSHAKE_BYTES, "{heard} bytes");
    heard == HANDSHAKE_BYTES
}

#[test]
fn others_than_the_clients_user_are_sent_away() {
    const CLIENT: u32 = 65533;
    let mut server = Server::start(&["--namespace", "new", "--client-user", "65533"]);
    let line = server.line();
    assert!(line.contains("is waited for"), "{line}");
    // As a directory in /run would be.
    let open = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o711);
    fs::set_permissions(server.place.path(), open).unwrap();
    assert!(!is_served_as(65534, &server.door()));
    let told = server.line();
    assert!(told.contains("user 65534 may not connect"), "{told}");
    assert!(server.door().exists(), "the front end is still waited for");
    assert!(is_served_as(CLIENT, &server.door()));
    let (status, said) = server.end();
    assert_eq!(status.code(), Some(0), "{said}");
}
