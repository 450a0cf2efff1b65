//! The send buffer of a VM's tap: vhost-net hands over many packets at once if it has no limit.

use std::collections::BTreeSet;
use std::io;

use serde::{Deserialize, Serialize};

use super::calls::UNLIMITED_BYTES;
use super::taps::{send_buffers, set_send_buffer, taps_of};
use crate::error::HostError;
use crate::settings::{Device, Entries, Machine, SettingKind, ThreadId};

/// The send buffers of the queues of a VM's tap, in bytes. One value, but for queues that were
/// attached later; [`UNLIMITED_BYTES`] without a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapSendBuffer {
    /// The tap.
    #[serde(flatten)]
    pub tap: Device,
    /// The main thread of the VM's monitor, which has the tap open.
    pub monitor: ThreadId,
}

impl SettingKind for TapSendBuffer {
    type Value = BTreeSet<u32>;

    fn subject(&self) -> String {
        let (tap, pid) = (&self.tap.name, self.monitor.pid);
        format!("send buffer of {tap}, of process {pid}")
    }

    fn text(&self, value: &BTreeSet<u32>) -> String {
        let texts: Vec<String> = value
            .iter()
            .map(|&bytes| match bytes {
                UNLIMITED_BYTES => "no limit".to_owned(),
                _ => format!("{bytes} bytes"),
            })
            .collect();
        texts.join(", ")
    }

    fn is_same_setting(&self, other: &Self) -> bool {
        self.tap.is(&other.tap) && self.monitor.is(&other.monitor)
    }

    fn must_exist(&self, machine: &Machine) -> Result<(), HostError> {
        machine.must_run(&self.monitor)
    }

    fn read(&self, machine: &Machine) -> Result<BTreeSet<u32>, HostError> {
        machine.must_run(&self.monitor)?;
        self.tap
            .current_name(machine)
            .and_then(|tap| send_buffers(machine, self.monitor.pid, &tap))
            .map_err(|cause| HostError::io("read", self.subject(), cause))
    }

    fn write(
        &self,
        machine: &Machine,
        _from: &BTreeSet<u32>,
        to: &BTreeSet<u32>,
    ) -> io::Result<()> {
        let tap = self.tap.current_name(machine)?;
        let bytes = to.last().copied().unwrap_or(UNLIMITED_BYTES);
        set_send_buffer(machine, self.monitor.pid, &tap, bytes)
    }

    /// A queue was attached since.
    fn is_halfway(&self, old: &BTreeSet<u32>, new: &BTreeSet<u32>, found: &BTreeSet<u32>) -> bool {
        let known: BTreeSet<u32> = old.union(new).copied().collect();
        found != old && found != new && found.is_subset(&known)
    }

    fn snapshot(machine: &Machine, entries: &mut Entries) -> Result<(), HostError> {
        let nics = machine.tree.list("/sys/class/net").unwrap_or_default();
        let is_tap = |nic: &String| {
            let flags = format!("/sys/class/net/{nic}/tun_flags");
            machine.tree.exists(&flags)
        };
        // Looking through every process's descriptors takes time.
        if !nics.iter().any(is_tap) {
            return Ok(());
        }
        for process in machine.all_threads()? {
            let pid = process.id.pid;
            if process.id.tid != pid {
                continue;
            }
            for tap in taps_of(machine, pid) {
                if let Ok(bytes) = send_buffers(machine, pid, &tap) {
                    entries.insert(tap, format!("{bytes:?} bytes"));
                }
            }
        }
        Ok(())
    }

    #[cfg(any(test, feature = "fake"))]
    fn example(host: &crate::settings::fake::FakeHost) -> crate::settings::ChangeOf<Self> {
        host.thread(802, 802, "example", 0);
        host.file("/sys/class/net/example4/ifindex", "81\n");
        host.file("/sys/class/net/example4/tun_flags", "0x5002\n");
        host.file("/proc/802/fdinfo/3", "iff:\texample4\n");
        crate::settings::ChangeOf {
            setting: Self {
                tap: Device::find(&host.machine(), "example4"),
                monitor: ThreadId {
                    pid: 802,
                    tid: 802,
                    start_time: 2406,
                    comm: "example".into(),
                },
            },
            old: [UNLIMITED_BYTES].into(),
            new: [1 << 20].into(),
        }
    }
}
