//! What whoever runs the program meets at its edges: a terminal, an interrupted build, a host that
//! does not come up or has no KVM. `make lab-tests` runs them.

use crate::support::footprint::Footprint;
use nix::pty::{OpenptyResult, Winsize, openpty};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const LAB: &str = env!("CARGO_BIN_EXE_steadyvm-lab");

fn window(rows: u16, columns: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// Starts the program with a terminal of its own, whose other side is given.
fn in_a_terminal(arguments: &[&str], size: Winsize) -> (Child, File) {
    let OpenptyResult { master, slave } = openpty(&size, None).unwrap();
    let mut command = Command::new(LAB);
    command
        .args(arguments)
        .stdin(slave.try_clone().unwrap())
        .stdout(slave.try_clone().unwrap())
        .stderr(Stdio::inherit());
    // SAFETY: setsid and ioctl are async-signal-safe and touch no memory; 0 is the terminal by then.
    unsafe {
        command.pre_exec(|| {
            if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    (command.spawn().unwrap(), File::from(master))
}

/// Reads until the terminal shows `wanted`, and gives all that it has shown.
fn read_until(terminal: &mut File, wanted: &str) -> String {
    let mut shown = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let read = terminal.read(&mut buffer).unwrap_or(0);
        shown.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&shown).into_owned();
        if text.contains(wanted) {
            return text;
        }
        assert!(read > 0, "it ended without showing {wanted:?}: {text}");
    }
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_shell_follows_the_size_of_its_terminal() {
    let before = Footprint::now();
    let arguments = ["shell", "--kernel", "6.12"];
    let (mut child, mut terminal) = in_a_terminal(&arguments, window(31, 77));
    terminal
        .write_all(b"echo $((6*7))-is-shown; stty size\n")
        .unwrap();
    read_until(&mut terminal, "42-is-shown");
    read_until(&mut terminal, "31 77");
    let resized = window(40, 132);
    // SAFETY: the descriptor is an open terminal, and the structure is the one that is read.
    let done = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const resized) };
    assert_eq!(done, 0);
    // The shell in the host hears of it by SIGWINCH, some time later.
    terminal
        .write_all(b"until stty size | grep '^40 132$'; do sleep 0.1; done; exit 5\n")
        .unwrap();
    read_until(&mut terminal, "\n40 132");
    assert_eq!(child.wait().unwrap().code(), Some(5));
    assert_eq!(Footprint::now(), before);
}

/// Runs the program with a cache of its own, which is empty.
fn with_empty_cache(cache: &Path, arguments: &[&str]) -> Child {
    Command::new(LAB)
        .args(arguments)
        .env("STEADYVM_CACHE", cache)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn an_interrupted_build_leaves_nothing_and_is_built_again() {
    let before = Footprint::now();
    let cache = tempfile::tempdir().unwrap();
    let mut child = with_empty_cache(cache.path(), &["prepare"]);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = |what: &str| lines.any(|line| line.unwrap().starts_with(what));
    assert!(said("build the user space"), "it did not begin to build");
    // SAFETY: a plain system call; the child is not collected yet, so the number is its own.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    crate::support::footprint::wait_until_gone(&before);
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounts.contains(cache.path().to_str().unwrap()), "{mounts}");
    // What is half built is not taken for built: the next run begins again.
    let mut child = with_empty_cache(cache.path(), &["prepare"]);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = |what: &str| lines.any(|line| line.unwrap().starts_with(what));
    assert!(said("build the user space"), "it took the half-built image");
    // SAFETY: as above.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGTERM) }, 0);
    assert_eq!(child.wait().unwrap().code(), Some(143));
    crate::support::footprint::wait_until_gone(&before);
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn what_is_missing_is_built_side_by_side() {
    let before = Footprint::now();
    let cache = tempfile::tempdir().unwrap();
    let mut child = with_empty_cache(cache.path(), &["prepare", "--kernel", "6.12"]);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut begun = Vec::new();
    for line in lines.by_ref().map_while(Result::ok) {
        assert!(!line.contains(": done in"), "{line}, after only {begun:?}");
        begun.extend(line.strip_suffix(" ...").map(str::to_owned));
        if begun.len() == 2 {
            break;
        }
    }
    assert_eq!(begun.len(), 2, "{begun:?}");
    // SAFETY: a plain system call; the child is not collected yet, so the number is its own.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    crate::support::footprint::wait_until_gone(&before);
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_host_that_does_not_come_up_says_the_end_of_its_console() {
    let done = Command::new(LAB)
        .args(["run", "--kernel", "6.12"])
        .args(["--kernel-words", "rdinit=/nowhere panic=-1", "--", "true"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(3), "{said}");
    assert!(
        said.contains("lab.console") && said.contains("Kernel panic"),
        "{said}"
    );
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_comparison_without_kvm_in_the_host_is_refused() {
    let before = Footprint::now();
    let out = tempfile::tempdir().unwrap();
    let done = Command::new(LAB)
        .args([
            "compare",
            "--methods",
            "preempt-rt",
            "--samples",
            "10",
            "--rounds",
            "1",
        ])
        .args(["--kernel-words", "clearcpuid=svm,vmx", "--out"])
        .arg(out.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(3), "{said}");
    assert!(
        said.contains("it has no /dev/kvm; its console tells why"),
        "{said}"
    );
    assert!(!said.contains("booting it again"), "{said}");
    assert_eq!(Footprint::now(), before);
}
