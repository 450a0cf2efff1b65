//! The caller's end of a control channel.

use super::protocol::{
    Event, ProcessId, Request, Status, Stream, TerminalSize, VERSION, read_frame, write_frame,
};
use crate::{At, Error, Result};
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// An agent answers a request to start a process within this time, on a loaded machine too. One
/// that does not is as good as dead: its machine may run on, but nobody reaches it.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
/// The commands of [`Connection::run`] take seconds; one that takes this long hangs.
const RUN_PATIENCE: Duration = Duration::from_secs(120);

/// A connection to an agent. Cheap to clone; all clones share the channel.
#[derive(Clone)]
pub struct Connection {
    shared: Arc<Shared>,
}

struct Shared {
    /// Where the agent runs, for messages: "the emulated host", "guest rt".
    place: String,
    answer_patience: Duration,
    writer: Mutex<Box<dyn Write + Send>>,
    next_id: AtomicU32,
    /// Where the reader thread sends each process's events. Emptied when the channel ends, so
    /// that everyone who waits is told.
    listeners: Mutex<Option<HashMap<ProcessId, Sender<Event>>>>,
}

/// What a finished process left.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: Status,
    /// Its standard output.
    pub output: Vec<u8>,
    /// Its standard error.
    pub error: Vec<u8>,
}

impl Finished {
    /// The output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }
}

impl Connection {
    /// Takes over a channel and waits for the agent's first word, at most `patience`.
    ///
    /// # Errors
    /// The channel ended, the patience ran out, or the agent is of another version.
    pub fn establish(
        place: impl Into<String>,
        reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
        patience: Duration,
    ) -> Result<Self> {
        Self::establish_with(place, reader, writer, patience, ANSWER_PATIENCE)
    }

    pub(super) fn establish_with(
        place: impl Into<String>,
        reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
        patience: Duration,
        answer_patience: Duration,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            place: place.into(),
            answer_patience,
            writer: Mutex::new(Box::new(writer)),
            next_id: AtomicU32::new(1),
            listeners: Mutex::new(Some(HashMap::new())),
        });
        let (ready, becomes_ready) = channel();
        let dispatcher = Arc::clone(&shared);
        thread::spawn(move || dispatcher.dispatch(reader, &ready));
        let what = || format!("wait for {} to come up", shared.place);
        match becomes_ready.recv_timeout(patience) {
            Ok(VERSION) => Ok(Self { shared }),
            Ok(version) => Err(Error::machine(
                what(),
                format!("its agent speaks version {version}, this program version {VERSION}"),
            )),
            Err(RecvTimeoutError::Timeout) => Err(no_answer(what(), patience)),
            Err(RecvTimeoutError::Disconnected) => Err(channel_ended(what())),
        }
    }

    /// Starts a process.
    ///
    /// # Errors
    /// The channel is gone, the agent does not answer or the program cannot be started.
    pub fn spawn<S: AsRef<str>>(&self, argv: &[S]) -> Result<Process> {
        self.spawn_in(argv, None)
    }

    /// Starts a process, in a terminal of the given size if there is one.
    pub fn spawn_in<S: AsRef<str>>(
        &self,
        argv: &[S],
        terminal: Option<TerminalSize>,
    ) -> Result<Process> {
        let argv: Vec<String> = argv.iter().map(|word| word.as_ref().to_owned()).collect();
        let what = format!("run \"{}\" in {}", argv.join(" "), self.shared.place);
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, events) = channel();
        self.shared
            .listeners()
            .as_mut()
            .ok_or_else(|| channel_ended(what.clone()))?
            .insert(id, sender);
        self.shared
            .send(&Request::Spawn { id, argv, terminal })
            .doing(what.clone())?;
        match events.recv_timeout(self.shared.answer_patience) {
            Ok(Event::Started { pid, .. }) => Ok(Process {
                what,
                id,
                pid,
                events: Mutex::new(Some(events)),
                connection: self.clone(),
            }),
            Ok(Event::Refused { why, .. }) => Err(Error::machine(what, why)),
            Err(RecvTimeoutError::Timeout) => Err(no_answer(what, self.shared.answer_patience)),
            Ok(_) | Err(RecvTimeoutError::Disconnected) => Err(channel_ended(what)),
        }
    }

    /// Runs a process that takes seconds to its end.
    ///
    /// # Errors
    /// It cannot be run, hangs, or ends with anything but exit code 0.
    pub fn run<S: AsRef<str>>(&self, argv: &[S]) -> Result<Finished> {
        let process = self.spawn(argv)?;
        let what = process.what.clone();
        process.end_of_input()?;
        let finished = process.finish(RUN_PATIENCE)?;
        if finished.status == Status::Exited(0) {
            return Ok(finished);
        }
        let said = String::from_utf8_lossy(&finished.error);
        Err(Error::machine(
            what,
            format!("{}: {}", finished.status, said.trim()),
        ))
    }

    /// Checks that a process can be run there within `patience`.
    pub fn require_alive(&self, patience: Duration) -> Result<()> {
        let (alive, sign) = channel();
        let connection = self.clone();
        // It ends with the channel if the answer never comes.
        thread::spawn(move || alive.send(connection.run(&["true"]).map(drop)));
        sign.recv_timeout(patience).unwrap_or_else(|_| {
            let why = format!("nothing runs there within {} s", patience.as_secs());
            Err(Error::machine(format!("reach {}", self.shared.place), why))
        })
    }

    /// Runs a process to its end and gives its output as text.
    pub fn text<S: AsRef<str>>(&self, argv: &[S]) -> Result<String> {
        Ok(self.run(argv)?.text())
    }
}

