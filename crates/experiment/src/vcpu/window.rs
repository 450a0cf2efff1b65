//! What a shell on the host counts over a window: CPU time of threads, idle time, interrupts, context switches.
//!
//! Both ends are read without starting a process, by a shell that nobody keeps waiting.

use std::fmt::Write as _;
use std::time::Duration;
use steadyvm_lab::agent::{Connection, Process};
use steadyvm_lab::{Error, Result};

/// A FIFO that nobody writes to: reading it with a timeout waits without starting a process.
pub const NEVER: &str = "/run/never";
/// A window, and the start of a shell, end within this time, though others have all CPUs.
const PATIENCE: Duration = Duration::from_secs(120);
/// The shell's FIFO priority.
const PRIORITY: &str = "90";

/// What happened in a window.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// Its length, in seconds.
    pub passed_s: f64,
    /// Of each thread in the order asked: its CPU time over the window's length, per cent of a CPU.
    pub shares_percent: Vec<f64>,
    /// The host's context switches, per second.
    pub context_switches_per_s: f64,
    /// The host's interrupts, per second.
    pub interrupts_per_s: f64,
    /// Time in which the host's CPUs had nothing to do, per cent of one CPU; in steps of 10 ms.
    pub idle_percent: f64,
}

/// A shell that is ready to count.
pub struct Counter {
    shell: Process,
}

impl Counter {
    /// Starts the shell: from then on it needs nothing of the host but its CPU time. `before` and `after` are words that
    /// it says around the window: what may leave nobody else a CPU.
    ///
    /// # Errors
    /// A thread has ended, or the host does not answer.
    pub fn start(
        host: &Connection,
        threads: &[u32],
        window_s: u64,
        (before, after): (&str, &str),
    ) -> Result<Self> {
        let script = format!(
            "{}exec 3<> {NEVER}; echo ready; read -r _; {before}
             look; read -r -t {window_s} -u 3 _ || :; look; {after}",
            look(threads)
        );
        host.run(&["sh", "-c", &format!("[ -p {NEVER} ] || mkfifo {NEVER}")])?;
        let words = ["chrt", "-f", PRIORITY, "bash", "-euc", &script];
        let mut shell = host.spawn(&words)?;
        shell.wait_for_line("ready", PATIENCE)?;
        Ok(Self { shell })
    }

    /// The window begins.
    ///
    /// # Errors
    /// The host does not answer.
    pub fn go(&self) -> Result<()> {
        self.shell.input(b"go\n")
    }

    /// What happened in it.
    ///
    /// # Errors
    /// A thread has ended, or the host does not answer.
    pub fn finish(self) -> Result<Window> {
        let text = self.shell.finish(PATIENCE)?.text();
        parse(&text).ok_or_else(|| Error::machine("count CPU time", text))
    }
}

/// Defines `look`: a line of the time in microseconds, context switches, interrupts, idle time in hundredths of a second, and
/// each thread's CPU time in ns.
fn look(threads: &[u32]) -> String {
    let mut script = String::from(
        "look() { while read -r name first _ _ fourth _; do case $name in
             cpu) idle=$fourth;; intr) interrupts=$first;; ctxt) switches=$first;; esac; done < /proc/stat
         now=$EPOCHREALTIME line=\"${now/./} $switches $interrupts $idle\"\n",
    );
    for thread in threads {
        // Writing to a String cannot fail.
        let _ = writeln!(
            script,
            "read ran _ < /proc/{thread}/schedstat; line+=\" $ran\""
        );
    }
    script + "echo $line; }\n"
}

/// The two lines of a window.
fn parse(text: &str) -> Option<Window> {
    let numbers = |line: &str| -> Option<Vec<u64>> {
        let words = line.split_whitespace();
        words.map(|word| word.parse().ok()).collect()
    };
    let mut lines = text.lines();
    let (before, after) = (numbers(lines.next()?)?, numbers(lines.next()?)?);
    if before.len() != after.len() || before.len() < 4 {
        return None;
    }
    let mut grown = before.iter().zip(&after).map(|(before, after)| {
        let grown = after.checked_sub(*before)?;
        Some(grown as f64)
    });
    let passed_us = grown.next()??;
    let switches = grown.next()??;
    let interrupts = grown.next()??;
    let idle_hundredths = grown.next()??;
    if passed_us <= 0.0 {
        return None;
    }
    let length_s = passed_us / 1e6;
    let share = |ran_ns: Option<f64>| Some(ran_ns? / 1e3 / passed_us * 100.0);
    Some(Window {
        passed_s: length_s,
        shares_percent: grown.map(share).collect::<Option<_>>()?,
        context_switches_per_s: switches / length_s,
        interrupts_per_s: interrupts / length_s,
        // A hundredth of a second is a per cent of one.
        idle_percent: idle_hundredths / length_s,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_that_passed() {
        let found =
            parse("1000000 50 9 80 7 400000000\n3000000 250 99 180 7 1200000000\n").unwrap();
        assert_eq!(found.shares_percent, [0.0, 40.0]);
        assert!((found.context_switches_per_s - 100.0).abs() < 1e-9);
        assert!((found.interrupts_per_s - 45.0).abs() < 1e-9);
        assert!((found.idle_percent - 50.0).abs() < 1e-9);
        assert!((found.passed_s - 2.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_no_window_is_refused() {
        for text in [
            "",
            "1 2 3 4 5\n",
            "1 2 3 4 5\n1 2 3 4 5\n",
            "1 2 3 4\n2 2 3 4 5\n",
            "5 2 3 4\n9 2 3 x\n",
            "5 2 3 4\n4 2 3 4\n",
            "5 2\n6 2\n",
        ] {
            assert!(parse(text).is_none(), "{text}");
        }
    }
}
