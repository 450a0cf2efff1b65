//! A lab host with threads that stand for VCPUs, under the `sched_ext` scheduler: what tests of it do again and again.

use serde_json::Value;
use std::path::Path;
use steadyvm_lab::agent::Process;
use steadyvm_lab::artifact::Cache;
use steadyvm_lab::host::EmulatedHost;
use steadyvm_lab::laboratory::{HostKernel, Laboratory};
use steadyvm_lab::progress::Silent;

const CONFIG: &str = "/run/sched.toml";

pub struct Lab {
    pub host: EmulatedHost,
    _logs: tempfile::TempDir,
}

impl Lab {
    pub fn boot(name: &str) -> Self {
        let kernel = match std::env::var("STEADYVM_TEST_KERNEL").as_deref() {
            Err(_) | Ok("6.12-rt-patched") => HostKernel::V6_12RtPatched,
            Ok("7.3-rt") => HostKernel::V7_3Rt,
            Ok(other) => panic!("STEADYVM_TEST_KERNEL: no test runs on {other}"),
        };
        let logs = tempfile::tempdir().unwrap();
        let cache = Cache::of_this_machine().unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_steadyvm-lab"));
        let laboratory =
            Laboratory::open(&cache, program, logs.path(), &[kernel], &Silent).unwrap();
        let host = EmulatedHost::boot(&laboratory.host(name, kernel).unwrap()).unwrap();
        Self { host, _logs: logs }
    }

    pub fn run(&self, words: &str) -> String {
        let done = self.host.connection().text(&["bash", "-euc", words]);
        done.unwrap_or_else(|error| panic!("{words}: {error}"))
    }

    /// The same before all VCPUs: beside hundreds that compute a normal thread does not come to an end.
    pub fn run_first(&self, words: &str) -> String {
        let argv = ["chrt", "-f", "50", "bash", "-euc", words];
        let done = self.host.connection().text(&argv);
        done.unwrap_or_else(|error| panic!("{words}: {error}"))
    }

    /// A thread that computes until it is killed, and its number.
    pub fn spin(&self, how: &str) -> Spinner {
        self.spin_by(how, ":")
    }

    /// The same, with its own words for each turn.
    pub fn spin_by(&self, how: &str, turn: &str) -> Spinner {
        let words = format!("exec {how} bash -c ': spinner; while :; do {turn}; done'");
        let process = self.host.connection().spawn(&["sh", "-c", &words]).unwrap();
        let tid = process.pid();
        self.run(&format!(
            "until grep -q spinner /proc/{tid}/cmdline; do :; done"
        ));
        Spinner {
            tid,
            _process: process,
        }
    }

    /// Starts the loader, and waits until the scheduler is at work.
    pub fn load(&self, config: &str, words: &str) -> Process {
        self.write(config);
        let words = format!("exec steadyvm sched ext run --config {CONFIG} {words} 2> /run/said");
        let loader = self.host.connection().spawn(&["sh", "-c", &words]).unwrap();
        let pid = loader.pid();
        self.run(&format!(
            "until [ -S /run/steadyvm/sched.sock ] && steadyvm top --budgets --once > /dev/null; do
                 [ -d /proc/{pid} ] || {{ cat /run/said >&2; exit 1; }}
             done"
        ));
        loader
    }

    pub fn write(&self, config: &str) {
        self.run(&format!("cat > {CONFIG} <<'END'\n{config}\nEND"));
    }

    pub fn apply(&self, config: &str, words: &str) {
        self.write(config);
        self.run(&format!(
            "steadyvm sched ext apply --config {CONFIG} {words}"
        ));
    }

    /// The same before all VCPUs: see [`Self::run_first`].
    pub fn apply_first(&self, config: &str, words: &str) {
        self.run_first(&format!("cat > {CONFIG} <<'END'\n{config}\nEND"));
        self.run_first(&format!(
            "steadyvm sched ext apply --config {CONFIG} {words}"
        ));
    }

    pub fn show(&self) -> Value {
        // 1: nothing is enforced.
        let text = self.run_first("steadyvm top --budgets --once --json || [ $? = 1 ]");
        serde_json::from_str(&text).unwrap()
    }

    /// CPU time of a thread over time that passed, per cent, in ten seconds.
    pub fn share(&self, tid: u32) -> f64 {
        self.share_in(tid, 10)
    }

    /// The same in so many seconds. Both ends are read without starting a process, from a thread that nobody keeps waiting.
    pub fn share_in(&self, tid: u32, window_s: u32) -> f64 {
        share_of(&self.host, &tid.to_string(), window_s, ["", ""])
    }

    /// The kernel's own scheduler has all threads, and the host is usable.
    pub fn require_stock(&self) {
        self.run("until [ \"$(cat /sys/kernel/sched_ext/state)\" = disabled ]; do :; done");
        assert_eq!(self.show()["attached"], false);
        let text = self.run("steadyvm top --budgets --once || [ $? = 1 ]");
        assert!(text.contains("budgets are not enforced"), "{text}");
        assert_eq!(self.run("sleep 0.1; echo lives"), "lives\n");
    }

    pub fn require_quiet_kernel(&self) {
        let complaints = self.run("dmesg | grep -iE 'WARNING|BUG:|stall|runtime error' || true");
        assert_eq!(complaints, "");
    }
}

pub struct Spinner {
    pub tid: u32,
    _process: Process,
}

/// One VM `rt` with this budget.
pub fn config(budget_us: u32) -> String {
    format!(
        "[host]\nenforce = \"ext\"\nscheduler = \"gedf\"\n[[vm]]\nname = \"rt\"\nbudget = \"{budget_us}us\"\nperiod = \"10ms\""
    )
}

/// CPU time of a thread over time that passed, per cent, in so many seconds, between a script's beginning and its end.
pub fn share_of(host: &EmulatedHost, thread: &str, window_s: u32, [first, last]: [&str; 2]) -> f64 {
    let script = format!(
        "look() {{ read ran _ < /proc/{thread}/schedstat; now=$EPOCHREALTIME; }}
         {first}
         look; before=$ran began=${{now/./}}; sleep {window_s}; look
         echo $((ran - before)) $((${{now/./}} - began))
         {last}"
    );
    let text = host
        .connection()
        .text(&["chrt", "-f", "90", "bash", "-euc", &script])
        .unwrap();
    let numbers: Vec<f64> = text
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    let [ran_ns, passed_us] = numbers[..] else {
        panic!("{text}");
    };
    ran_ns / 1e3 / passed_us * 100.0
}
