//! The table of ports: the sockets of real-time threads, and the priority of each port.
//!
//! The BPF programs write it. What they cannot see is told to one of them, `demux_list`, which is
//! attached to nothing and runs when it is asked to. So the table has one kind of writer, which is right
//! whatever others of its kind do at the same time (bpf/demux.bpf.c says why).

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use libbpf_rs::{MapCore, MapFlags, MapHandle, Program};
use serde::{Deserialize, Serialize};

use crate::error::{Error, asked, failed};
use crate::shared::{BoundSocket, PortKey, PortValue, Protocol};

/// The program, and its pin.
pub(crate) const LIST: &str = "demux_list";

/// A port in the table, which those of real-time threads are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Port {
    /// The protocol.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
    /// The highest priority of its sockets, 1 to 99.
    pub priority: u32,
    /// How many sockets of real-time threads it has.
    pub sockets: u32,
}

/// What `demux_list` is told.
#[derive(Debug, Clone, Copy)]
enum Told {
    /// A socket has this port, thread and priority.
    Is(BoundSocket),
    /// There is no socket of this cookie.
    Gone(u64),
}

/// A pinned map.
pub(crate) fn open(directory: &Path, name: &str) -> Result<MapHandle, Error> {
    let path = directory.join(name);
    asked(format!("open {}", path.display()), || {
        MapHandle::from_pinned_path(&path)
    })
}

/// The program that is told of sockets, where it was pinned.
fn pinned(directory: &Path) -> Result<OwnedFd, Error> {
    let path = directory.join(LIST);
    asked(format!("open {}", path.display()), || {
        Program::fd_from_pinned_path(&path)
    })
}

/// Whether that program is there: that of an older version was not.
pub(crate) fn present(directory: &Path) -> Result<(), Error> {
    pinned(directory).map(drop)
}

/// Runs the program, which is no object of libbpf's here: it was pinned, perhaps by another process.
fn tell(list: BorrowedFd<'_>, told: &Told) -> Result<(), Error> {
    let arguments: [u64; 5] = match told {
        Told::Is(socket) => [
            socket.cookie,
            socket.port.into(),
            socket.protocol.number().into(),
            socket.thread.into(),
            socket.priority.into(),
        ],
        Told::Gone(cookie) => [*cookie, 0, 0, 0, 0],
    };
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as u64,
        ctx_in: arguments.as_ptr().cast(),
        ctx_size_in: size_of_val(&arguments) as u32,
        ..Default::default()
    };
    // SAFETY: a program's descriptor, and options that point to `arguments`, which live through the call and are only read.
    let done = unsafe { libbpf_sys::bpf_prog_test_run_opts(list.as_raw_fd(), &raw mut options) };
    if done < 0 {
        let error = io::Error::from_raw_os_error(-done);
        return Err(failed("enter a socket")(error));
    }
    Ok(())
}

/// Brings the table up to date with the sockets there are: the programs miss what was bound before
/// them, sockets that were passed to another process, threads of a process other than the one that
/// bound, and connections that go on when their listener is closed.
///
/// # Errors
/// The table cannot be read or written.
pub fn refresh(
    directory: &Path,
    sockets: &mut dyn FnMut() -> io::Result<Vec<BoundSocket>>,
) -> Result<(), Error> {
    let list = pinned(directory)?;
    let table = open(directory, "sockets")?;
    let mut read = || sockets().map_err(failed("list the host's sockets"));
    for socket in read()? {
        tell(list.as_fd(), &Told::Is(socket))?;
    }
    // Those that were closed before the programs were at work, or between the list and their entry. One
    // that enters after this look at the table is not in question.
    let cookie = |key: Vec<u8>| key.try_into().ok().map(u64::from_ne_bytes);
    let entered: Vec<u64> = table.keys().filter_map(cookie).collect();
    let now: HashSet<u64> = read()?.iter().map(|socket| socket.cookie).collect();
    for cookie in entered.into_iter().filter(|cookie| !now.contains(cookie)) {
        tell(list.as_fd(), &Told::Gone(cookie))?;
    }
    Ok(())
}

/// The port to priority map, in order.
///
/// # Errors
/// Nothing is installed.
pub fn ports(directory: &Path) -> Result<Vec<Port>, Error> {
    open(directory, "ports").map(|map| listed(&map))
}

