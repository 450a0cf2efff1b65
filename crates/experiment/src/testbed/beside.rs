//! What a host does beside what is measured: a TCP stream into a VM, or a real-time VM that computes on all CPUs.

use super::phase::{self, Bulk, Receiver, SERVICE_PATIENCE, Stream};
use std::fmt;
use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;
use steadyvm_lab::agent::Process;
use steadyvm_lab::emulator::Machine;
use steadyvm_lab::host::{EmulatedHost, RT};
use steadyvm_lab::laboratory::guest;
use steadyvm_lab::progress::Observer;
use steadyvm_lab::{Error, Guest, Result};

/// The guests: names, numbers, virtual CPUs and the last bytes of their addresses. The neighbour has a virtual CPU for each
/// of the host's.
const BULK: (&str, u8, u32, u8) = ("bulk", 2, 1, 4);
const NEIGHBOUR: (&str, u8, u32, u8) = ("neighbour", 3, 2, 5);
const MEMORY_MIB: u32 = 160;
/// The tap of the guest that receives the stream.
pub(crate) const BULKS_TAP: &str = "tap-bulk";
/// The neighbour computes so much longer, in seconds: that it has begun is heard late on a stock host.
const BEGINNING_S: u32 = 10;
/// It has ended then: the longest that it computes, and what its word takes on its way.
const NEIGHBOUR_PATIENCE: Duration = Duration::from_secs(600);
/// The stream flows so much longer than is measured, in seconds.
const MARGIN_S: u32 = 3;

/// What the host does beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    Nothing,
    /// A TCP stream at full speed into another VM, by the same card.
    Stream,
    /// Another VM computes: its virtual CPUs have FIFO 1, one on each of the host's.
    Neighbour,
}

impl fmt::Display for Beside {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Nothing => "alone",
            Self::Stream => "beside a TCP stream",
            Self::Neighbour => "beside a FIFO neighbour",
        })
    }
}

/// The two VMs.
pub(crate) struct Others {
    pub bulk: Guest,
    pub neighbour: Guest,
}

impl Others {
    /// Starts both at the RT network's card, each with what `change` makes of it, and ranks the neighbour.
    pub fn start(
        host: &EmulatedHost,
        observer: &dyn Observer,
        change: impl Fn(&mut Machine) + Sync,
    ) -> Result<Self> {
        let start = |(name, number, cpus, last): (&str, u8, u32, u8)| {
            let mut machine = guest(name, number, cpus);
            machine.memory_mib = MEMORY_MIB;
            change(&mut machine);
            let guest = host.start_guest(&machine, &[RT], observer)?;
            host.set_network_up(&guest, name, RT.address(last))?;
            Ok(guest)
        };
        let (bulk, neighbour) = thread::scope(|scope| {
            let bulk = scope.spawn(|| start(BULK));
            let neighbour = start(NEIGHBOUR);
            let panicked = |_| Err(Error::machine("start a guest", "a thread panicked"));
            (bulk.join().unwrap_or_else(panicked), neighbour)
        });
        let others = Self {
            bulk: bulk?,
            neighbour: neighbour?,
        };
        rank_neighbour(host)?;
        Ok(others)
    }

    /// Begins what is beside a measurement of so long.
    pub fn begin(
        &self,
        host: &EmulatedHost,
        beside: Beside,
        duration: Duration,
    ) -> Result<Running> {
        let seconds = duration.as_secs_f64().ceil() as u32;
        Ok(match beside {
            Beside::Nothing => Running::Nothing,
            Beside::Stream => {
                let bulk = Bulk {
                    mbit_per_s: None,
                    streams: 1,
                    seconds: seconds + MARGIN_S,
                };
                let receiver = Receiver {
                    connection: self.bulk.connection().clone(),
                    address: Self::bulks_address(),
                };
                Running::Stream(phase::start_stream(host.outside(), &receiver, bulk)?)
            }
            Beside::Neighbour => {
                // It ends by itself: beside it, word from outside hardly gets through a stock host.
                let seconds = (seconds + BEGINNING_S).to_string();
                let words = [
                    "steadyvm-lab",
                    "load",
                    "attack",
                    "compute",
                    "--seconds",
                    &seconds,
                    "--json",
                ];
                let mut computing = self.neighbour.connection().spawn(&words)?;
                computing.wait_for_line("attacking", SERVICE_PATIENCE)?;
                Running::Neighbour(computing)
            }
        })
    }

    fn bulks_address() -> Ipv4Addr {
        RT.address(BULK.3)
    }
}

/// What is beside a measurement.
pub(crate) enum Running {
    Nothing,
    Stream(Stream),
    Neighbour(Process),
}

impl Running {
    /// Ends it, and tells what a stream carried, in Mbit/s.
    pub fn end(self) -> Result<Option<f64>> {
        match self {
            Self::Nothing => Ok(None),
            Self::Stream(stream) => Ok(Some(stream.finish()?.mbit_per_s)),
            Self::Neighbour(computing) => {
                computing.finish(NEIGHBOUR_PATIENCE)?;
                Ok(None)
            }
        }
    }
}

/// Gives the neighbour's virtual CPUs the rank that libvirt's page on real-time VMs has. The kernel keeps both CPUs busy with them.
fn rank_neighbour(host: &EmulatedHost) -> Result<()> {
    let monitor = host.guest_pid(NEIGHBOUR.0)?;
    let script = format!(
        "count=0; for task in /proc/{monitor}/task/*; do
           grep -q '^CPU ' $task/comm || continue
           chrt -f -p 1 ${{task##*/}}; count=$((count + 1))
         done; [ $count = {} ]",
        NEIGHBOUR.2
    );
    host.connection().run(&["sh", "-euc", &script]).map(drop)
}
