//! The host with its VM, its domains' tasks and the mechanism in force.

use super::condition::{Beside, Cell, Condition};
use super::domains::VCPUS;
use super::quantum::{Asked, Quantum};
use super::service::{self, Plan};
use super::window::{Counter, NEVER, Window};
use super::work::{self, Spent, Work};
use crate::engine::rounds::station;
use crate::testbed::ask::ask;
use crate::testbed::mechanism::{Enforcement, Granted, fifo};
use crate::testbed::{Decisions, Mechanism};
use std::time::Duration;
use steadyvm_host::Method;
use steadyvm_lab::agent::{Connection, Process};
use steadyvm_lab::host::{EmulatedHost, HostSpecification, RT};
use steadyvm_lab::laboratory::{HostKernel, Laboratory, guest, require_for};
use steadyvm_lab::progress::Observer;
use steadyvm_lab::{At, Guest, Result};
use steadyvm_load::job::Ran;
use steadyvm_load::netrt::ClientRun;

/// A process of the host answers within this time, though others have all CPUs.
const PATIENCE: Duration = Duration::from_secs(120);
/// Table 4.2: 4 ms in every 10 ms.
const SHARE_US: (u64, u64) = (4_000, 10_000);
/// The host's kernel, if no other is asked for.
pub const KERNEL: HostKernel = HostKernel::V6_12RtPatched;
/// The real VM, and which of its VCPUs is the RT one; the other one does the guest's housekeeping.
const VM: &str = "rt";
const RT_VCPU: u32 = 1;
const LAST_ADDRESS_BYTE: u8 = 3;
const SPIN: &str = "while :; do :; done";
/// Leaves 5 of 100 ms: 6.12 has no server for `sched_ext` threads that a FIFO thread starves.
const SPIN_MOSTLY: &str = "while :; do end=$((${EPOCHREALTIME/./} + 95000)); \
    while ((${EPOCHREALTIME/./} < end)); do :; done; read -t 0.005 -u 3 _ || :; done";

/// How much is measured in one cell and round.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Seed of the requests' schedule.
    pub seed: u64,
    /// Length of a window in which CPU time is counted and jobs are released, in seconds.
    pub window_s: u64,
    /// Jobs of each domain's task, at least.
    pub jobs: u64,
    /// Counted requests.
    pub requests: u64,
}

/// What one measurement gives.
#[derive(Debug)]
pub enum Sample {
    /// CPU time: the RT VCPU's first, then the neighbours'.
    Share(Window),
    /// Jobs.
    Domains(Domains),
    /// Requests.
    NetRt(ClientRun),
    /// What was done in a window.
    Work(Work),
    /// The RT VCPU's jobs alone, its CPU time and that of the one below it.
    Quantum(Domains),
    /// Nothing: this round does not measure the cell's part.
    LeftOut,
}

/// What the domains did.
#[derive(Debug)]
pub struct Domains {
    /// Of each of [`VCPUS`], or of the only RT VCPU.
    pub ran: Vec<Ran>,
    /// The neighbours' CPU time, and context switches.
    pub window: Window,
    /// How long decisions of the `ext` scheduler took.
    pub decisions: Option<Decisions>,
}

/// A booted host.
pub struct Place {
    host: EmulatedHost,
    vm: Guest,
    /// Its process.
    monitor: i32,
    /// The thread of the VM's RT VCPU.
    vcpu: u32,
    /// What the service's VCPU is granted.
    plan: Plan,
    /// Of each of [`VCPUS`], its thread.
    tasks: Vec<Process>,
    /// Tasks without a budget.
    others: Vec<Process>,
    /// Work that takes a millisecond.
    units_per_ms: f64,
    enforcement: Enforcement,
    broken: bool,
    _service: Process,
}

station!(Place);

