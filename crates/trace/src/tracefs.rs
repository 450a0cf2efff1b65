//! Reading tracefs and kallsyms. Nothing is written there.

use crate::format::Format;
use std::fs;
use std::path::{Path, PathBuf};
use steadyvm_fault::Fault;

const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Where tracefs is mounted.
pub fn root() -> Result<PathBuf, Fault> {
    let places = PLACES.map(PathBuf::from);
    let found = places
        .into_iter()
        .find(|place| place.join("events").is_dir());
    found.ok_or_else(|| {
        let why = format!("there is no {}/events", PLACES[0]);
        Fault::cannot("find the kernel's tracepoints", why).what_to_do(
            "run it as root (sudo), with tracefs mounted: mount -t tracefs tracefs \
             /sys/kernel/tracing",
        )
    })
}

/// The format of a tracepoint; `None` if this kernel does not have it.
pub fn format(root: &Path, system: &str, name: &str) -> Result<Option<Format>, Fault> {
    let path = root.join("events").join(system).join(name).join("format");
    match fs::read_to_string(&path) {
        Ok(text) => Format::parse(&text).map(Some).ok_or_else(|| {
            let what = format!("understand {}", path.display());
            Fault::cannot(what, "it is not the format of a tracepoint")
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(reading(&path, &error)),
    }
}

/// An error of reading a file.
pub fn reading(path: &Path, error: &std::io::Error) -> Fault {
    let fix = match error.kind() {
        std::io::ErrorKind::PermissionDenied => "run it as root (sudo)",
        _ => "",
    };
    Fault::cannot(format!("read {}", path.display()), error).what_to_do(fix)
}

/// Where the lock that serialises softirqs on PREEMPT_RT lies in the area that every CPU has of
/// its own; `None` where there is none or kallsyms does not tell.
pub fn softirq_lock_offset() -> Option<u64> {
    softirq_lock_in(&fs::read_to_string("/proc/kallsyms").ok()?)
}

fn softirq_lock_in(symbols: &str) -> Option<u64> {
    let mut lines = symbols.lines().map(str::split_whitespace);
    let address = lines.find_map(|mut words| {
        let address = words.next()?;
        (words.nth(1)? == "softirq_ctrl").then_some(address)
    })?;
    u64::from_str_radix(address, 16).ok().filter(|at| *at > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_softirq_lock_is_found_where_addresses_are_shown() {
        let symbols = "0000000000000000 A fixed_percpu_data\n00000000000212c0 d softirq_ctrl\n\
                       ffffffff81000000 T _stext [x]\nhalf\n";
        assert_eq!(softirq_lock_in(symbols), Some(0x212c0));
        let hidden = "0000000000000000 d softirq_ctrl\n";
        assert_eq!(softirq_lock_in(hidden), None);
        assert_eq!(softirq_lock_in(""), None);
    }
}
