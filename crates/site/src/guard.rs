//! Restores the state that a measurement found, however the measurement ends.
//!
//! A process of its own waits until the pipe from the measurement closes, and then restores. The kernel
//! closes that pipe at any end of the measurement: done, failed, panicked, or killed. So there is one path
//! of restoring, and it is always the same one.
//!
//! A measurement that is stopped (Ctrl-Z), or waits for something without an end, does not close it. So it says before each
//! phase how long that may take; when this time is over, the guard kills it and restores.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use steadyvm_fault::{At, Fault};
use steadyvm_host::{Desired, HostControl, Machine, Report, Undone};
use steadyvm_sched::process::ProcessId;

use crate::error::Result;
use crate::peers::{self, Role};

/// How long restoring waits for another steadyvm that changes the host.
const WAIT: Duration = Duration::from_secs(60);
const RETRY_EVERY: Duration = Duration::from_millis(200);
const READY: &str = "ready";
/// Before the measurement says how long it takes.
const AT_FIRST: Duration = Duration::from_secs(60);

/// What the process that restores is told by its command line.
#[derive(Debug, Clone)]
pub struct Guarded {
    /// Where the journal of changes is kept.
    pub directory: PathBuf,
    /// The process of the measurement.
    pub measurement: ProcessId,
    /// What is measured.
    pub service: String,
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
    pub fn start(
        program: &Path,
        state_directory: &Path,
        service: &str,
        desired: Option<Desired>,
    ) -> Result<Self> {
        let what = "start the process that restores the state at the end";
        let own = ProcessId::own();
        let own = own.ok_or_else(|| Fault::machine("/proc has no word of this process", ""))?;
        let mut child = Command::new(program)
            .args(["restore-at-end", "--state-dir"])
            .arg(state_directory)
            .args(["--service", service, "--measurement", &own.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .cannot(what)?;
        let mut line = serde_json::to_vec(&Found { desired }).cannot(what)?;
        line.push(b'\n');
        if let Some(input) = &mut child.stdin {
            // If it has ended already, what it says below tells why.
            let _ = input.write_all(&line).and_then(|()| input.flush());
        }
        let mut said = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut said).cannot(what)?;
        }
        if said.trim() != READY {
            let status = child.wait().cannot(what)?;
            return Err(Fault::cannot(what, status).into());
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
        if written.is_some_and(|written| written.is_ok()) {
            return Ok(());
        }
        Err(Fault::machine("the process that restores the state at the end is gone", "").into())
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

/// Is the process that restores: says on `output` that it is ready, waits for the end of `input`, and restores. What could
/// not be restored, a sentence each.
///
/// # Errors
/// Another measurement runs, or nothing can be restored.
pub fn run(
    guarded: &Guarded,
    input: impl BufRead + Send + 'static,
    mut output: impl Write,
    say: impl Fn(&str),
) -> Result<Vec<String>> {
    let Guarded {
        directory,
        measurement,
        service,
    } = guarded;
    let held = peers::hold(directory, Role::Measure, *measurement, service);
    let Some(_held) = held.at("cannot write to", directory)? else {
        let other = peers::holder(directory, Role::Measure);
        let other = other.map_or_else(String::new, |held| format!(" ({held})"));
        let what = format!("another `steadyvm measure` runs on this host{other}: wait for its end");
        return Err(Fault::machine(what, "").into());
    };
    let lines = lines_of(input);
    let first = lines.recv_timeout(AT_FIRST);
    let found: Found = serde_json::from_str(&first.unwrap_or_default())
        .doing("standard input does not begin with a state to restore")?;
    writeln!(output, "{READY}")
        .and_then(|()| output.flush())
        .cannot("tell the measurement to begin")?;
    if !ends_in_time(&lines) {
        say(&format!(
            "the measurement (process {}) takes longer than it may, or is stopped: it is ended, and the state found at \
             the start is restored",
            measurement.pid
        ));
        // It must not go on when it is continued.
        end(*measurement).cannot("end the measurement")?;
    }
    let control = HostControl::new(Machine::real(), directory).waiting(WAIT);
    restore(&control, found.desired.as_ref())
}

fn end(measurement: ProcessId) -> std::io::Result<()> {
    if let Some(process) = measurement.open()? {
        process.kill()?;
        process.wait(WAIT)?;
    }
    Ok(())
}

/// What is said on an input, line by line, until its end.
fn lines_of(input: impl BufRead + Send + 'static) -> Receiver<String> {
    let (tell, told) = channel();
    thread::spawn(move || {
        let lines = input.lines().map_while(std::result::Result::ok);
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
///
/// # Errors
/// What the last one answered.
pub fn patiently<T, E>(
    patience: Duration,
    is_done: impl Fn(&T) -> bool,
    mut act: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let begun = Instant::now();
    loop {
        let answer = act();
        if answer.as_ref().is_ok_and(&is_done) || begun.elapsed() >= patience {
            return answer;
        }
        thread::sleep(RETRY_EVERY);
    }
}

fn restore(control: &HostControl, desired: Option<&Desired>) -> Result<Vec<String>> {
    let Some(desired) = desired else {
        let all = |undone: &Undone| undone.failed.is_empty() && undone.postponed.is_empty();
        let undone = patiently(WAIT, all, || control.undo())?;
        let left = undone.failed.iter().chain(&undone.postponed);
        return Ok(left.cloned().collect());
    };
    let none_failed = |report: &Report| report.failed.is_empty();
    let report = patiently(WAIT, none_failed, || control.reconcile_each(desired))?;
    Ok(report.failed.iter().map(ToString::to_string).collect())
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
        let mut next = || answers.next().unwrap_or(Ok(3));
        let found = patiently(WAIT, |answer| *answer == 2, &mut next);
        assert_eq!(found.unwrap(), 2);
        let refused = patiently(Duration::ZERO, |(): &()| true, || Err("busy"));
        assert_eq!(refused, Err("busy"));
    }
}
