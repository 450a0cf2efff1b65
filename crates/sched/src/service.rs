//! The loader as others see it: a Unix socket, a line of JSON per request, one per reply.

use crate::abi::Vcpu;
use crate::client;
pub use crate::client::{ask, end};
use crate::config::{self, Config};
use crate::enforcement::{Enforcement, Reserved};
use crate::error::Error;
use crate::process::ProcessId;
use crate::protocol::{self, Heard};
pub use crate::protocol::{Reply, Request};
use crate::scheduler::{Scheduler, is_attached};
use crate::show::{DecisionTimes, SCHEMA_VERSION, Standing, VcpuStanding};
use crate::timer;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, umask};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};
use steadyvm_files::{Directory, Others};
use steadyvm_sched_policy::{Kind, Parameters};

/// Where the loader is asked.
pub const SOCKET: &str = "/run/steadyvm/sched.sock";

/// Of the thread that answers: just above the rank that VCPUs have by default (70), and below vhost workers. VCPUs that compute
/// without end on all CPUs do not keep it from answering. Only root asks, for a bounded piece of work each time.
const SERVING_PRIORITY: i32 = 71;

/// A client has so long to say what it wants: less than others wait for their answer meanwhile.
const PATIENCE: Duration = Duration::from_millis(500);

/// A VCPU with a budget.
struct Named {
    /// As it was asked for.
    asked: Reserved,
    slot: u32,
    parameters: Parameters,
}

/// The scheduler, and whom it serves.
pub struct Service {
    scheduler: Scheduler,
    cpus: u32,
    /// All of it; its VCPUs are `vcpus`.
    host: Enforcement,
    vcpus: Vec<Named>,
}

impl Service {
    /// Serves `scheduler` on a host with so many CPUs.
    pub fn new(scheduler: Scheduler, cpus: u32) -> Self {
        Self {
            scheduler,
            cpus,
            host: Enforcement::default(),
            vcpus: Vec::new(),
        }
    }

    /// Makes it so: VCPUs that are no longer named lose their budget, others get theirs.
    ///
    /// # Errors
    /// What [`Config::check`] refuses, and the kernel.
    pub fn apply(
        &mut self,
        config: &Config,
        threads: &BTreeMap<String, Vec<u32>>,
    ) -> Result<(), Error> {
        config.check()?;
        config.check_cpus(&online_cpus()?)?;
        self.enforce(&config.enforcement(threads))
    }

    /// The same, VCPU by VCPU.
    ///
    /// # Errors
    /// What [`Enforcement::check`] refuses, a thread that does not live, and the kernel.
    pub fn enforce(&mut self, wanted: &Enforcement) -> Result<(), Error> {
        wanted.check()?;
        if let Some(vcpu) = wanted.vcpus.iter().find(|vcpu| !lives(vcpu.tid)) {
            let (vm, tid) = (&vcpu.vm, vcpu.tid);
            return Err(Error::Input(format!("VM {vm}: there is no thread {tid}")));
        }
        // All is known to be possible; what ends meanwhile has no need any more.
        if self.scheduler.host() != wanted.host() {
            self.scheduler.set_host(wanted.host())?;
        }
        self.host = Enforcement {
            vcpus: Vec::new(),
            ..wanted.clone()
        };
        for vcpu in wanted.vcpus.iter().filter(|vcpu| !vcpu.cpus.is_empty()) {
            match pin(vcpu.tid, &vcpu.cpus) {
                Err(_) if !lives(vcpu.tid) => {}
                outcome => outcome?,
            }
        }
        for at in (0..self.vcpus.len()).rev() {
            let vcpu = &self.vcpus[at];
            let gone = self.scheduler.vcpu(vcpu.slot)?.exited != 0;
            if gone || !wanted.vcpus.iter().any(|it| it.tid == vcpu.asked.tid) {
                self.scheduler.remove(vcpu.slot, &vcpu.parameters)?;
                self.vcpus.remove(at);
            }
        }
        // Each VCPU has a priority of its own, as in the analysis: of equal ones, the earlier comes first.
        let mut ranked: Vec<&Reserved> = wanted.vcpus.iter().collect();
        ranked.sort_by_key(|vcpu| vcpu.priority);
        for (rank, asked) in ranked.into_iter().enumerate() {
            let tid = asked.tid;
            let parameters = asked.parameters()?.with_priority(rank as u32);
            let cpus = asked.cpu_set(self.cpus);
            if let Some(vcpu) = self.vcpus.iter_mut().find(|vcpu| vcpu.asked.tid == tid) {
                if vcpu.parameters != parameters {
                    self.scheduler.change(vcpu.slot, tid, &parameters, &cpus)?;
                    vcpu.parameters = parameters;
                }
                vcpu.asked = asked.clone();
                continue;
            }
            let slot = self.scheduler.add(tid, &parameters, &cpus)?;
            // Else the budget would wait for another thread of that number.
            if !lives(tid) {
                self.scheduler.remove(slot, &parameters)?;
                continue;
            }
            self.vcpus.push(Named {
                asked: asked.clone(),
                slot,
                parameters,
            });
        }
        Ok(())
    }

