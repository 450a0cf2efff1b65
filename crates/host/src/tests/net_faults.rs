//! A profile whose apply crashes, or is refused, at any step.

use super::crash::crashing;
use super::net::{FILE, host, kept, profile};
use super::scenario::{control, directory};
use crate::engine::State;
use crate::error::HostError;
use crate::fake::{FakeHost, Fault};
use crate::undone::Undone;

fn count_mutations(host: &FakeHost) -> usize {
    let directory = directory();
    let control = control(host, &directory);
    let start = host.mutations();
    control.apply_profile(&profile(FILE)).unwrap();
    host.mutations() - start
}

#[test]
fn undo_restores_after_a_crash_at_any_step() {
    let steps = count_mutations(&host());
    assert!(steps > 10);
    for at in 0..steps {
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            let (host, directory) = (host(), directory());
            let before = host.state();
            let control = control(&host, &directory);
            host.fault_at(at, fault);
            assert!(crashing(|| {
                let _ = control.apply_profile(&profile(FILE));
            }));
            host.heal();
            assert_eq!(control.show().unwrap().state, State::Incomplete);
            // The next apply needs nobody to undo first.
            if at % 2 == 0 {
                control.apply_profile(&profile(FILE)).unwrap();
                let shown = control.show().unwrap();
                assert!(!shown.has_drifted(), "{shown:?}");
            }
            assert_eq!(control.undo_profile().unwrap().failed, [] as [String; 0]);
            assert_eq!(
                kept(host.state()),
                kept(before),
                "crashed at {at} ({fault:?})"
            );
        }
    }
}

#[test]
fn an_apply_after_a_crash_at_any_step_is_as_the_first() {
    let whole = {
        let (host, directory) = (host(), directory());
        control(&host, &directory)
            .apply_profile(&profile(FILE))
            .unwrap();
        kept(host.state())
    };
    for at in 0..count_mutations(&host()) {
        let (host, directory) = (host(), directory());
        let before = host.state();
        let control = control(&host, &directory);
        host.fault_at(at, Fault::CrashAfter);
        assert!(crashing(|| {
            let _ = control.apply_profile(&profile(FILE));
        }));
        host.heal();
        control.apply_profile(&profile(FILE)).unwrap();
        assert_eq!(kept(host.state()), whole, "crashed at {at}");
        control.undo_profile().unwrap();
        assert_eq!(kept(host.state()), kept(before), "crashed at {at}");
    }
}

#[test]
fn a_refusal_at_any_step_leaves_the_host_as_it_was() {
    let mut mended = 0;
    for at in 0..count_mutations(&host()) {
        for fault in [
            Fault::Refuse(libc::EPERM),
            Fault::Refuse(libc::EBUSY),
            Fault::Ignore,
        ] {
            let (host, directory) = (host(), directory());
            let before = host.state();
            let control = control(&host, &directory);
            host.fault_at(at, fault);
            match control.apply_profile(&profile(FILE)) {
                // The decrease of a fair server: see crate::fair_server.
                Ok(_) => {
                    assert_eq!(fault, Fault::Refuse(libc::EBUSY), "at {at}");
                    assert_eq!(control.show().unwrap().state, State::Applied, "at {at}");
                    mended += 1;
                    control.undo_profile().unwrap();
                }
                Err(HostError::RolledBack { undone, .. }) if undone.failed.is_empty() => {}
                Err(error) => panic!("{error}"),
            }
            host.heal();
            assert_eq!(kept(host.state()), kept(before), "{fault:?} at {at}");
            assert_eq!(control.undo_profile().unwrap(), Undone::default());
        }
    }
    // Five halvings of the period and their runtimes on each of two CPUs: the runtimes are decreases.
    assert_eq!(mended, 2 * 5);
}

#[test]
fn a_failed_change_of_profile_leaves_the_one_before() {
    let other = FILE
        .replace("irq = 80", "irq = 90")
        .replace("vhost = 75", "vhost = 77")
        .replace("budget_time = \"4ms\"\n", "");
    let mut failures = 0;
    for at in 0.. {
        let (host, directory) = (host(), directory());
        let before = host.state();
        let control = control(&host, &directory);
        control.apply_profile(&profile(FILE)).unwrap();
        let in_force = host.state();
        host.fault_at(at, Fault::Refuse(libc::EPERM));
        let outcome = control.apply_profile(&profile(&other));
        host.heal();
        if outcome.is_ok() {
            break;
        }
        failures += 1;
        assert_eq!(host.state(), in_force, "refused at {at}");
        let shown = control.show().unwrap();
        assert_eq!(
            (shown.state, shown.profile),
            (State::Applied, Some(profile(FILE)))
        );
        assert!(shown.settings.iter().all(|setting| setting.holds));
        control.undo_profile().unwrap();
        assert_eq!(kept(host.state()), kept(before));
    }
    assert_eq!(failures, 2);
}
