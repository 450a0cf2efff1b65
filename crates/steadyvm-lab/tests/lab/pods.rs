//! VMs, and threads without one, in the cgroups of pods: found by the files of the driver for Kubernetes, ranked and budgeted
//! by a watch. As tests/lab.
//!
//! The cgroups are those that kubelet and containerd make, with the controllers that they enable. The files are what the
//! driver writes: its own test reads the same (k8s/internal/dropin).

use std::net::UdpSocket;
use std::time::Duration;

use crate::support::profile::{inside, shown, undo, write};
use crate::support::sched::share_of;
use crate::support::shared;
use steadyvm_lab::agent::Process;
use steadyvm_lab::host::{EmulatedHost, RT};
use steadyvm_lab::laboratory::{HostKernel, guest};
use steadyvm_lab::progress::Silent;

const ONE_VCPU: &str = include_str!("../../../../k8s/internal/dropin/testdata/one-vcpu.toml");
const TWO_VCPUS: &str = include_str!("../../../../k8s/internal/dropin/testdata/two-vcpus.toml");
const THREADS: &str = include_str!("../../../../k8s/internal/dropin/testdata/threads.toml");
const DROP_IN: &str = "/run/steadyvm.d/kubernetes-6e1b2c4d-0f3a-4b5c-8d7e-9a0b1c2d3e4f.toml";
const CGROUPS: &str = "/sys/fs/cgroup";
const CONTAINER: &str =
    "cri-containerd-0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0.scope";

/// A class's vhost workers have a rank beside budgets only where the file says so.
const FILE: &str = "
[host]
cpus = \"0-1\"
scheduler = \"pedf\"
enforce = \"deadline\"

[class.rt]
vhost = 75
";

const PATIENCE: Duration = Duration::from_secs(60);
/// 4 ms in every 10 ms, per cent.
const GRANTED: f64 = 40.0;
/// As in budgets.rs.
const TOLERANCE: f64 = 0.5;

/// A pod with one container, and the watch of its host.
struct Pod<'h> {
    host: &'h EmulatedHost,
    /// The pod's cgroup, below the root's.
    path: String,
    watch: Option<Process>,
}

/// A thread of the pod's VM.
#[derive(Debug)]
struct Thread {
    number: String,
    name: String,
    /// As chrt tells it.
    policy: String,
    /// The CPUs that it may use.
    cpus: String,
}

impl<'h> Pod<'h> {
    /// Makes the cgroups of the pod that a file is for. Its container may use these CPUs.
    fn make(host: &'h EmulatedHost, file: &str, cpus: &str) -> Self {
        let quoted = file
            .lines()
            .find_map(|line| line.strip_prefix("cgroup = '/"));
        let path = quoted.unwrap().trim_end_matches('\'').to_owned();
        // Each level hands its controllers on, from the root down.
        inside(
            host,
            &format!(
                "cd {CGROUPS}; rest={path}/{CONTAINER}
                 mkdir -p $rest
                 while [ $rest != {CONTAINER} ]; do
                     echo '+cpuset +cpu +pids' > cgroup.subtree_control
                     cd ${{rest%%/*}}; rest=${{rest#*/}}
                 done
                 echo '+cpuset +cpu +pids' > cgroup.subtree_control
                 cd {CONTAINER}
                 echo {cpus} > cpuset.cpus"
            ),
        );
        Self {
            host,
            path,
            watch: None,
        }
    }

    fn container(&self) -> String {
        format!("{CGROUPS}/{}/{CONTAINER}", self.path)
    }

