//! Loading the scheduler, keeping it, and telling it what to do.

use crate::abi::{Decisions, HostRequest, MAX_VCPUS, Shared, Vcpu, VcpuRequest};
use crate::error::Error;
use crate::kicks::Raised;
use crate::preferred::Preferred;
use crate::program::Program;
use crate::{operations, record, timer};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::thread::JoinHandle;
use steadyvm_sched_policy::{CpuSet, Host, Parameters};

/// The compiled scheduler.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sched.bpf.o"));

/// What the kernel says of `sched_ext`.
pub const SCHED_EXT: &str = "/sys/kernel/sched_ext";

/// Whether our scheduler has this host's threads.
pub fn is_attached() -> bool {
    is_attached_by(Path::new(SCHED_EXT))
}

/// The same, by what the kernel says there.
pub fn is_attached_by(sched_ext: &Path) -> bool {
    let read = |name| fs::read_to_string(sched_ext.join(name));
    read("state").is_ok_and(|state| state.trim() == "enabled")
        && read("root/ops").is_ok_and(|name| name.trim() == "steadyvm")
}

/// A thread that ends with this value.
struct Helper {
    thread: Option<JoinHandle<Result<(), Error>>>,
    stop: Option<OwnedFd>,
}

impl Helper {
    fn end(&mut self) -> Result<(), Error> {
        drop(self.stop.take());
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) => Err(Error::State("a thread of the loader panicked".into())),
        }
    }
}

/// The scheduler at work. Dropped, it gives all threads back to the kernel's own.
pub struct Scheduler {
    link: Option<Link>,
    control_vcpu: Program,
    control_host: Program,
    vcpus: MapHandle,
    decisions: MapHandle,
    timer: Helper,
    over: OwnedFd,
    recorder: Option<Helper>,
    _kicks: Raised,
    host: Host,
    used: Vec<bool>,
    _object: Object,
}

fn stop_pipe() -> Result<(OwnedFd, OwnedFd), Error> {
    nix::unistd::pipe().map_err(Error::system("make a pipe"))
}

impl Scheduler {
    /// Loads it and puts it to work on the whole host; `record`: a file for all that the policy is told.
    ///
    /// # Errors
    /// A kernel without `sched_ext`, another scheduler that is attached, missing rights.
    pub fn start(host: Host, record: Option<&Path>) -> Result<Self, Error> {
        let state = fs::read_to_string("/sys/kernel/sched_ext/state").map_err(|_| Error::Refused {
            what: "schedule by sched_ext".into(),
            why: "this kernel has none (/sys/kernel/sched_ext); boot one with CONFIG_SCHED_CLASS_EXT, or use \
                  mechanism = \"deadline\""
                .into(),
        })?;
        if state.trim() != "disabled" {
            let why = format!(
                "a scheduler is attached already ({}); end it first",
                state.trim()
            );
            return Err(Error::Refused {
                what: "attach the scheduler".into(),
                why,
            });
        }
        // The verifier works for seconds, and beside computing VCPUs for minutes: the host waits for nothing else.
        let preferred = Preferred::now();
        let mut object = ObjectBuilder::default()
            .open_memory(OBJECT)
            .map_err(Error::bpf("open the scheduler"))?;
        operations::prepare(&mut object)?;
        let mut object = object.load().map_err(Error::bpf("load the scheduler"))?;
        drop(preferred);
        let map = |object: &Object, name: &str| {
            let map = object.maps().find(|map| map.name() == name);
            let map =
                map.ok_or_else(|| Error::State(format!("the scheduler has no map {name}")))?;
            MapHandle::try_from(&map).map_err(Error::bpf("open a map"))
        };
        let (vcpus, decisions, wake, events) = (
            map(&object, "vcpus")?,
            map(&object, "decisions")?,
            map(&object, "wake")?,
            map(&object, "events")?,
        );
        let control_vcpu = Program::of(&object, "control_vcpu")?;
        let control_host = Program::of(&object, "control_host")?;
        let advance = Program::of(&object, "control_advance")?;
        let recorder = record
            .map(|path| -> Result<Helper, Error> {
                let (read, write) = stop_pipe()?;
                let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u32;
                let thread = record::start(events, host, cpus, path, read)?;
                Ok(Helper {
                    thread: Some(thread),
                    stop: Some(write),
                })
            })
            .transpose()?;
        let kicks = Raised::to(timer::FIFO_PRIORITY)?;
        let mut operations = object
            .maps_mut()
            .find(|map| map.name() == "steadyvm")
            .ok_or_else(|| Error::State("the scheduler has no operations".into()))?;
        let link = operations
            .attach_struct_ops()
            .map_err(Error::bpf("attach the scheduler"))?;
        let (read, write) = stop_pipe()?;
        let (over, is_over) = stop_pipe()?;
        let timer = timer::start(advance, wake, read, is_over)?;
        let scheduler = Self {
            link: Some(link),
            control_vcpu,
            control_host,
            vcpus,
            decisions,
            timer: Helper {
                thread: Some(timer),
                stop: Some(write),
            },
            over,
            recorder,
            _kicks: kicks,
            host,
            used: vec![false; MAX_VCPUS as usize],
            _object: object,
        };
        scheduler.tell_host()?;
        Ok(scheduler)
    }

