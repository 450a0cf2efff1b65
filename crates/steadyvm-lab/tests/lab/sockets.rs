//! Outsourced sockets in a Linux guest: `steadyvm up` with `kernel/modules/steadyvm_sockets`, in the
//! emulated host. They need root, gcc and what `steadyvm-lab prepare` builds, and take minutes:
//! `make lab-tests` runs them, one at a time.

use crate::support::cases::{RUN_CASES, build_cases, check, expected, guest};
use crate::support::outsourced::{Guest, PATIENCE, require_answers, softirqs, stream};
use crate::support::shared;
use std::fs;
use steadyvm_lab::artifact::{
    Cache, DistributionKernel, KernelModule, KernelPackage, sockets_module,
};
use steadyvm_lab::progress::Silent;

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn programs_see_what_they_see_on_the_host() {
    let place = tempfile::tempdir().unwrap();
    let logs = place.path();
    let lab = shared::lab(logs);
    let cases = build_cases(&lab);
    let expected = expected(&lab, &cases);
    lab.upload_guest(RUN_CASES, &[("/cases", &cases)]);
    for vcpus in [1, 2] {
        check(
            &lab.run_guest("/boot/guest-kernel", guest(vcpus), PATIENCE),
            &expected,
        );
    }
}

/// On a CPU that came after the module, beside a task that never leaves it: a service there asks nothing of the
/// device while it waits, and its client is on the other CPU. Nothing but the CPU's harvest can say what came.
#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_service_on_a_cpu_that_came_later_is_woken_beside_a_task_that_computes() {
    let place = tempfile::tempdir().unwrap();
    let logs = place.path();
    let lab = shared::lab(logs);
    lab.upload_guest(
        "online() { echo $1 > /sys/devices/system/cpu/cpu1/online; }\n\
         rmmod steadyvm_sockets\n\
         online 0\n\
         insmod /sockets.ko\n\
         online 1\n\
         taskset 2 steadyvm netrt serve 127.0.0.1:7700 > /ready &\n\
         until grep -q ready /ready; do :; done\n\
         taskset 2 sh -c 'while :; do :; done' &\n\
         taskset 1 steadyvm netrt client 127.0.0.1:7700 --warmup 0 --samples 50 --rate 20\n",
        &[("/sockets.ko", &lab.laboratory.sockets_module)],
    );
    let console = lab.run_guest("/boot/guest-kernel", guest(2), PATIENCE);
    assert!(console.contains("50 round trips, 0 lost"), "{console}");
}

/// CPUs that wait in the device are woken while the module is still being loaded: else each of the loader's own
/// wake-ups lasts until the host's longest wait, 1 s, ends.
#[test]
#[ignore = "needs the lab: make lab-tests"]
fn the_module_is_loaded_while_idle_cpus_begin_to_wait_in_its_device() {
    const LOADS: usize = 12;
    /// Twice that without a fault; a loader that loses its wake-ups takes 1.1 to 2.1 s each time but some.
    const MOST_TOGETHER_US: u64 = 7_000_000;
    let place = tempfile::tempdir().unwrap();
    let logs = place.path();
    let lab = shared::lab(logs);
    let script = format!(
        "for i in $(seq {LOADS}); do\n\
           rmmod steadyvm_sockets\n\
           bash -c 'began=${{EPOCHREALTIME/./}}; insmod /sockets.ko; echo took $((${{EPOCHREALTIME/./}} - began))'\n\
         done\n"
    );
    lab.upload_guest(&script, &[("/sockets.ko", &lab.laboratory.sockets_module)]);
    let console = lab.run_guest("/boot/guest-kernel", guest(4), PATIENCE);
    let took = |line: &str| line.strip_prefix("took ")?.parse::<u64>().ok();
    let took: Vec<u64> = console.lines().filter_map(took).collect();
    assert_eq!(took.len(), LOADS, "{console}");
    assert!(took.iter().sum::<u64>() < MOST_TOGETHER_US, "{took:?} us");
}