impl Place {
    /// Boots the host, its VM with the service, and the domains' tasks; stops the host's clock.
    ///
    /// # Errors
    /// One of them does not come up.
    pub fn boot(laboratory: &Laboratory, on_cpu: usize, observer: &dyn Observer) -> Result<Self> {
        let kernel = laboratory.in_place_of(KERNEL);
        let specification = HostSpecification {
            boot_on_cpu: Some(on_cpu),
            ..laboratory.host("vcpu", kernel)?
        };
        let mut host = EmulatedHost::boot(&specification)?;
        host.require_kvm()?;
        let vm = host.start_guest(&guest(VM, 1, 2), &[RT], observer)?;
        vm.set_network_up(RT.address(LAST_ADDRESS_BYTE))?;
        let service = service::start(&vm)?;
        let monitor = host.guest_pid(VM)?;
        // The best that the kernel has for the service's packets.
        let method = match require_for(kernel, Method::RtLevels) {
            Ok(()) => Method::RtLevels,
            Err(_) => Method::RtProfile,
        };
        host.put_in_force(
            method,
            RT,
            &["--vm".to_owned(), format!("{monitor}:{RT_VCPU}")],
        )?;
        let vcpu = vcpu_thread(host.connection())?;
        host.pause()?;
        host.spread_processors()?;
        host.resume()?;
        let address = RT.address(LAST_ADDRESS_BYTE);
        let plan = service::plan(host.connection(), vcpu, host.outside(), address)?;
        let mut tasks = jobs(host.connection(), VCPUS.len())?;
        let others = jobs(host.connection(), work::TOGETHER - VCPUS.len())?;
        let units: f64 = ask(&mut tasks[0], "calibrate 10000", PATIENCE)?
            .trim()
            .parse()
            .doing("calibrate the jobs")?;
        host.pause()?;
        Ok(Self {
            host,
            vm,
            monitor,
            vcpu,
            plan,
            tasks,
            others,
            units_per_ms: units / 10.0,
            enforcement: Enforcement::default(),
            broken: false,
            _service: service,
        })
    }

    /// What the service's VCPU is granted, and what that promises.
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// Lets the host run for one cell.
    ///
    /// # Errors
    /// One of its machines died, or the scheduler was ended: the place is broken from then on.
    pub fn measure(&mut self, cell: Cell, load: Load) -> Result<Sample> {
        let measured = self.resume_and_measure(cell, load);
        self.broken = measured.is_err();
        measured.map_err(|error| {
            let guest = [("the VM", self.vm.connection())];
            let mut error = self.host.with_state(error, guest);
            error.what = format!("{cell}: {}", error.what);
            error
        })
    }

    fn resume_and_measure(&mut self, cell: Cell, load: Load) -> Result<Sample> {
        self.host.resume()?;
        let mechanism = cell.mechanism;
        if !cell.condition.uses_vm() {
            self.signal_vm(libc::SIGSTOP)?;
        }
        let sample = match cell.condition {
            Condition::Share(beside) => {
                let rt = spin(self.host.connection(), &[], SPIN)?;
                let window = self.share(mechanism, rt.pid(), beside, load.window_s)?;
                kill(&rt)?;
                Sample::Share(window)
            }
            Condition::VmShare(beside) => {
                let on_rt_vcpu = ["taskset", "-c", &RT_VCPU.to_string()];
                let inside = spin(self.vm.connection(), &on_rt_vcpu, SPIN)?;
                let window = self.share(mechanism, self.vcpu, beside, load.window_s)?;
                kill(&inside)?;
                Sample::Share(window)
            }
            Condition::Domains { beside, overloaded } => {
                Sample::Domains(self.domains(mechanism, beside, overloaded, load)?)
            }
            Condition::NetRt(beside) => Sample::NetRt(self.requests(mechanism, beside, load)?),
            Condition::Work(tasks) => Sample::Work(self.work(mechanism, tasks, load.window_s)?),
            Condition::Quantum { quantum, asked } => {
                Sample::Quantum(self.quantum(mechanism, quantum, asked, load.window_s)?)
            }
        };
        self.signal_vm(libc::SIGCONT)?;
        self.host.pause()?;
        Ok(sample)
    }

    fn signal_vm(&self, signal: i32) -> Result<()> {
        let words = ["kill", &format!("-{signal}"), &self.monitor.to_string()];
        self.host.connection().run(&words).map(drop)
    }

    /// The CPU time of a thread that wants all it can get.
    fn share(
        &mut self,
        mechanism: Mechanism,
        tid: u32,
        beside: Beside,
        window_s: u64,
    ) -> Result<Window> {
        let host = self.host.connection();
        let neighbours = neighbours(host, beside)?;
        let granted = [Granted {
            name: "rt",
            tid,
            budget_us: SHARE_US.0,
            period_us: SHARE_US.1,
        }];
        // Under stock FIFO it may leave the host's own interrupts no CPU: the shell that counts sets and ends it.
        let (mechanism, around) = match mechanism {
            Mechanism::Fifo => (Mechanism::Fair, fifo(tid)),
            other => (other, (":".to_owned(), ":".to_owned())),
        };
        self.enforcement.apply(host, mechanism, &granted)?;
        let mut threads = vec![tid];
        threads.extend(neighbours.iter().map(Process::pid));
        let counter = Counter::start(host, &threads, window_s, (&around.0, &around.1))?;
        counter.go()?;
        let window = counter.finish()?;
        Enforcement::release(host, &granted)?;
        neighbours.iter().try_for_each(kill)?;
        Ok(window)
    }