fn listed(map: &impl MapCore) -> Vec<Port> {
    let entry = |key: Vec<u8>| {
        let value = map.lookup(&key, MapFlags::ANY).ok()??;
        let (key, value) = (PortKey::of_bytes(&key)?, PortValue::of_bytes(&value)?);
        // A port stays there when its last socket goes.
        (value.sockets > 0).then_some(Port {
            protocol: Protocol::of_number(key.protocol)?,
            port: key.port,
            priority: value.priority(),
            sockets: value.sockets,
        })
    };
    let mut ports: Vec<Port> = map.keys().filter_map(entry).collect();
    ports.sort();
    ports
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Barrier, Mutex};

    use proptest::prelude::*;

    use super::*;
    use crate::install::tests::loaded;

    /// Needs root. The program runs on this machine's kernel, and nothing is attached.
    fn with_table<R>(run: impl FnOnce(BorrowedFd<'_>, &MapHandle) -> R) -> R {
        let object = loaded();
        let ports = object.maps().find(|map| map.name() == "ports").unwrap();
        let ports = MapHandle::try_from(&ports).unwrap();
        let list = object.progs().find(|program| program.name() == LIST);
        run(list.unwrap().as_fd(), &ports)
    }

    /// What the table must say of these sockets.
    fn expected(sockets: &BTreeMap<u64, BoundSocket>) -> Vec<Port> {
        let mut ports = BTreeMap::new();
        for socket in sockets.values().filter(|socket| socket.priority > 0) {
            let port = ports.entry((socket.protocol, socket.port)).or_insert(Port {
                protocol: socket.protocol,
                port: socket.port,
                priority: 0,
                sockets: 0,
            });
            port.priority = port.priority.max(socket.priority);
            port.sockets += 1;
        }
        ports.into_values().collect()
    }

    fn carry_out(list: BorrowedFd<'_>, sockets: &mut BTreeMap<u64, BoundSocket>, told: Told) {
        tell(list, &told).unwrap();
        match told {
            Told::Is(socket) => drop(sockets.insert(socket.cookie, socket)),
            Told::Gone(cookie) => drop(sockets.remove(&cookie)),
        }
    }

    /// Few cookies and ports, so that sockets share ports, change them and come back.
    fn any_told() -> impl Strategy<Value = Told> {
        let socket = (1..8_u64, 1..4_u16, any::<bool>(), 1..4_u32, 0..5_u32);
        (any::<bool>(), socket).prop_map(|(is_gone, (cookie, port, is_tcp, thread, rank))| {
            if is_gone {
                return Told::Gone(cookie);
            }
            Told::Is(BoundSocket {
                cookie,
                protocol: if is_tcp { Protocol::Tcp } else { Protocol::Udp },
                port,
                thread,
                priority: rank * 10,
            })
        })
    }

    proptest! {
        #[test]
        fn a_port_has_the_highest_priority_of_its_sockets(
            sequence in proptest::collection::vec(any_told(), 1..60)
        ) {
            with_table(|list, ports| {
                let mut sockets = BTreeMap::new();
                for told in sequence {
                    carry_out(list, &mut sockets, told);
                    prop_assert_eq!(listed(ports), expected(&sockets));
                }
                Ok(())
            })?;
        }
    }

    /// One that tells of sockets, whose cookies are its own.
    struct Writer {
        cookies: [u64; 3],
        state: u64,
        sockets: BTreeMap<u64, BoundSocket>,
    }

    impl Writer {
        fn pick(&mut self, below: u64) -> u64 {
            // Knuth's MMIX generator; its upper bits are the better ones.
            self.state = self
                .state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.state >> 33) % below
        }

        fn step(&mut self, list: BorrowedFd<'_>) {
            let cookie = self.cookies[self.pick(3) as usize];
            let told = match self.pick(3) {
                0 => Told::Gone(cookie),
                _ => Told::Is(BoundSocket {
                    cookie,
                    protocol: Protocol::Udp,
                    port: 1 + self.pick(2) as u16,
                    thread: 1,
                    priority: 10 * self.pick(4) as u32,
                }),
            };
            carry_out(list, &mut self.sockets, told);
        }
    }

    /// Two CPUs enter, change and take out sockets of the same ports: few at a time, since what the last ones leave
    /// is what is looked at.
    #[test]
    fn writers_at_the_same_time_leave_a_table_that_is_right() {
        const ROUNDS: usize = 2_000;
        let writers = [0, 1].map(|number| {
            Mutex::new(Writer {
                cookies: [number, number + 2, number + 4],
                state: number,
                sockets: BTreeMap::new(),
            })
        });
        let turn = Barrier::new(3);
        with_table(|list, ports| {
            std::thread::scope(|scope| {
                for writer in &writers {
                    scope.spawn(|| {
                        for _ in 0..ROUNDS {
                            turn.wait();
                            (0..3).for_each(|_| writer.lock().unwrap().step(list));
                            turn.wait();
                        }
                    });
                }
                let mut wrong = None;
                for round in 0..ROUNDS {
                    turn.wait();
                    turn.wait();
                    let [one, other] = writers.each_ref().map(|it| it.lock().unwrap());
                    let mut all = one.sockets.clone();
                    all.extend(other.sockets.clone());
                    let (found, right) = (listed(ports), expected(&all));
                    if found != right && wrong.is_none() {
                        wrong = Some((round, found, right));
                    }
                }
                // After the last round: a thread that waits for its turn would never end.
                assert_eq!(wrong, None);
            });
        });
    }
}
