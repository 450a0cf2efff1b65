//! Serves what `top` shows to collectors, by HTTP on this host alone.
//!
//! One thread looks at the host, as threads of `top` are traced by one. A few others have a client each and ask it. A client
//! that is slow, or sends what is no request, holds one of them for a bounded time; more clients than threads wait in the
//! kernel's queue.
//!
//! A look is over the time since the look before. So a collector that asks every 15 seconds sees all of each 15 seconds;
//! two collectors get the same look if they ask within [`Options::shortest`].
//!
//! - `address`: where it listens, and its connections
//! - `http`: requests and answers; pure

mod address;
mod http;

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use steadyvm_fault::Fault;
use steadyvm_sched::exposition::Format;

use crate::control::Control;
use crate::error::Result;
use crate::top::{Frame, Watcher, metrics};
use crate::watch::Told;

pub use address::Address;
use address::{Client, Listener};
use http::{Asked, Refusal};

/// So many clients are served at once.
const MOST_CLIENTS: usize = 4;
/// A request has come by then, and an answer is taken by then.
const PATIENCE: Duration = Duration::from_secs(2);

/// How an exporter serves.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where it listens.
    pub address: Address,
    /// Who asks sooner after a look gets that look again.
    pub shortest: Duration,
}

/// What the looking thread is told.
enum Message {
    /// Metrics are wanted in this form, by whoever has the other end.
    Look(Format, Sender<Result<String, String>>),
    /// No more clients can be taken.
    Broken(io::Error),
    /// It is to end.
    End,
}

/// Ends an exporter.
#[derive(Debug, Clone)]
pub struct Stop(Sender<Message>);

impl Stop {
    /// Ends it.
    pub fn stop(&self) {
        // One that is gone has ended.
        let _ = self.0.send(Message::End);
    }
}

/// Listens, and is not yet asked.
#[derive(Debug)]
pub struct Exporter {
    listener: Listener,
    shortest: Duration,
    messages: (Sender<Message>, Receiver<Message>),
}

impl Exporter {
    /// Begins to listen.
    ///
    /// # Errors
    /// An address that cannot be had.
    pub fn open(options: &Options) -> Result<Self> {
        Ok(Self {
            listener: Listener::open(&options.address)?,
            shortest: options.shortest,
            messages: mpsc::channel(),
        })
    }

    /// What ends it.
    pub fn stop(&self) -> Stop {
        Stop(self.messages.0.clone())
    }

    /// Answers collectors until it is told to stop.
    ///
    /// # Errors
    /// A host that cannot be looked at from the start; a socket that takes no more clients.
    pub fn serve(self, control: &Control, told: &dyn Told) -> Result<()> {
        let host = control.open();
        let mut looker = Looker {
            watcher: Watcher::new(&host, &control.directory)?,
            shortest: self.shortest,
            last: None,
            trouble: String::new(),
            told,
        };
        for _ in 0..MOST_CLIENTS {
            let (listener, messages) = (self.listener.share()?, self.messages.0.clone());
            thread::spawn(move || take_clients(&listener, &messages));
        }
        told.say(&format!("metrics are at {}", self.listener.address()?));
        told.ready();
        for message in self.messages.1 {
            match message {
                Message::Look(format, answer) => {
                    let text = looker.text(format);
                    // A client that has gone asks no more.
                    let _ = answer.send(text);
                }
                Message::Broken(error) => {
                    return Err(Fault::cannot("take a client", error).into());
                }
                Message::End => break,
            }
        }
        Ok(())
    }
}

/// Looks at the host for all clients.
struct Looker<'l> {
    watcher: Watcher<'l>,
    shortest: Duration,
    last: Option<(Instant, Frame)>,
    /// What was wrong at the last look, which is said once.
    trouble: String,
    told: &'l dyn Told,
}

impl Looker<'_> {
    fn text(&mut self, format: Format) -> Result<String, String> {
        let frame = match self.last.take() {
            Some((at, frame)) if at.elapsed() < self.shortest => (at, frame),
            _ => (Instant::now(), self.look()?),
        };
        let text = metrics(&frame.1, format);
        self.last = Some(frame);
        Ok(text)
    }

    fn look(&mut self) -> Result<Frame, String> {
        let look = self.watcher.look().map_err(|error| error.to_string());
        let trouble = match &look {
            Ok(frame) => frame.warnings.join("; "),
            Err(error) => error.clone(),
        };
        if !trouble.is_empty() && trouble != self.trouble {
            self.told.say(&trouble);
        }
        self.trouble = trouble;
        look
    }
}

