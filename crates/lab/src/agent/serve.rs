//! The agent: takes requests from a stream and runs processes for them.

use super::protocol::{
    Event, MAX_PIECE_BYTES, ProcessId, Request, Status, Stream, TerminalSize, VERSION, read_frame,
    write_frame,
};
use nix::pty::openpty;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

nix::ioctl_write_ptr_bad!(set_window_size, libc::TIOCSWINSZ, libc::winsize);

/// The device of the virtio-serial port with this name.
pub fn port_named(name: &str) -> io::Result<PathBuf> {
    for port in std::fs::read_dir("/sys/class/virtio-ports")? {
        let port = port?;
        let found = std::fs::read_to_string(port.path().join("name")).unwrap_or_default();
        if found.trim() == name {
            return Ok(PathBuf::from("/dev").join(port.file_name()));
        }
    }
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        format!("no virtio-serial port is named {name}"),
    ))
}

/// Serves requests until the stream ends, then kills what it started.
///
/// `reader` and `writer` are the two directions of the control channel.
pub fn serve(mut reader: impl Read, writer: impl Write + Send + 'static) -> io::Result<()> {
    let events = Events(Arc::new(Mutex::new(Box::new(writer))));
    events.send(&Event::Ready { version: VERSION });
    let running = Running::default();
    while let Some(request) = read_frame::<Request>(&mut reader)? {
        handle(request, &running, &events);
    }
    running.signal_all(Signal::SIGKILL);
    Ok(())
}

fn handle(request: Request, running: &Running, events: &Events) {
    match request {
        Request::Spawn { id, argv, terminal } => {
            if let Err(error) = spawn(id, &argv, terminal, running, events) {
                let program = argv.first().map_or("an empty command", String::as_str);
                events.send(&Event::Refused {
                    id,
                    why: format!("{program}: {error}"),
                });
            }
        }
        Request::Input { id, data } => running.input(id, Some(data)),
        Request::EndOfInput { id } => running.input(id, None),
        Request::Signal { id, signal } => {
            if let Ok(signal) = Signal::try_from(signal) {
                running.signal(id, signal);
            }
        }
        Request::Resize { id, size } => running.resize(id, size),
    }
}

/// The one writer of the channel, shared by the threads that carry output.
#[derive(Clone)]
struct Events(Arc<Mutex<Box<dyn Write + Send>>>);

impl Events {
    /// Sends an event. A broken channel is noticed by the reader of requests, so errors are
    /// dropped here.
    fn send(&self, event: &Event) {
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = write_frame(&mut **writer, event);
    }
}

/// The processes that run, by the caller's name.
#[derive(Clone, Default)]
struct Running(Arc<Mutex<HashMap<ProcessId, Entry>>>);

struct Entry {
    group: Pid,
    /// To the thread that feeds standard input; `None` once input has ended.
    input: Option<Sender<Vec<u8>>>,
    terminal: Option<OwnedFd>,
}

impl Running {
    fn with<T>(&self, id: ProcessId, act: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_mut(&id)
            .map(act)
    }

    fn insert(&self, id: ProcessId, entry: Entry) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id, entry);
    }

    fn remove(&self, id: ProcessId) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&id);
    }

    /// `None` ends the input.
    fn input(&self, id: ProcessId, data: Option<Vec<u8>>) {
        self.with(id, |entry| match data {
            // A process that no longer reads is no error of the caller's.
            Some(data) => drop(entry.input.as_ref().map(|input| input.send(data))),
            None => entry.input = None,
        });
    }

    fn signal(&self, id: ProcessId, signal: Signal) {
        self.with(id, |entry| killpg(entry.group, signal));
    }

    fn signal_all(&self, signal: Signal) {
        for entry in self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
        {
            let _ = killpg(entry.group, signal);
        }
    }

    fn resize(&self, id: ProcessId, size: TerminalSize) {
        self.with(id, |entry| {
            if let Some(terminal) = &entry.terminal {
                let size = window_size(size);
                // SAFETY: the descriptor is open for as long as `terminal` is borrowed and
                // `size` is a winsize that outlives the call.
                let _ = unsafe { set_window_size(terminal.as_raw_fd(), &raw const size) };
            }
        });
    }
}

