//! The fair server: what each CPU's normal threads get where `SCHED_FIFO` ones leave them nothing.
//!
//! From 6.12 on a deadline server of each CPU runs its normal threads for `runtime` in each
//! `period`, before every `SCHED_FIFO` thread. By default that is 50 ms of each second in one
//! piece. The share keeps a host alive that runaway FIFO threads have taken; the length of the
//! piece is a delay that no priority helps against. So the share is kept, and comes in small pieces.
//!
//! Rule: the kernel is never asked for less than the share on the way. 6.12 compares the bandwidth
//! of the root domain with a limit, without having counted the server's own
//! (`dl_server_apply_params()` in kernel/sched/deadline.c), so that any decrease below what the
//! server began with underflows and is refused as EBUSY. And runtime and period are two files. So
//! the way there halves the period, lets the runtime follow, and so on: between one and two times the
//! share. The way back is the same.
//!
//! Rule: a decrease that is refused is made while a `SCHED_DEADLINE` thread of ours holds what it takes
//! away. 6.12 forgets the servers whenever it counts a root domain anew (`dl_clear_root_domain()`), and
//! does so for each reader of `sched_rt_runtime_us` (`sched_rt_handler()`). Where that happens between an
//! increase and its decrease, the decrease underflows, now and at each later try. Afterwards the domain
//! is counted anew, so that the end of our thread takes away nothing that is not counted.
//!
//! And the writer is a normal thread on the server's own CPU, so that the server is active: the kernel
//! stops it before it takes the new values, and 6.12.117 warns in its log where it stops one that stands
//! still (`task_non_contending()`; its count of active bandwidth underflows, and is put right).

use std::io;

use serde::{Deserialize, Serialize};

use crate::error::HostError;
use crate::parse;
use crate::settings::Machine;
use crate::settings::threads::Scheduling;

/// The longest piece. A stock kernel ends it at the tick that finds it used up (4 ms apart with
/// HZ=250) and takes the excess off the pieces that follow; one with our patch 0013 ends it on time.
pub(crate) const LONGEST_PIECE_NS: u64 = 1_000_000;
/// Who writes its value back has the root domains counted anew; on 6.12 its reader, too.
const THROTTLING: &str = "/proc/sys/kernel/sched_rt_runtime_us";
/// `BW_SHIFT` of kernel/sched/sched.h
const BANDWIDTH_SHIFT: u32 = 20;
/// The kernel takes no shorter period.
const SHORTEST_PERIOD_NS: u64 = 100_000;

/// Time on a CPU in each period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// How long, in one piece.
    pub runtime_ns: u64,
    /// Of how long.
    pub period_ns: u64,
}

impl Reservation {
    /// What a fair server begins with.
    const OF_THE_KERNEL: Self = Self {
        runtime_ns: 50_000_000,
        period_ns: 1_000_000_000,
    };

    /// The same share, or the least above it, in pieces of a length; itself if its pieces are
    /// that short already, which those of a server that is switched off are.
    #[must_use]
    pub fn in_pieces_of(self, piece_ns: u64) -> Self {
        if self.runtime_ns <= piece_ns {
            return self;
        }
        let period_ns = scaled(self.period_ns, piece_ns, self.runtime_ns);
        if period_ns < SHORTEST_PERIOD_NS {
            return self;
        }
        Self {
            runtime_ns: piece_ns,
            period_ns,
        }
    }

    /// As the kernel counts it, of 2^20 (`to_ratio()`).
    pub(crate) fn bandwidth(self) -> u64 {
        let ratio =
            (u128::from(self.runtime_ns) << BANDWIDTH_SHIFT) / u128::from(self.period_ns.max(1));
        ratio.try_into().unwrap_or(u64::MAX)
    }

    /// All reservations on the way from this one to one of the same share with shorter pieces, both
    /// included. Two neighbours differ in the runtime or in the period.
    fn way_to(self, shorter: Self) -> Vec<Self> {
        let mut way = vec![self];
        let mut now = self;
        while now.period_ns > shorter.period_ns {
            let before = now;
            now.period_ns = before.period_ns.div_ceil(2).max(shorter.period_ns);
            way.push(now);
            now.runtime_ns = if now.period_ns == shorter.period_ns {
                shorter.runtime_ns
            } else {
                // Rounded up, so that the share does not shrink.
                scaled(before.runtime_ns, now.period_ns, before.period_ns) + 1
            };
            way.push(now);
        }
        way
    }
}

impl std::fmt::Display for Reservation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (runtime_us, period_us) = (self.runtime_ns / 1000, self.period_ns / 1000);
        write!(formatter, "{runtime_us} us of each {period_us} us")
    }
}

/// A change of one CPU's fair server to shorter pieces: the way there, and back.
pub(crate) struct Way {
    cpu: usize,
    stations: Vec<Reservation>,
}

impl Way {
    /// `new` has the share of `old` in shorter pieces.
    pub fn new(cpu: usize, old: Reservation, new: Reservation) -> Self {
        let stations = old.way_to(new);
        Self { cpu, stations }
    }

    /// Whether a reservation is on the way.
    pub fn passes(&self, reservation: Reservation) -> bool {
        self.stations.contains(&reservation)
    }

    /// Goes to the end, or as far as the kernel lets it.
    pub fn go(&self, machine: &Machine) -> io::Result<()> {
        let at = self.position(machine)?;
        self.follow(
            machine,
            self.stations[at..]
                .windows(2)
                .map(|pair| (pair[0], pair[1])),
        )
    }

    /// Goes back to the beginning, from wherever it was left.
    pub fn go_back(&self, machine: &Machine) -> io::Result<()> {
        let at = self.position(machine)?;
        let pairs = self.stations[..=at].windows(2).rev();
        self.follow(machine, pairs.map(|pair| (pair[1], pair[0])))
    }

