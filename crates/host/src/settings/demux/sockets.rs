//! Who has which port: the host's sockets, the processes that hold them, and their priorities.

use std::collections::{HashMap, HashSet};
use std::io;

use steadyvm_demux::BoundSocket;

use crate::settings::Machine;
use crate::settings::threads::Policy;

/// The highest priority, which a deadline task stands above.
const HIGHEST: u32 = 99;

/// The sockets whose packets have a process: those that wait for connections or datagrams, and
/// TCP connections on ports that nobody listens on, which are a client's. A socket has the
/// priority of the highest thread of the first process that holds it.
pub(crate) fn bound_sockets(machine: &Machine) -> io::Result<Vec<BoundSocket>> {
    let sockets = machine.links.port_sockets()?;
    let listened: HashSet<u16> = sockets
        .iter()
        .filter(|socket| socket.listens)
        .map(|socket| socket.port)
        .collect();
    let holders = holders(machine);
    let mut bound = Vec::new();
    for socket in sockets {
        let is_accepted = socket.protocol == steadyvm_demux::Protocol::Tcp
            && !socket.listens
            && listened.contains(&socket.port);
        if socket.port == 0 || is_accepted {
            continue;
        }
        // Without a process it is the kernel's own, or just closed.
        let Some(&pid) = holders.get(&socket.inode) else {
            continue;
        };
        let threads = machine.threads_of(pid);
        let ranked = threads
            .iter()
            .map(|thread| (priority_of(machine, thread.id.tid), thread.id.tid));
        // The process itself where its threads do not differ.
        let Some((priority, thread)) = ranked.max_by_key(|&(priority, tid)| (priority, tid == pid))
        else {
            continue;
        };
        bound.push(BoundSocket {
            cookie: socket.cookie,
            protocol: socket.protocol,
            port: socket.port,
            thread,
            priority,
        });
    }
    Ok(bound)
}

fn priority_of(machine: &Machine, tid: u32) -> u32 {
    match machine.threads.scheduling(tid) {
        Ok(scheduling) if scheduling.policy == Policy::Deadline => HIGHEST,
        Ok(scheduling) => scheduling.priority.min(HIGHEST),
        Err(_) => 0,
    }
}

/// The first process that holds each socket, by the socket's inode.
fn holders(machine: &Machine) -> HashMap<u32, u32> {
    let mut holders = HashMap::new();
    let mut pids: Vec<u32> = machine
        .tree
        .list("/proc")
        .unwrap_or_default()
        .iter()
        .filter_map(|name| name.parse().ok())
        .collect();
    pids.sort_unstable();
    for pid in pids {
        let directory = format!("/proc/{pid}/fd");
        for descriptor in machine.tree.list(&directory).unwrap_or_default() {
            let target = machine.tree.link(&format!("{directory}/{descriptor}"));
            let inode = target.ok().and_then(|target| inode_of(&target));
            if let Some(inode) = inode {
                holders.entry(inode).or_insert(pid);
            }
        }
    }
    holders
}

/// The inode of a socket's link, `socket:[4711]`.
fn inode_of(target: &str) -> Option<u32> {
    target
        .strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
        .filter(|&inode| inode > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_have_an_inode_here() {
        assert_eq!(inode_of("socket:[4711]"), Some(4711));
        for other in [
            "pipe:[1]",
            "socket:[0]",
            "socket:[x]",
            "/dev/null",
            "socket:[1",
        ] {
            assert_eq!(inode_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_socket_of_this_process_is_found_with_its_port() {
        let socket = std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        let bound = bound_sockets(&Machine::real()).unwrap();
        let own: Vec<u32> = Machine::real()
            .threads_of(std::process::id())
            .iter()
            .map(|thread| thread.id.tid)
            .collect();
        let found = bound.iter().find(|socket| {
            (socket.protocol, socket.port) == (steadyvm_demux::Protocol::Udp, port)
                && own.contains(&socket.thread)
        });
        let cookie = found.map(|socket| socket.cookie).unwrap();
        assert!(cookie > 0);
        drop(socket);
        let bound = bound_sockets(&Machine::real()).unwrap();
        assert!(bound.iter().all(|socket| socket.cookie != cookie));
    }
}