    /// Writes the driver's file while a watch runs, and waits until all is in force.
    fn describe(&mut self, file: &str) {
        write(self.host, "/etc/steadyvm.toml", FILE);
        inside(self.host, "mkdir -p -m 755 /run/steadyvm.d");
        inside(self.host, "steadyvm status --snapshot > /run/before.json");
        let watch = "exec steadyvm watch /etc/steadyvm.toml 2> /run/watch.log";
        let watch = self.host.connection().spawn(&["sh", "-c", watch]).unwrap();
        self.watch = Some(watch);
        write(self.host, &format!("{DROP_IN}.new"), file);
        inside(self.host, &format!("mv {DROP_IN}.new {DROP_IN}"));
        // The watch puts the VM's threads in force, which begin as normal ones.
        inside(
            self.host,
            &format!(
                "timeout 120 sh -c 'until [ \"$(ps -eLo cls=,comm= | grep -c \"^ *DLN {}\")\" = {} ] && \
                 steadyvm status /etc/steadyvm.toml > /run/status 2>&1; do :; done' \
                 || {{ cat /run/status /run/watch.log >&2; exit 1; }}",
                if file.contains("threads = ") {
                    "cycle"
                } else {
                    "CPU ./KVM"
                },
                vcpus_of(file)
            ),
        );
    }

    /// The process of the pod's QEMU.
    fn monitor(&self) -> String {
        let words = format!(
            "for pid in $(cat {}/cgroup.procs); do
                 ! grep -q ^qemu /proc/$pid/comm || echo $pid
             done",
            self.container()
        );
        let found = inside(self.host, &words);
        found.trim().to_owned()
    }

    /// Threads of its VM whose names begin so, in the order of their names.
    fn threads(&self, prefix: &str) -> Vec<Thread> {
        let words = format!(
            "cd /proc/{}/task; for tid in *; do
                 grep -q '^{prefix}' $tid/comm || continue
                 echo \"$tid#$(cat $tid/comm)#$(chrt -p $tid | tr '\\n' ' ')#$(taskset -cp $tid | sed 's/.* //')\"
             done",
            self.monitor()
        );
        let listed = inside(self.host, &words);
        let mut found: Vec<Thread> = listed.lines().map(thread).collect();
        found.sort_by(|one, other| one.name.cmp(&other.name));
        found
    }

    /// Ends it as kubelet does: its processes, its cgroups, and last the driver's file. Nothing of it stays in force.
    fn end(self) {
        let container = self.container();
        inside(
            self.host,
            &format!(
                "echo 1 > {container}/cgroup.kill
                 timeout 60 sh -c 'until grep -q \"populated 0\" {container}/cgroup.events; do :; done'
                 rmdir {container} {CGROUPS}/{}
                 rm {DROP_IN}
                 timeout 60 sh -c 'until steadyvm status /etc/steadyvm.toml > /run/status 2>&1; do :; done' \
                 || {{ cat /run/status /run/watch.log >&2; exit 1; }}",
                self.path
            ),
        );
        let left = shown(self.host)["settings"].to_string();
        assert!(
            !left.contains("/KVM") && !left.contains("vhost-") && !left.contains("cycle"),
            "{left}"
        );
        let watch = self.watch.unwrap();
        watch.signal(libc::SIGTERM).unwrap();
        watch.finish(PATIENCE).unwrap();
        undo(self.host);
        let complaints = inside(self.host, "dmesg | grep -iE 'WARNING|BUG:|stall' || true");
        assert_eq!(complaints, "");
        inside(
            self.host,
            &format!(
                "cd {CGROUPS}; rmdir kubepods.slice/kubepods-burstable.slice kubepods.slice
                 echo '-cpuset -cpu -pids' > cgroup.subtree_control; rm /etc/steadyvm.toml"
            ),
        );
    }
}

fn vcpus_of(file: &str) -> &str {
    let mut lines = file.lines();
    let found = lines.find_map(|line| line.strip_prefix("vcpus = "));
    found.unwrap()
}

fn thread(line: &str) -> Thread {
    let words: Vec<&str> = line.split('#').collect();
    let [number, name, policy, cpus] = words[..] else {
        panic!("{line}");
    };
    Thread {
        number: number.to_owned(),
        name: name.to_owned(),
        policy: policy.to_owned(),
        cpus: cpus.to_owned(),
    }
}

