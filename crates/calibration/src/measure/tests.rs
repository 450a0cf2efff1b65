#![allow(clippy::unwrap_used)]

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

use steadyvm_host::{KernelThreads, Policy, Threads as _};

use super::*;

/// `cat` sends bytes back, too.
fn cat() -> Partner {
    Partner {
        program: "cat".into(),
        arguments: Vec::new(),
    }
}

fn is_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        eprintln!("not tested: only root gives threads a real-time priority");
    }
    is_root
}

/// The one test that takes the machine's time: each figure is there, plausible, and nothing is left behind.
#[test]
fn this_host_is_measured_and_left_as_it_was() {
    if !is_root() {
        return;
    }
    let before = (
        KernelThreads.scheduling(thread::own()).unwrap(),
        KernelThreads.affinity(thread::own()).unwrap(),
    );
    let children = || fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    let machine = Machine::real();
    let begun = Instant::now();
    let Measured { calibration, notes } = measure(&machine, &cat(), 1, 1_790_000_000).unwrap();
    assert!(
        begun.elapsed() < Duration::from_secs(60),
        "{:?}",
        begun.elapsed()
    );
    let cpus = own_cpus().unwrap();
    for (name, cost) in calibration.costs() {
        let Some(cost) = cost else {
            // Packets are a VM's, which is measured where one is named.
            let is_said = notes.iter().any(|note| note.starts_with(name));
            assert!(is_said || name == "packet", "{name}");
            continue;
        };
        assert_eq!(cost.fault(), None, "{name}");
        assert!(cost.samples >= 5, "{name}: {cost:?}");
        // Less than the fastest clock and system call take is no measurement.
        if name != "cache_reload" {
            assert!(cost.median_ns >= 20, "{name}: {cost:?}");
        }
        assert!(cost.median_ns < 1_000_000_000, "{name}: {cost:?}");
    }
    assert_eq!(calibration.migration.is_some(), cpus.len() > 1);
    assert_eq!(Calibration::parse(&calibration.text()), Ok(calibration));
    let after = (
        KernelThreads.scheduling(thread::own()).unwrap(),
        KernelThreads.affinity(thread::own()).unwrap(),
    );
    assert!(before.0.same_as(&after.0) && before.1 == after.1);
    assert_eq!(after.0.policy, Policy::Normal);
    assert_eq!(children(), "", "the partner has ended");
}

#[test]
fn a_partner_that_ends_is_an_error_and_not_a_wait() {
    if !is_root() {
        return;
    }
    let partner = Partner {
        program: "true".into(),
        arguments: Vec::new(),
    };
    let cpu = own_cpus().unwrap()[0];
    let begun = Instant::now();
    assert!(switch::samples(&partner, cpu, begun).is_err());
    assert!(begun.elapsed() < Duration::from_secs(10));
    let absent = Partner {
        program: "/no/such/program".into(),
        arguments: Vec::new(),
    };
    let said = switch::samples(&absent, cpu, begun).unwrap_err();
    assert!(said.to_string().contains("/no/such/program"), "{said}");
}

/// A thread that computes at a higher rank keeps ours from its CPU: nobody waits for ours, and it ends all the same.
#[test]
fn a_cpu_that_gives_no_time_is_an_error_and_not_a_wait() {
    if !is_root() {
        return;
    }
    let cpu = own_cpus().unwrap()[0];
    let stop = Arc::new(AtomicBool::new(false));
    let (say, said) = channel();
    let computing = {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            thread::set(thread::own(), LOWEST + 1, cpu).unwrap();
            say.send(()).unwrap();
            while !stop.load(Ordering::Relaxed) {}
        })
    };
    said.recv().unwrap();
    let (ended, has_ended) = channel();
    let kept_off = thread::Measuring::start(move || {
        thread::set(thread::own(), LOWEST, cpu)?;
        ended.send(()).unwrap();
        Ok(())
    });
    let error = kept_off
        .unwrap()
        .end(Instant::now(), Duration::from_millis(100))
        .unwrap_err();
    assert!(error.to_string().contains("in time"), "{error}");
    // It was let go: it ends while the other one still computes, or on another CPU.
    let end = has_ended.recv_timeout(Duration::from_secs(30));
    stop.store(true, Ordering::Relaxed);
    computing.join().unwrap();
    assert_eq!(end, Ok(()));
}

#[test]
fn an_echo_sends_back_what_it_is_sent_until_the_end() {
    let mut back = Vec::new();
    echo(&b"abc"[..], &mut back).unwrap();
    assert_eq!(back, b"abc");
}

#[test]
fn cpus_are_spread_from_the_first_to_the_last() {
    let cpus: Vec<usize> = (0..100).collect();
    assert_eq!(spread(&cpus, 8), [0, 14, 28, 42, 56, 70, 84, 99]);
    assert_eq!(spread(&[4, 6], 8), [4, 6]);
    assert_eq!(spread(&[3], 8), [3]);
    assert_eq!(spread(&cpus, 1), [0]);
    assert!(spread(&[], 8).is_empty());
}
