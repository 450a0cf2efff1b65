//! The `sched_ext` scheduler while all around it changes: VMs, threads, CPUs, cpusets, parameters and loaders come and go. As
//! `sched.rs`.
//!
//! After each change: a normal thread gets on on every CPU that is online, no thread is lost, and every budget is conserved
//! by the scheduler's own count.

use crate::support::sched::{Lab, Spinner};
use serde_json::Value;
use std::fmt::Write as _;
use std::time::Duration;
use steadyvm_lab::Guest;
use steadyvm_lab::agent::Process;
use steadyvm_lab::host::{BULK, Network, RT};
use steadyvm_lab::laboratory::guest;
use steadyvm_lab::progress::Silent;
use steadyvm_load::job::Ran;

/// The kernel's watchdog waits for 30 s; an emulated host is slow.
const PATIENCE: Duration = Duration::from_secs(300);

/// VMs with these budgets in 20 ms.
fn config(vms: &[(&str, u32)]) -> String {
    let mut text = "[host]\nenforce = \"ext\"\nscheduler = \"gedf\"\n".to_owned();
    for (name, budget_us) in vms {
        let _ = writeln!(
            text,
            "[[vm]]\nname = \"{name}\"\nbudget = \"{budget_us}us\"\nperiod = \"20ms\""
        );
    }
    text
}

struct Place {
    lab: Lab,
    /// Threads that compute to the end: `a` and `b` with a budget, the others without.
    computes: Vec<Spinner>,
}

impl Place {
    fn boot() -> Self {
        let lab = Lab::boot("robust");
        let computes = (0..4).map(|_| lab.spin("env")).collect();
        Self { lab, computes }
    }

    /// `--thread` for those with a budget.
    fn threads(&self) -> String {
        format!(
            "--thread a={} --thread b={}",
            self.computes[0].tid, self.computes[1].tid
        )
    }

    fn load(&self) -> Process {
        self.lab
            .load(&config(&[("a", 6000), ("b", 4000)]), &self.threads())
    }

    /// A script that takes longer than a connection waits for one command's word.
    fn script(&self, words: &str) -> String {
        let connection = self.lab.host.connection();
        let process = connection.spawn(&["bash", "-euc", words]).unwrap();
        let done = process.finish(PATIENCE).unwrap();
        assert_eq!(done.status.shell_code(), 0, "{words}: {}", done.text());
        done.text()
    }

