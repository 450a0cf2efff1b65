//! A VCPU's thread: the guest, and what it leaves the guest for.

use kvm_bindings::{KVM_EXIT_INTERNAL_ERROR, KVM_SYSTEM_EVENT_RESET, KVM_SYSTEM_EVENT_SHUTDOWN};
use kvm_ioctls::{VcpuExit, VcpuFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use vmm_sys_util::eventfd::EventFd;

use crate::bus::{Asked, Bus};
use crate::statistics::{Counters, Exit};
use crate::thread::Kickable;

/// How a VM came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The guest powered off.
    PoweredOff,
    /// The guest asked for a reset, which ends it here.
    Reset,
    /// The same, after its kernel had said that it panicked.
    Panicked,
    /// The guest cannot go on: why.
    Failed(String),
    /// Whoever started the monitor ended it: by what.
    Asked(String),
}

impl End {
    /// The exit code of a program that ran the VM: a supervisor tells a reset from a power-off by it.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::PoweredOff | Self::Asked(_) => 0,
            Self::Failed(_) => 1,
            Self::Reset => 4,
            Self::Panicked => 5,
        }
    }
}

/// The end of a VM, for all its threads: the first one counts.
pub struct Ending {
    end: OnceLock<End>,
    /// The guest's kernel has said that it panicked.
    panicked: AtomicBool,
    /// Nothing may begin any more.
    pub stopping: Arc<AtomicBool>,
    /// Readable when the end has come.
    pub event: EventFd,
}

impl Ending {
    /// Not yet.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            end: OnceLock::new(),
            panicked: AtomicBool::new(false),
            stopping: Arc::new(AtomicBool::new(false)),
            event: EventFd::new(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC)?,
        })
    }

    /// The end has come.
    pub fn come(&self, end: End) {
        let _ = self.end.set(end);
        self.stopping.store(true, Ordering::SeqCst);
        let _ = self.event.write(1);
    }

    /// The end that a reset is.
    fn of_reset(&self) -> End {
        if self.panicked.load(Ordering::SeqCst) {
            End::Panicked
        } else {
            End::Reset
        }
    }

    /// How, if it has.
    pub fn how(&self) -> Option<&End> {
        self.end.get()
    }
}

/// A VCPU with what it needs to run.
pub struct Vcpu {
    /// The kernel's.
    pub fd: VcpuFd,
    /// Its devices.
    pub bus: Arc<Bus>,
    /// The VM's end.
    pub ending: Arc<Ending>,
    /// Its exits.
    pub counters: Arc<Counters>,
}

impl Vcpu {
    /// Runs the guest until the VM ends.
    pub fn run(mut self) {
        let immediate_exit = &raw mut self.fd.get_kvm_run().immediate_exit;
        // SAFETY: kvm_run stays mapped as long as `self.fd` lives, which is longer than `_kickable`:
        // locals are dropped before arguments.
        let _kickable = unsafe { Kickable::new(immediate_exit) };
        while !self.ending.stopping.load(Ordering::SeqCst) {
            if let Some(end) = self.step() {
                self.ending.come(end);
            }
        }
    }

    /// Enters the guest once and does what it leaves it for.
    fn step(&mut self) -> Option<End> {
        let count = |exit| self.counters.add(exit);
        match self.fd.run() {
            Ok(VcpuExit::MmioWrite(address, data)) => {
                count(if Bus::is_notification(address) {
                    Exit::QueueNotify
                } else {
                    Exit::RegisterWrite
                });
                self.bus.write_memory(address, data);
            }
            Ok(VcpuExit::MmioRead(address, data)) => {
                count(Exit::RegisterRead);
                self.bus.read_memory(address, data);
            }
            Ok(VcpuExit::IoIn(port, data)) => {
                count(Exit::PortRead);
                self.bus.read_port(port, data);
            }
            Ok(VcpuExit::IoOut(port, data)) => {
                count(if Bus::is_notification_port(port) {
                    Exit::QueueNotify
                } else {
                    Exit::PortWrite
                });
                match self.bus.write_port(port, data) {
                    Asked::Nothing => {}
                    Asked::PowerOff => return Some(End::PoweredOff),
                    Asked::Reset => return Some(self.ending.of_reset()),
                    // It goes on: what it has to say of it comes yet.
                    Asked::Panicked => self.ending.panicked.store(true, Ordering::SeqCst),
                }
            }
            Ok(VcpuExit::SystemEvent(KVM_SYSTEM_EVENT_SHUTDOWN, _)) => {
                return Some(End::PoweredOff);
            }
            Ok(VcpuExit::SystemEvent(KVM_SYSTEM_EVENT_RESET, _)) => {
                return Some(self.ending.of_reset());
            }
            Ok(VcpuExit::Shutdown) => return Some(End::Failed("triple fault".into())),
            Ok(exit) => {
                count(Exit::Other);
                let exit = format!("unexpected exit {exit:?}");
                return Some(End::Failed(exit + &self.internal_error()));
            }
            Err(error) => match error.errno() {
                libc::EINTR | libc::EAGAIN => {
                    count(Exit::Signal);
                    self.fd.set_kvm_immediate_exit(0);
                    // It may have been stopped, or the host suspended: the guest's watchdogs learn that it did
                    // not hang. A guest without kvm-clock has no place for that, and is told nothing.
                    let _ = self.fd.kvmclock_ctrl();
                }
                _ => return Some(End::Failed(format!("KVM cannot run it: {error}"))),
            },
        }
        None
    }

    /// What KVM says besides of an exit for `KVM_EXIT_INTERNAL_ERROR`; empty for others.
    fn internal_error(&mut self) -> String {
        let run = self.fd.get_kvm_run();
        if run.exit_reason != KVM_EXIT_INTERNAL_ERROR {
            return String::new();
        }
        // SAFETY: the exit's reason says that this member of the union is the one that is set; it is
        // plain integers.
        let internal = unsafe { run.__bindgen_anon_1.internal };
        let data = &internal.data[..internal.data.len().min(internal.ndata as usize)];
        format!(": suberror {} with {data:x?}", internal.suberror)
    }
}