/// Serves clients, one after another, as long as there is somebody to ask.
fn take_clients(listener: &Listener, messages: &Sender<Message>) {
    loop {
        let outcome = listener.accept();
        match outcome {
            // What goes wrong with one client is that client's.
            Ok(mut client) => drop(serve(&mut *client, messages)),
            Err(error) if is_a_clients(&error) => {}
            Err(error) => {
                let _ = messages.send(Message::Broken(error));
                return;
            }
        }
    }
}

/// A client that went before it was taken is no fault of the socket.
fn is_a_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted
    )
}

fn serve(client: &mut dyn Client, messages: &Sender<Message>) -> io::Result<()> {
    let answer = match request(client, Instant::now() + PATIENCE)? {
        Asked::Metrics { format, is_head } => {
            let (sender, receiver) = mpsc::channel();
            let asked = messages.send(Message::Look(format, sender));
            match asked.ok().and_then(|()| receiver.recv().ok()) {
                Some(Ok(text)) => http::metrics(&text, format, is_head),
                Some(Err(why)) => http::failure(&why),
                None => http::failure("the exporter ends"),
            }
        }
        Asked::Unfinished => return Ok(()),
        Asked::Refused(refusal) => http::refusal(refusal),
    };
    write(client, &answer, Instant::now() + PATIENCE)
}

/// What a client asks for; unfinished if it ends before that.
fn request(client: &mut dyn Client, until: Instant) -> io::Result<Asked> {
    let mut bytes = Vec::new();
    let mut part = [0; 1024];
    loop {
        // All reads together have the time, not each.
        let Some(left) = left(until) else {
            return Ok(Asked::Refused(Refusal::TooSlow));
        };
        client.limit(left)?;
        let count = match client.read(&mut part) {
            Err(error) if is_late(&error) => return Ok(Asked::Refused(Refusal::TooSlow)),
            other => other?,
        };
        let room = http::MOST_BYTES - bytes.len();
        bytes.extend_from_slice(&part[..count.min(room)]);
        match http::read(&bytes) {
            Asked::Unfinished if count > 0 => {}
            other => return Ok(other),
        }
    }
}

/// Sends an answer; a client that does not take it in time is given up.
fn write(client: &mut dyn Client, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        client.limit(left(until).ok_or(io::ErrorKind::TimedOut)?)?;
        match client.write(bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => bytes = &bytes[count..],
        }
    }
    Ok(())
}

/// The time that is left, if any is: a socket takes 0 for no limit.
fn left(until: Instant) -> Option<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    (left >= Duration::from_micros(1)).then_some(left)
}

fn is_late(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    /// What a client is told that sends this, and then nothing more.
    fn told(sent: &[u8], ends: bool, patience: Duration) -> Asked {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        here.write_all(sent).unwrap();
        if ends {
            here.shutdown(std::net::Shutdown::Write).unwrap();
        }
        request(&mut there, Instant::now() + patience).unwrap()
    }

    #[test]
    fn a_client_has_a_bounded_time_and_a_bounded_request() {
        let short = Duration::from_millis(50);
        let slow = told(b"GET /metrics HTTP/1.1\r\n", false, short);
        assert_eq!(slow, Asked::Refused(Refusal::TooSlow));
        let gone = told(b"GET /metrics HTTP/1.1\r\n", true, PATIENCE);
        assert_eq!(gone, Asked::Unfinished);
        let long = [b"GET /".as_slice(), &[b'a'; http::MOST_BYTES]].concat();
        let long = told(&long, false, PATIENCE);
        assert_eq!(long, Asked::Refused(Refusal::NotHttp));
    }

    #[test]
    fn an_answer_that_nobody_takes_is_given_up() {
        let (_here, mut there) = UnixStream::pair().unwrap();
        let much = vec![0; 16 << 20];
        let until = Instant::now() + Duration::from_millis(50);
        let error = write(&mut there, &much, until).unwrap_err();
        assert!(is_late(&error), "{error}");
    }
}