    /// Whether nothing stalls and nobody is lost. Each wait ends in an error rather than never.
    fn require_progress(&self, after: &str) {
        let tids: Vec<String> = self.computes.iter().map(|it| it.tid.to_string()).collect();
        let said = self.script(&format!(
            "for cpu in $(sed 's/-/ /' /sys/devices/system/cpu/online | {{ read first last; seq $first ${{last:-$first}}; }}); do
                 timeout 60 taskset -c $cpu bash -c 'for i in {{1..300}}; do :; done' || echo \"CPU $cpu stalls\"
             done
             ran() {{ read ran _ < /proc/$1/schedstat; }}
             for tid in {}; do
                 ran $tid; before=$ran end=$((SECONDS + 60))
                 until ran $tid; [ $ran -gt $before ]; do
                     [ $SECONDS -lt $end ] || {{ echo \"thread $tid is lost\"; break; }}
                 done
             done",
            tids.join(" ")
        ));
        assert_eq!(said, "", "after {after}");
        eprintln!("nothing stalls after {after}");
    }

    /// That, the scheduler is at work, and budgets are conserved: by its count of each period, and over a second.
    fn require_sound(&self, after: &str) {
        self.require_progress(after);
        let first = self.lab.show();
        self.lab.run("sleep 1");
        let second = self.lab.show();
        assert_eq!(second["attached"], true, "after {after}");
        for (before, now) in vcpus(&first).zip(vcpus(&second)) {
            let number = |of: &Value, name: &str| of[name].as_u64().unwrap();
            assert_eq!(
                number(now, "unexplained_periods"),
                0,
                "after {after}: {now}"
            );
            if before["tid"] != now["tid"] || now["alive"] == false {
                continue;
            }
            let passed = number(&second, "at_ns") - number(&first, "at_ns");
            let periods = passed.div_ceil(number(now, "period_ns")) + 1;
            let most = periods * number(now, "budget_ns") + number(now, "overrun_ns");
            let used = number(now, "used_ns") - number(before, "used_ns");
            assert!(used <= most, "after {after}: {used} of {most}: {now}");
        }
        self.lab.require_quiet_kernel();
    }
}

fn vcpus(standing: &Value) -> impl Iterator<Item = &Value> {
    standing["vcpus"].as_array().unwrap().iter()
}

#[test]
#[ignore = "needs the lab: make sched-tests"]
fn vms_and_threads_come_and_go() {
    let place = Place::boot();
    let _loader = place.load();
    place.require_sound("loading");
    vms_come_and_go(&place);
    threads_come_and_go(&place);
}

#[test]
#[ignore = "needs the lab: make sched-tests"]
fn cpus_and_cpusets_come_and_go() {
    let place = Place::boot();
    let _loader = place.load();
    place.require_sound("loading");
    cpusets_change(&place);
    cpus_come_and_go(&place);
}

#[test]
#[ignore = "needs the lab: make sched-tests"]
fn parameters_change_a_thousand_times() {
    let place = Place::boot();
    let _loader = place.load();
    // Half of these change the period, too.
    place.script(&format!(
        "for round in {{1..1000}}; do
             printf '[host]\\nenforce = \"ext\"\\nscheduler = \"gedf\"\\n[[vm]]\\nname = \"a\"\\nbudget = \"%dus\"\\nperiod = \"%dus\"\\n[[vm]]\\nname = \"b\"\\nbudget = \"4ms\"\\nperiod = \"20ms\"\\n' \\
                 $((1000 + round * 5)) $((round % 2 ? 20000 : 12000 + round)) > /run/changing.toml
             steadyvm sched ext apply --config /run/changing.toml {}
         done",
        place.threads()
    ));
    place.require_sound("1,000 changes of parameters");
}

#[test]
#[ignore = "needs the lab: make sched-tests"]
fn loaders_die_and_come_back_and_a_fifo_thread_runs_away() {
    let place = Place::boot();
    let lab = &place.lab;
    let loader = place.load();
    lab.run(&format!("kill -9 {}", loader.pid()));
    lab.require_stock();
    place.require_progress("the loader's death");
    let mut loader = place.load();
    place.require_sound("loading after the loader's death");

    for _ in 0..5 {
        lab.run("steadyvm sched ext stop");
        loader.finish(PATIENCE).unwrap();
        lab.require_stock();
        loader = place.load();
    }
    place.require_sound("reloading under load");

    a_runaway_fifo_thread(&place, loader);
}

/// A VM is killed, and another one started in its place.
fn vms_come_and_go(place: &Place) {
    let lab = &place.lab;
    let config = config(&[("a", 4000), ("b", 4000), ("vm", 4000)]);
    let networks: [(&str, Network); 2] = [("one", RT), ("two", BULK)];
    for (number, (name, network)) in (1..).zip(networks) {
        let vm = lab
            .host
            .start_guest(&guest(name, number, 2), &[network], &Silent)
            .unwrap();
        let pid = lab.host.guest_pid(name).unwrap();
        lab.apply(&config, &format!("{} --vm vm={pid}", place.threads()));
        let with_vm = vcpus(&lab.show()).filter(|vcpu| vcpu["vm"] == "vm").count();
        assert_eq!(with_vm, 2);
        place.require_sound("the start of a VM");
        if name == "one" {
            misses_are_reported(place, &vm);
        }
        lab.run(&format!(
            "kill -9 {pid}; while [ -d /proc/{pid} ]; do :; done"
        ));
        let standing = lab.show();
        let alive = vcpus(&standing).filter(|vcpu| vcpu["vm"] == "vm" && vcpu["alive"] == true);
        assert_eq!(alive.count(), 0, "{standing}");
        place.require_sound("the end of a VM");
    }
    lab.apply(&config, &place.threads());
    assert_eq!(vcpus(&lab.show()).count(), 2);
}

/// The guest's serial line carries its report; the monitor has it in a file of the host.
fn misses_are_reported(place: &Place, vm: &Guest) {
    let lab = &place.lab;
    lab.run(
        "mkdir -p /run/steadyvm/reports; ln /run/steadyvm/guests/one.console /run/steadyvm/reports/vm",
    );
    let words = ["steadyvm-lab", "load", "job", "--report", "/dev/ttyS0"];
    let mut jobs = vm.connection().spawn(&words).unwrap();
    jobs.wait_for_line("ready", PATIENCE).unwrap();
    // With 4 ms of 20, some take longer than their period.
    jobs.input(b"run {\"period_us\": 2000, \"work\": 20000, \"jobs\": 50}\n")
        .unwrap();
    let ran = jobs.wait_for_line("waited_ns", PATIENCE).unwrap();
    let ran: Ran = serde_json::from_str(&ran).unwrap();
    let late = ran
        .done
        .iter()
        .filter(|job| job.response_ns() > 2_000_000)
        .count();
    place.script(
        "until steadyvm top --budgets --once --json | grep -q '\"jobs\":50,'; do sleep 0.2; done",
    );
    let standing = lab.show();
    let guest = &vcpus(&standing).find(|vcpu| vcpu["vm"] == "vm").unwrap()["guest"];
    assert_eq!(guest["misses"], late, "{guest}");
    assert!(late > 0);
}

/// As VCPUs that are plugged in and pulled out: some live shorter than it takes to name them.
fn threads_come_and_go(place: &Place) {
    place
        .lab
        .write(&config(&[("a", 6000), ("b", 4000), ("hot", 4000)]));
    place.script(&format!(
        "for round in {{1..30}}; do
             bash -c 'while :; do :; done' & hot=$!
             [ $((round % 3)) != 0 ] || (sleep 0.0$((round % 10)); kill -9 $hot) &
             steadyvm sched ext apply --config /run/sched.toml {} --thread hot=$hot 2> /run/refused ||
                 grep -q 'there is no thread' /run/refused
             kill -9 $hot 2> /dev/null || :
         done",
        place.threads()
    ));
    place.require_sound("threads that come and go");
    place
        .lab
        .apply(&config(&[("a", 6000), ("b", 4000)]), &place.threads());
}

fn cpus_come_and_go(place: &Place) {
    let lab = &place.lab;
    // `b` is bound to the CPU that goes.
    let bound = config(&[("a", 6000), ("b", 4000)]) + "cpus = [1]\n";
    lab.apply(&bound, &place.threads());
    for _ in 0..5 {
        lab.run("echo 0 > /sys/devices/system/cpu/cpu1/online");
        known_warning(lab);
        place.require_sound("a CPU that goes");
        lab.run("echo 1 > /sys/devices/system/cpu/cpu1/online");
        place.require_sound("a CPU that comes");
    }
    // A mask without a CPU is refused, and nothing changes.
    lab.run("echo 0 > /sys/devices/system/cpu/cpu1/online");
    lab.write(&bound);
    let said = refused(
        lab,
        &format!("apply --config /run/sched.toml {}", place.threads()),
    );
    assert!(
        said.contains("VM \"b\": no CPU of cpus = [1] is online"),
        "{said}"
    );
    lab.run("echo 1 > /sys/devices/system/cpu/cpu1/online");
    lab.apply(&config(&[("a", 6000), ("b", 4000)]), &place.threads());
    refusals(place);
}

/// Linux 6.12 stops the fair server of a CPU that goes whether it is active or not (`dl_server_stop` in
/// `sched_cpu_dying`), and warns once if it is not: under `sched_ext` there are no fair threads that keep it active. This one
/// warning is taken out of the kernel's log; all others stay.
fn known_warning(lab: &Lab) {
    let said = lab.run("dmesg | grep WARNING || true");
    let known =
        |line: &str| line.contains("WARNING: CPU: 1") && line.contains("task_non_contending");
    assert!(said.lines().all(known), "{said}");
    if !said.is_empty() {
        let server = lab.run("dmesg | grep -A40 WARNING");
        assert!(
            server.contains("dl_server_stop") && server.contains("sched_cpu_dying"),
            "{server}"
        );
        let reports = lab.run("dmesg | grep -iE -A30 'BUG:|stall|runtime error' || true");
        assert_eq!(reports, "");
        lab.run("dmesg -C");
    }
}

/// Words that the loader's verbs refuse; what they say.
fn refused(lab: &Lab, words: &str) -> String {
    lab.run(&format!(
        "code=0; steadyvm sched ext {words} 2>&1 || code=$?; [ $code = 2 ]"
    ))
}

fn refusals(place: &Place) {
    let lab = &place.lab;
    let words = format!("apply --config /run/sched.toml {}", place.threads());
    lab.write(&(config(&[("a", 6000), ("b", 4000)]) + "cpus = [7]\n"));
    let said = refused(lab, &words);
    assert!(said.contains("no CPU of cpus = [7] is online"), "{said}");
    let coarse = config(&[("a", 6000)]).replace("[host]\n", "[host]\nquantum = \"30ms\"\n");
    lab.write(&coarse);
    let said = refused(lab, &words);
    assert!(said.contains("below the quantum"), "{said}");
    // Three times nine tenths are more than two CPUs.
    lab.write(&config(&[("a", 18_000)]));
    let a = format!("--thread a={}", place.computes[0].tid);
    let three = format!("--config /run/sched.toml {a} {a} {a}");
    let said = refused(lab, &format!("apply --strict {three}"));
    assert!(
        said.contains("add up to 2.70 CPUs, and these are 2"),
        "{said}"
    );
    assert_eq!(vcpus(&lab.show()).count(), 2, "a refusal changes nothing");
    place.require_sound("refusals");
}

fn cpusets_change(place: &Place) {
    let tids: Vec<String> = place.computes.iter().map(|it| it.tid.to_string()).collect();
    place.script(&format!(
        "cd /sys/fs/cgroup; echo +cpuset > cgroup.subtree_control; mkdir -p one
         for tid in {}; do echo $tid > one/cgroup.procs; done
         for round in {{1..100}}; do
             for cpus in 0 1 0-1; do echo $cpus > one/cpuset.cpus; done
         done
         echo 1 > one/cpuset.cpus",
        tids.join(" ")
    ));
    place.require_sound("100 rounds of cpusets");
    place.lab.run("echo 0-1 > /sys/fs/cgroup/one/cpuset.cpus");
    place.require_sound("a wider cpuset");
}

/// Above all normal threads, on one CPU, without end. Linux 6.12 keeps no time for threads of `sched_ext` there: its watchdog
/// ends the scheduler, and the kernel's own one keeps 5 % for normal threads. Later ones keep it for both.
fn a_runaway_fifo_thread(place: &Place, loader: Process) {
    let lab = &place.lab;
    let bound = lab.spin("taskset -c 1");
    // As `steadyvm apply` has them: below the runaway thread no grace period ends, and without one no scheduler does.
    lab.run(
        "for thread in $(ps -eLo lwp=,comm= | sed -nE 's/^ *([0-9]+) (rcu[bcgo_].*|rcu_preempt|ktimers.*)$/\\1/p'); do
             chrt -f -p 48 $thread || true
         done",
    );
    let fifo = lab.spin("taskset -c 1 chrt -f 40");
    let pid = loader.pid();
    let end = place.script(&format!(
        "read before _ < /proc/{tid}/schedstat; end=$((SECONDS + 200))
         while [ $SECONDS -lt $end ]; do
             read ran _ < /proc/{tid}/schedstat
             [ $ran -lt $((before + 1000000000)) ] || {{ echo runs; exit; }}
             [ -d /proc/{pid} ] || {{ echo ended; exit; }}
             sleep 1
         done; echo neither",
        tid = bound.tid
    ));
    eprintln!("beside a runaway FIFO thread the scheduler {end}");
    assert!(end == "runs\n" || end == "ended\n", "{end}");
    if end == "ended\n" {
        lab.require_stock();
        let said = lab.run("cat /run/said");
        assert!(
            said.contains("the kernel has ended the scheduler"),
            "{said}"
        );
        assert!(said.contains("stall"), "{said}");
        assert_eq!(loader.finish(PATIENCE).unwrap().status.shell_code(), 3);
    }
    place.require_progress("a runaway FIFO thread, which runs on");
    lab.run(&format!("kill -9 {}", fifo.tid));
    if end == "ended\n" {
        // What it says of stalls was to be expected.
        lab.run("dmesg -C");
        let _loader = place.load();
        place.require_sound("the watchdog");
    } else {
        place.require_sound("a runaway FIFO thread");
    }
}
