//! The end of the process that nothing holds up: two seconds after the VM's, or at a second signal.

use nix::sys::signal::{SigSet, Signal};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};
use vmm_sys_util::signal::register_signal_handler;

use crate::terminal;
use steadyvm_fault::{At, Result};

/// Signals that end the VM, and the alarm.
const ENDING: [Signal; 5] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGALRM,
];
/// Seconds from the VM's end to the process's.
const PATIENCE_S: libc::c_ulong = 2;

static EXIT_CODE: AtomicI32 = AtomicI32::new(1);

/// Only what a signal handler may call; and what cannot block, for that is what it is for.
extern "C" fn on_force(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
    const TEXT: &[u8] = b"steadyvm: what has not ended yet is abandoned\n";
    terminal::restore();
    let mut errors = libc::pollfd {
        fd: 2,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: poll gets one pollfd, write a buffer of that length; _exit takes no pointers.
    unsafe {
        if libc::poll(&raw mut errors, 1, 0) == 1 {
            libc::write(2, TEXT.as_ptr().cast(), TEXT.len());
        }
        libc::_exit(EXIT_CODE.load(Ordering::SeqCst));
    }
}

fn signals() -> SigSet {
    ENDING.into_iter().collect()
}

/// Prepares it: handlers, and no thread takes these signals yet. To be called before threads start.
///
/// # Errors
/// The kernel's.
pub fn prepare() -> Result<()> {
    let what = "handle signals";
    signals().thread_block().cannot(what)?;
    for signal in ENDING {
        register_signal_handler(signal as c_int, on_force).cannot(what)?;
    }
    Ok(())
}

/// The VM has ended: from now on the process ends with `exit_code` at the next signal, at the latest
/// when [`PATIENCE_S`] are over.
///
/// # Errors
/// The kernel's.
pub fn arm(exit_code: u8) -> Result<()> {
    EXIT_CODE.store(exit_code.into(), Ordering::SeqCst);
    // SAFETY: takes no pointers.
    unsafe { libc::syscall(libc::SYS_alarm, PATIENCE_S) };
    signals()
        .thread_unblock()
        .cannot("let signals end the process")
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::kill;
    use nix::unistd::Pid;
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    const CODE: u8 = 42;

    /// What the tests below run in a process of its own: a VM that has ended, and a thread that does
    /// not.
    #[test]
    #[ignore = "run by the tests beside it: it ends the process"]
    fn an_end_that_is_held_up() {
        prepare().unwrap();
        arm(CODE).unwrap();
        println!("armed");
        loop {
            std::thread::park();
        }
    }

    fn held_up() -> Child {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "force::tests::an_end_that_is_held_up"])
            .args(["--ignored", "--nocapture"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(
            lines
                .map_while(std::result::Result::ok)
                .any(|line| line.ends_with("armed"))
        );
        child
    }

    #[test]
    fn the_alarm_ends_what_does_not_end_by_itself() {
        let begin = Instant::now();
        let output = held_up().wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(CODE.into()), "{output:?}");
        // The kernel rounds an alarm to whole seconds from its start.
        assert!(begin.elapsed() > Duration::from_secs(1), "before its time");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains("what has not ended yet is abandoned"),
            "{said}"
        );
    }

    #[test]
    fn a_second_signal_ends_it_at_once() {
        let child = held_up();
        let begin = Instant::now();
        kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(CODE.into()), "{output:?}");
        assert!(
            begin.elapsed() < Duration::from_secs(1),
            "the alarm ended it"
        );
    }
}
