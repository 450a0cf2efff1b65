//! Recording the tracepoints of the receive path on every CPU.

use crate::event::{Decoder, Event, TRACEPOINTS};
use crate::perf::{Buffer, Tracepoint};
use crate::record::{Record, records};
use crate::tracefs;
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use steadyvm_fault::Fault;

/// Tracepoints of single packets, which name their device.
const PACKETS: [&str; 2] = ["netif_receive_skb", "net_dev_xmit"];

/// Tracepoints that record while it lives.
pub struct Recorder {
    decoder: Decoder,
    tracepoints: Vec<Tracepoint>,
    cpus: Vec<CpuLog>,
    missing: Vec<String>,
}

struct CpuLog {
    cpu: usize,
    buffer: Buffer,
    log: Vec<u8>,
    /// Where in the log the last fetch began.
    latest: usize,
}

/// What was recorded.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Recording {
    /// The events of each CPU that has any, in order of time.
    pub cpus: Vec<(usize, Vec<Event>)>,
    /// Events that found their buffer full.
    pub lost: u64,
    /// Tracepoints that this kernel does not have, and the measurement can do without.
    pub missing: Vec<String>,
}

impl Recorder {
    /// Opens the tracepoints on these CPUs, not recording yet. `buffer_bytes` is for each CPU; of
    /// packets only those received or sent on `device` are recorded, if one is named.
    ///
    /// # Errors
    /// Without the right to trace, without tracefs, and on kernels that lack a tracepoint that the
    /// measurement needs.
    pub fn open(cpus: &[usize], buffer_bytes: usize, device: Option<&str>) -> Result<Self, Fault> {
        let root = tracefs::root()?;
        let mut decoder = Decoder::default();
        let mut wanted = Vec::new();
        let mut missing = Vec::new();
        for (system, name, needed) in TRACEPOINTS {
            let title = format!("{system}:{name}");
            let Some(format) = tracefs::format(&root, system, name)? else {
                if needed {
                    return Err(lacks(&title, "it is not in tracefs"));
                }
                missing.push(title);
                continue;
            };
            let known = decoder.add(name, &format);
            known.map_err(|field| lacks(&title, &format!("it has no field `{field}`")))?;
            wanted.push((name, format.id));
        }
        let filter = device.map(packet_filter).transpose()?;
        let mut recorder = Self {
            decoder,
            tracepoints: Vec::new(),
            cpus: Vec::new(),
            missing,
        };
        for &cpu in cpus {
            recorder
                .open_on(cpu, &wanted, buffer_bytes, filter.as_ref())
                .map_err(|error| open_error(cpu, &error))?;
        }
        Ok(recorder)
    }

    fn open_on(
        &mut self,
        cpu: usize,
        wanted: &[(&str, u16)],
        buffer_bytes: usize,
        packet_filter: Option<&CString>,
    ) -> std::io::Result<()> {
        let first = self.tracepoints.len();
        for (name, id) in wanted {
            let tracepoint = Tracepoint::open(*id, cpu)?;
            if let Some(filter) = packet_filter.filter(|_| PACKETS.contains(name)) {
                tracepoint.set_filter(filter)?;
            }
            match self.tracepoints.get(first) {
                None => self.cpus.push(CpuLog {
                    cpu,
                    buffer: Buffer::map(&tracepoint, buffer_bytes)?,
                    log: Vec::new(),
                    latest: 0,
                }),
                Some(owner) => tracepoint.write_to_buffer_of(owner)?,
            }
            self.tracepoints.push(tracepoint);
        }
        Ok(())
    }

    /// Begins to record.
    pub fn start(&self) -> Result<(), Fault> {
        self.each("begin to record tracepoints", Tracepoint::enable)
    }

    /// Ends to record. What is in the buffers stays there.
    pub fn stop(&self) -> Result<(), Fault> {
        self.each("end to record tracepoints", Tracepoint::disable)
    }

    fn each(
        &self,
        what: &str,
        act: impl Fn(&Tracepoint) -> std::io::Result<()>,
    ) -> Result<(), Fault> {
        self.tracepoints
            .iter()
            .try_for_each(act)
            .map_err(|error| Fault::cannot(what, error))
    }

    /// Empties the buffers into memory, undecoded: the little that has to be done while the host
    /// is measured.
    pub fn drain(&mut self) {
        for cpu in &mut self.cpus {
            cpu.latest = cpu.log.len();
            cpu.buffer.drain(&mut cpu.log);
        }
    }

    /// The events that the last [`drain`](Self::drain) fetched.
    pub fn latest(&self) -> impl Iterator<Item = Event> {
        let logs = self.cpus.iter().map(|cpu| &cpu.log[cpu.latest..]);
        logs.flat_map(records).filter_map(|record| match record {
            Record::Sample { time_ns, payload } => self.decoder.decode(time_ns, payload),
            Record::Lost(_) | Record::Other => None,
        })
    }

    /// Decodes all that was recorded.
    pub fn finish(mut self) -> Recording {
        self.drain();
        let mut recording = Recording {
            missing: self.missing,
            ..Recording::default()
        };
        for cpu in self.cpus {
            let mut events = Vec::new();
            for record in records(&cpu.log) {
                match record {
                    Record::Sample { time_ns, payload } => {
                        events.extend(self.decoder.decode(time_ns, payload));
                    }
                    Record::Lost(count) => recording.lost += count,
                    Record::Other => {}
                }
            }
            // An interrupt's event that came while another was being written has the later time
            // and the earlier place.
            events.sort_by_key(|event: &Event| event.time_ns);
            if !events.is_empty() {
                recording.cpus.push((cpu.cpu, events));
            }
        }
        recording
    }
}

fn packet_filter(device: &str) -> Result<CString, Fault> {
    // What could end the quoted name is in no device's name.
    CString::new(format!("name == \"{device}\""))
        .ok()
        .filter(|_| !device.contains(['"', '\\']))
        .ok_or_else(|| {
            Fault::input(format!("`{device}` is no name of a device"), "")
                .what_to_do("name a network interface")
        })
}

fn lacks(tracepoint: &str, why: &str) -> Fault {
    Fault::cannot(format!("use the tracepoint {tracepoint}"), why).what_to_do(
        "use a kernel from 6.3 on, built with CONFIG_EVENT_TRACING and CONFIG_PERF_EVENTS",
    )
}

fn open_error(cpu: usize, error: &std::io::Error) -> Fault {
    let fix = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "run it as root (sudo); /proc/sys/kernel/perf_event_paranoid must not forbid it"
        }
        Some(libc::ENOMEM) => "use a smaller --buffer-mib",
        Some(libc::EMFILE | libc::ENFILE) => "allow more open files (ulimit -n)",
        _ => "the kernel needs CONFIG_PERF_EVENTS and CONFIG_EVENT_TRACING",
    };
    Fault::cannot(format!("record tracepoints on CPU {cpu}"), error).what_to_do(fix)
}
