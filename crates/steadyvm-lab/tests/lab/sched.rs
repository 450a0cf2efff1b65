//! The `sched_ext` scheduler in the emulated host: it loads, keeps budgets whatever others do, and ends with its loader. As
//! tests/lab. `STEADYVM_TEST_KERNEL`: the host's kernel, `6.12-rt-patched` or `7.3-rt`.

mod cost;
mod plans;
mod robust;

use crate::support::sched::{Lab, config};
use std::fmt::Write as _;
use std::time::Duration;
use steadyvm_lab::agent::Process;
use steadyvm_lab::host::RT;
use steadyvm_lab::laboratory::guest;
use steadyvm_lab::progress::Silent;
use steadyvm_load::job::{Ran, Task};

/// The budget over the period, per cent.
const GRANTED: f64 = 40.0;
/// Table 4.2 of the dissertation holds the share to this, per cent of a CPU.
const TOLERANCE: f64 = 0.5;
/// Windows of so many seconds, as the experiment's.
const WINDOW_S: u32 = 2;
const WINDOWS: u32 = 12;
/// Those that give a VCPU with work what a deferrable one gives it.
const SERVERS: [&str; 4] = ["deferrable", "polling", "sporadic", "cbs"];
/// Those that hold a CPU for a VCPU without work, and what a VCPU of lower priority then gets of that CPU, per cent. Each
/// is granted 40 %, and both may run on that CPU only.
const IDLING: [(&str, f64); 3] = [
    // The CPU is nobody else's for 40 of 100.
    ("periodic", 40.0),
    // It runs there on its own budget, and has no more than that.
    ("work-conserving", 40.0),
    // It runs there for nothing, and then on its own budget.
    ("capacity-reclaiming", 80.0),
];
/// An emulated CPU may stand still for as long as its thread waits for the machine's.
const REACTION_US: u32 = 20_000;

/// Table 4.2 of the dissertation.
#[test]
#[ignore = "needs the lab: make sched-tests"]
fn a_vcpu_gets_its_budget_whatever_neighbours_do_and_no_more() {
    let lab = Lab::boot("shares");
    let rt = lab.spin("env");
    let _loader = lab.load(&config(4000), &format!("--thread rt={}", rt.tid));
    assert_eq!(lab.show()["attached"], true);
    assert_eq!(lab.show()["vcpus"][0]["tid"], rt.tid);

    // Short ones: budgets that are lost for a tenth of a second are seen.
    let windows = |beside| {
        let shares = (0..WINDOWS).map(|_| (beside, lab.share_in(rt.tid, WINDOW_S)));
        shares.collect::<Vec<_>>()
    };
    let mut shares = windows("alone");
    let mut neighbours = Vec::new();
    for count in [1, 4] {
        while neighbours.len() < count {
            neighbours.push(lab.spin("env"));
        }
        shares.push(("beside normal ones", lab.share(rt.tid)));
    }
    // Below interrupts' threads: the disk's would wait, and with it each program that starts. It leaves its CPU for 5 of
    // 100 ms, as the kernel's server for normal threads has it: 6.12 has none for sched_ext, and what is bound to that CPU,
    // such as RCU's thread, would stop under any scheduler.
    lab.run("mkfifo /run/never");
    let fifo = lab.spin_by(
        "taskset -c 1 chrt -f 40",
        "end=$((${EPOCHREALTIME/./} + 95000)); while ((${EPOCHREALTIME/./} < end)); do :; done; \
         read -t 0.005 _ <> /run/never || :",
    );
    shares.extend(windows("beside a FIFO one"));
    lab.run(&format!("kill -9 {}", fifo.tid));
    eprintln!("{shares:?}");
    for (beside, share) in shares {
        assert!(
            (share - GRANTED).abs() <= TOLERANCE,
            "{share} % of a CPU {beside}"
        );
    }
    // All others ran on: none waits for ever.
    for neighbour in &neighbours {
        assert!(lab.share(neighbour.tid) > 5.0);
    }
    assert_eq!(lab.show()["attached"], true);
    lab.require_quiet_kernel();
}

