//! How a CPU's fair server gives normal threads their share: in longer or shorter pieces.

use std::io;

use serde::{Deserialize, Serialize};

use super::way::{self, Reservation, Way};
use crate::error::HostError;
use crate::settings::lockdown::Lockdown;
use crate::settings::{Entries, Machine, SettingKind};

/// The fair server of a CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FairServer {
    /// The CPU.
    pub cpu: usize,
}

impl SettingKind for FairServer {
    type Value = Reservation;

    fn subject(&self) -> String {
        format!("fair server of CPU {}", self.cpu)
    }

    fn text(&self, value: &Reservation) -> String {
        value.to_string()
    }

    fn read(&self, machine: &Machine) -> Result<Reservation, HostError> {
        way::read(machine, self.cpu).map_err(|cause| {
            let known = cause.raw_os_error().and_then(|it| why(machine, it));
            match known {
                Some(hint) => HostError::Io {
                    action: "read",
                    subject: self.subject(),
                    cause,
                    hint,
                },
                None => HostError::io("read", self.subject(), cause),
            }
        })
    }

    /// `to` has the share of `from` in shorter pieces.
    fn write(&self, machine: &Machine, from: &Reservation, to: &Reservation) -> io::Result<()> {
        let way = Way::new(self.cpu, *from, *to);
        way.go(machine).inspect_err(|_| {
            // Halfway it would take up to twice its share.
            let _ = way.go_back(machine);
        })
    }

    fn restore(
        &self,
        machine: &Machine,
        old: &Reservation,
        new: &Reservation,
    ) -> io::Result<Option<String>> {
        let way = Way::new(self.cpu, *old, *new);
        way.go_back(machine).map(|()| None)
    }

    fn is_halfway(&self, old: &Reservation, new: &Reservation, found: &Reservation) -> bool {
        found != old && found != new && Way::new(self.cpu, *old, *new).passes(*found)
    }

    /// It is written from its own CPU.
    fn is_postponed(&self, machine: &Machine) -> Option<String> {
        let online = machine.online().ok()?;
        (!online.contains(self.cpu)).then(|| {
            format!(
                "{}: the CPU is offline; it keeps its share in short pieces until the CPU is \
                 online and `steadyvm undo` runs again",
                self.subject()
            )
        })
    }

    fn hint(&self, machine: &Machine, _to: &Reservation, errno: i32) -> Option<&'static str> {
        why(machine, errno)
    }

    fn snapshot(machine: &Machine, entries: &mut Entries) -> Result<(), HostError> {
        for cpu in machine.online()?.iter() {
            if let Ok(now) = way::read(machine, cpu) {
                let exact = format!("{} ns of each {} ns", now.runtime_ns, now.period_ns);
                entries.insert(format!("CPU {cpu}"), exact);
            }
        }
        Ok(())
    }

    #[cfg(any(test, feature = "fake"))]
    fn example(host: &crate::settings::fake::FakeHost) -> crate::settings::ChangeOf<Self> {
        host.fair_servers();
        let old = way::read(&host.machine(), 1).unwrap_or(Reservation {
            runtime_ns: 50_000_000,
            period_ns: 1_000_000_000,
        });
        crate::settings::ChangeOf {
            setting: Self { cpu: 1 },
            old,
            new: old.in_pieces_of(way::LONGEST_PIECE_NS),
        }
    }
}

/// What an error of its files means here.
fn why(machine: &Machine, errno: i32) -> Option<&'static str> {
    match (errno, Lockdown::of(machine)) {
        (libc::EBUSY, _) => {
            Some("; SCHED_DEADLINE threads have taken the bandwidth that the way there needs")
        }
        (libc::EPERM, Lockdown::On(_)) => Some(
            "; the kernel is locked down by now (/sys/kernel/security/lockdown), and keeps its \
             files from root too until the next boot",
        ),
        _ => None,
    }
}
