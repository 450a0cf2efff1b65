//! The kernel itself, on threads that the test has started.

use std::sync::mpsc;
use std::thread;

use crate::cpu_set::CpuSet;
use crate::engine::Snapshot;
use crate::settings::files::HostTree;
use crate::settings::threads::{
    KernelThreads, RESET_ON_FORK, Scheduling, Threads, calling_thread, is_runnable,
};
use crate::settings::{
    Change, ChangeOf, Device, Machine, Restored, RxFrames, SettingKind, TapSendBuffer,
    ThreadAffinity, ThreadPolicy,
};

/// Runs `work` with the number of a thread that waits meanwhile.
fn with_thread(work: impl FnOnce(u32)) {
    let (number, read_number) = mpsc::channel();
    let (stop, wait) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        number.send(calling_thread()).unwrap();
        let _ = wait.recv();
    });
    work(read_number.recv().unwrap());
    drop(stop);
    thread.join().unwrap();
}

/// Setting RT policies needs a privilege that a test run may not have.
fn may_set_policies(tid: u32) -> bool {
    let fifo = KernelThreads.set_scheduling(tid, &Scheduling::fifo(1, 0));
    let _ = KernelThreads.set_scheduling(tid, &Scheduling::normal());
    if let Err(error) = &fifo {
        eprintln!("skipped: this user may not set RT policies: {error}");
    }
    fifo.is_ok()
}

#[test]
fn policies_are_set_and_restored_by_the_kernel() {
    with_thread(|tid| {
        if !may_set_policies(tid) {
            return;
        }
        let machine = Machine::real();
        let id = machine.thread(std::process::id(), tid).unwrap().id;
        for start in [
            Scheduling {
                nice: 7,
                ..Scheduling::normal()
            },
            Scheduling::fifo(3, 0),
            Scheduling::fifo(4, RESET_ON_FORK),
        ] {
            KernelThreads.set_scheduling(tid, &start).unwrap();
            let old = KernelThreads.scheduling(tid).unwrap();
            let new = Scheduling::fifo(11, RESET_ON_FORK);
            let setting = ThreadPolicy { thread: id.clone() };
            let change = Change::from(ChangeOf { setting, old, new });
            change.make(&machine).unwrap();
            assert!(KernelThreads.scheduling(tid).unwrap().same_as(&new));
            assert_eq!(change.restore(&machine), Restored::Restored { note: None });
            assert_eq!(KernelThreads.scheduling(tid).unwrap(), old);
            assert_eq!(change.restore(&machine), Restored::AlreadyOld);
        }
    });
}

/// A running thread whose reservation was shrunk would get nothing for a long time.
#[test]
fn only_a_sleeping_thread_is_not_runnable() {
    assert!(is_runnable(calling_thread()));
    with_thread(|tid| {
        // It has said its number, and goes to sleep.
        while is_runnable(tid) {
            thread::yield_now();
        }
    });
    assert!(!is_runnable(u32::MAX));
}

/// The kernel keeps what a sleeping thread had, unless that is shrunk first.
#[test]
fn a_reservation_taken_from_a_sleeping_thread_is_free_again() {
    const MS: u64 = 1_000_000;
    let tenth = Scheduling::deadline(10 * MS, 100 * MS, 100 * MS, 0);
    with_thread(|tid| {
        if let Err(error) = KernelThreads.set_scheduling(tid, &tenth) {
            eprintln!("skipped: no reservation may be made here: {error}");
            return;
        }
        KernelThreads
            .set_scheduling(tid, &Scheduling::normal())
            .unwrap();
        let cpus = Machine::real().online().unwrap().iter().count();
        // More than all CPUs have, one after the other.
        for number in 0..=cpus * 10 {
            let made = KernelThreads.set_scheduling(tid, &tenth);
            assert!(made.is_ok(), "reservation {number}: {made:?}");
            KernelThreads
                .set_scheduling(tid, &Scheduling::normal())
                .unwrap();
        }
    });
}

#[test]
fn affinities_are_set_and_restored_by_the_kernel() {
    with_thread(|tid| {
        let machine = Machine::real();
        let id = machine.thread(std::process::id(), tid).unwrap().id;
        let old = KernelThreads.affinity(tid).unwrap();
        assert!(!old.is_empty());
        let new = CpuSet::single(old.last().unwrap());
        let setting = ThreadAffinity { thread: id.clone() };
        let change = Change::from(ChangeOf {
            setting,
            old: old.clone(),
            new: new.clone(),
        });
        change.make(&machine).unwrap();
        assert_eq!(KernelThreads.affinity(tid).unwrap(), new);
        if old != new {
            assert_eq!(change.restore(&machine), Restored::Restored { note: None });
        }
        assert_eq!(KernelThreads.affinity(tid).unwrap(), old);
        let mut recycled = id;
        recycled.start_time += 1;
        let setting = ThreadAffinity { thread: recycled };
        let change = Change::from(ChangeOf { setting, old, new });
        assert_eq!(change.restore(&machine), Restored::Vanished);
    });
}

