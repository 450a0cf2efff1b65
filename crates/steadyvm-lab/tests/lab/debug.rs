//! Guests whose kernel checks itself (lockdep, KASAN: kernel/config-debug), in the emulated host. They need root
//! and gcc, build a kernel first and are slow: `make debug-tests` runs them, one at a time, and the
//! tests of `lab::levels` on hosts with such kernels.

mod experiments;

use crate::support::cases::{RUN_CASES, build_cases, check, expected, guest};
use crate::support::kernel_log;
use crate::support::outsourced::{Guest, Lab};
use std::time::Duration;
use steadyvm_lab::artifact::{Cache, sockets_module_for};
use steadyvm_lab::laboratory::HostKernel;
use steadyvm_lab::progress::Silent;

/// Such a kernel is some ten times slower, in an emulated host.
const PATIENCE: Duration = Duration::from_secs(1200);
const KERNEL: HostKernel = HostKernel::V6_12PatchedDebug;

#[test]
#[ignore = "needs the lab and a kernel that checks itself: make debug-tests"]
fn the_cases_run_in_a_guest_with_lockdep_and_kasan_without_a_report() {
    let place = tempfile::tempdir().unwrap();
    let lab = Lab::boot_besides("debug", place.path(), &[KERNEL]);
    let kernel = &lab.laboratory.our_kernels[&KERNEL];
    let cache = Cache::of_this_machine().unwrap();
    let module = sockets_module_for(&cache, kernel, &Silent).unwrap();
    let cases = build_cases(&lab);
    let expected = expected(&lab, &cases);
    lab.upload(&kernel.image, "/tmp/kernel-debug");
    // It has all built in.
    let modules = tempfile::tempdir_in(place.path()).unwrap();
    let script = format!("{RUN_CASES}\ngrep debug_locks: /proc/lockdep_stats\necho log:\ndmesg\n");
    let files = [("/cases", cases.as_path())];
    lab.upload_initramfs(modules.path(), &module, &script, &files);
    for vcpus in [1, 2] {
        let guest = Guest {
            memory_mib: 512,
            ..guest(vcpus)
        };
        let console = lab.run_guest("/tmp/kernel-debug", guest, PATIENCE);
        let (said, log) = console.split_once("log:\n").expect(&console);
        if let Some(report) = kernel_log::reports(log) {
            panic!("{report}");
        }
        assert!(kernel_log::lockdep_is_on(said), "{console}");
        assert!(log.contains("KernelAddressSanitizer initialized"), "{log}");
        check(said, &expected);
    }
}

#[test]
fn a_report_is_found() {
    let log = "[    1.0] Lock dependency validator: Copyright (c) 2006 Red Hat, Inc.\n\
               [    1.1] kasan: KernelAddressSanitizer initialized\n";
    assert_eq!(kernel_log::reports(log), None);
    let found = kernel_log::reports(&format!(
        "{log}[ 2.0] BUG: KASAN: use-after-free in x\n at y"
    ));
    assert_eq!(
        found.unwrap(),
        "[ 2.0] BUG: KASAN: use-after-free in x\n at y"
    );
    assert!(kernel_log::lockdep_is_on(
        " debug_locks:                             1\n"
    ));
    for off in [
        "",
        " debug_locks:                             0\n",
        " max_debug_locks: 1\n",
    ] {
        assert!(!kernel_log::lockdep_is_on(off));
    }
}