/// The thread of the loader that answers comes before all VCPUs. As a normal thread it would wait until the kernel's watchdog
/// ends the scheduler.
#[test]
#[ignore = "needs the lab: make sched-tests"]
fn budgets_that_leave_normal_threads_nothing_can_be_made_smaller() {
    let lab = Lab::boot("whole");
    // Three on two CPUs: what one owes of its budget another has.
    let vcpus = [(); 3].map(|()| lab.spin("env"));
    let mut words = String::new();
    for (name, vcpu) in ["a", "b", "c"].iter().zip(&vcpus) {
        let _ = write!(words, " --thread {name}={}", vcpu.tid);
    }
    let config = |budget_us: u32| {
        let vm = |name| {
            format!("[[vm]]\nname = \"{name}\"\nbudget = \"{budget_us}us\"\nperiod = \"10ms\"\n")
        };
        let vms = ["a", "b", "c"].map(vm).concat();
        format!("[host]\nenforce = \"ext\"\nscheduler = \"gedf\"\n{vms}")
    };
    lab.run(&format!(
        "cat > /run/whole.toml <<'END'\n{}END",
        config(10_000)
    ));
    let _loader = lab.load(&config(4000), &words);
    // All in one script: what starts programs in the host is a normal thread, too. For two seconds all is the VCPUs'.
    lab.run_first(&format!(
        "for round in 1 2 3; do
             steadyvm sched ext apply --config /run/whole.toml {words}
             sleep 2
             steadyvm sched ext apply --config /run/sched.toml {words}
         done"
    ));
    assert_eq!(lab.show()["attached"], true);
    lab.require_quiet_kernel();
}

/// The VCPU of a VM, by every server that the scheduler has: alone, and beside threads that never sleep.
#[test]
#[ignore = "needs the lab: make sched-tests"]
fn a_vm_of_the_host_gets_its_budget() {
    let lab = Lab::boot("vm");
    let vm = lab
        .host
        .start_guest(&guest("rt", 1, 1), &[RT], &Silent)
        .unwrap();
    let pid = lab.host.guest_pid("rt").unwrap();
    let words = format!("--vm rt={pid}");
    let _loader = lab.load(&config(4000), &words);
    let tid: u32 = lab.show()["vcpus"][0]["tid"].to_string().parse().unwrap();
    let _computes = vm
        .connection()
        .spawn(&["bash", "-c", "while :; do :; done"])
        .unwrap();
    let mut shares = Vec::new();
    let mut measure = |beside| {
        for server in SERVERS {
            let server_line = format!("[host]\nserver = \"{server}\"");
            lab.apply(&config(4000).replace("[host]", &server_line), &words);
            shares.push((server, beside, lab.share(tid)));
        }
    };
    measure("alone");
    let _neighbours = [(); 2].map(|()| lab.spin("env"));
    measure("beside normal ones");
    eprintln!("{shares:?}");
    for (server, beside, share) in shares {
        assert!(
            (share - GRANTED).abs() <= TOLERANCE,
            "{server}: {share} % of a CPU {beside}"
        );
    }
    lab.require_quiet_kernel();
}

/// Section 2.6 of the dissertation: what a VCPU without work leaves of its CPU to one of lower priority.
#[test]
#[ignore = "needs the lab: make sched-tests"]
fn a_vcpu_without_work_lends_its_cpu_as_its_server_says() {
    let lab = Lab::boot("idling");
    lab.run("mkfifo /run/never");
    let sleeps = lab
        .host
        .connection()
        .spawn(&["bash", "-c", "read _ < /run/never"])
        .unwrap();
    let rt = lab.spin("env");
    let normal = lab.spin("taskset -c 1");
    let words = format!("--thread first={} --thread rt={}", sleeps.pid(), rt.tid);
    let config = |server: &str, sleeper_us: u32, rt_us: u32| {
        format!(
            "[host]\nenforce = \"ext\"\nscheduler = \"gfp\"\nserver = \"{server}\"\n\
             [[vm]]\nname = \"first\"\nbudget = \"{sleeper_us}us\"\nperiod = \"10ms\"\npriority = 0\ncpus = [1]\n\
             [[vm]]\nname = \"rt\"\nbudget = \"{rt_us}us\"\nperiod = \"10ms\"\npriority = 1\ncpus = [1]\n"
        )
    };
    let _loader = lab.load(&config("deferrable", 4000, 4000), &words);
    let mut shares = vec![("deferrable", 4000, GRANTED, lab.share(rt.tid))];
    for (server, expected) in IDLING {
        lab.apply(&config(server, 4000, 4000), &words);
        shares.push((server, 4000, expected, lab.share(rt.tid)));
    }
    // Granted more than the other leaves, and lent the rest.
    lab.apply(&config("work-conserving", 8000, 6000), &words);
    shares.push(("work-conserving", 8000, 60.0, lab.share(rt.tid)));
    // Not lent: 2 of 10 ms are left, less the decisions at their two ends, which an emulated CPU takes long for.
    lab.apply(&config("periodic", 8000, 6000), &words);
    let left = lab.share(rt.tid);
    // Normal threads have the CPU while it is held and not lent.
    let normal = lab.share(normal.tid);
    eprintln!("{shares:?}, of 20 left {left}, normal {normal}");
    for (server, sleeper_us, expected, share) in shares {
        // The holder pays by the clock: what interrupts take of lent time, the VCPU that runs for nothing does not have.
        let interrupts = if server == "capacity-reclaiming" {
            GRANTED / 10.0
        } else {
            0.0
        };
        let allowed = expected - TOLERANCE - interrupts..=expected + TOLERANCE;
        assert!(
            allowed.contains(&share),
            "{server}, {sleeper_us} us without work: {share} % of a CPU, {allowed:?} expected"
        );
    }
    assert!((10.0..=20.0 + TOLERANCE).contains(&left), "{left} %");
    assert!(
        (65.0..=80.0 + TOLERANCE).contains(&normal),
        "normal: {normal} %"
    );
    assert_eq!(lab.show()["attached"], true);
    lab.require_quiet_kernel();
}