/// Debian 12's own kernel: the oldest that the module is for.
#[test]
#[ignore = "needs the lab: make lab-tests"]
fn programs_on_linux_6_1_see_what_they_see_on_the_host() {
    let place = tempfile::tempdir().unwrap();
    let logs = place.path();
    let release = fs::read_to_string("/etc/os-release").unwrap();
    if !release.contains("VERSION_CODENAME=bookworm") {
        eprintln!("not tested: only Debian 12 has Linux 6.1 in its package sources");
        return;
    }
    let lab = shared::lab(logs);
    let cache = Cache::of_this_machine().unwrap();
    let kernel = DistributionKernel::obtain(&cache, KernelPackage::own("6.1"), &Silent).unwrap();
    let module = sockets_module(&cache, &kernel, &Silent).unwrap();
    let cases = build_cases(&lab);
    let expected = expected(&lab, &cases);
    lab.upload(&kernel.image, "/tmp/kernel-6.1");
    let files = [("/cases", cases.as_path())];
    lab.upload_initramfs(&kernel.guest_modules, &module, RUN_CASES, &files);
    for vcpus in [1, 2] {
        check(
            &lab.run_guest("/tmp/kernel-6.1", guest(vcpus), PATIENCE),
            &expected,
        );
    }
}

/// The CPU that does not panic sleeps in the device, where the interrupt that is to stop it does not
/// reach it.
#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_guest_that_panics_while_a_cpu_waits_in_the_device_ends_its_vm() {
    let place = tempfile::tempdir().unwrap();
    let logs = place.path();
    let lab = shared::lab(logs);
    for vcpu in [0, 1] {
        let script = format!("taskset -c {vcpu} sh -c 'echo c > /proc/sysrq-trigger'\n");
        lab.upload_guest(&script, &[]);
        // Debian's pvpanic tells it, and then it asks for a reset.
        let console = lab.run_guest_to(5, "/boot/guest-kernel", guest(2), PATIENCE);
        assert!(console.contains("Kernel panic - not syncing"), "{console}");
    }
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_service_runs_without_network_interrupts() {
    let place = tempfile::tempdir().unwrap();
    let logs = place.path();
    let lab = shared::lab(logs);
    lab.upload_guest(
        "steadyvm netrt serve 0.0.0.0:7700 &\n\
     iperf3 --forceflush -s -1 -p 5201\n\
     iperf3 --forceflush -s -1 -p 5202\n\
     cat /proc/softirqs\n\
     device=$(grep -l 0xffff /sys/bus/virtio/devices/*/device | cut -d / -f 6)\n\
     echo interrupts: $(grep -w $device$ /proc/interrupts)\n",
        &[],
    );
    let service = Guest {
        namespace: "current",
        ..guest(2)
    };
    let mut guest = lab.start_guest_until(service, "istening");
    // That was iperf3: the service says nothing, but its socket is the host's. 7700 is 1E14.
    let bound = "until grep -q ':1E14 ' /proc/net/udp; do :; done";
    let connection = lab.host.connection();
    connection.text(&["sh", "-euc", bound]).unwrap();

    require_answers(&lab);

    stream(&lab, "5201", &["-t", "2"]);
    guest.wait_for_line("istening", PATIENCE).unwrap();
    stream(&lab, "5202", &["-t", "2", "-R"]);

    let done = guest.finish(PATIENCE).unwrap();
    let console = done.text().replace('\r', "");
    for title in ["NET_RX:", "NET_TX:"] {
        assert_eq!(
            softirqs(&console, title).iter().sum::<u64>(),
            0,
            "{console}"
        );
    }
    // Answers and events come without the device's interrupt: "16: 0 0 IO-APIC 16-edge virtio1".
    let line = console
        .lines()
        .find_map(|line| line.strip_prefix("interrupts: "))
        .unwrap_or_else(|| panic!("{console}"));
    let counts: Vec<&str> = line.split_whitespace().skip(1).take(2).collect();
    assert_eq!(counts, ["0", "0"], "{line}");
}

