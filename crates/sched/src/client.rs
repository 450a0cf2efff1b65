//! Who asks the loader: each request has a time limit, and a loader that does not answer can still be ended.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

use crate::error::Error;
use crate::process::ProcessId;
use crate::protocol::{self, Reply, Request, STOP, VERSION};

/// A loader answers within this time: the thread that does comes before VCPUs.
pub const LIMIT: Duration = Duration::from_secs(2);
/// All threads go back to the kernel's own scheduler before it answers to a request to end.
const END_LIMIT: Duration = Duration::from_secs(10);
/// A loader that was killed is gone by then, unless the kernel itself is stuck.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// Asks the loader.
///
/// # Errors
/// No loader runs, it does not answer within [`LIMIT`], it is of another version, or it refuses.
pub fn ask(socket: &Path, request: &Request) -> Result<Reply, Error> {
    let line = protocol::request_line(request)?;
    let said = exchange(socket, &line, LIMIT)?;
    let (version, reply) = protocol::read_reply(&said);
    if version != VERSION {
        return Err(Error::OtherVersion {
            socket: socket.display().to_string(),
            theirs: version,
            ours: VERSION,
        });
    }
    match reply {
        Some(Reply::Refused(why)) => Err(Error::Input(why)),
        Some(reply) => Ok(reply),
        None => Err(Error::State(format!("{} says: {said}", loader_at(socket)))),
    }
}

/// Ends the loader, and with it the scheduler: by asking it, whatever its version, and by SIGKILL if it does not answer.
///
/// # Errors
/// No loader runs; it does not answer and it is not known which process it is.
pub fn end(socket: &Path) -> Result<(), Error> {
    end_within(socket, END_LIMIT)
}

fn end_within(socket: &Path, limit: Duration) -> Result<(), Error> {
    let asked = exchange(socket, &format!("{STOP}\n"), limit);
    match asked.map(|said| protocol::read_reply(&said).1) {
        Ok(Some(Reply::Refused(why))) => Err(Error::State(why)),
        Ok(_) => Ok(()),
        Err(why) => {
            let failed = |error: io::Error| Error::Refused {
                what: format!("end {}", loader_at(socket)),
                why: error.to_string(),
            };
            let recorded = recorded(socket).map_err(failed)?;
            let opened = recorded.map(ProcessId::open).transpose().map_err(failed)?;
            let Some(process) = opened.flatten() else {
                return Err(why);
            };
            process.kill().map_err(failed)?;
            if !process.wait(KILL_LIMIT).map_err(failed)? {
                return Err(failed(io::Error::other("it was killed and does not end")));
            }
            let _ = fs::remove_file(record_of(socket));
            Ok(())
        }
    }
}

/// Where a loader says which process it is.
pub(crate) fn record_of(socket: &Path) -> PathBuf {
    socket.with_extension("pid")
}

/// The loader's process, as it said; none if none did. Believed only if it is root's or this user's own word.
fn recorded(socket: &Path) -> io::Result<Option<ProcessId>> {
    let mut options = OpenOptions::new();
    let opened = options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(record_of(socket));
    let mut file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let (found, own) = (file.metadata()?, nix::unistd::geteuid().as_raw());
    if ![0, own].contains(&found.uid()) || found.mode() & 0o022 != 0 {
        return Err(io::Error::other(format!(
            "{} is another user's, or others may write it",
            record_of(socket).display()
        )));
    }
    let mut text = String::new();
    Read::by_ref(&mut file).take(64).read_to_string(&mut text)?;
    Ok(text.parse().ok())
}

fn loader_at(socket: &Path) -> String {
    format!("the scheduler's loader at {}", socket.display())
}

/// Sends a line, and gives the one that comes back.
fn exchange(socket: &Path, line: &str, limit: Duration) -> Result<String, Error> {
    let begun = Instant::now();
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Silent {
            socket: socket.display().to_string(),
            seconds: limit.as_secs_f64(),
        },
        _ => Error::Refused {
            what: format!("ask {}", loader_at(socket)),
            why: format!("{error}; `steadyvm sched ext run` starts it"),
        },
    };
    let mut stream = connected(socket, limit).map_err(failed)?;
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        stream
            .set_write_timeout(Some(protocol::left(begun, limit).map_err(failed)?))
            .map_err(failed)?;
        match stream.write(rest) {
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    protocol::read_line(&mut stream, begun, limit).map_err(failed)
}