    fn domains(
        &mut self,
        mechanism: Mechanism,
        beside: Beside,
        overloaded: bool,
        load: Load,
    ) -> Result<Domains> {
        let host = self.host.connection();
        let neighbours = neighbours(host, beside)?;
        let granted = granted(&self.tasks);
        self.enforcement.apply(host, mechanism, &granted)?;
        let before = self.enforcement.decisions(host)?;
        let threads: Vec<u32> = neighbours.iter().map(Process::pid).collect();
        let counter = Counter::start(host, &threads, load.window_s, (":", ":"))?;
        // All before the tasks: two that are overloaded may leave the host no CPU.
        counter.go()?;
        let mut released_us = 0;
        for (vcpu, task) in VCPUS.iter().zip(&self.tasks) {
            let work = vcpu.task(load.window_s, load.jobs, overloaded, self.units_per_ms);
            released_us = released_us.max(work.jobs * vcpu.task_period_us);
            let request = serde_json::to_string(&work).doing("describe the jobs")?;
            task.input(format!("run {request}\n").as_bytes())?;
        }
        let window = counter.finish()?;
        let mut ran = Vec::new();
        // A stock scheduler among a crowd takes 12 times as long as they are released.
        let longest = PATIENCE + Duration::from_micros(20 * released_us);
        for task in &mut self.tasks {
            let answer = task.wait_for_line("", longest)?;
            ran.push(serde_json::from_str(&answer).doing("read when jobs were done")?);
        }
        let host = self.host.connection();
        let after = self.enforcement.decisions(host)?;
        Enforcement::release(host, &granted)?;
        neighbours.iter().try_for_each(kill)?;
        Ok(Domains {
            ran,
            window,
            decisions: after
                .zip(before)
                .map(|(after, before)| after.since(&before)),
        })
    }

    /// Jobs of one RT VCPU beside one that wants all it can get, with a quantum.
    fn quantum(
        &mut self,
        mechanism: Mechanism,
        quantum: Quantum,
        asked: Asked,
        window_s: u64,
    ) -> Result<Domains> {
        let host = self.host.connection();
        let below = spin(host, &[], SPIN)?;
        let task = &mut self.tasks[0];
        let threads = [task.pid(), below.pid()];
        let granted = quantum.granted(threads[0], threads[1]);
        let policy = quantum.policy();
        self.enforcement
            .apply_policy(host, mechanism, &granted, policy)?;
        let before = self.enforcement.decisions(host)?;
        let counter = Counter::start(host, &threads, window_s, (":", ":"))?;
        let work = asked.task(window_s, self.units_per_ms);
        let request = serde_json::to_string(&work).doing("describe the jobs")?;
        task.input(format!("run {request}\n").as_bytes())?;
        counter.go()?;
        let window = counter.finish()?;
        // What a quantum leaves may be little.
        let longest = Duration::from_secs(20 * window_s);
        let answer = task.wait_for_line("", PATIENCE + longest)?;
        let ran = serde_json::from_str(&answer).doing("read when jobs were done")?;
        let after = self.enforcement.decisions(host)?;
        Enforcement::release(host, &granted)?;
        kill(&below)?;
        Ok(Domains {
            ran: vec![ran],
            window,
            decisions: after
                .zip(before)
                .map(|(after, before)| after.since(&before)),
        })
    }