    /// What is enforced, of VCPUs whose thread lives.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn enforced(&self) -> Result<Enforcement, Error> {
        let mut all = self.host.clone();
        for vcpu in &self.vcpus {
            if self.scheduler.vcpu(vcpu.slot)?.exited == 0 {
                all.vcpus.push(vcpu.asked.clone());
            }
        }
        Ok(all)
    }

    /// How the VCPUs stand.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn standing(&self) -> Result<Standing, Error> {
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
            .map_err(Error::system("read the clock"))?;
        let now_ns = now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64;
        let one = |named: &Named| {
            let vcpu = self.scheduler.vcpu(named.slot)?;
            let server = vcpu.server.parameters();
            let (used_ns, last_used_ns) = periods_used(&vcpu, now_ns);
            Ok(VcpuStanding {
                vm: named.asked.vm.clone(),
                vcpu: named.asked.vcpu,
                tid: named.asked.tid,
                alive: vcpu.exited == 0,
                budget_ns: server.budget_ns(),
                period_ns: server.period_ns(),
                server: server.kind().word().to_owned(),
                used_ns: vcpu.server.supplied_ns(),
                period_used_ns: Some(used_ns),
                last_period_used_ns: Some(last_used_ns),
                most_period_used_ns: Some(vcpu.usage.most_used_ns),
                periods: Some(vcpu.usage.periods),
                short_periods: Some(vcpu.usage.short_periods),
                most_short_ns: Some(vcpu.usage.most_short_ns),
                unexplained_periods: Some(vcpu.usage.unexplained),
                waited_ns: None,
                throttled_ns: Some(throttled_ns(&vcpu, now_ns)),
                throttles: Some(vcpu.counters.throttles),
                preemptions: vcpu.counters.preemptions,
                migrations: vcpu.counters.migrations,
                dispatches: vcpu.counters.dispatches,
                overrun_ns: Some(vcpu.counters.overrun_ns),
                cpu: vcpu.cpu,
                guest: None,
            })
        };
        Ok(Standing {
            schema_version: SCHEMA_VERSION,
            mechanism: "ext".into(),
            attached: is_attached(),
            at_ns: now_ns,
            decisions: DecisionTimes::of(&self.scheduler.decisions(self.cpus)?),
            vcpus: self.vcpus.iter().map(one).collect::<Result<_, Error>>()?,
        })
    }

    /// Answers at `socket` until it is told to stop; then ends the scheduler. The calling thread comes before all VCPUs from
    /// then on: else budgets that leave normal threads nothing could not be made smaller.
    ///
    /// # Errors
    /// The socket cannot be made, a right is missing, or a thread of the loader had failed.
    pub fn serve(
        mut self,
        socket: &Path,
        ready: impl FnOnce() -> io::Result<()>,
    ) -> Result<(), Error> {
        let listener = Listener::at(socket)?;
        timer::become_fifo(SERVING_PRIORITY)
            .map_err(Error::system("give the thread that answers SCHED_FIFO"))?;
        ready().map_err(Error::io("say that the scheduler is at work"))?;
        let mut ending = None;
        while let Some(mut stream) = self.next(&listener)? {
            // One that says nothing keeps no other waiting for long.
            let patient = stream.set_write_timeout(Some(PATIENCE));
            patient.map_err(Error::io("take a request"))?;
            // A client that goes away, or says nonsense, is its own loss.
            let Ok(line) = protocol::read_line(&mut stream, Instant::now(), PATIENCE) else {
                continue;
            };
            let reply = match protocol::read_request(&line) {
                Heard::Stop => {
                    ending = Some(stream);
                    break;
                }
                Heard::Nonsense(why) => Reply::Refused(why),
                Heard::Request(request) => self.answer(request),
            };
            tell(&mut stream, &reply);
        }
        let outcome = self.scheduler.stop();
        // The kernel's own scheduler has all threads when the client reads this.
        if let Some(mut stream) = ending {
            let reply = outcome.as_ref().map_or_else(refused, |()| Reply::Done);
            tell(&mut stream, &reply);
        }
        outcome
    }

    fn answer(&mut self, request: Request) -> Reply {
        let done = |outcome: Result<(), Error>| outcome.map(|()| Reply::Done);
        let answer = match request {
            Request::Show => self.standing().map(Reply::Standing),
            Request::Apply { config, threads } => done(self.apply(&config, &threads)),
            Request::Enforce(wanted) => done(self.enforce(&wanted)),
            Request::Enforced => self.enforced().map(Reply::Enforced),
        };
        answer.unwrap_or_else(|error| refused(&error))
    }

    /// The next client; `None` when the scheduler has ended.
    fn next(&self, listener: &Listener) -> Result<Option<UnixStream>, Error> {
        loop {
            let mut descriptors = [
                PollFd::new(self.scheduler.over(), PollFlags::POLLIN),
                PollFd::new(listener.socket.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut descriptors, PollTimeout::NONE) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(Error::system("wait for a request")(error)),
            }
            if descriptors[0].any().unwrap_or(false) {
                return Ok(None);
            }
            if descriptors[1].any().unwrap_or(false) {
                let (stream, _) = listener
                    .socket
                    .accept()
                    .map_err(Error::io("take a request"))?;
                return Ok(Some(stream));
            }
        }
    }
}