#[test]
#[ignore = "needs the lab: make sched-tests"]
fn the_loaders_death_leaves_a_usable_host_and_another_loader_takes_over_under_load() {
    let lab = Lab::boot("death");
    lab.require_stock();
    let rt = lab.spin("env");
    let _neighbours = [(); 3].map(|()| lab.spin("env"));
    let thread = format!("--thread rt={}", rt.tid);
    let loader = lab.load(&config(4000), &thread);
    lab.run(&format!("kill -9 {}", loader.pid()));
    lab.require_stock();

    let _loader = lab.load(&config(2000), &thread);
    let share = lab.share(rt.tid);
    assert!((share - GRANTED / 2.0).abs() <= TOLERANCE, "{share}");

    // Parameters change while it runs: nothing is lost, and the last ones hold.
    for round in 0..100 {
        lab.apply(&config(1000 + round * 50), &thread);
    }
    lab.apply(&config(6000), &thread);
    let share = lab.share(rt.tid);
    assert!((share - GRANTED * 1.5).abs() <= TOLERANCE, "{share}");

    lab.run("steadyvm sched ext stop");
    lab.require_stock();
    lab.require_quiet_kernel();
}

/// Table 4.3 of the dissertation. VCPUs wait for timers, which a thread of the kernel expires: with 16 that compute, it had its
/// turn after all of them, and 30 of 272 jobs were late.
#[test]
#[ignore = "needs the lab: make sched-tests"]
fn jobs_beside_sixteen_that_compute_are_in_time() {
    const PATIENCE: Duration = Duration::from_secs(120);
    // Budget and period of the VCPU, execution time and period of its jobs, in us: as crates/experiment/src/vcpu/domains.rs.
    let vcpus = [
        (20_000, 50_000, 14_000, 100_000),
        (20_000, 50_000, 14_000, 100_000),
        (20_000, 50_000, 14_000, 100_000),
        (40_000, 100_000, 35_000, 250_000),
    ];
    let mut lab = Lab::boot("jobs");
    lab.host.pause().unwrap();
    lab.host.spread_processors().unwrap();
    lab.host.resume().unwrap();
    let job = |_| {
        let mut job = (lab.host.connection())
            .spawn(&["steadyvm-lab", "load", "job"])
            .unwrap();
        job.wait_for_line("ready", PATIENCE).unwrap();
        job
    };
    let mut jobs: Vec<Process> = vcpus.iter().map(job).collect();
    jobs[0].input(b"calibrate 10000\n").unwrap();
    let units: f64 = jobs[0]
        .wait_for_line("", PATIENCE)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let _neighbours = [(); 16].map(|()| lab.spin("env"));
    let (mut text, mut words) = (config(0), String::new());
    text.truncate(text.find("[[vm]]").unwrap());
    for (number, (job, (budget_us, period_us, ..))) in jobs.iter().zip(vcpus).enumerate() {
        let _ = write!(
            text,
            "[[vm]]\nname = \"v{number}\"\nbudget = \"{budget_us}us\"\nperiod = \"{period_us}us\"\n"
        );
        let _ = write!(words, " --thread v{number}={}", job.pid());
    }
    let _loader = lab.load(&text, &words);
    for (job, (_, _, execution_us, period_us)) in jobs.iter().zip(vcpus) {
        let task = Task {
            period_us,
            work: (f64::from(execution_us) * units / 10_000.0) as u64,
            jobs: 8_000_000 / period_us,
            backlog: true,
        };
        let request = serde_json::to_string(&task).unwrap();
        job.input(format!("run {request}\n").as_bytes()).unwrap();
    }
    for (job, (_, _, _, period_us)) in jobs.iter_mut().zip(vcpus) {
        let ran: Ran = serde_json::from_str(&job.wait_for_line("", PATIENCE).unwrap()).unwrap();
        let worst_us = ran.done.iter().map(|it| it.response_ns() / 1000).max();
        eprintln!(
            "n = {}, worst response {worst_us:?} us of {period_us}",
            ran.done.len()
        );
        assert!(worst_us < Some(period_us), "{ran:?}");
    }
}