    fn tell_host(&self) -> Result<(), Error> {
        let mut request = HostRequest {
            host: self.host,
            recording: u32::from(self.recorder.is_some()),
            tick_ns: tick_ns(),
        };
        self.control_host.run(request.bytes_mut())
    }

    /// Hangs up when the scheduler has ended, whoever ended it.
    pub fn over(&self) -> BorrowedFd<'_> {
        self.over.as_fd()
    }

    /// The host's policy.
    pub fn host(&self) -> Host {
        self.host
    }

    /// Changes the host's policy while all goes on.
    pub fn set_host(&mut self, host: Host) -> Result<(), Error> {
        self.host = host;
        self.tell_host()
    }

    /// Names a thread that from now on has a budget; gives its slot.
    pub fn add(&mut self, tid: u32, parameters: &Parameters, cpus: &CpuSet) -> Result<u32, Error> {
        let free = self.used.iter().position(|used| !used);
        let slot = free.ok_or_else(|| {
            Error::Input(format!(
                "there are {MAX_VCPUS} VCPUs with a budget already, which is all"
            ))
        })? as u32;
        // One that is gone is found so by its name.
        if crate::core_scheduling::cookie(tid).is_ok_and(|cookie| cookie != 0) {
            return Err(Error::Refused {
                what: format!("give thread {tid} a budget"),
                why: format!(
                    "it {}; {}",
                    crate::core_scheduling::REASON,
                    crate::core_scheduling::FIX
                ),
            });
        }
        self.tell(slot, tid, parameters, cpus)?;
        self.used[slot as usize] = true;
        Ok(slot)
    }

    /// Gives a thread other parameters. What it used is used: see `policy_set_parameters`.
    pub fn change(
        &self,
        slot: u32,
        tid: u32,
        parameters: &Parameters,
        cpus: &CpuSet,
    ) -> Result<(), Error> {
        self.tell(slot, tid, parameters, cpus)
    }

    /// Takes its budget from a thread: it is as any other from now on.
    pub fn remove(&mut self, slot: u32, parameters: &Parameters) -> Result<(), Error> {
        self.tell(slot, 0, parameters, &CpuSet::default())?;
        self.used[slot as usize] = false;
        Ok(())
    }

    fn tell(
        &self,
        slot: u32,
        tid: u32,
        parameters: &Parameters,
        cpus: &CpuSet,
    ) -> Result<(), Error> {
        let mut request = VcpuRequest {
            slot,
            tid,
            parameters: *parameters,
            cpus: *cpus,
            error: 0,
            away: u32::from(is_of_another_class(tid)),
        };
        self.control_vcpu.run(request.bytes_mut())?;
        // `Parameters` are valid by construction: the policy refuses none.
        if request.error != 0 {
            let why = format!(
                "the policy refuses these parameters (enum policy_error {})",
                request.error
            );
            return Err(Error::State(why));
        }
        Ok(())
    }

    /// How a VCPU stands.
    pub(crate) fn vcpu(&self, slot: u32) -> Result<Vcpu, Error> {
        let bytes = self
            .vcpus
            .lookup(&slot.to_ne_bytes(), MapFlags::LOCK)
            .map_err(Error::bpf("read a VCPU"))?;
        bytes
            .and_then(|bytes| Vcpu::from_bytes(&bytes))
            .ok_or_else(|| Error::State("a VCPU has another layout in the scheduler".into()))
    }

    /// How long decisions took on each of so many CPUs.
    pub(crate) fn decisions(&self, cpus: u32) -> Result<Vec<Decisions>, Error> {
        let of = |cpu: u32| {
            let bytes = self
                .decisions
                .lookup(&cpu.to_ne_bytes(), MapFlags::ANY)
                .map_err(Error::bpf("read how long decisions took"))?;
            bytes
                .and_then(|bytes| Decisions::from_bytes(&bytes))
                .ok_or_else(|| Error::State("times have another layout in the scheduler".into()))
        };
        (0..cpus).map(of).collect()
    }

    /// Ends it; tells what went wrong in its threads.
    pub fn stop(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        drop(self.link.take());
        let timer = self.timer.end();
        let recorder = self.recorder.as_mut().map_or(Ok(()), Helper::end);
        timer.and(recorder)
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Whether a thread is of a class that `sched_ext` has no say in. It asks for nothing here, and idles no budget away, until it
/// wakes as a normal one.
fn is_of_another_class(tid: u32) -> bool {
    // SAFETY: it takes a number. Of a thread that is gone it says -1.
    let policy = unsafe { libc::sched_getscheduler(tid.cast_signed()) };
    matches!(
        policy & !libc::SCHED_RESET_ON_FORK,
        libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE
    )
}

/// The length of the kernel's tick, which the coarse clock goes by; 0: not known.
fn tick_ns() -> u32 {
    use nix::time::{ClockId, clock_getres};
    let length = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).ok();
    let tick = length.filter(|length| length.tv_sec() == 0);
    tick.map_or(0, |tick| tick.tv_nsec().try_into().unwrap_or(0))
}
