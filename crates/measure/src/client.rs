//! The client of a measurement: `steadyvm netrt client`, here, in another namespace, or on another machine.
//!
//! It is always a process, and always reached the same way: by words put in front of its command line, its
//! standard input and its standard output. For another machine these words are `ssh HOST`. So nobody listens on a
//! port for orders, and who may start a client there is ssh's to say. The client ends when its input does,
//! which it does at any end of this process.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use steadyvm_fault::{At, Fault, Result};
use steadyvm_load::netrt::ClientRun;

use crate::stop::Stop;

/// How often the client's output and signals are looked at in turn.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long a client has to end when it has said what it found.
const TO_END: Duration = Duration::from_secs(10);

/// What a client is asked for, of which this program wants news until its own end.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// The server: HOST:PORT.
    pub service: String,
    /// Counted requests.
    pub samples: u64,
    /// Requests per second, on average.
    pub rate: f64,
    /// Requests before the counted ones.
    pub warmup: u64,
    /// Seed of the schedule.
    pub seed: u64,
}

impl Ask {
    /// The words of `netrt client` that mean it.
    pub fn words(&self) -> Vec<String> {
        let mut words = vec![self.service.clone()];
        let numbers = [
            ("--samples", self.samples.to_string()),
            ("--rate", self.rate.to_string()),
            ("--warmup", self.warmup.to_string()),
            ("--seed", self.seed.to_string()),
        ];
        words.extend(
            numbers
                .into_iter()
                .flat_map(|(name, value)| [name.to_owned(), value]),
        );
        words.extend(["--json", "--until-input-ends"].map(str::to_owned));
        words
    }
}

/// What a client says by `--json`, a line each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// How far it is; counted requests only.
    Progress {
        /// Requests sent.
        requests: u64,
        /// Requests answered.
        answered: u64,
    },
    /// The last line.
    Run(Box<ClientRun>),
}

/// How long a client may take: the other machine, or the way to it, may stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// From its start to its end.
    pub whole: Duration,
    /// From its start to the first counted request that was answered.
    pub first: Duration,
    /// Between two answered requests.
    pub between: Duration,
}

impl Limits {
    /// Twice what its requests take, and half a minute for a slow start; then an answered request every ten seconds, or every
    /// four mean intervals.
    pub fn of(samples: u64, warmup: u64, rate: f64) -> Self {
        let slow_start = Duration::from_secs(30);
        let twice = |requests: u64| Duration::from_secs_f64(2.0 * requests as f64 / rate);
        let intervals = 4 * Duration::from_secs_f64(1.0 / rate);
        Self {
            whole: twice(samples + warmup) + slow_start + intervals,
            first: twice(warmup) + slow_start + intervals,
            between: Duration::from_secs(10) + intervals,
        }
    }

    /// Which of them is missed.
    fn missed(&self, since_start: Duration, since_answer: Option<Duration>) -> Option<String> {
        let s = |limit: Duration| limit.as_secs_f64().ceil();
        if since_start > self.whole {
            return Some(format!("it did not end within {} s", s(self.whole)));
        }
        match since_answer {
            None if since_start > self.first => {
                let limit = s(self.first);
                Some(format!("no counted request was answered within {limit} s"))
            }
            Some(since) if since > self.between => {
                Some(format!("no request was answered for {} s", s(self.between)))
            }
            _ => None,
        }
    }
}

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
    /// It does not start, has no result, or misses a limit; or a signal asked this process to end.
    pub fn run(
        &self,
        ask: &Ask,
        limits: Limits,
        stop: &Stop,
        progress: &mut dyn FnMut(u64),
    ) -> Result<ClientRun> {
        let (program, before) =
            (self.words.split_first()).ok_or_else(|| Fault::machine("no client to start", ""))?;
        let mut command = Command::new(program);
        command
            .args(before)
            .args(["netrt", "client"])
            .args(ask.words())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let child = command
            .spawn()
            .cannot(format!("start the client by `{program}`"))?;
        let mut child = Running(child);
        let lines = lines(&mut child.0);
        let begun = Instant::now();
        let mut found = None;
        let mut most = (0, None);
        while found.is_none() {
            stop.check()?;
            match lines.recv_timeout(LOOK_EVERY) {
                Ok(Line::Progress { answered, .. }) => {
                    if answered > most.0 {
                        most = (answered, Some(Instant::now()));
                    }
                    progress(answered);
                }
                Ok(Line::Run(run)) => found = Some(*run),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let since_answer = most.1.map(|last: Instant| last.elapsed());
            if let Some(why) = limits.missed(begun.elapsed(), since_answer) {
                let what = format!("the client ({}) is ended", self.title());
                return Err(Fault::machine(what, why));
            }
        }
        stop.check()?;
        drop(child.0.stdin.take());
        let Some(status) = child.ended_within(TO_END)? else {
            let what = format!("the client ({}) does not end", self.title());
            return Err(Fault::machine(what, ""));
        };
        match found {
            Some(run) if status.success() => Ok(run),
            _ => {
                let what = format!("the client ({}) ended without a result", self.title());
                Err(Fault::machine(what, status).what_to_do("what it said is above"))
            }
        }
    }
}

/// A client that ends with this value.
struct Running(Child);

impl Running {
    fn ended_within(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let begun = Instant::now();
        loop {
            let ended = self.0.try_wait().cannot("wait for the client")?;
            if ended.is_some() || begun.elapsed() > limit {
                return Ok(ended);
            }
            thread::sleep(LOOK_EVERY / 10);
        }
    }
}

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
            let lines = BufReader::new(output)
                .lines()
                .map_while(std::result::Result::ok);
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
    fn a_client_that_stalls_misses_a_limit_and_one_at_its_rate_does_not() {
        let s = Duration::from_secs_f64;
        let limits = Limits::of(200, 100, 200.0);
        assert_eq!(limits.between, s(10.02));
        assert_eq!(limits.first, s(31.02));
        assert_eq!(limits.whole, s(33.02));
        let missed = |start, answer: Option<f64>| limits.missed(s(start), answer.map(s));
        assert_eq!(missed(31.0, None), None);
        assert!(missed(31.1, None).unwrap().contains("within 32 s"));
        assert_eq!(missed(20.0, Some(10.0)), None);
        assert!(missed(20.0, Some(10.1)).unwrap().contains("for 11 s"));
        assert!(missed(33.1, Some(0.0)).unwrap().contains("did not end"));
        // A request every 100 s.
        let slow = Limits::of(10, 0, 0.01);
        assert_eq!(slow.missed(s(430.0), None), None);
        assert_eq!(slow.missed(s(1900.0), Some(s(400.0))), None);
    }

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
