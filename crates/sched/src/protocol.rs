//! What the loader and its clients say to each other: a line of JSON each, with the version of the protocol.
//!
//! A loader outlives the program that started it, and so an upgrade. `"stop"` alone is understood by every version: a client of
//! another one can always end it.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::enforcement::Enforcement;
use crate::error::Error;
use crate::show::Standing;

/// Of requests and replies: one more when any of them changes. 1 had no version in it.
pub const VERSION: u32 = 2;

/// The request to end, of every version.
pub(crate) const STOP: &str = "\"stop\"";

/// The longest line, in bytes: some 10,000 VCPUs.
const LONGEST_LINE: usize = 4 << 20;

/// What the loader is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// How the VCPUs stand.
    Show,
    /// Enforce this from now on. VMs that are new have threads; of others nothing changes but their parameters.
    Apply {
        /// All of it.
        config: Config,
        /// The VCPU threads of each VM, in order.
        threads: BTreeMap<String, Vec<u32>>,
    },
    /// The same VCPU by VCPU: those that are not named lose their budget.
    Enforce(Enforcement),
    /// What is enforced now, of VCPUs whose thread lives.
    Enforced,
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// To `Show`.
    Standing(Standing),
    /// To `Enforced`.
    Enforced(Enforcement),
    /// It is done.
    Done,
    /// It is refused: why.
    Refused(String),
}

#[derive(Serialize)]
struct RequestLine<'a> {
    version: u32,
    request: &'a Request,
}

#[derive(Serialize)]
struct ReplyLine<'a> {
    version: u32,
    reply: &'a Reply,
}

/// A line of any version: what is in it is read if the version is this one.
#[derive(Deserialize)]
struct AnyLine {
    version: u32,
    #[serde(alias = "reply")]
    request: serde_json::Value,
}

/// What a loader was asked.
#[derive(Debug)]
pub(crate) enum Heard {
    Stop,
    Request(Request),
    /// Not understood: why.
    Nonsense(String),
}

pub(crate) fn request_line(request: &Request) -> Result<String, Error> {
    let version = VERSION;
    line(&RequestLine { version, request })
}

pub(crate) fn reply_line(reply: &Reply) -> Result<String, Error> {
    let version = VERSION;
    line(&ReplyLine { version, reply })
}

fn line(content: &impl Serialize) -> Result<String, Error> {
    let text = serde_json::to_string(content).map_err(|error| Error::State(error.to_string()))?;
    Ok(text + "\n")
}

pub(crate) fn read_request(line: &str) -> Heard {
    if line.trim() == STOP {
        return Heard::Stop;
    }
    match serde_json::from_str::<AnyLine>(line) {
        Ok(AnyLine { version, request }) if version == VERSION => {
            match serde_json::from_value(request) {
                Ok(request) => Heard::Request(request),
                Err(error) => Heard::Nonsense(format!("no request: {error}")),
            }
        }
        Ok(AnyLine { version, .. }) => Heard::Nonsense(format!(
            "this loader is of another version of steadyvm: it speaks protocol {VERSION}, and not {version}"
        )),
        Err(error) => Heard::Nonsense(format!("no request: {error}")),
    }
}

/// The version of a reply, and what it says, if that is known. Without a version it is 1.
pub(crate) fn read_reply(line: &str) -> (u32, Option<Reply>) {
    match serde_json::from_str::<AnyLine>(line) {
        Ok(AnyLine { version, request }) => (version, serde_json::from_value(request).ok()),
        Err(_) => (1, serde_json::from_str(line).ok()),
    }
}

/// What is left of a time limit.
pub(crate) fn left(begun: Instant, limit: Duration) -> io::Result<Duration> {
    let left = limit.saturating_sub(begun.elapsed());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

/// Reads a line, all of it within the limit. Without its end it is what came before the other side closed.
pub(crate) fn read_line(
    stream: &mut UnixStream,
    begun: Instant,
    limit: Duration,
) -> io::Result<String> {
    let mut bytes = Vec::new();
    let mut some = [0; 4096];
    while bytes.last() != Some(&b'\n') {
        stream.set_read_timeout(Some(left(begun, limit)?))?;
        match stream.read(&mut some) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&some[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if bytes.len() > LONGEST_LINE {
            return Err(io::Error::other("the line has no end"));
        }
    }
    String::from_utf8(bytes).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_are_understood_by_their_version() {
        let line = request_line(&Request::Enforced).unwrap();
        assert!(matches!(
            read_request(&line),
            Heard::Request(Request::Enforced)
        ));
        assert!(matches!(read_request("\"stop\"\n"), Heard::Stop));
        for (line, why) in [
            (r#"{"version":1,"request":"show"}"#, "another version"),
            (r#"{"version":2,"request":"unheard"}"#, "no request"),
            (r#""show""#, "no request"),
            ("", "no request"),
        ] {
            match read_request(line) {
                Heard::Nonsense(said) => assert!(said.contains(why), "{line}: {said}"),
                heard => panic!("{line}: {heard:?}"),
            }
        }
        let (version, reply) = read_reply(&reply_line(&Reply::Done).unwrap());
        assert!(version == VERSION && matches!(reply, Some(Reply::Done)));
        let (version, reply) = read_reply(r#"{"refused":"no"}"#);
        assert!(version == 1 && matches!(reply, Some(Reply::Refused(_))));
    }

    proptest! {
        #[test]
        fn no_line_panics(line in ".{0,80}") {
            let _ = (read_request(&line), read_reply(&line));
        }
    }
}