#[test]
fn a_snapshot_of_this_machine_can_be_taken() {
    let snapshot = Snapshot::take(&Machine::real()).unwrap();
    let own = std::process::id();
    let machine = Machine::real();
    let entry = machine.thread(own, own).unwrap().id.entry();
    assert!(snapshot.settings["thread-policy"].contains_key(&entry));
    assert_eq!(
        KernelThreads.scheduling(0).unwrap_err().raw_os_error(),
        Some(libc::ESRCH)
    );
}

#[test]
fn a_file_is_written_from_the_cpu_and_the_caller_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), "old").unwrap();
    let tree = crate::RootedTree::new(directory.path());
    let own = crate::settings::threads::calling_thread();
    let before = KernelThreads.affinity(own).unwrap();
    for cpu in before.iter() {
        tree.write_from(cpu, "/file", &cpu.to_string()).unwrap();
        assert_eq!(tree.read("/file").unwrap(), cpu.to_string());
    }
    let error = tree
        .write_from(crate::cpu_set::MAX_CPU, "/file", "x")
        .unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    assert_eq!(KernelThreads.affinity(own).unwrap(), before);
}

/// Makes a tap that is gone with the descriptor; none where this user may not.
fn make_tap() -> Option<(std::fs::File, String)> {
    use std::os::fd::AsRawFd;

    let opened = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    let tun = opened
        .map_err(|error| eprintln!("skipped: /dev/net/tun cannot be opened: {error}"))
        .ok()?;
    // A `struct ifreq`: the name, which the kernel completes, and the flags.
    let mut request = [0_u8; 40];
    request[..9].copy_from_slice(b"steadyt%d");
    let flags = (libc::IFF_TAP | libc::IFF_NO_PI) as u16;
    request[16..18].copy_from_slice(&flags.to_ne_bytes());
    // SAFETY: `request` is as large as a `struct ifreq`, all that the call touches, and outlives it.
    let result = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF, request.as_mut_ptr()) };
    if result < 0 {
        let error = std::io::Error::last_os_error();
        eprintln!("skipped: this user may not make a tap: {error}");
        return None;
    }
    let name = request[..16].split(|&byte| byte == 0).next().unwrap();
    Some((tun, String::from_utf8(name.to_vec()).unwrap()))
}

#[test]
fn a_taps_batch_is_set_and_restored_by_the_kernel() {
    let Some((tun, tap)) = make_tap() else { return };
    let machine = Machine::real();
    let own = std::process::id();
    let device = Device::find(&machine, &tap);
    assert!(device.index.is_some());
    let send_buffer = Change::from(ChangeOf {
        setting: TapSendBuffer {
            tap: device.clone(),
            monitor: machine.thread(own, own).unwrap().id,
        },
        old: [crate::settings::links::UNLIMITED_BYTES].into(),
        new: [16 << 20].into(),
    });
    let rx_frames = Change::from(ChangeOf {
        setting: RxFrames { device },
        old: 0,
        new: 7,
    });
    for change in [&rx_frames, &send_buffer] {
        assert!(change.read(&machine).unwrap().is_old);
        change.make(&machine).unwrap();
        assert!(change.read(&machine).unwrap().is_new);
        assert_eq!(change.restore(&machine), Restored::Restored { note: None });
        assert_eq!(change.restore(&machine), Restored::AlreadyOld);
    }
    drop(tun);
    for change in [&rx_frames, &send_buffer] {
        assert_eq!(change.restore(&machine), Restored::Vanished);
    }
}

/// A thread of this test's own as a virtual CPU: the kernel takes its budget and gives the old policy back.
#[test]
fn budgets_are_set_and_restored_by_the_kernel() {
    let machine = Machine::real();
    let own = machine
        .all_threads()
        .unwrap()
        .into_iter()
        .find(|thread| thread.id.tid == crate::settings::threads::calling_thread())
        .unwrap()
        .id;
    let setting = ThreadPolicy { thread: own };
    let old = setting.read(&machine).unwrap();
    let new = Scheduling::deadline(1_000_000, 10_000_000, 10_000_000, RESET_ON_FORK);
    if let Err(error) = setting.write(&machine, &old, &new) {
        eprintln!("skipped: this machine lets no thread have a budget: {error}");
        return;
    }
    let now = setting.read(&machine).unwrap();
    assert!(setting.same(&now, &new), "{now}");
    setting.restore(&machine, &old, &new).unwrap();
    let now = setting.read(&machine).unwrap();
    assert!(setting.same(&now, &old), "{now}");
}