/// Used in the period that `now` is in, and in the one before. The scheduler looks at a VCPU when something happens to it:
/// periods may have passed since.
fn periods_used(vcpu: &Vcpu, now_ns: u64) -> (u64, u64) {
    let (usage, server) = (&vcpu.usage, vcpu.server.parameters());
    let end = match server.kind() {
        Kind::ConstantBandwidth => usage.period,
        _ => usage.period + server.period_ns(),
    };
    match now_ns.checked_sub(end) {
        None => (usage.used_ns, usage.last_used_ns),
        Some(after) if after < server.period_ns() => (0, usage.used_ns),
        Some(_) => (0, 0),
    }
}

/// With the time that it waits now.
fn throttled_ns(vcpu: &Vcpu, now_ns: u64) -> u64 {
    let waits = match vcpu.parked_ns {
        0 => 0,
        since => now_ns.saturating_sub(since),
    };
    vcpu.counters.throttled_ns + waits
}

fn lives(tid: u32) -> bool {
    Path::new(&format!("/proc/{tid}")).exists()
}

fn online_cpus() -> Result<Vec<u32>, Error> {
    let path = "/sys/devices/system/cpu/online";
    let text = fs::read_to_string(path).map_err(Error::io(&format!("read {path}")))?;
    config::cpu_list(&text).ok_or_else(|| Error::State(format!("{path} has no list: {text}")))
}

/// A client that has gone away hears nothing.
fn tell(stream: &mut UnixStream, reply: &Reply) {
    if let Ok(line) = protocol::reply_line(reply) {
        let _ = stream.write_all(line.as_bytes());
    }
}

fn refused(error: &Error) -> Reply {
    Reply::Refused(error.to_string())
}

/// Has a thread run on these CPUs only.
fn pin(tid: u32, cpus: &[u32]) -> Result<(), Error> {
    let mut set = nix::sched::CpuSet::new();
    for &cpu in cpus {
        let added = set.set(cpu as usize);
        added.map_err(|_| Error::Input(format!("there can be no CPU {cpu}")))?;
    }
    let tid = nix::unistd::Pid::from_raw(tid.cast_signed());
    nix::sched::sched_setaffinity(tid, &set)
        .map_err(|error| Error::Input(format!("thread {tid} cannot run on CPUs {cpus:?}: {error}")))
}

/// A socket whose file goes with it.
struct Listener {
    socket: UnixListener,
    path: PathBuf,
    /// Device and inode: another loader may have put its own there since.
    file: Option<(u64, u64)>,
}

fn file_of(path: &Path) -> Option<(u64, u64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

impl Listener {
    fn at(path: &Path) -> Result<Self, Error> {
        let what = format!("listen at {}", path.display());
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(Error::io(&what))?;
        }
        let opened = Directory::of(path, Others::Refused);
        let (directory, name) = opened.map_err(Error::io(&what))?;
        // Of a loader that was killed. One that lives has the scheduler, and so this one did not get here.
        if let Err(error) = directory.remove(&name)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(Error::io(&what)(error));
        }
        // Nobody else gets it before it is this user's alone.
        let before = umask(Mode::S_IRWXG | Mode::S_IRWXO | Mode::S_IXUSR);
        let bound = UnixListener::bind(directory.reach(&name));
        umask(before);
        let socket = bound.map_err(Error::io(&what))?;
        record_process(path).map_err(Error::io(&what))?;
        Ok(Self {
            socket,
            path: path.to_owned(),
            file: file_of(path),
        })
    }
}

/// Writes down which process this is, for whoever has to end it when it does not answer.
fn record_process(socket: &Path) -> io::Result<()> {
    let own =
        ProcessId::own().ok_or_else(|| io::Error::other("/proc has no word of this process"))?;
    let path = client::record_of(socket);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    writeln!(file, "{own}")
}

impl Drop for Listener {
    fn drop(&mut self) {
        if file_of(&self.path) == self.file {
            let _ = fs::remove_file(client::record_of(&self.path));
            let _ = fs::remove_file(&self.path);
        }
    }
}