impl Shared {
    fn listeners(&self) -> std::sync::MutexGuard<'_, Option<HashMap<ProcessId, Sender<Event>>>> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, request: &Request) -> io::Result<()> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        write_frame(&mut **writer, request)
    }

    /// The reader thread: hands every event to whoever waits for that process.
    fn dispatch(&self, mut reader: impl Read, ready: &Sender<u32>) {
        while let Ok(Some(event)) = read_frame::<Event>(&mut reader) {
            let id = match &event {
                Event::Ready { version } => {
                    let _ = ready.send(*version);
                    continue;
                }
                Event::Started { id, .. }
                | Event::Refused { id, .. }
                | Event::Output { id, .. }
                | Event::Ended { id, .. } => *id,
            };
            let last = matches!(event, Event::Refused { .. } | Event::Ended { .. });
            let mut listeners = self.listeners();
            let Some(listeners) = listeners.as_mut() else {
                break;
            };
            if let Some(listener) = listeners.get(&id) {
                // A caller that dropped its process does not listen any more.
                let _ = listener.send(event);
            }
            if last {
                listeners.remove(&id);
            }
        }
        *self.listeners() = None;
    }
}

fn no_answer(what: String, patience: Duration) -> Error {
    Error::machine(what, format!("no word from it in {} s", patience.as_secs()))
}

fn channel_ended(what: String) -> Error {
    Error::machine(what, "its control channel ended")
}

/// A process behind a control channel. Dropping it kills it.
pub struct Process {
    what: String,
    id: ProcessId,
    pid: u32,
    /// `None` once the events were handed to somebody else.
    events: Mutex<Option<Receiver<Event>>>,
    connection: Connection,
}

impl Process {
    /// Its process id where it runs.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Writes to its standard input.
    pub fn input(&self, data: &[u8]) -> Result<()> {
        for piece in data.chunks(super::protocol::MAX_PIECE_BYTES) {
            self.send(&Request::Input {
                id: self.id,
                data: piece.to_vec(),
            })?;
        }
        Ok(())
    }

    /// Closes its standard input.
    pub fn end_of_input(&self) -> Result<()> {
        self.send(&Request::EndOfInput { id: self.id })
    }

    /// Sends a signal to it and its children.
    pub fn signal(&self, signal: i32) -> Result<()> {
        self.send(&Request::Signal {
            id: self.id,
            signal,
        })
    }

    /// Tells it that the terminal changed its size.
    pub fn resize(&self, size: TerminalSize) -> Result<()> {
        self.send(&Request::Resize { id: self.id, size })
    }

    /// Waits for its end however long it takes, handing each piece of output to `sink`.
    pub fn follow(&self, sink: impl FnMut(Stream, &[u8])) -> Result<Status> {
        self.follow_for(None, sink)
    }

    /// The same, at most for `patience`.
    pub fn follow_within(
        &self,
        patience: Duration,
        sink: impl FnMut(Stream, &[u8]),
    ) -> Result<Status> {
        self.follow_for(Some(patience), sink)
    }

