//! Attacks that need no interface.

use std::fs::File;
use std::io::Read;
use std::net::{SocketAddr, UdpSocket};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::resource::{UsageWho, getrusage};

use super::*;

const PACED: u32 = 500;
/// Attempts at [`PACED`] in the time.
const ATTEMPTS: u64 = 50;
static NEVER: AtomicBool = AtomicBool::new(false);

fn pace(per_second: Option<u32>) -> Pace<'static> {
    Pace {
        per_second: per_second.and_then(NonZeroU32::new),
        duration: Duration::from_millis(100),
        stop: &NEVER,
    }
}

#[test]
fn paced_attacks_are_attempted_as_often_as_asked() {
    let directory = tempfile::tempdir().unwrap();
    let paced = pace(Some(PACED));
    let done = [compute(2, &paced), timers(2, &paced), interrupts(2, &paced)];
    for attacked in done {
        let attacked = attacked.unwrap();
        assert_eq!((attacked.attempted, attacked.sent), (ATTEMPTS, ATTEMPTS));
    }
    let attacked = disk(directory.path(), &pace(Some(50))).unwrap();
    assert!((1..=5).contains(&attacked.sent), "{attacked:?}");
}

#[test]
fn threads_compute_and_timers_expire_as_often_as_they_can() {
    let used = || getrusage(UsageWho::RUSAGE_SELF).unwrap().user_time();
    let before = used();
    assert!(compute(1, &pace(None)).unwrap().attempted > 0);
    assert!(used() > before);
    let attacked = timers(1, &pace(None)).unwrap();
    assert!(attacked.attempted > 10, "{attacked:?}");
}

#[test]
fn interrupts_need_two_threads() {
    assert!(matches!(
        interrupts(1, &pace(None)),
        Err(AttackError::OneThread)
    ));
}

#[test]
fn a_disks_file_is_written_and_gone_at_the_end_and_a_missing_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let entries = || std::fs::read_dir(directory.path()).unwrap().count();
    let attacked = thread::scope(|scope| {
        let attack = scope.spawn(|| disk(directory.path(), &pace(None)));
        let mut seen = 0;
        while !attack.is_finished() {
            seen = seen.max(entries());
        }
        assert_eq!(seen, 1);
        attack.join().unwrap().unwrap()
    });
    assert!(attacked.sent > 0, "{attacked:?}");
    assert_eq!(entries(), 0);
    let missing = disk(&directory.path().join("missing"), &pace(None));
    assert!(
        matches!(missing, Err(AttackError::Io(error)) if error.kind() == io::ErrorKind::NotFound)
    );
}

#[test]
fn a_file_is_no_disk() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let refused = device(file.path(), &pace(None));
    assert!(matches!(refused, Err(AttackError::NoDisk)));
    assert_eq!(file.as_file().metadata().unwrap().len(), 0);
}

/// A pseudo-terminal: what reads it, and the path of what is written to.
fn terminal() -> (nix::pty::PtyMaster, PathBuf) {
    let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let path = PathBuf::from(ptsname_r(&master).unwrap());
    (master, path)
}

#[test]
fn lines_come_to_a_terminal_and_one_that_nobody_reads_keeps_nobody() {
    let (mut master, path) = terminal();
    let attacked = console(&path, &pace(Some(PACED))).unwrap();
    assert!(
        attacked.sent > 0 && attacked.attempted <= ATTEMPTS,
        "{attacked:?}"
    );
    let mut text = [0; 30];
    master.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"steadyvm-lab load attack conso");
    let full = console(&path, &pace(None)).unwrap();
    assert!(full.refused > 0 && full.duration_s < 10.0, "{full:?}");
    let refused = console(Path::new("/dev/null"), &pace(None));
    assert!(matches!(refused, Err(AttackError::NoTerminal)));
}

#[test]
fn every_socket_sends_and_has_a_port_of_its_own() {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let SocketAddr::V4(to) = receiver.local_addr().unwrap() else {
        panic!("no IPv4");
    };
    receiver
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let attacked = sockets(to, 25, &pace(Some(PACED))).unwrap();
    assert_eq!((attacked.sent, attacked.sockets), (ATTEMPTS, Some(25)));
    let ports: std::collections::BTreeSet<u16> = (0..ATTEMPTS)
        .map(|_| receiver.recv_from(&mut [0; 8]).unwrap().1.port())
        .collect();
    assert_eq!(ports.len(), 25);
    drop(receiver);
    let nobody = sockets(to, 1, &pace(Some(PACED))).unwrap();
    assert!(nobody.refused > 0, "{nobody:?}");
}

#[test]
fn sockets_are_ten_thousand_where_the_process_may_have_them() {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let SocketAddr::V4(to) = receiver.local_addr().unwrap() else {
        panic!("no IPv4");
    };
    receiver
        .set_read_timeout(Some(Duration::from_secs(120)))
        .unwrap();
    let stop = AtomicBool::new(false);
    let pace = Pace {
        per_second: None,
        duration: Duration::from_secs(60),
        stop: &stop,
    };
    let attacked = thread::scope(|scope| {
        // A port that comes again is of a later turn: all are open.
        scope.spawn(|| {
            let mut ports = std::collections::BTreeSet::new();
            while ports.insert(receiver.recv_from(&mut [0; 8]).unwrap().1.port()) {}
            stop.store(true, Ordering::Relaxed);
        });
        sockets(to, 10_000, &pace).unwrap()
    });
    let opened = attacked.sockets.unwrap();
    let most = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)
        .unwrap()
        .0;
    assert!(opened == 10_000 || opened < most, "{opened} of {most}");
    // Whatever it had is closed.
    assert!(File::open("/dev/null").is_ok());
}