fn window_size(size: TerminalSize) -> libc::winsize {
    libc::winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// Starts a process and the threads that carry its input and output.
fn spawn(
    id: ProcessId,
    argv: &[String],
    terminal: Option<TerminalSize>,
    running: &Running,
    events: &Events,
) -> io::Result<()> {
    let (program, arguments) = argv
        .split_first()
        .ok_or_else(|| io::Error::other("no program given"))?;
    let mut command = Command::new(program);
    command.args(arguments);
    let (child, streams) = match terminal {
        None => spawn_with_pipes(&mut command)?,
        Some(size) => spawn_in_terminal(&mut command, size)?,
    };
    let (input, to_write) = channel();
    running.insert(
        id,
        Entry {
            group: Pid::from_raw(child.id() as i32),
            input: Some(input),
            terminal: streams.terminal,
        },
    );
    events.send(&Event::Started {
        id,
        pid: child.id(),
    });
    thread::spawn(move || feed(&to_write, streams.input));
    let readers: Vec<_> = streams
        .outputs
        .into_iter()
        .map(|(stream, source)| {
            let events = events.clone();
            thread::spawn(move || carry(id, stream, source, &events))
        })
        .collect();
    let (running, events) = (running.clone(), events.clone());
    thread::spawn(move || {
        let status = wait(child);
        for reader in readers {
            let _ = reader.join();
        }
        running.remove(id);
        events.send(&Event::Ended { id, status });
    });
    Ok(())
}

/// The agent's ends of a process's standard streams.
struct Streams {
    input: Box<dyn Write + Send>,
    outputs: Vec<(Stream, Box<dyn Read + Send>)>,
    terminal: Option<OwnedFd>,
}

fn spawn_with_pipes(command: &mut Command) -> io::Result<(Child, Streams)> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = command.spawn()?;
    let missing = || io::Error::other("a standard stream is missing");
    let input = Box::new(child.stdin.take().ok_or_else(missing)?);
    let output = Box::new(child.stdout.take().ok_or_else(missing)?);
    let error = Box::new(child.stderr.take().ok_or_else(missing)?);
    let outputs: Vec<(Stream, Box<dyn Read + Send>)> =
        vec![(Stream::Output, output), (Stream::Error, error)];
    Ok((
        child,
        Streams {
            input,
            outputs,
            terminal: None,
        },
    ))
}

fn spawn_in_terminal(command: &mut Command, size: TerminalSize) -> io::Result<(Child, Streams)> {
    let pair = openpty(Some(&window_size(size)), None)?;
    let slave = File::from(pair.slave);
    command
        .stdin(slave.try_clone()?)
        .stdout(slave.try_clone()?)
        .stderr(slave);
    // SAFETY: only async-signal-safe system calls run between fork and exec; standard input
    // is the terminal's slave by then.
    unsafe {
        command.pre_exec(|| {
            nix::unistd::setsid()?;
            if libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
    let child = command.spawn()?;
    // The command still holds the slave; dropping it lets the master see the end.
    *command = Command::new("");
    let master = File::from(pair.master);
    let output: Box<dyn Read + Send> = Box::new(master.try_clone()?);
    let streams = Streams {
        input: Box::new(master.try_clone()?),
        outputs: vec![(Stream::Output, output)],
        terminal: Some(master.into()),
    };
    Ok((child, streams))
}

fn feed(pieces: &Receiver<Vec<u8>>, mut input: impl Write) {
    for piece in pieces {
        if input
            .write_all(&piece)
            .and_then(|()| input.flush())
            .is_err()
        {
            return;
        }
    }
}

fn carry(id: ProcessId, stream: Stream, mut source: impl Read, events: &Events) {
    let mut buffer = vec![0; MAX_PIECE_BYTES];
    loop {
        match source.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A terminal's master reports EIO once its last user is gone: the end.
            Ok(0) | Err(_) => return,
            Ok(count) => {
                events.send(&Event::Output {
                    id,
                    stream,
                    data: buffer[..count].to_vec(),
                });
            }
        }
    }
}

fn wait(mut child: Child) -> Status {
    match child.wait() {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Status::Exited(code),
            (None, signal) => Status::Killed(signal.unwrap_or_default()),
        },
        Err(_) => Status::Exited(-1),
    }
}
