//! Crashes and failures at every step, and whatever may be left of a journal.

use std::fs;
use std::panic::{self, AssertUnwindSafe};

use super::scenario::{control, paper_host, paper_target, tuned_host};
use crate::control::HostControl;
use crate::error::HostError;
use crate::fake::{FakeHost, FakeState, Fault};
use crate::method::{Method, Target};

/// Runs something that may crash, quietly.
pub fn crashing(work: impl FnOnce()) -> bool {
    panic::catch_unwind(AssertUnwindSafe(work)).is_err()
}

/// Crashes applying at every mutation, before and after it, then undoes.
pub fn crash_everywhere(host: &FakeHost, target: &Target, method: Method) {
    let before = host.state();
    let steps = count_mutations(host, target, method, &before);
    for at in 0..steps {
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            let directory = super::scenario::directory();
            let control = control(host, &directory);
            host.fault_at(at, fault);
            assert!(crashing(|| {
                let _ = control.apply(target, method);
            }));
            host.heal();
            undo_with_crashes(host, &control, &before);
            assert_eq!(host.state(), before, "apply crashed at {at} ({fault:?})");
            assert_eq!(control.undo().unwrap(), crate::Undone::default());
        }
    }
}

fn count_mutations(host: &FakeHost, target: &Target, method: Method, before: &FakeState) -> usize {
    let directory = super::scenario::directory();
    let control = control(host, &directory);
    let start = host.mutations();
    control.apply(target, method).unwrap();
    let steps = host.mutations() - start;
    control.undo().unwrap();
    assert_eq!(&host.state(), before);
    steps
}

/// Undo crashes at its first, then at its second mutation, and so on, until it comes through.
fn undo_with_crashes(host: &FakeHost, control: &HostControl, before: &FakeState) {
    for at in 0.. {
        let fault = if at % 2 == 0 {
            Fault::CrashAfter
        } else {
            Fault::CrashBefore
        };
        host.fault_at(at / 2, fault);
        let crashed = crashing(|| {
            control.undo().unwrap();
        });
        host.heal();
        if !crashed {
            assert_eq!(&host.state(), before);
            return;
        }
    }
}

#[test]
fn undo_restores_after_a_crash_at_any_step_of_apply_and_undo() {
    crash_everywhere(&paper_host(2), &paper_target(), Method::PreemptRt);
    crash_everywhere(&paper_host(3), &paper_target(), Method::Dedicated);
    crash_everywhere(&tuned_host(3), &paper_target(), Method::Tuned);
}

#[test]
fn a_refusal_at_any_step_rolls_back_or_is_skipped() {
    let host = paper_host(2);
    let before = host.state();
    let target = Target {
        disable_rt_throttling: true,
        ..paper_target()
    };
    let steps = count_mutations(&host, &target, Method::Dedicated, &before);
    let (mut rolled_back, mut skipped, mut mended) = (0, 0, 0);
    for at in 0..steps {
        for number in [libc::EPERM, libc::EIO, libc::EBUSY] {
            let directory = super::scenario::directory();
            let control = control(&host, &directory);
            host.fault_at(at, Fault::Refuse(number));
            match control.apply(&target, Method::Dedicated) {
                // The decrease of a fair server: see crate::fair_server.
                Ok(applied) if number == libc::EBUSY && applied.skipped.is_empty() => {
                    mended += 1;
                    control.undo().unwrap();
                }
                Ok(applied) => {
                    assert_eq!(applied.skipped.len(), 1);
                    skipped += 1;
                    control.undo().unwrap();
                }
                Err(HostError::RolledBack { undone, .. }) => {
                    assert_eq!(undone.failed, [] as [String; 0]);
                    rolled_back += 1;
                }
                Err(error) => panic!("{error}"),
            }
            host.heal();
            assert_eq!(host.state(), before, "refused {number} at {at}");
            assert!(control.undo().unwrap() == crate::Undone::default());
        }
    }
    assert!(rolled_back > 0 && skipped > 0 && mended > 0);
}

#[test]
fn a_torn_journal_still_undoes() {
    let (host, directory) = (paper_host(2), super::scenario::directory());
    let before = host.state();
    let control = control(&host, &directory);
    control.apply(&paper_target(), Method::PreemptRt).unwrap();
    let path = directory.path().join("state/journal.jsonl");
    let whole = fs::read(&path).unwrap();
    // Cutting inside the mark of completeness loses no step.
    fs::write(&path, &whole[..whole.len() - 5]).unwrap();
    assert_eq!(control.undo().unwrap().restored, 7);
    assert_eq!(host.state(), before);
    // A journal that was cut before its header was whole was never followed by a change.
    fs::write(&path, &whole[..20]).unwrap();
    assert_eq!(control.undo().unwrap(), crate::Undone::default());
}

#[test]
fn a_damaged_line_does_not_stop_the_others() {
    let (host, directory) = (paper_host(2), super::scenario::directory());
    let control = control(&host, &directory);
    control.apply(&paper_target(), Method::PreemptRt).unwrap();
    let path = directory.path().join("state/journal.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text
        .lines()
        .enumerate()
        .map(|(at, line)| if at == 2 { "{broken" } else { line })
        .collect();
    fs::write(&path, lines.join("\n") + "\n").unwrap();
    let undone = control.undo().unwrap();
    assert_eq!(undone.restored, 6);
    assert!(undone.failed[0].contains("line 3"), "{:?}", undone.failed);
    // The line stays for whoever can read it.
    assert!(fs::read_to_string(&path).unwrap().ends_with("\n{broken\n"));
    let error = control
        .apply(&paper_target(), Method::PreemptRt)
        .unwrap_err();
    assert!(error.to_string().contains("line 2"), "{error}");
    assert_eq!(error.blame().exit_code(), 3);
    fs::write(&path, "rubbish\n").unwrap();
    let error = control.undo().unwrap_err().to_string();
    assert!(
        error.contains("journal.jsonl") && error.contains("line 1"),
        "{error}"
    );
}

#[test]
fn an_unwritable_state_directory_is_named_and_nothing_is_changed() {
    let (host, directory) = (paper_host(2), super::scenario::directory());
    fs::write(directory.path().join("state"), "a file").unwrap();
    let before = host.state();
    let error = control(&host, &directory)
        .apply(&paper_target(), Method::PreemptRt)
        .unwrap_err();
    assert!(error.to_string().contains("state"), "{error}");
    assert_eq!(host.state(), before);
}
