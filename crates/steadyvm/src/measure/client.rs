//! The client of a measurement: `steadyvm netrt client`, here, in another namespace, or on another machine.
//!
//! It is always a process, and always reached the same way: by words put in front of its command line, its
//! standard input and its standard output. For another machine these words are `ssh HOST`. So nobody listens on a
//! port for orders, and who may start a client there is ssh's to say. The client ends when its input does,
//! which it does at any end of this process.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use steadyvm_load::netrt::ClientRun;

use super::Stop;
use crate::netrt::{ClientArgs, Line};

/// How often the client's output and signals are looked at in turn.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How a client is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    words: Vec<String>,
}

impl Client {
    /// In this namespace, in the namespace `netns` of `ip netns`, or by the words of `remote`.
    pub fn new(program: &Path, netns: Option<&str>, remote: Option<&str>) -> Self {
        let program = program.display().to_string();
        let words = match (netns, remote) {
            (_, Some(remote)) => {
                let remote = remote.split_whitespace().map(str::to_owned);
                remote.chain(["steadyvm".to_owned()]).collect()
            }
            (Some(netns), None) => ["ip", "netns", "exec", netns, &program]
                .map(str::to_owned)
                .to_vec(),
            (None, None) => vec![program],
        };
        Self { words }
    }

    /// The words in front of the verb, for people.
    pub fn title(&self) -> String {
        match self.words.as_slice() {
            [.., last] if self.words.len() == 1 => format!("this namespace ({last})"),
            words => words.join(" "),
        }
    }

    /// Runs it to its end. `progress` is told how many requests were answered.
    ///
    /// # Errors
    /// It does not start or has no result; or a signal asked this process to end.
    pub fn run(
        &self,
        arguments: &ClientArgs,
        stop: &Stop,
        progress: &mut dyn FnMut(u64),
    ) -> Result<ClientRun> {
        let (program, before) = self.words.split_first().context("no client to start")?;
        let mut command = Command::new(program);
        command
            .args(before)
            .args(["netrt", "client"])
            .args(arguments.words())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let child = command
            .spawn()
            .with_context(|| format!("cannot start the client by `{program}`"))?;
        let mut child = Running(child);
        let lines = lines(&mut child.0);
        let mut found = None;
        loop {
            stop.check()?;
            match lines.recv_timeout(LOOK_EVERY) {
                Ok(Line::Progress { answered, .. }) => progress(answered),
                Ok(Line::Run(run)) => found = Some(*run),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        stop.check()?;
        drop(child.0.stdin.take());
        let status = child.0.wait()?;
        match found {
            Some(run) if status.success() => Ok(run),
            _ => bail!(
                "the client ({}) ended without a result: {status}; what it said is above",
                self.title()
            ),
        }
    }
}

/// A client that ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the client says, by a thread of its own: neither it nor signals wait for the other. Lines that are no
/// news of a client (a login's greeting) are left out.
fn lines(child: &mut Child) -> Receiver<Line> {
    let (tell, told) = channel();
    if let Some(output) = child.stdout.take() {
        thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            for line in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
                if tell.send(line).is_err() {
                    break;
                }
            }
        });
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_front_say_where_the_client_runs() {
        let here = Path::new("/usr/bin/steadyvm");
        let words = |netns, remote| Client::new(here, netns, remote).words.join(" ");
        assert_eq!(words(None, None), "/usr/bin/steadyvm");
        assert_eq!(
            words(Some("client"), None),
            "ip netns exec client /usr/bin/steadyvm"
        );
        assert_eq!(
            words(None, Some("ssh  -p 22 host")),
            "ssh -p 22 host steadyvm"
        );
    }
}
