//! Why the guest was left: exits to this program by VCPU and reason, and KVM's own counters, which
//! know the exits that the kernel handles and the interrupts that it injects.

mod kvm;

use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvm::KernelCounters;
use kvm_ioctls::VcpuFd;
use steadyvm_fault::{At, Fault as Error, Result};
use steadyvm_sockets::Counts;

/// Of the JSON document.
const SCHEMA_VERSION: u32 = 1;

/// Why a VCPU left the guest for this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// A device's queue was rung, and served by the VCPU's thread where it is one of outsourced
    /// sockets.
    QueueNotify,
    /// A register of a device was read.
    RegisterRead,
    /// Another register of a device was written.
    RegisterWrite,
    /// An I/O port was read.
    PortRead,
    /// An I/O port was written.
    PortWrite,
    /// A signal for the thread.
    Signal,
    /// Anything else, which ends the VM.
    Other,
}

impl Exit {
    const ALL: [Self; 7] = [
        Self::QueueNotify,
        Self::RegisterRead,
        Self::RegisterWrite,
        Self::PortRead,
        Self::PortWrite,
        Self::Signal,
        Self::Other,
    ];
}

/// The exits of one VCPU, counted by its thread alone.
#[derive(Debug, Default)]
pub struct Counters([AtomicU64; Exit::ALL.len()]);

impl Counters {
    /// Counts one.
    pub fn add(&self, exit: Exit) {
        self.0[exit as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> BTreeMap<Exit, u64> {
        let count = |exit: Exit| self.0[exit as usize].load(Ordering::Relaxed);
        Exit::ALL
            .into_iter()
            .map(|exit| (exit, count(exit)))
            .collect()
    }
}

/// The document.
#[derive(Debug, Serialize)]
struct Document {
    schema_version: u32,
    name: String,
    vcpus: Vec<VcpuDocument>,
}

#[derive(Debug, Serialize)]
struct VcpuDocument {
    vcpu: usize,
    /// Exits to this program.
    exits: BTreeMap<Exit, u64>,
    /// KVM's counters by their names in the kernel; absent before Linux 5.14.
    #[serde(skip_serializing_if = "Option::is_none")]
    kvm: Option<BTreeMap<String, u64>>,
    /// What outsourced sockets were asked for in this VCPU's channel: requests by operation, and how waits polled.
    #[serde(skip_serializing_if = "Option::is_none")]
    sockets: Option<BTreeMap<&'static str, u64>>,
}

/// A file that gets the statistics of a VM.
pub struct Report {
    name: String,
    file: File,
    vcpus: Vec<(Arc<Counters>, Option<KernelCounters>)>,
    sockets: Option<Arc<[Counts]>>,
}

impl Report {
    /// Makes the file, before the VM runs.
    pub fn create(path: &Path, name: &str) -> Result<Self> {
        let file = steadyvm_files::create(path)
            .map_err(|error| Error::input(format!("--statistics {}", path.display()), error))?;
        Ok(Self {
            name: name.to_owned(),
            file,
            vcpus: Vec::new(),
            sockets: None,
        })
    }

    /// Adds what the outsourced sockets count, of a channel a VCPU.
    pub fn add_sockets(&mut self, counts: Arc<[Counts]>) {
        self.sockets = Some(counts);
    }

    /// Adds the next VCPU.
    pub fn add(&mut self, vcpu: &CountedVcpu) {
        let kernel = KernelCounters::of(&vcpu.fd).ok();
        self.vcpus.push((Arc::clone(&vcpu.counters), kernel));
    }

    /// Writes the figures of this moment over those before.
    pub fn write(&mut self) -> Result<()> {
        let one =
            |(vcpu, (counters, kernel)): (usize, &(Arc<Counters>, Option<KernelCounters>))| {
                let of_channel = |counts: &Arc<[Counts]>| counts.get(vcpu).map(Counts::read);
                VcpuDocument {
                    vcpu,
                    sockets: self.sockets.as_ref().and_then(of_channel),
                    exits: counters.read(),
                    kvm: kernel.as_ref().and_then(|kernel| kernel.read().ok()),
                }
            };
        let document = Document {
            schema_version: SCHEMA_VERSION,
            name: self.name.clone(),
            vcpus: self.vcpus.iter().enumerate().map(one).collect(),
        };
        let what = "write the statistics";
        let text = serde_json::to_string_pretty(&document).cannot(what)? + "\n";
        self.file.rewind().cannot(what)?;
        self.file.set_len(0).cannot(what)?;
        self.file.write_all(text.as_bytes()).cannot(what)
    }
}

/// A VCPU with its statistics.
pub struct CountedVcpu {
    /// The kernel's.
    pub fd: VcpuFd,
    /// Its exits to this program.
    pub counters: Arc<Counters>,
}