/// Where nobody takes connections any more and their queue is full, connecting waits, too.
fn connected(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let client: OwnedFd = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    let seconds = TimeVal::new(limit.as_secs().cast_signed(), limit.subsec_micros().into());
    setsockopt(&client, sockopt::SendTimeout, &seconds)?;
    connect(client.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(UnixStream::from(client))
}

#[cfg(test)]
mod tests {
    use std::io::BufRead as _;
    use std::os::unix::net::UnixListener;
    use std::process::{Child, Command, Stdio};
    use std::thread;

    use super::*;

    const SHORT: Duration = Duration::from_millis(300);

    /// A process that listens there and never answers, as one that is stopped.
    fn silent(socket: &Path) -> Child {
        let listens = "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\ns.listen(1)\n\
                       print(flush=True)\nsys.stdin.read()";
        let mut child = Command::new("python3")
            .args(["-c", listens])
            .arg(socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = io::BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "\n");
        child
    }

    #[test]
    fn a_loader_that_does_not_answer_is_told_in_time_and_ended() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("sched.sock");
        let mut child = silent(&socket);
        let begun = Instant::now();
        let error = ask(&socket, &Request::Show).unwrap_err();
        assert!(matches!(error, Error::Silent { .. }), "{error}");
        assert_eq!(error.exit_code(), 3);
        assert!(begun.elapsed() < 5 * LIMIT, "{:?}", begun.elapsed());
        // Until its queue is full, too: then connecting waits.
        let waiting: Vec<_> = (0..3).map(|_| connected(&socket, SHORT)).collect();
        assert!(waiting.iter().any(Result::is_err), "{waiting:?}");
        // Whose number is not known, nobody is ended for it.
        let error = end_within(&socket, SHORT).unwrap_err();
        assert!(matches!(error, Error::Silent { .. }), "{error}");
        assert!(child.try_wait().unwrap().is_none());
        let id = ProcessId::of(child.id()).unwrap();
        fs::write(record_of(&socket), id.to_string()).unwrap();
        end_within(&socket, SHORT).unwrap();
        assert!(!child.wait().unwrap().success());
        assert!(!record_of(&socket).exists());
    }

    #[test]
    fn nobody_is_ended_by_the_word_of_another_user_or_for_a_process_that_is_gone() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("sched.sock");
        let mut child = silent(&socket);
        let record = record_of(&socket);
        let id = ProcessId::of(child.id()).unwrap();
        fs::write(&record, id.to_string()).unwrap();
        fs::set_permissions(&record, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        let error = end_within(&socket, SHORT).unwrap_err();
        assert!(error.to_string().contains("others may write it"), "{error}");
        fs::remove_file(&record).unwrap();
        fs::write(&record, format!("{} 1", child.id())).unwrap();
        let error = end_within(&socket, SHORT).unwrap_err();
        assert!(matches!(error, Error::Silent { .. }), "{error}");
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// One that sends a byte now and then does not gain time by that.
    #[test]
    fn the_limit_is_of_the_whole_answer() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("sched.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while stream.write_all(b"x").is_ok() {}
        });
        let error = exchange(&socket, "\"show\"\n", SHORT).unwrap_err();
        let is_bounded = matches!(error, Error::Silent { .. } | Error::Refused { .. });
        assert!(is_bounded, "{error}");
        server.join().unwrap();
    }

    /// A loader of the version before this protocol, and one of a later one.
    #[test]
    fn a_loader_of_another_version_is_told_and_ends_when_it_is_asked() {
        for (answer, theirs) in [
            (r#"{"refused":"no request: unknown variant `version`"}"#, 1),
            (r#"{"version":9,"reply":{"unheard":{}}}"#, 9),
        ] {
            let place = tempfile::tempdir().unwrap();
            let socket = place.path().join("sched.sock");
            let listener = UnixListener::bind(&socket).unwrap();
            let server = thread::spawn(move || {
                let mut heard = Vec::new();
                for stream in listener.incoming().take(2) {
                    let mut stream = stream.unwrap();
                    let mut line = String::new();
                    let mut reader = io::BufReader::new(stream.try_clone().unwrap());
                    reader.read_line(&mut line).unwrap();
                    let is_stop = line.trim() == "\"stop\"";
                    let answer = if is_stop { "\"done\"" } else { answer };
                    writeln!(stream, "{answer}").unwrap();
                    heard.push(is_stop);
                }
                heard
            });
            match ask(&socket, &Request::Enforced).unwrap_err() {
                Error::OtherVersion { theirs: found, .. } => assert_eq!(found, theirs),
                error => panic!("{error}"),
            }
            end(&socket).unwrap();
            assert_eq!(server.join().unwrap(), [false, true]);
        }
    }
}
