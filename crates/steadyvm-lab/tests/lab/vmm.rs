//! `steadyvm up` in the emulated host: stock guests boot, do their work, and leave nothing.

use crate::support::outsourced::{Guest, Lab};
use crate::support::shared;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use steadyvm_lab::agent::{Finished, Process, Status, Stream, TerminalSize};
use steadyvm_lab::artifact::{Cache, DistributionKernel, KernelPackage, sockets_module};
use steadyvm_lab::host::EmulatedHost;
use steadyvm_lab::laboratory::{HostKernel, Laboratory};
use steadyvm_lab::progress::Silent;

/// A guest boots in 5 s on an idle machine.
const PATIENCE: Duration = Duration::from_secs(180);

fn host(logs: &Path) -> EmulatedHost {
    let cache = Cache::of_this_machine().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_steadyvm-lab"));
    let laboratory =
        Laboratory::open(&cache, program, logs, &[HostKernel::V6_12Rt], &Silent).unwrap();
    EmulatedHost::boot(&laboratory.host("vmm", HostKernel::V6_12Rt).unwrap()).unwrap()
}

/// Runs words of a shell in the host; their output.
fn inside(host: &EmulatedHost, words: &str) -> String {
    let done = host.connection().text(&["sh", "-euc", words]);
    done.unwrap_or_else(|error| panic!("{words}: {error}"))
}

/// Describes a guest that runs `script` on its console and powers off.
fn describe(host: &EmulatedHost, file: &str, script: &str, more: &str) {
    let text = format!(
        r#"name = "guest"
kernel = "/boot/guest-kernel"
initramfs = "/boot/guest-initramfs"
cmdline = """console=ttyS0 pci=off panic=-1 quiet loglevel=1 tsc=reliable no_timer_check -- sh -c "{script}" """
{more}
"#
    );
    inside(host, &format!("cat > {file} <<'END'\n{text}\nEND"));
}

const DISK: &str = "[[disk]]\npath = \"/dev/vda\"\nread_only = true\n";
const CARD: &str = "[[net]]\ntap = \"tap-guest\"\nmac = \"52:54:00:78:00:09\"\n";

fn start(host: &EmulatedHost, words: &[&str]) -> Process {
    let process = host.connection().spawn(words).unwrap();
    process.end_of_input().unwrap();
    process
}

fn finished(process: Process) -> Finished {
    let done = process.finish(PATIENCE).unwrap();
    let said = String::from_utf8_lossy(&done.error).into_owned();
    assert!(
        done.status == Status::Exited(0),
        "{}: {said}\n{}",
        done.status,
        done.text()
    );
    done
}