/// Each VCPU has this budget on its CPU.
fn require_budgets(threads: &[Thread], budget: &str, cpus: &[&str]) {
    assert_eq!(threads.len(), cpus.len(), "{threads:?}");
    for (thread, cpu) in threads.iter().zip(cpus) {
        assert!(thread.policy.contains("SCHED_DEADLINE"), "{thread:?}");
        assert!(thread.policy.contains(budget), "{thread:?}");
        assert_eq!(thread.cpus, *cpu, "{thread:?}");
    }
}

/// The workers have their class's rank, and all CPUs of the container.
fn require_ranked(workers: &[Thread], cpus: &str) {
    assert!(!workers.is_empty());
    for worker in workers {
        let policy = &worker.policy;
        assert!(policy.contains("SCHED_FIFO"), "{worker:?}");
        assert!(policy.contains("priority: 75"), "{worker:?}");
        assert_eq!(worker.cpus, cpus, "{worker:?}");
    }
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_vm_in_a_pods_cgroup_is_ranked_and_keeps_its_budget() {
    let host = shared::host(HostKernel::V6_12Rt);
    let mut pod = Pod::make(&host, ONE_VCPU, "1");
    let rt = host
        .start_guest(&guest("rt", 1, 1), &[RT], &Silent)
        .unwrap();
    let enter = format!(
        "for pid in $(pgrep qemu); do echo $pid > {}/cgroup.procs; done",
        pod.container()
    );
    inside(&host, &enter);
    pod.describe(ONE_VCPU);

    let vcpus = pod.threads("CPU ");
    require_budgets(&vcpus, "4000000/10000000/10000000", &["1"]);
    require_ranked(&pod.threads("vhost-"), "1");

    // It wants more than its budget; so does a neighbour of higher rank than any on its CPU.
    let computes = ["sh", "-c", "while :; do :; done"];
    let computing = rt.connection().spawn(&computes).unwrap();
    let beside = "taskset -c 1 chrt -f 40 sh -c 'while :; do :; done' & neighbour=$!";
    for neighbours in [["", ""], [beside, "kill -9 $neighbour"]] {
        let share = share_of(&host, &vcpus[0].number, 10, neighbours);
        eprintln!("{share:.2} % of a CPU");
        assert!((share - GRANTED).abs() <= TOLERANCE, "{share}");
    }
    drop((computing, rt));
    pod.end();
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_thread_of_a_container_without_a_vm_keeps_its_budget() {
    let host = shared::host(HostKernel::V6_12Rt);
    let mut pod = Pod::make(&host, THREADS, "1");
    let enter = format!("echo $BASHPID > {}/cgroup.procs", pod.container());
    let computes = format!("{enter}; echo cycle0 > /proc/$BASHPID/comm; while :; do :; done");
    let computing = host.connection().spawn(&["bash", "-c", &computes]).unwrap();
    // Another thread of the container has what is left.
    let other = format!("{enter}; while :; do :; done");
    let other = host.connection().spawn(&["bash", "-c", &other]).unwrap();
    pod.describe(THREADS);
    let thread = inside(&host, "grep -lx cycle0 /proc/[0-9]*/comm | cut -d / -f 3");
    let beside = "taskset -c 1 chrt -f 40 sh -c 'while :; do :; done' & neighbour=$!";
    for neighbours in [["", ""], [beside, "kill -9 $neighbour"]] {
        let share = share_of(&host, thread.trim(), 10, neighbours);
        eprintln!("{share:.2} % of a CPU");
        assert!((share - GRANTED).abs() <= TOLERANCE, "{share}");
    }
    drop((computing, other));
    pod.end();
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn two_vcpus_of_a_claim_run_on_the_cpus_that_it_was_given() {
    let host = shared::host(HostKernel::V6_12Rt);
    let mut pod = Pod::make(&host, TWO_VCPUS, "0-1");
    // In namespaces of its own, as a container is. Without a root file system its kernel stops there, which is enough.
    inside(
        &host,
        "ip tuntap add dev tap-pod mode tap vnet_hdr; ip link set dev tap-pod up",
    );
    let words = format!(
        "echo $$ > {}/cgroup.procs
         exec unshare --mount --pid --fork --kill-child --uts --ipc --cgroup qemu-system-x86_64 \
         -name guest=compute,debug-threads=on -nodefaults -no-user-config -display none -M q35,accel=kvm,hpet=off \
         -cpu host -smp 2 -m 256M -kernel /boot/guest-kernel -append panic=0 \
         -netdev tap,id=pod,ifname=tap-pod,script=no,downscript=no,vhost=on -device virtio-net-pci,netdev=pod",
        pod.container()
    );
    let _monitor = host.connection().spawn(&["sh", "-c", &words]).unwrap();
    inside(
        &host,
        "timeout 120 sh -c 'until [ \"$(ps -eLo comm= | grep -c \"^CPU ./KVM\")\" = 2 ]; do :; done'",
    );
    pod.describe(TWO_VCPUS);
    require_budgets(
        &pod.threads("CPU "),
        "3000000/10000000/10000000",
        &["1", "0"],
    );
    require_ranked(&pod.threads("vhost-"), "0,1");
    pod.end();
}

/// A veth's receiving end has no interrupt of its own: the thread that hands it packets receives them too, in the same softirq
/// (`veth_xmit()`, `netif_rx()`). So a pod's interface has the rank of its card's class.
#[test]
#[ignore = "needs the lab: make lab-tests"]
fn packets_to_a_pod_are_received_at_the_rank_of_its_cards_class() {
    const INSTANCE: &str = "/sys/kernel/tracing/instances/pod";
    /// What no other packet is as long as, with the headers of UDP and IPv4.
    const LENGTH: usize = 173;
    let host = shared::host(HostKernel::V6_12Rt);
    host.make_namespace("pod", RT, RT.address(12)).unwrap();
    let file = "[[nic]]\nname = \"rt\"\nclass = \"rt\"\n";
    write(&host, "/run/steadyvm.toml", file);
    let events = format!("{INSTANCE}/events/net/netif_receive_skb");
    inside(
        &host,
        &format!(
            "mkdir -p {INSTANCE}
             echo 'name == \"eth0\" && len == {}' > {events}/filter
             echo 1 > {events}/enable",
            LENGTH + 28
        ),
    );
    let policies = || {
        inside(&host, &format!("echo > {INSTANCE}/trace"));
        send_to_pod(&host, LENGTH);
        let listed = inside(
            &host,
            &format!(
                "timeout 60 sh -c 'until [ $(grep -c netif_receive_skb: {INSTANCE}/trace) -ge {PACKETS} ]; do :; done'
                 sed -nE 's/^ *.*-([0-9]+) +\\[.*/\\1/p' {INSTANCE}/trace | sort -u |
                 while read -r tid; do ps -o cls=,rtprio= -L -q $tid | head -n 1; done"
            ),
        );
        let listed = listed.lines().map(|line| line.split_whitespace().collect());
        listed.collect::<Vec<Vec<&str>>>().concat().join(" ")
    };
    assert_ne!(policies(), "FF 80");
    inside(&host, "steadyvm status --snapshot > /run/before.json");
    inside(&host, "steadyvm apply /run/steadyvm.toml 2>&1");
    assert_eq!(policies(), "FF 80");
    undo(&host);
    inside(
        &host,
        &format!("rmdir {INSTANCE}; ip netns delete pod; rm /run/steadyvm.toml"),
    );
}

/// Packets that a pod is sent.
const PACKETS: usize = 50;

fn send_to_pod(host: &EmulatedHost, length: usize) {
    let bind = || Ok(UdpSocket::bind(("0.0.0.0", 0)).unwrap());
    let outside = host.outside().enter(bind).unwrap();
    for _ in 0..=PACKETS {
        outside
            .send_to(&vec![0; length], (RT.address(12), 9))
            .unwrap();
    }
}
