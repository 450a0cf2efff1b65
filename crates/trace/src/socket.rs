//! Which threads read a port: procfs, and nothing else.

use crate::tracefs;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use steadyvm_fault::Fault;

/// The kernel's tables of sockets that receive from the network.
const TABLES: [&str; 4] = ["udp", "udp6", "tcp", "tcp6"];

/// The threads of the processes that hold a socket bound to this local port, in this network
/// namespace.
///
/// # Errors
/// No process holds one.
pub fn threads_on_port(port: u16) -> Result<BTreeSet<u32>, Fault> {
    let mut inodes = BTreeSet::new();
    for table in TABLES {
        let text = fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        inodes.extend(inodes_of(&text, port));
    }
    let processes = fs::read_dir("/proc")
        .map_err(|error| tracefs::reading(Path::new("/proc"), &error))?
        .filter_map(|entry| Some(entry.ok()?.path()));
    let threads: BTreeSet<u32> = processes
        .filter(|process| holds_one_of(&process.join("fd"), &inodes))
        .flat_map(|process| numbers_in(&process.join("task")))
        .collect();
    if threads.is_empty() {
        return Err(Fault::input(
            format!("no process of this network namespace listens on UDP or TCP port {port}"),
            "",
        )
        .what_to_do("start the service first, or use --device"));
    }
    Ok(threads)
}

/// The inodes of the sockets of a table of `/proc/net` that are bound to the port.
fn inodes_of(table: &str, port: u16) -> Vec<u64> {
    let inode = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (_, local_port) = words.get(1)?.rsplit_once(':')?;
        let inode = words.get(9)?.parse().ok()?;
        (u16::from_str_radix(local_port, 16).ok()? == port && inode != 0).then_some(inode)
    };
    table.lines().skip(1).filter_map(inode).collect()
}

fn holds_one_of(descriptors: &Path, inodes: &BTreeSet<u64>) -> bool {
    let Ok(entries) = fs::read_dir(descriptors) else {
        return false;
    };
    entries.flatten().any(|entry| {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        let text = target.to_string_lossy();
        let inode = text
            .strip_prefix("socket:[")
            .and_then(|rest| rest.strip_suffix(']'));
        inode
            .and_then(|inode| inode.parse().ok())
            .is_some_and(|inode| inodes.contains(&inode))
    })
}

fn numbers_in(directory: &Path) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::UdpSocket;

    #[test]
    fn the_threads_of_a_bound_socket_are_found() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let threads = threads_on_port(port).unwrap();
        assert!(threads.contains(&std::process::id()), "{threads:?}");
        // Nothing can be bound to port 0.
        let error = threads_on_port(0).unwrap_err();
        assert_eq!(error.blame.exit_code(), 2);
        assert!(error.to_string().contains("port 0"), "{error}");
    }

    #[test]
    fn inodes_are_those_of_the_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
             10: 00000000:1E14 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4242 2 0000000000000000 0\n\
             11: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 17 2 0000000000000000 0\n";
        assert_eq!(inodes_of(table, 7700), [4242]);
        assert_eq!(inodes_of(table, 53), [17]);
        assert_eq!(inodes_of(table, 54), [] as [u64; 0]);
    }

    proptest! {
        #[test]
        fn no_table_panics(text in "(.{0,40}\n){0,4}", port in any::<u16>()) {
            let _ = inodes_of(&text, port);
        }
    }
}