    fn position(&self, machine: &Machine) -> io::Result<usize> {
        let now = read(machine, self.cpu)?;
        let at = self.stations.iter().position(|station| *station == now);
        at.ok_or_else(|| io::Error::other(format!("someone else has set it to {now}")))
    }

    fn follow(
        &self,
        machine: &Machine,
        steps: impl Iterator<Item = (Reservation, Reservation)>,
    ) -> io::Result<()> {
        for (from, to) in steps {
            let (name, value) = if from.period_ns == to.period_ns {
                ("runtime", to.runtime_ns)
            } else {
                ("period", to.period_ns)
            };
            let path = file(self.cpu, name);
            let value = value.to_string();
            let write = || machine.tree.write_from(self.cpu, &path, &value);
            match write() {
                Err(error)
                    if error.raw_os_error() == Some(libc::EBUSY)
                        && to.bandwidth() < from.bandwidth() =>
                {
                    recounted(machine, from.bandwidth() - to.bandwidth(), write)
                        .map_err(|_| error)?;
                }
                written => written?,
            }
            let now = read(machine, self.cpu)?;
            if now != to {
                return Err(io::Error::other(format!("asked for {to}, it is {now}")));
            }
        }
        Ok(())
    }
}

/// Writes while a thread of ours adds `missing` to what the root domain counts, and has it counted anew
/// before the thread ends.
fn recounted(
    machine: &Machine,
    missing: u64,
    write: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    const PERIOD_NS: u64 = 100_000_000;
    /// The kernel takes no shorter runtime (`__checkparam_dl()`).
    const SHORTEST_RUNTIME_NS: u64 = 1 << 10;
    let runtime_ns = scaled(PERIOD_NS, missing + 1, 1 << BANDWIDTH_SHIFT).max(SHORTEST_RUNTIME_NS);
    let reservation = Scheduling::deadline(runtime_ns, PERIOD_NS, PERIOD_NS, 0);
    let cpus = machine.online().map_err(io::Error::other)?;
    let _held = machine.threads.reserve(&cpus, &reservation)?;
    write()?;
    let now = machine.tree.read(THROTTLING)?;
    machine.tree.write(THROTTLING, now.trim())
}

/// The fair server that runs in the longest pieces, of those CPUs that are online; `None` before 6.12, which has none. Where
/// the kernel hides it, it is what the kernel begins with.
///
/// # Errors
/// A machine that does not say which CPUs are online.
pub fn longest(machine: &Machine) -> Result<Option<Reservation>, HostError> {
    let release = machine.kernel_release().unwrap_or_default();
    if parse::kernel_version(&release).is_none_or(|version| version < (6, 12)) {
        return Ok(None);
    }
    let online = machine.online()?;
    let servers = online
        .iter()
        .map(|cpu| read(machine, cpu).unwrap_or(Reservation::OF_THE_KERNEL));
    Ok(servers.max_by_key(|server| server.runtime_ns))
}

/// What a CPU's fair server gives. Fails if the kernel has none, or hides debugfs.
pub(crate) fn read(machine: &Machine, cpu: usize) -> io::Result<Reservation> {
    let number = |name| {
        let path = file(cpu, name);
        let text = machine.tree.read(&path)?;
        let wrong = |error| io::Error::other(format!("{path} is `{}`: {error}", text.trim()));
        text.trim().parse().map_err(wrong)
    };
    Ok(Reservation {
        runtime_ns: number("runtime")?,
        period_ns: number("period")?,
    })
}

/// A file of a CPU's fair server.
pub(crate) fn file(cpu: usize, name: &str) -> String {
    format!("/sys/kernel/debug/sched/fair_server/cpu{cpu}/{name}")
}

/// `value * numerator / denominator`, rounded down.
fn scaled(value: u64, numerator: u64, denominator: u64) -> u64 {
    let exact = u128::from(value) * u128::from(numerator) / u128::from(denominator.max(1));
    exact.try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DEFAULT: Reservation = Reservation {
        runtime_ns: 50_000_000,
        period_ns: 1_000_000_000,
    };

    #[test]
    fn the_kernels_default_becomes_a_millisecond_in_twenty() {
        let short = DEFAULT.in_pieces_of(LONGEST_PIECE_NS);
        assert_eq!((short.runtime_ns, short.period_ns), (1_000_000, 20_000_000));
        assert_eq!(short.in_pieces_of(LONGEST_PIECE_NS), short);
        let off = Reservation {
            runtime_ns: 0,
            ..DEFAULT
        };
        assert_eq!(off.in_pieces_of(LONGEST_PIECE_NS), off);
    }

    proptest! {
        #[test]
        fn the_way_is_one_file_at_a_time_and_never_below_the_share(
            runtime_ns in 1_u64..2_000_000_000,
            rest_ns in 0_u64..2_194_304_000,
            piece_ns in 50_000_u64..2_000_000,
        ) {
            let old = Reservation { runtime_ns, period_ns: (runtime_ns + rest_ns).max(100_000) };
            let new = old.in_pieces_of(piece_ns);
            let way = old.way_to(new);
            prop_assert_eq!((way.first(), way.last()), (Some(&old), Some(&new)));
            for (at, station) in way.iter().enumerate() {
                prop_assert!(station.bandwidth() >= old.bandwidth());
                prop_assert!(station.bandwidth() <= 2 * old.bandwidth() + 64);
                prop_assert!(!way[..at].contains(station), "{station} twice");
            }
            for pair in way.windows(2) {
                let runtime_stays = pair[0].runtime_ns == pair[1].runtime_ns;
                let period_stays = pair[0].period_ns == pair[1].period_ns;
                prop_assert!(runtime_stays != period_stays);
            }
        }
    }
}
