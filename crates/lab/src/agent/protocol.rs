//! The control channel's words: processes, and nothing else.
//!
//! Everything the lab does in an emulated host or in a guest is a process there: reading a
//! file is `cat`, waiting for a service is its first line of output, reaching a guest inside
//! the host is the process that carries that guest's own control channel on its standard
//! input and output. So one protocol serves every depth.
//!
//! A frame is a little-endian u32 length followed by one message in postcard's encoding.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::{self, Read, Write};

/// No frame is longer; a longer length means that the stream is out of step.
pub const MAX_FRAME_BYTES: usize = 1 << 20;
/// Output travels in pieces of at most this size, so that two processes share the channel fairly.
pub const MAX_PIECE_BYTES: usize = 1 << 15;
/// Changes whenever a message changes: both ends are the same binary, or the lab says so.
pub const VERSION: u32 = 1;

/// The caller's name for a process, unique within a connection.
pub type ProcessId = u32;

/// From the caller to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Start a process.
    Spawn {
        /// The caller's name for it.
        id: ProcessId,
        /// Program and arguments; looked up in the agent's PATH.
        argv: Vec<String>,
        /// A controlling terminal of this size instead of pipes.
        terminal: Option<TerminalSize>,
    },
    /// Bytes for a process's standard input.
    Input {
        /// Which process.
        id: ProcessId,
        /// What to write.
        data: Vec<u8>,
    },
    /// No more input: close the process's standard input.
    EndOfInput {
        /// Which process.
        id: ProcessId,
    },
    /// Send a signal to the process's group.
    Signal {
        /// Which process.
        id: ProcessId,
        /// The signal's number on Linux.
        signal: i32,
    },
    /// The caller's terminal changed its size.
    Resize {
        /// Which process.
        id: ProcessId,
        /// The new size.
        size: TerminalSize,
    },
}

/// From the agent to the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The first message: the system is up and takes requests.
    Ready {
        /// The agent's [`VERSION`].
        version: u32,
    },
    /// The process runs.
    Started {
        /// Which process.
        id: ProcessId,
        /// Its process id where the agent runs.
        pid: u32,
    },
    /// The process could not be started.
    Refused {
        /// Which process.
        id: ProcessId,
        /// Why, in the operating system's words.
        why: String,
    },
    /// Bytes from the process.
    Output {
        /// Which process.
        id: ProcessId,
        /// Where it wrote them.
        stream: Stream,
        /// What it wrote.
        data: Vec<u8>,
    },
    /// The process ended and all its output has been sent.
    Ended {
        /// Which process.
        id: ProcessId,
        /// How.
        status: Status,
    },
}

/// Where a process wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output, or the terminal.
    Output,
    /// Standard error.
    Error,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// It exited with this code.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
}

impl Status {
    /// The exit code a shell would report: 128 + the signal for a killed process.
    pub fn shell_code(self) -> i32 {
        match self {
            Self::Exited(code) => code,
            Self::Killed(signal) => 128 + signal,
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exit code {code}"),
            Self::Killed(signal) => write!(f, "killed by signal {signal}"),
        }
    }
}

/// Rows and columns of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters a line.
    pub columns: u16,
}

/// Writes one message and flushes it.
pub fn write_frame<M: Serialize>(
    writer: &mut (impl Write + ?Sized),
    message: &M,
) -> io::Result<()> {
    let body = postcard::to_stdvec(message).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut frame = length.to_le_bytes().to_vec();
    frame.extend_from_slice(&body);
    writer.write_all(&frame)?;
    writer.flush()
}

/// Reads one message; `None` at a clean end of the stream.
pub fn read_frame<M: DeserializeOwned>(reader: &mut impl Read) -> io::Result<Option<M>> {
    let mut length = [0; 4];
    if !read_all_or_nothing(reader, &mut length)? {
        return Ok(None);
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_FRAME_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a frame of {length} bytes is longer than {MAX_FRAME_BYTES}"),
        ));
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    postcard::from_bytes(&body)
        .map(Some)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Fills `buffer`, or returns false if the stream ends before its first byte.
fn read_all_or_nothing(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frames_come_back_in_order() {
        let sent = [
            Event::Ready { version: VERSION },
            Event::Output {
                id: 7,
                stream: Stream::Error,
                data: b"oh".to_vec(),
            },
            Event::Ended {
                id: 7,
                status: Status::Killed(9),
            },
        ];
        let mut wire = Vec::new();
        for event in &sent {
            write_frame(&mut wire, event).unwrap();
        }
        let mut reader = wire.as_slice();
        for event in &sent {
            assert_eq!(
                read_frame::<Event>(&mut reader).unwrap().as_ref(),
                Some(event)
            );
        }
        assert_eq!(read_frame::<Event>(&mut reader).unwrap(), None);
    }

    #[test]
    fn a_cut_frame_is_an_error_and_not_an_end() {
        let mut wire = Vec::new();
        write_frame(&mut wire, &Event::Started { id: 1, pid: 300 }).unwrap();
        for cut in 1..wire.len() {
            assert!(
                read_frame::<Event>(&mut &wire[..cut]).is_err(),
                "cut at {cut}"
            );
        }
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = bytes.as_slice();
            while let Ok(Some(_)) = read_frame::<Request>(&mut reader) {}
        }
    }
}