/// What the scheduler was told and decided is what the policy says, for every server, order and queue that it takes.
///
/// With `STEADYVM_RECORDING=FILE` it keeps the record, in base64.
#[test]
#[ignore = "needs the lab: make sched-tests"]
fn every_decision_is_explained_by_the_policy() {
    const ORDERS: [&str; 4] = ["edf", "dm", "rm", "fp"];
    let lab = Lab::boot("conformance");
    let computes = [(); 3].map(|()| lab.spin("env"));
    // These have work now and then.
    let naps = "while :; do read -t 0.003 _ < /run/never || for _ in {1..200}; do :; done; done";
    lab.run("mkfifo /run/never");
    let sleeps: Vec<Process> = (0..2)
        .map(|_| {
            let words = format!("exec 3<> /run/never; {naps}");
            lab.host
                .connection()
                .spawn(&["bash", "-c", &words])
                .unwrap()
        })
        .collect();
    let tids = computes.iter().map(|spinner| spinner.tid);
    let tids: Vec<u32> = tids.chain(sleeps.iter().map(Process::pid)).collect();
    let mut words = String::new();
    for (vm, tid) in tids.iter().enumerate() {
        let _ = write!(words, " --thread v{vm}={tid}");
    }
    let scenario = |number: usize, server: &str, order: &str, queue: &str| {
        let mut text = format!(
            "[host]\nenforce = \"ext\"\nserver = \"{server}\"\nscheduler = \"{queue}{order}\"\n"
        );
        // Idle budgets are nobody else's, or go to VCPUs that have used theirs up: normal threads have only the rest. With
        // quarters for the others a slow emulated host once ended the scheduler: no normal thread may wait for 30 s.
        let part = if IDLING.iter().any(|it| it.0 == server) {
            8
        } else {
            5
        };
        for vm in 0..tids.len() {
            let period = 4000 + 1500 * ((vm + number) % 5);
            let _ = writeln!(
                text,
                "[[vm]]\nname = \"v{vm}\"\nbudget = \"{}us\"\nperiod = \"{period}us\"\npriority = {}",
                period / part + 100 * vm,
                (vm * 3 + number) % 5,
            );
            if queue == "p" {
                let _ = writeln!(text, "cpus = [{}]", vm % 2);
            }
        }
        text
    };
    let first = scenario(0, "deferrable", ORDERS[0], "g");
    let record = format!("{words} --record /run/record");
    let _loader = lab.load(&first, &record);
    let mut number = 0;
    for queue in ["g", "p"] {
        for server in SERVERS.into_iter().chain(IDLING.map(|it| it.0)) {
            for order in ORDERS {
                number += 1;
                lab.apply_first(&scenario(number, server, order, queue), &words);
                eprintln!("{number}: {queue} {server} {order}");
                lab.run_first("sleep 0.5");
            }
        }
    }
    assert_eq!(lab.show()["attached"], true);
    let all: Vec<String> = tids.iter().map(u32::to_string).collect();
    lab.run_first(&format!(
        "steadyvm sched ext stop; kill -KILL {}",
        all.join(" ")
    ));
    let said = lab.run(&format!(
        "steadyvm sched replay --reaction-us {REACTION_US} /run/record || [ $? = 1 ]"
    ));
    eprintln!("{number} scenarios: {said}");
    if let Ok(file) = std::env::var("STEADYVM_RECORDING") {
        std::fs::write(file, lab.run("base64 /run/record")).unwrap();
    }
    assert!(said.contains("none differs"), "{said}");
    lab.require_quiet_kernel();
}