    /// What so many tasks get done in a window; the first of them have the domains' budgets, if there are more than CPUs.
    fn work(&mut self, mechanism: Mechanism, tasks: usize, window_s: u64) -> Result<Work> {
        let host = self.host.connection();
        let granted = match tasks {
            work::ALONE => Vec::new(),
            _ => granted(&self.tasks),
        };
        self.enforcement.apply(host, mechanism, &granted)?;
        let request = work::task(tasks, window_s, self.units_per_ms);
        let request = serde_json::to_string(&request).doing("describe the jobs")?;
        // Normal ones first: those of FIFO 70 may leave the host no CPU.
        let mut running: Vec<&mut Process> = (self.others.iter_mut())
            .chain(&mut self.tasks)
            .rev()
            .take(tasks)
            .collect();
        let mut threads: Vec<u32> = running.iter().map(|task| task.pid()).collect();
        threads.extend(self.enforcement.threads(host)?);
        let before = self.enforcement.decisions(host)?;
        let counter = Counter::start(host, &threads, window_s, (":", ":"))?;
        counter.go()?;
        for task in running.iter().rev() {
            task.input(format!("run {request}\n").as_bytes())?;
        }
        let window = counter.finish()?;
        let longest = Duration::from_secs(20 * window_s);
        let mut ran = Vec::new();
        for task in &mut running {
            let answer = task.wait_for_line("", PATIENCE + longest)?;
            ran.push(serde_json::from_str(&answer).doing("read when jobs were done")?);
        }
        let host = self.host.connection();
        let after = self.enforcement.decisions(host)?;
        Enforcement::release(host, &granted)?;
        let decisions = after
            .zip(before)
            .map(|(after, before)| after.since(&before));
        Ok(Work {
            done_percent: work::done_percent(&ran, window_s),
            spent: Spent::of(&window, tasks, decisions.as_ref()),
        })
    }

    fn requests(&mut self, mechanism: Mechanism, beside: Beside, load: Load) -> Result<ClientRun> {
        let host = self.host.connection();
        let neighbours = neighbours(host, beside)?;
        let granted = [Granted {
            name: VM,
            tid: self.vcpu,
            budget_us: self.plan.budget_us,
            period_us: self.plan.period_us,
        }];
        self.enforcement.apply(host, mechanism, &granted)?;
        let address = RT.address(LAST_ADDRESS_BYTE);
        let run = service::request(self.host.outside(), address, load.seed, load.requests)?;
        Enforcement::release(host, &granted)?;
        neighbours.iter().try_for_each(kill)?;
        Ok(run)
    }
}

/// So many processes that wait to be told their jobs.
fn jobs(host: &Connection, count: usize) -> Result<Vec<Process>> {
    let job = |_| {
        let mut task = host.spawn(&["steadyvm-lab", "load", "job"])?;
        task.wait_for_line("ready", PATIENCE)?;
        Ok(task)
    };
    (0..count).map(job).collect()
}

/// The domains' budgets, for their tasks.
fn granted(tasks: &[Process]) -> Vec<Granted<'static>> {
    let of = |(vcpu, task): (&super::domains::Vcpu, &Process)| Granted {
        name: vcpu.name,
        tid: task.pid(),
        budget_us: vcpu.budget_us,
        period_us: vcpu.period_us,
    };
    VCPUS.iter().zip(tasks).map(of).collect()
}

/// The thread of the VM's RT VCPU.
fn vcpu_thread(host: &Connection) -> Result<u32> {
    let script =
        format!("ps -eLo lwp=,comm= | sed -n 's|^ *\\([0-9]*\\) CPU {RT_VCPU}/KVM.*|\\1|p'");
    let text = host.text(&["sh", "-euc", &script])?;
    text.trim().parse().doing("find the VCPU's thread")
}

fn neighbours(host: &Connection, beside: Beside) -> Result<Vec<Process>> {
    let mut started = Vec::new();
    for _ in 0..beside.computing() {
        started.push(spin(host, &[], SPIN)?);
    }
    if beside == Beside::Fifo {
        let script = format!("[ -p {NEVER} ] || mkfifo {NEVER}; exec 3<> {NEVER}; {SPIN_MOSTLY}");
        let by = ["taskset", "-c", "1", "chrt", "-f", "40"];
        started.push(spin(host, &by, &script)?);
    }
    Ok(started)
}

/// A thread that computes until it is killed: a normal one, unless `by` says otherwise.
fn spin(machine: &Connection, by: &[&str], script: &str) -> Result<Process> {
    let mut words = vec!["chrt", "-o", "0"];
    words.extend(by);
    let script = format!("echo spins; {script}");
    words.extend(["bash", "-c", &script]);
    let mut process = machine.spawn(&words)?;
    process.wait_for_line("spins", PATIENCE)?;
    Ok(process)
}

fn kill(process: &Process) -> Result<()> {
    process.signal(libc::SIGKILL)
}