/// No other task of its CPU runs while the host carries a request out.
#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_big_send_is_many_requests_of_bounded_payload() {
    let place = tempfile::tempdir().unwrap();
    let logs = place.path();
    let lab = shared::lab(logs);
    let inside = |words: &str| {
        let words = format!("cd /sys/kernel/tracing; {words}");
        lab.host.connection().text(&["sh", "-euc", &words]).unwrap()
    };
    for (set, most_kib) in [
        ("", 64),
        (
            "echo 256 > /sys/module/steadyvm_sockets/parameters/request_kib",
            256,
        ),
    ] {
        lab.upload_guest(
            &format!(
                "{set}\n\
                 iperf3 --forceflush -s -1 -p 5201 > /server &\n\
                 until grep -q istening /server; do :; done\n\
                 iperf3 -c 127.0.0.1 -p 5201 -n 16M -l 1M\n"
            ),
            &[],
        );
        // What each call of a VCPU's thread for a stream has sent.
        inside("echo > trace; echo 1 > events/sock/sock_send_length/enable; echo 1 > tracing_on");
        let console = lab.run_guest("/boot/guest-kernel", guest(2), PATIENCE);
        let sent = inside(
            "echo 0 > events/sock/sock_send_length/enable
             sed -n 's/^ *vcpu.*protocol = IPPROTO_TCP.*length = \\([0-9]*\\).*/\\1/p' trace; echo > trace",
        );
        let sent: Vec<u64> = sent.lines().map(|line| line.parse().unwrap()).collect();
        let (total, longest) = (sent.iter().sum::<u64>(), sent.iter().max());
        assert!(total >= 16 << 20, "{total} bytes: {console}");
        assert_eq!(longest, Some(&(most_kib << 10)), "{console}");
    }
}

/// A firewall's hook, as a module of the guest's kernel.
const FILTER: KernelModule<'_> = KernelModule {
    name: "filter",
    file: "filter.ko",
    sources: &[
        ("Kbuild", "obj-m := filter.o\n"),
        (
            "filter.c",
            include_str!("../../../../kernel/modules/steadyvm_sockets/tests/host/filter.c"),
        ),
    ],
};

const IPSEC: KernelModule<'_> = KernelModule {
    name: "ipsec",
    file: "ipsec.ko",
    sources: &[
        ("Kbuild", "obj-m := ipsec.o\n"),
        (
            "ipsec.c",
            include_str!("../../../../kernel/modules/steadyvm_sockets/tests/host/ipsec.c"),
        ),
    ],
};

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_guest_with_a_firewall_or_ipsec_keeps_its_sockets_unless_it_asks_for_all() {
    let place = tempfile::tempdir().unwrap();
    let logs = place.path();
    let lab = shared::lab(logs);
    let cache = Cache::of_this_machine().unwrap();
    let kernel = &lab.laboratory.distribution_kernel;
    let [filter, ipsec] =
        [FILTER, IPSEC].map(|module| module.obtain(&cache, kernel, &Silent).unwrap());
    // A socket of the guest's own shows in its table, one of the host's does not.
    lab.upload_guest(
        "P=/sys/module/steadyvm_sockets/parameters/policy\n\
         ip link set lo up\n\
         whose() {\n\
           bash -c 'exec 3<> /dev/udp/127.0.0.1/5201; \
             grep -q :1451 /proc/net/udp && echo $0: guest || echo $0: host' $1\n\
         }\n\
         echo policy $(cat $P)\n\
         whose without\n\
         insmod /filter.ko\n\
         whose filtered\n\
         echo all > $P\n\
         whose all\n\
         echo unfiltered > $P\n\
         rmmod filter\n\
         whose after\n\
         insmod /ipsec.ko\n\
         whose ipsec\n\
         echo all > $P\n\
         whose all-with-ipsec\n\
         echo unfiltered > $P\n\
         rmmod ipsec\n\
         whose end\n\
         dmesg | grep 'netfilter hooks'\n",
        &[("/filter.ko", &*filter), ("/ipsec.ko", &*ipsec)],
    );
    let console = lab.run_guest("/boot/guest-kernel", guest(2), PATIENCE);
    for line in [
        "policy unfiltered",
        "without: host",
        "filtered: guest",
        "all: host",
        "after: host",
        "ipsec: guest",
        "all-with-ipsec: host",
        "end: host",
    ] {
        assert!(
            console.lines().any(|said| said == line),
            "{line}: {console}"
        );
    }
    assert!(
        console.contains("new sockets are the guest's own"),
        "nobody was told: {console}"
    );
}
