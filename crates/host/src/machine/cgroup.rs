//! The cgroups of a process, and what they say of who started it.

use crate::machine::Machine;

/// The cgroups of a process, one for each hierarchy; none if it has ended.
pub(crate) fn of(machine: &Machine, pid: u32) -> Vec<String> {
    let text = machine.tree.read(&format!("/proc/{pid}/cgroup"));
    paths(&text.unwrap_or_default())
}

/// The same of a thread: each may be in one of its own below its process's.
pub(crate) fn of_thread(machine: &Machine, pid: u32, tid: u32) -> Vec<String> {
    let text = machine.tree.read(&format!("/proc/{pid}/task/{tid}/cgroup"));
    paths(&text.unwrap_or_default())
}

/// Lines are `HIERARCHY:CONTROLLERS:PATH`; the path may have colons.
fn paths(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| Some(line.splitn(3, ':').nth(2)?.to_owned()))
        .filter(|path| path != "/")
        .collect()
}

/// Whether a cgroup is `wanted` or below it.
pub(crate) fn is_below(path: &str, wanted: &str) -> bool {
    let wanted = wanted.trim_end_matches('/');
    path.strip_prefix(wanted)
        .is_some_and(|rest| !wanted.is_empty() && (rest.is_empty() || rest.starts_with('/')))
}

/// Whether a cgroup belongs to a unit of the system's systemd. A user may give a unit of their own
/// manager any name, so what is below one of those does not count.
pub(crate) fn is_of_unit(path: &str, unit: &str) -> bool {
    !is_of_ordinary_user(path) && path.split('/').any(|part| part == unit)
}

/// Whether a cgroup is of a login session or of the systemd of a user who is not root.
pub(crate) fn is_of_ordinary_user(path: &str) -> bool {
    path.split('/').any(|part| {
        let between = |start, end| part.strip_prefix(start)?.strip_suffix(end);
        let user = between("user-", ".slice").or_else(|| between("user@", ".service"));
        user.is_some_and(|user| user.parse::<u32>().is_ok_and(|user| user != 0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_the_systems_only() {
        let scope = r"machine-qemu\x2d1\x2drt.scope";
        let machine = format!("/machine.slice/{scope}/libvirt/emulator");
        assert!(is_of_unit(&machine, scope));
        assert!(!is_of_unit(&machine, "machine-qemu"));
        let own = format!("/user.slice/user-1000.slice/user@1000.service/app.slice/{scope}");
        assert!(!is_of_unit(&own, scope));
        let root = format!("/user.slice/user-0.slice/user@0.service/{scope}");
        assert!(is_of_unit(&root, scope));
    }

    #[test]
    fn paths_of_both_versions() {
        let text = "12:cpu,cpuacct:/machine/rt\n1:name=systemd:/\n0::/a:b\ntorn\n";
        assert_eq!(paths(text), ["/machine/rt", "/a:b"]);
        assert!(is_below("/machine/rt/vcpu0", "/machine/rt/"));
        assert!(!is_below("/machine/rt2", "/machine/rt"));
        assert!(!is_below("/machine/rt", "/"));
    }
}
