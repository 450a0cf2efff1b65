//! Restores the state that a measurement found, however the measurement ends.
//!
//! A process of its own waits until the pipe from the measurement closes, and then restores. The kernel
//! closes that pipe at any end of the measurement: done, failed, panicked, or killed. So there is one path
//! of restoring, and it is always the same one.
//!
//! A measurement that is stopped (Ctrl-Z), or waits for something without an end, does not close it. So it says before each
//! phase how long that may take; when this time is over, the guard kills it and restores.

use std::io::{BufRead, BufReader, Write, stdin};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use steadyvm_host::{Desired, HostControl, Machine, Report, Undone};
use steadyvm_sched::process::ProcessId;

use steadyvm_site::peers::{self, Role};

use crate::this_program;
use steadyvm_cli::output;

/// How long restoring waits for another steadyvm that changes the host.
const WAIT: Duration = Duration::from_secs(60);
const RETRY_EVERY: Duration = Duration::from_millis(200);
const READY: &str = "ready";
/// Before the measurement says how long it takes.
const AT_FIRST: Duration = Duration::from_secs(60);

/// Restore a state when standard input ends; `measure` starts it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where the journal of changes is kept.
    #[arg(long, value_name = "DIR")]
    state_dir: PathBuf,
    /// The process of the measurement: its number, and when it was started.
    #[arg(long, value_name = "PID TICKS", value_parser = process)]
    measurement: ProcessId,
    /// What is measured.
    #[arg(long, value_name = "HOST:PORT")]
    service: String,
}

fn process(text: &str) -> Result<ProcessId, String> {
    text.parse().map_err(|()| "write PID TICKS".to_owned())
}

/// What is to be restored.
#[derive(Debug, Serialize, Deserialize)]
struct Found {
    /// What was in force; none if nothing was.
    desired: Option<Desired>,
}

/// The process that will restore.
pub struct Guard {
    child: Child,
}

impl Guard {
    /// Starts it. From here on the state is restored, whatever happens.
    ///
    /// # Errors
    /// It does not start, or another measurement runs.
    pub fn start(state_directory: &Path, service: &str, desired: Option<Desired>) -> Result<Self> {
        let own = ProcessId::own().context("/proc has no word of this process")?;
        let mut child = Command::new(this_program())
            .args(["restore-at-end", "--state-dir"])
            .arg(state_directory)
            .args(["--service", service, "--measurement", &own.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the process that restores the state at the end")?;
        let mut line = serde_json::to_vec(&Found { desired })?;
        line.push(b'\n');
        if let Some(input) = &mut child.stdin {
            // If it has ended already, what it says below tells why.
            let _ = input.write_all(&line).and_then(|()| input.flush());
        }
        let mut said = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut said)?;
        }
        if said.trim() != READY {
            let status = child.wait()?;
            bail!("the process that restores the state at the end did not start: {status}");
        }
        Ok(Self { child })
    }

    /// Says how long the measurement may take until it says so again, or ends.
    ///
    /// # Errors
    /// The guard is gone.
    pub fn allow(&mut self, time: Duration) -> Result<()> {
        let line = format!("{}\n", time.as_secs());
        let input = self.child.stdin.as_mut();
        let written = input.map(|input| input.write_all(line.as_bytes()));
        written
            .and_then(Result::ok)
            .context("the process that restores the state at the end is gone")
    }

    /// Restores the state that was found.
    ///
    /// # Errors
    /// Something could not be restored; what, is on standard error.
    pub fn restore(mut self) -> Result<(), NotRestored> {
        drop(self.child.stdin.take());
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(NotRestored(status.to_string())),
            Err(error) => Err(NotRestored(error.to_string())),
        }
    }
}

/// The state that was found is not in force again.
#[derive(Debug, thiserror::Error)]
#[error(
    "the state found at the start is not in force again ({0}, see above); run `steadyvm undo`, then \
     `steadyvm apply`"
)]
pub struct NotRestored(String);

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // Whoever sees this process end finds the state restored.
        let _ = self.child.wait();
    }
}

