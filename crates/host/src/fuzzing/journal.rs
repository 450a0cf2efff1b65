//! A journal that holds anything: it is read, written again and carried out.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use super::Source;
use crate::control::HostControl;
use crate::engine::journal::JournalFile;
use crate::engine::{Directory, Journal};
use crate::fake::paper::paper_host;
use crate::fake::{FakeHost, FakeState};
use crate::method::{Method, RtVm, Target};
use crate::undone::Undone;

/// Files that no journal may name, although the fake host lets them be written.
const FOREIGN: [&str; 4] = [
    "/etc/shadow",
    "/proc/100/oom_score_adj",
    "/proc/sys/vm/overcommit_memory",
    "/sys/kernel/uevent_helper",
];

/// A directory in memory, for one journal.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("/dev/shm/steadyvm-fuzz-{}-{number}", std::process::id());
        Self(name.into())
    }

    fn state(&self) -> PathBuf {
        self.0.join("state")
    }

    fn journal(&self) -> PathBuf {
        self.state().join("journal.jsonl")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A host with a method in force, and its journal.
struct InForce {
    before: FakeState,
    state: FakeState,
    journal: String,
}

static IN_FORCE: LazyLock<InForce> = LazyLock::new(|| {
    let host = paper_host(2);
    for path in FOREIGN {
        host.writable_file(path, "kept\n");
    }
    let before = host.state();
    let scratch = Scratch::new();
    let target = Target {
        rt_nics: vec!["rt0".into()],
        rt_vms: vec![RtVm {
            pid: 100,
            rt_vcpus: vec![1],
        }],
        ..Target::default()
    };
    HostControl::new(host.machine(), scratch.state())
        .apply(&target, Method::Dedicated)
        .expect("the paper's host takes it");
    InForce {
        before,
        state: host.state(),
        journal: fs::read_to_string(scratch.journal()).expect("its journal"),
    }
});

/// The journal in force with lines changed, left out, doubled and put in between.
fn changed(source: &mut Source) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = IN_FORCE.journal.lines().map(Into::into).collect();
    for _ in 0..source.below(8) {
        if lines.is_empty() {
            break;
        }
        let line = source.below(lines.len());
        match source.below(6) {
            0 => drop(lines.remove(line)),
            1 => lines.insert(line, lines[line].clone()),
            2 => {
                let text = source.text();
                lines.insert(line, text.to_vec());
            }
            3 => {
                let last = lines.len() - 1;
                lines.swap(line, last);
            }
            _ => {
                let at = source.below(lines[line].len() + 1);
                let end = (at + source.below(12)).min(lines[line].len());
                let text = source.text();
                lines[line].splice(at..end, text.iter().copied());
            }
        }
    }
    let mut bytes = lines.join(&b'\n');
    // Without a line's end the last line is torn.
    bytes.extend((source.below(8) > 0).then_some(b'\n'));
    bytes
}

/// What is written comes back, all of it.
fn round_trip(file: &JournalFile, journal: &Journal) {
    file.replace(journal)
        .map(drop)
        .expect("a journal is written");
    let again = file.read().expect("what was written is read");
    let again = again.expect("what was written is there");
    assert_eq!(again.header, journal.header);
    assert_eq!(again.steps, journal.steps);
    assert_eq!(again.complete, journal.complete);
    assert_eq!(again.unreadable_lines, journal.unreadable_lines);
}

/// What undo says is what it did.
fn check_undone(host: &FakeHost, undone: &Undone, read: &Journal, journal: &Path) {
    let rebooted = read.header.boot_id != "boot-1";
    let left = undone.failed.len() + undone.postponed.len();
    assert_eq!(
        journal.exists(),
        left > 0,
        "a journal is kept for what is left"
    );
    let told = undone.restored
        + undone.already_old
        + undone.vanished
        + undone.changed_by_others.len()
        + left;
    let steps = read.steps.len() + read.unreadable.len();
    assert_eq!(
        told,
        if rebooted { 0 } else { steps },
        "each line is told of"
    );
    if rebooted {
        assert!(
            host.state() == IN_FORCE.state,
            "another boot's journal changes nothing"
        );
    }
}

/// A journal of any bytes.
///
/// # Panics
/// Where what is read is not what is written, undo forgets a line of it, or it changes a file that
/// steadyvm does not set.
pub fn journal(bytes: &[u8]) {
    let mut source = Source(bytes);
    let text = if source.below(8) == 0 {
        source.0.to_vec()
    } else {
        changed(&mut source)
    };
    let host = FakeHost::new(2);
    host.edit(|state| state.clone_from(&IN_FORCE.state));
    let scratch = Scratch::new();
    let control = HostControl::new(host.machine(), scratch.state());
    let nothing = control.undo().expect("nothing is in force");
    assert_eq!(nothing, Undone::default());
    fs::write(scratch.journal(), &text).expect("a file in memory");
    let file = JournalFile::new(Arc::new(Directory::new(scratch.state())));
    let read = file.read();
    if let Ok(Some(journal)) = &read {
        round_trip(&file, journal);
    }
    let _ = control.show();
    let undone = control.undo();
    if let (Ok(undone), Ok(Some(read))) = (&undone, &read) {
        check_undone(&host, undone, read, &scratch.journal());
    }
    if read.is_err() {
        assert!(
            undone.is_err(),
            "a journal that cannot be read is not passed over"
        );
        assert!(
            host.state() == IN_FORCE.state,
            "and nothing is changed by it"
        );
        let kept = fs::read(scratch.journal()).ok();
        assert!(
            kept.as_ref() == Some(&text),
            "and it is kept for who can read it"
        );
    }
    let files = host.state().files;
    for path in FOREIGN {
        assert_eq!(files.get(path), IN_FORCE.before.files.get(path), "{path}");
    }
    if text == IN_FORCE.journal.as_bytes() {
        assert!(
            host.state() == IN_FORCE.before,
            "the journal as it was restores everything"
        );
    }
}
