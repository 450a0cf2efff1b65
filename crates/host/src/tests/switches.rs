//! Methods as compositions: names, presets, and the ranks of the kernel's own threads.

use proptest::prelude::*;

use super::net::{kept, profile};
use super::scenario::{control, paper_host, paper_target};
use crate::net::{ThreadPriority, file};
use crate::parse::{PF_KTHREAD, PF_NO_SETAFFINITY};
use crate::threads::Scheduling;
use crate::{Method, Priorities, Switches, Target};

proptest! {
    #[test]
    fn every_composition_is_read_as_it_is_written(bits in 0_u8..8) {
        let switches = Switches {
            rt: true,
            dedicated: bits & 1 != 0,
            profile: bits & 2 != 0,
            levels: bits & 4 != 0,
        };
        prop_assert_eq!(switches.composition().parse::<Switches>().unwrap(), switches);
        prop_assert_eq!(switches.to_string().parse::<Switches>().unwrap(), switches);
        let json = serde_json::to_string(&switches).unwrap();
        prop_assert_eq!(serde_json::from_str::<Switches>(&json).unwrap(), switches);
    }
}

#[test]
fn the_old_names_are_compositions() {
    for (name, composition) in [
        ("vanilla", "vanilla"),
        ("preempt-rt", "rt"),
        ("dedicated", "rt+dedicated"),
        ("rt-poll-list", "rt+levels"),
        ("rt-profile", "rt+profile"),
        ("rt-levels", "rt+profile+levels"),
    ] {
        let switches: Switches = name.parse().unwrap();
        assert_eq!(switches.composition(), composition);
        assert_eq!(switches.to_string(), name);
        assert_eq!(composition.parse::<Switches>().unwrap(), switches);
    }
    for (wrong, told) in [
        ("fast", "rt+dedicated+levels"),
        ("", "use one of"),
        ("rt+", "use one of"),
        ("levels", "rt+levels"),
    ] {
        let error = wrong.parse::<Switches>().unwrap_err();
        assert!(error.to_string().contains(told), "{error}");
        assert_eq!(error.blame().exit_code(), 2);
    }
}

/// A host with the threads that PREEMPT_RT has for every CPU.
fn host_with_timers() -> crate::fake::FakeHost {
    let host = paper_host(2);
    for (tid, name) in [
        (14, "rcuc/0"),
        (15, "ktimers/0"),
        (16, "rcub/0"),
        (17, "rcuc/1"),
        (18, "ktimers/1"),
    ] {
        host.thread(tid, tid, name, PF_KTHREAD | PF_NO_SETAFFINITY);
        host.edit(|state| {
            state.threads.get_mut(&tid).unwrap().scheduling = Scheduling::fifo(1, 0);
        });
    }
    // A process that calls itself so is none of them.
    host.thread(600, 600, "rcuc/0", 0);
    host
}

#[test]
fn every_method_puts_rcu_and_timers_above_what_tenants_keep_busy() {
    for method in Method::ALL {
        let (host, directory) = (host_with_timers(), super::scenario::directory());
        let before = host.state();
        let control = control(&host, &directory);
        control.apply(&paper_target(), method).unwrap();
        let state = host.state();
        let Priorities {
            housekeeping,
            vhost,
            vcpu,
            ..
        } = Priorities::default();
        assert!(housekeeping > vhost && housekeeping > vcpu);
        for tid in 13..=18 {
            let expected = if method == Method::Vanilla {
                before.threads[&tid].scheduling
            } else {
                Scheduling::fifo(housekeeping, 0)
            };
            assert_eq!(state.threads[&tid].scheduling, expected, "{method} {tid}");
        }
        assert_eq!(state.threads[&600].scheduling, Scheduling::normal());
        control.undo().unwrap();
        assert_eq!(kept(host.state()), kept(before.clone()));
        // Where the user wants them left.
        let target = Target {
            keep_housekeeping: true,
            ..paper_target()
        };
        control.apply(&target, method).unwrap();
        let state = host.state();
        for tid in 13..=18 {
            let (now, old) = (&state.threads[&tid], &before.threads[&tid]);
            assert_eq!(now.scheduling, old.scheduling, "{method} {tid}");
        }
        control.undo().unwrap();
    }
}

#[test]
fn a_file_that_ranks_vcpus_ranks_rcu_and_timers_above_them() {
    let class = "[class.c.net]\nvhost = 60\nvcpu = 40\n[[vm]]\nname = \"rt\"\nclass = \"c\"\n";
    let fifo = |priority| Some(ThreadPriority::Fifo(priority));
    for (net, rcu, timers) in [
        ("", fifo(61), fifo(61)),
        ("rcu = 3", fifo(3), fifo(61)),
        ("rcu = 90\ntimers = 39", fifo(90), fifo(39)),
        (
            "rcu = \"normal\"\ntimers = \"normal\"",
            Some(ThreadPriority::Normal),
            Some(ThreadPriority::Normal),
        ),
    ] {
        let read = profile(&format!("[net]\n{net}\n{class}"));
        assert_eq!(
            (read.softirqs.rcu, read.softirqs.timers),
            (rcu, timers),
            "{net}"
        );
    }
    for (net, told) in [
        ("rcu = 50", "use 61 or more"),
        ("rcu = 60", "use 61 or more"),
        ("timers = 40", "use 61 or more"),
        ("ksoftirqd = 61", "comes last"),
    ] {
        let text = format!("[net]\n{net}\n{class}");
        let error = file::parse("steadyvm.toml", &text).unwrap_err();
        assert!(error.to_string().contains(told), "{net}: {error}");
    }
    // Without VMs that have ranks there is nothing to be above.
    let read = profile("[net]\nbudget_packets = 64\n");
    assert_eq!((read.softirqs.rcu, read.softirqs.timers), (None, None));
}