/// Runs the hidden verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    // Signals of the terminal and of systemd are for the measurement; its end is what counts here.
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    nix::unistd::setsid().context("cannot leave the terminal's session")?;
    let measurement = args.measurement;
    let held = peers::hold(&args.state_dir, Role::Measure, measurement, &args.service)
        .with_context(|| format!("cannot write to {}", args.state_dir.display()))?;
    let Some(_held) = held else {
        let other = peers::holder(&args.state_dir, Role::Measure);
        let other = other.map_or_else(String::new, |held| format!(" ({held})"));
        bail!("another `steadyvm measure` runs on this host{other}: wait for its end");
    };
    let lines = lines_of_input();
    let first = lines.recv_timeout(AT_FIRST);
    let found: Found = serde_json::from_str(&first.unwrap_or_default())
        .context("standard input does not begin with a state to restore")?;
    output::line(READY)?;
    if !ends_in_time(&lines) {
        eprintln!(
            "steadyvm: the measurement (process {}) takes longer than it may, or is stopped: it is ended, and the \
             state found at the start is restored",
            measurement.pid
        );
        // It must not go on when it is continued.
        if let Some(process) = measurement.open()? {
            process.kill()?;
            process.wait(WAIT)?;
        }
    }
    let control = HostControl::new(Machine::real(), &args.state_dir).waiting(WAIT);
    restore(&control, found.desired.as_ref())
}

/// What is said on standard input, line by line, until its end.
fn lines_of_input() -> Receiver<String> {
    let (tell, told) = channel();
    thread::spawn(move || {
        let lines = stdin().lines().map_while(Result::ok);
        // An error is an end too.
        let _ = lines.into_iter().try_for_each(|line| tell.send(line));
    });
    told
}

/// Waits for the end of the measurement: whether it came within the time that it said it would take.
fn ends_in_time(lines: &Receiver<String>) -> bool {
    let mut allowed = AT_FIRST;
    loop {
        match lines.recv_timeout(allowed) {
            Ok(line) => allowed = Duration::from_secs(line.parse().unwrap_or(0)),
            Err(RecvTimeoutError::Disconnected) => return true,
            Err(RecvTimeoutError::Timeout) => return false,
        }
    }
}

/// Tries again what the kernel refuses for a while, as a fair server that just serves (`EBUSY`). The last
/// answer counts.
pub fn patiently<T>(
    patience: Duration,
    is_done: impl Fn(&T) -> bool,
    mut act: impl FnMut() -> Result<T>,
) -> Result<T> {
    let begun = Instant::now();
    loop {
        let answer = act();
        if answer.as_ref().is_ok_and(&is_done) || begun.elapsed() >= patience {
            return answer;
        }
        thread::sleep(RETRY_EVERY);
    }
}

fn restore(control: &HostControl, desired: Option<&Desired>) -> Result<ExitCode> {
    let Some(desired) = desired else {
        let all = |undone: &Undone| undone.failed.is_empty() && undone.postponed.is_empty();
        let undone = patiently(WAIT, all, || Ok(control.undo()?))?;
        for failed in undone.failed.iter().chain(&undone.postponed) {
            output::say(&format!("steadyvm: not restored: {failed}"));
        }
        let all = undone.failed.is_empty() && undone.postponed.is_empty();
        return Ok(ExitCode::from(if all { 0 } else { 3 }));
    };
    let none_failed = |report: &Report| report.failed.is_empty();
    let report = patiently(WAIT, none_failed, || Ok(control.reconcile_each(desired)?))?;
    for failed in &report.failed {
        output::say(&format!("steadyvm: not restored: {failed}"));
    }
    Ok(ExitCode::from(if none_failed(&report) { 0 } else { 3 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_that_says_nothing_any_more_is_not_waited_for() {
        let (tell, lines) = channel();
        tell.send("60".to_owned()).unwrap();
        tell.send("0".to_owned()).unwrap();
        assert!(!ends_in_time(&lines));
        tell.send("60".to_owned()).unwrap();
        drop(tell);
        assert!(ends_in_time(&lines));
    }

    #[test]
    fn what_is_refused_for_a_while_is_tried_again_and_the_last_answer_counts() {
        let mut answers = [Err("busy"), Ok(1), Ok(2)].into_iter();
        let mut next = || answers.next().unwrap_or(Ok(3)).map_err(anyhow::Error::msg);
        let found = patiently(WAIT, |answer| *answer == 2, &mut next);
        assert_eq!(found.unwrap(), 2);
        let refused = patiently(Duration::ZERO, |(): &()| true, || bail!("busy"));
        assert_eq!(refused.unwrap_err().to_string(), "busy");
    }
}