    /// Waits for its end, at most `patience`, and collects what it wrote.
    pub fn finish(self, patience: Duration) -> Result<Finished> {
        let (mut output, mut error) = (Vec::new(), Vec::new());
        let status = self.follow_within(patience, |stream, data| match stream {
            Stream::Output => output.extend_from_slice(data),
            Stream::Error => error.extend_from_slice(data),
        })?;
        Ok(Finished {
            status,
            output,
            error,
        })
    }

    fn follow_for(
        &self,
        patience: Option<Duration>,
        mut sink: impl FnMut(Stream, &[u8]),
    ) -> Result<Status> {
        let deadline = patience.map(|patience| Instant::now() + patience);
        let events = self.take_events()?;
        loop {
            let event = match deadline {
                None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(deadline) => {
                    events.recv_timeout(deadline.saturating_duration_since(Instant::now()))
                }
            };
            match event {
                Ok(Event::Output { stream, data, .. }) => sink(stream, &data),
                Ok(Event::Ended { status, .. }) => return Ok(status),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    let why = format!(
                        "it has not ended after {} s",
                        patience.unwrap_or_default().as_secs()
                    );
                    return Err(Error::machine(self.what.clone(), why));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(channel_ended(self.what.clone()));
                }
            }
        }
    }

    /// Waits for the first line of its output that contains `mark`, at most `patience`; later
    /// output is dropped. This is how the lab knows that a service is ready.
    pub fn wait_for_line(&mut self, mark: &str, patience: Duration) -> Result<String> {
        let what = format!("wait for \"{mark}\" from: {}", self.what);
        let deadline = Instant::now() + patience;
        let events = self
            .events
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let events = events
            .as_ref()
            .ok_or_else(|| Error::machine(&what, "its output is taken already"))?;
        let mut said = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match events.recv_timeout(left) {
                Ok(Event::Output { data, .. }) => {
                    said.extend_from_slice(&data);
                    let text = String::from_utf8_lossy(&said);
                    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
                    if let Some(line) = complete.lines().find(|line| line.contains(mark)) {
                        return Ok(line.to_owned());
                    }
                }
                Ok(Event::Ended { status, .. }) => {
                    let said = String::from_utf8_lossy(&said);
                    return Err(Error::machine(what, format!("{status}: {}", said.trim())));
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    let why = format!("nothing in {} s", patience.as_secs());
                    return Err(Error::machine(what, why));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(channel_ended(what));
                }
            }
        }
    }

    /// Its standard output and input as a byte stream; its standard error is dropped. The
    /// process lives as long as the writer.
    pub fn into_stream(self) -> Result<(impl BufRead + Send, ProcessInput)> {
        let events = self.take_events()?;
        Ok((
            BufReader::new(ProcessOutput {
                events,
                piece: Vec::new(),
                at: 0,
            }),
            ProcessInput(self),
        ))
    }

    fn take_events(&self) -> Result<Receiver<Event>> {
        let taken = self
            .events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        taken.ok_or_else(|| Error::machine(self.what.clone(), "its output is taken already"))
    }

    fn send(&self, request: &Request) -> Result<()> {
        self.connection
            .shared
            .send(request)
            .doing(self.what.clone())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended; the agent ignores names it no longer knows.
        let _ = self.connection.shared.send(&Request::Signal {
            id: self.id,
            signal: libc::SIGKILL,
        });
    }
}

/// A process's standard output as a reader.
struct ProcessOutput {
    events: Receiver<Event>,
    piece: Vec<u8>,
    at: usize,
}

impl Read for ProcessOutput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            match self.events.recv() {
                Ok(Event::Output {
                    stream: Stream::Output,
                    data,
                    ..
                }) => {
                    self.piece = data;
                    self.at = 0;
                }
                Ok(Event::Ended { .. }) | Err(_) => return Ok(0),
                Ok(_) => {}
            }
        }
        let count = buffer.len().min(self.piece.len() - self.at);
        buffer[..count].copy_from_slice(&self.piece[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// A process's standard input as a writer.
pub struct ProcessInput(Process);

impl Write for ProcessInput {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let piece = &data[..data.len().min(super::protocol::MAX_PIECE_BYTES)];
        let request = Request::Input {
            id: self.0.id,
            data: piece.to_vec(),
        };
        self.0.connection.shared.send(&request)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
