//! SIPp as caller and callee, and tcpdump beside them, outside of the emulated host.

use crate::service::Load;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{ChildStderr, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use steadyvm_lab::child::{self, Child};
use steadyvm_lab::host::RT;
use steadyvm_lab::{At, Error, Namespace, Result, scheduling};
use steadyvm_load::sip::{CALLEE_PORT, Calls, MESSAGES, Run, delays, tcpdump_arguments};

/// Calls before the counted ones.
pub(super) const WARMUP_CALLS: u64 = 34;
/// The paper's rates are per second. The emulated host is slower: all that it could forward at those is
/// a queue.
pub(super) const SECONDS: u32 = 10;
/// A message that is not forwarded within this time is lost.
const TIMEOUT: Duration = Duration::from_secs(2);
/// A program starts within this time, on a loaded machine too.
const PATIENCE: Duration = Duration::from_secs(60);
/// How soon it is looked again.
const AGAIN: Duration = Duration::from_millis(20);
/// SIPp repeats what is lost for half a minute before a call fails.
const LAST_CALL: Duration = Duration::from_secs(60);
/// The rates are random; a short run may have low ones only.
const MARGIN: f64 = 1.3;
const INSTALL: &str = "install Debian's sip-tester and tcpdump, or run tools/set-up";

/// The calls of a load of so many messages.
pub(super) fn calls(load: Load) -> Calls {
    Calls {
        calls: WARMUP_CALLS + load.samples.div_ceil(MESSAGES.len() as u64),
        seed: load.seed,
        seconds: SECONDS,
        ..Calls::default()
    }
}

/// How long they take at most, in seconds.
pub(super) fn longest_s(calls: &Calls) -> f64 {
    calls.calls as f64 / calls.mean_rate_per_s() * MARGIN + 1.0
}

/// Makes the calls, and gives the server's delays.
pub(super) fn make(outside: &Namespace, server: Ipv4Addr, calls: &Calls) -> Result<Run> {
    let own = RT.outside();
    let capture = Capture::start(outside)?;
    let _callee = start(outside, "sipp", &Calls::callee_arguments(own))?;
    wait_for_port(outside, CALLEE_PORT)?;
    let mut caller = start(outside, "sipp", &calls.caller_arguments(own, server))?;
    outside.enter(|| steer(&mut caller, own, calls))?;
    let file = capture.finish()?;
    let patience_ns = TIMEOUT.as_nanos() as u64;
    let run = delays(&file, server, WARMUP_CALLS, patience_ns).doing("read the capture of SIP")?;
    if run.calls + WARMUP_CALLS < calls.calls {
        let made = run.calls + WARMUP_CALLS;
        let why = format!("{made} of {} calls were seen on the wire", calls.calls);
        return Err(Error::machine("call by SIPp", why));
    }
    Ok(run)
}

/// Starts a program outside, at the real-time priority of clients.
fn start(outside: &Namespace, program: &str, arguments: &[String]) -> Result<Child> {
    let mut command = Command::new("chrt");
    let priority = scheduling::CLIENT_PRIORITY.to_string();
    command.args(["-f", &priority, program]).args(arguments);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    outside.hold(&mut command)?;
    child::spawn(command)
}

/// Checks that a program is there.
pub(super) fn require_programs() -> Result<()> {
    for (program, option) in [("sipp", "-v"), ("tcpdump", "--version")] {
        let mut command = Command::new(program);
        let started = command.arg(option).stdin(Stdio::null()).output();
        started
            .doing(format!("start {program}"))
            .map_err(|error| error.what_to_do(INSTALL))?;
    }
    Ok(())
}

/// Waits until somebody receives at a UDP port.
fn wait_for_port(outside: &Namespace, port: u16) -> Result<()> {
    let mark = format!(":{port:04X} ");
    outside.enter(|| {
        let end = Instant::now() + PATIENCE;
        loop {
            let sockets = fs::read_to_string("/proc/thread-self/net/udp");
            if sockets.doing("list UDP sockets")?.contains(&mark) {
                return Ok(());
            }
            if Instant::now() >= end {
                let why = format!("nobody receives at UDP port {port}");
                return Err(Error::machine("start SIPp's callee", why));
            }
            // Nothing tells when it does.
            thread::sleep(AGAIN);
        }
    })
}

/// Sets the caller's rate anew, time and again, until it has made all its calls.
fn steer(caller: &mut Child, own: Ipv4Addr, calls: &Calls) -> Result<()> {
    let what = "set SIPp's rate";
    let socket = UdpSocket::bind((own, 0)).doing(what)?;
    let end = Instant::now() + Duration::from_secs_f64(longest_s(calls)) + LAST_CALL;
    for rate in calls.rates_per_s() {
        if let Some(status) = caller.try_wait()? {
            // 1: calls failed; their messages are counted as lost.
            return match status.code() {
                Some(0 | 1) => Ok(()),
                _ => Err(Error::machine("call by SIPp", why(status, caller))),
            };
        }
        if Instant::now() >= end {
            return Err(Error::machine(
                "call by SIPp",
                "it does not come to its end",
            ));
        }
        // Refused until it listens: it keeps its first rate until then.
        let _ = socket.send_to(Calls::rate_command(rate).as_bytes(), Calls::control(own));
        thread::sleep(calls.each);
    }
    Ok(())
}

/// How it ended, and the last thing that it said.
fn why(status: ExitStatus, ended: &mut Child) -> String {
    let mut said = String::new();
    if let Some(mut error) = ended.streams().stderr.take() {
        // Whatever can be read of it.
        let _ = error.read_to_string(&mut said);
    }
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    format!("{status}: {}", last.unwrap_or("it said nothing"))
}

/// A capture under way.
struct Capture {
    tcpdump: Child,
    file: JoinHandle<std::io::Result<Vec<u8>>>,
    said: BufReader<ChildStderr>,
}

impl Capture {
    /// Starts it; returns when it captures.
    fn start(outside: &Namespace) -> Result<Self> {
        let what = "start tcpdump";
        let mut command = Command::new("tcpdump");
        command.args(tcpdump_arguments(RT.name));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        outside.hold(&mut command)?;
        let mut tcpdump = child::spawn(command).map_err(|error| error.what_to_do(INSTALL))?;
        let streams = tcpdump.streams();
        let (Some(mut output), Some(error)) = (streams.stdout.take(), streams.stderr.take()) else {
            return Err(Error::machine(what, "it has no standard output"));
        };
        let file = thread::spawn(move || {
            let mut file = Vec::new();
            output.read_to_end(&mut file).map(|_| file)
        });
        let mut said = BufReader::new(error);
        let mut line = String::new();
        while !line.contains("listening on") {
            let before = line.len();
            if said.read_line(&mut line).doing(what)? == 0 || line.len() == before {
                return Err(Error::machine(what, line.trim()).what_to_do(INSTALL));
            }
        }
        Ok(Self {
            tcpdump,
            file,
            said,
        })
    }

    /// Ends it and gives the file. A capture with a gap is an error.
    fn finish(mut self) -> Result<Vec<u8>> {
        let what = "capture SIP by tcpdump";
        let pid = Pid::from_raw(self.tcpdump.pid().cast_signed());
        kill(pid, Signal::SIGINT).doing(what)?;
        let mut said = String::new();
        self.said.read_to_string(&mut said).doing(what)?;
        self.tcpdump.wait()?;
        let panicked = |_| Err(std::io::Error::other("a thread panicked"));
        let file = self.file.join().unwrap_or_else(panicked).doing(what)?;
        if said
            .lines()
            .any(|line| line == "0 packets dropped by kernel")
        {
            Ok(file)
        } else {
            Err(Error::machine(what, said.trim()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_six_messages_and_end_before_the_stream() {
        let load = Load {
            seed: 3,
            samples: 601,
        };
        let calls = calls(load);
        assert_eq!((calls.calls, calls.seed), (WARMUP_CALLS + 101, 3));
        let mean: f64 = calls.rates_per_s().take(1000).sum::<f64>() / 1000.0;
        assert!(calls.calls as f64 / mean < longest_s(&calls));
    }
}
