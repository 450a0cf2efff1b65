//! What others would use in steadyvm's place, in the lab: `make program-tests`. As tests/lab.rs.

use crate::support::comparison::{require_figures, short_comparison};
use std::path::Path;
use steadyvm_experiment::testbed::ComparedMethod;
use steadyvm_lab::artifact::Cache;
use steadyvm_lab::emulator::Machine;
use steadyvm_lab::host::{EmulatedHost, RT};
use steadyvm_lab::laboratory::{HostKernel, Laboratory, guest};
use steadyvm_lab::progress::Silent;

fn boot(method: &str, logs: &Path) -> EmulatedHost {
    let method: ComparedMethod = method.parse().unwrap();
    let cache = Cache::of_this_machine().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_steadyvm-lab"));
    let kernels = [HostKernel::V6_12Rt];
    let laboratory = Laboratory::open(&cache, program, logs, &kernels, &Silent).unwrap();
    EmulatedHost::boot(&method.specification(&laboratory, 0).unwrap()).unwrap()
}

/// Debian's unmodified kernel takes each word of tuned's, the guest is libvirt's real-time domain, and what
/// `apply --method` sets holds and is taken back.
#[test]
#[ignore = "needs the lab: make program-tests"]
fn tuned_holds_on_a_host_that_was_booted_for_it_and_undo_restores_everything() {
    let logs = tempfile::tempdir().unwrap();
    let host = boot("tuned", logs.path());
    let inside = |words: &str| host.connection().text(&["sh", "-euc", words]).unwrap();
    for made in ["isolated", "nohz_full"] {
        let cpus = inside(&format!("cat /sys/devices/system/cpu/{made}"));
        assert_eq!(cpus.trim(), "1", "{made}");
    }
    let real_time = Machine {
        real_time: true,
        ..guest("rt", 1, 2)
    };
    let rt = host.start_guest(&real_time, &[RT], &Silent).unwrap();
    rt.set_network_up(RT.address(3)).unwrap();
    let monitor = host.guest_pid("rt").unwrap();
    let free = inside("sed -n 's/^HugePages_Free: *//p' /proc/meminfo");
    assert_eq!(free.trim(), "0", "the guest's memory is in huge pages");
    let locked = inside(&format!(
        "sed -n 's/^VmLck:[ \t]*//p' /proc/{monitor}/status"
    ));
    assert_ne!(locked.trim(), "0 kB", "and locked");

    inside("steadyvm status --snapshot > /run/before.json");
    inside(&format!("steadyvm apply --method tuned --vm {monitor}:1"));
    inside("steadyvm status");
    let threads = inside(&format!(
        "ps -Lo tid=,cls=,rtprio=,comm= -p {monitor} | while read -r tid class rank name; do \
         status=/proc/{monitor}/task/$tid/status; [ -e $status ] || continue; \
         echo $class $rank $(sed -n 's/^Cpus_allowed_list:[ \t]*//p' $status) $name; done"
    ));
    for line in threads.lines() {
        let is_vcpu = line.ends_with("CPU 1/KVM");
        let words: Vec<&str> = line.split_whitespace().collect();
        if is_vcpu {
            assert_eq!(words[..3], ["FF", "1", "1"], "{threads}");
        } else {
            assert_eq!(words[..3], ["TS", "-", "0"], "{threads}");
        }
    }
    assert!(
        threads.contains("CPU 1/KVM") && threads.contains("vhost-"),
        "{threads}"
    );
    let kernel = inside("ps -eLo cls=,rtprio=,comm= | grep -E ' (ksoftirqd|ktimers|rcuc|rcub)/'");
    for line in kernel.lines() {
        let expected = if line.contains("rcu") { "4" } else { "2" };
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..2], ["FF", expected], "{kernel}");
    }
    inside("steadyvm undo");
    inside("steadyvm status --snapshot --compare /run/before.json");
}

/// The interrupt threads of the function are found as the VM's, ranked, left where asked, and undone.
#[test]
#[ignore = "needs the lab: make program-tests"]
fn a_virtual_functions_interrupt_threads_are_ranked_and_undone() {
    let logs = tempfile::tempdir().unwrap();
    let host = boot("vf", logs.path());
    let inside = |words: &str| host.connection().text(&["sh", "-euc", words]).unwrap();
    let mut machine = guest("rt", 1, 2);
    machine.cards[0].function = Some(host.make_function(RT, &machine.cards[0].mac).unwrap());
    let rt = host.start_guest(&machine, &[RT], &Silent).unwrap();
    rt.set_network_up(RT.address(3)).unwrap();
    rt.await_link().unwrap();
    let ranks = || {
        let lines = inside("ps -eo rtprio=,comm= | grep -E 'irq/.*vfio'");
        let ranks = lines
            .lines()
            .map(|line| line.split_whitespace().next().unwrap().to_owned());
        ranks.collect::<Vec<String>>()
    };
    // Receive, send, and the mailbox to the physical function.
    assert_eq!(ranks(), ["50", "50", "50"]);
    inside("steadyvm status --snapshot > /run/before.json");
    let vm = format!("--nic rt --vm {}:1", host.guest_pid("rt").unwrap());
    for (options, rank) in [("", "80"), ("--keep-vfio", "50")] {
        inside(&format!(
            "steadyvm apply --method preempt-rt {vm} {options}"
        ));
        assert_eq!(ranks(), [rank; 3], "{options}");
        inside("steadyvm undo");
        inside("steadyvm status --snapshot --compare /run/before.json");
    }
}

#[test]
#[ignore = "needs the lab: make program-tests"]
fn a_comparison_has_the_peers_and_their_price() {
    let out = tempfile::tempdir().unwrap();
    let page = out.path().join("peers.md");
    let methods = ["tuned", "vf", "vf-ranked"];
    let options = [
        "--rounds",
        "1",
        "--methods",
        &methods.join(","),
        "--markdown",
        page.to_str().unwrap(),
    ];
    let (results, _) = short_comparison(&options, out.path());
    let names: Vec<&str> = results.rows.iter().map(String::as_str).collect();
    assert_eq!(names, methods);
    for name in &names {
        require_figures(&results, name);
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("CPUs set aside"), "{page}");
}