/// What a VM has in its host: processes, network namespaces, KVM's VMs, vhost workers.
fn footprint(host: &EmulatedHost) -> String {
    let words = "ls /sys/kernel/debug/kvm | grep -c '^[0-9]' || true; \
                 ls -l /proc/[0-9]*/ns/net 2>/dev/null | sed 's/.*-> //' | sort -u; \
                 ps -eLo comm= | grep -E '^(vhost-|vcpu|disk|net)' || true; \
                 ps -eo args= | grep '[s]teadyvm up' || true";
    inside(host, words)
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_stock_guest_boots_on_one_and_two_vcpus_receives_and_powers_off() {
    let host = shared::host(HostKernel::V6_12Rt);
    host.ip("tuntap add dev tap-guest mode tap vnet_hdr")
        .unwrap();
    host.ip("address add 10.99.0.1/24 dev tap-guest").unwrap();
    host.ip("link set dev tap-guest up").unwrap();
    let before = footprint(&host);
    for vcpus in [1, 2] {
        let script = "ip address add 10.99.0.2/24 dev eth0; ip link set dev eth0 up; \
                  echo processors $(nproc); cat /sys/bus/virtio/devices/*/device; \
                  iperf3 -s -1; grep LOC /proc/interrupts";
        let last = vcpus - 1;
        let more = format!("vcpus = {vcpus}\nrt_vcpus = [{last}]\n{DISK}{CARD}[sockets]\n");
        describe(&host, "/tmp/vm.toml", script, &more);
        let words = [
            "steadyvm",
            "up",
            "--statistics",
            "/tmp/statistics",
            "/tmp/vm.toml",
        ];
        let mut guest = start(&host, &words);
        guest.wait_for_line("Server listening", PATIENCE).unwrap();
        let threads = inside(
            &host,
            "ps -eLo comm=,cls=,rtprio= | grep -E '^(vcpu|disk|net)'",
        );
        let rt = threads
            .lines()
            .filter(|line| line.ends_with("FF     70"))
            .count();
        assert_eq!(rt, 1, "{threads}");
        assert!(threads.contains(&format!("vcpu{last}/guest")), "{threads}");
        // The card's interrupts go through a thread, which is never below the VCPU that they are for.
        let relay = threads.lines().find(|line| line.starts_with("net0/guest"));
        let relay: Vec<&str> = relay.unwrap().split_whitespace().skip(1).collect();
        assert_eq!(relay, ["FF", "71"], "{threads}");
        // More than the guest's memory, which is 256 MiB.
        let monitor = guest.pid();
        let locked = inside(&host, &format!("grep VmLck: /proc/{monitor}/status"));
        let kib: u64 = locked.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(kib > 256 << 10, "{locked}");
        let sent = inside(&host, "iperf3 --json -c 10.99.0.2 -n 16M");
        let sent: Value = serde_json::from_str(&sent).unwrap();
        let received = sent["end"]["sum_received"]["bytes"].as_f64().unwrap();
        // What still lies in socket buffers when the sender is done is not counted.
        assert!(received > 1e6, "{received}");
        finished(guest);

        let statistics = inside(&host, "cat /tmp/statistics");
        let statistics: Value = serde_json::from_str(&statistics).unwrap();
        let counted = statistics["vcpus"].as_array().unwrap();
        assert_eq!(counted.len(), vcpus);
        for vcpu in counted {
            assert!(vcpu["kvm"]["exits"].as_u64().unwrap() > 0, "{vcpu}");
        }
        // The boot VCPU wrote the power register last, by a port.
        assert!(counted[0]["exits"]["port_write"].as_u64().unwrap() > 0);
        assert_eq!(footprint(&host), before);
    }
}

/// Boots a kernel on so many VCPUs; each of them does something.
fn boots_on(lab: &Lab, kernel: &str, release: &str, vcpus: u32) {
    let guest = Guest {
        vcpus,
        memory_mib: 256,
        namespace: "new",
    };
    let console = lab.run_guest(kernel, guest, PATIENCE);
    let ran = (0..vcpus).map(|vcpu| format!("on VCPU {vcpu} of {vcpus}, {release}"));
    for line in ran {
        assert!(
            console.lines().any(|said| said == line),
            "{line}: {console}"
        );
    }
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn debian_s_kernels_boot_on_up_to_four_vcpus() {
    let place = tempfile::tempdir().unwrap();
    let logs = place.path();
    let lab = shared::lab(logs);
    let script = "for vcpu in $(seq 0 $(($(nproc) - 1))); do\n\
                  taskset -c $vcpu echo on VCPU $vcpu of $(nproc), $(uname -r)\n\
                  done\n";
    lab.upload_guest(script, &[]);
    let release = &lab.laboratory.distribution_kernel.release;
    for vcpus in [3, 4] {
        boots_on(&lab, "/boot/guest-kernel", release, vcpus);
    }

    let system = std::fs::read_to_string("/etc/os-release").unwrap();
    if !system.contains("VERSION_CODENAME=bookworm") {
        eprintln!("not tested: only Debian 12 has Linux 6.1 in its package sources");
        return;
    }
    let cache = Cache::of_this_machine().unwrap();
    let kernel = DistributionKernel::obtain(&cache, KernelPackage::own("6.1"), &Silent).unwrap();
    let module = sockets_module(&cache, &kernel, &Silent).unwrap();
    lab.upload(&kernel.image, "/tmp/kernel-6.1");
    lab.upload_initramfs(&kernel.guest_modules, &module, script, &[]);
    for vcpus in [1, 4] {
        boots_on(&lab, "/tmp/kernel-6.1", &kernel.release, vcpus);
    }
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_guest_that_panics_or_restarts_ends_its_vm() {
    let host = shared::host(HostKernel::V6_12Rt);
    let before = footprint(&host);
    for (vcpus, key, panics) in [(1, "b", false), (1, "c", true), (2, "c", true)] {
        let more = format!("vcpus = {vcpus}\n{DISK}");
        let script = format!("echo {key} > /proc/sysrq-trigger");
        describe(&host, "/tmp/vm.toml", &script, &more);
        let done = start(&host, &["steadyvm", "up", "/tmp/vm.toml"]);
        let done = done.finish(PATIENCE).unwrap();
        let console = done.text();
        let panicked = console.contains("Kernel panic - not syncing");
        assert_eq!(panicked, panics, "{console}");
        let said = String::from_utf8_lossy(&done.error);
        // Debian's own driver of pvpanic has told the panic.
        let (code, words) = if panics {
            (5, "the guest panicked")
        } else {
            (4, "the guest asked for a reset")
        };
        assert_eq!(done.status, Status::Exited(code), "{said}");
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(footprint(&host), before);
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn sigterm_and_the_escape_key_end_a_guest_and_give_the_terminal_back() {
    let host = shared::host(HostKernel::V6_12Rt);
    let before = footprint(&host);
    describe(
        &host,
        "/tmp/vm.toml",
        "echo is up; read line; echo read $line; sleep 1000",
        DISK,
    );
    let words = "stty -g; steadyvm up /tmp/vm.toml; echo exit $?; stty -g";
    let size = TerminalSize {
        rows: 24,
        columns: 80,
    };
    let guest = host
        .connection()
        .spawn_in(&["sh", "-c", words], Some(size))
        .unwrap();
    let mut said = String::new();
    let mut keys: Vec<(&str, &[u8])> = vec![("read hello", b"\x01x"), ("is up", b"hello\r")];
    let status = guest.follow(|_: Stream, data| {
        said.push_str(&String::from_utf8_lossy(data));
        while let Some((mark, input)) = keys.last() {
            if !said.contains(mark) {
                break;
            }
            guest.input(input).unwrap();
            keys.pop();
        }
    });
    assert_eq!(status.unwrap(), Status::Exited(0));
    let lines: Vec<&str> = said
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    assert!(lines.contains(&"exit 0"), "{said}");
    assert!(said.contains("ended by Ctrl-A x"), "{said}");
    assert_eq!(
        lines.first(),
        lines.last(),
        "the terminal's mode has changed: {said}"
    );

    let mut guest = start(&host, &["steadyvm", "up", "/tmp/vm.toml"]);
    guest.wait_for_line("is up", PATIENCE).unwrap();
    guest.signal(15).unwrap();
    finished(guest);
    assert_eq!(footprint(&host), before);
}

/// The user `nobody`, who has been given the devices, memory and priority that a VM needs.
const AS_NOBODY: &str = "prlimit --memlock=unlimited --rtprio=99 --nofile=8192 \
                         setpriv --reuid 65534 --regid 65534 --clear-groups";

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_user_without_rights_runs_a_guest_or_is_told_what_is_missing() {
    let place = tempfile::tempdir().unwrap();
    let logs = place.path();
    let host = host(logs);
    let more = format!(
        "rt_vcpus = [0]\n{DISK}{CARD}[sockets]\nnamespace = \"current\"\nallow_host_network = true\n"
    );
    describe(&host, "/tmp/vm.toml", "echo is up", &more);
    let words = format!("{AS_NOBODY} steadyvm up /tmp/vm.toml </dev/null 2>&1 || echo exit $?");
    let attempt = || inside(&host, &words);
    inside(
        &host,
        "chmod 600 /dev/kvm /dev/vhost-net; chmod 644 /dev/vda /boot/*",
    );
    let missing = [
        ("open /dev/kvm", "chmod 666 /dev/kvm"),
        (
            "ip tuntap add dev tap-guest",
            "ip tuntap add dev tap-guest mode tap vnet_hdr user 65534; chmod 666 /dev/net/tun",
        ),
        ("open /dev/vhost-net", "chmod 666 /dev/vhost-net"),
    ];
    for (message, remedy) in missing {
        let said = attempt();
        assert!(said.contains(message) && said.contains("exit 3"), "{said}");
        inside(&host, remedy);
    }
    let said = attempt();
    assert!(said.contains("is up") && !said.contains("exit"), "{said}");
}
