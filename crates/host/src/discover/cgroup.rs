//! The cgroups of a process, and which unit of the system's systemd they are.

use crate::settings::Machine;

/// A process's place in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cgroup {
    pub path: String,
    /// Whether systemd keeps its units in this hierarchy: version 2's, or version 1's of that name.
    pub is_systemds: bool,
}

/// The cgroups of a process, one for each hierarchy; none if it has ended.
pub(crate) fn of(machine: &Machine, pid: u32) -> Vec<Cgroup> {
    let text = machine.tree.read(&format!("/proc/{pid}/cgroup"));
    cgroups(&text.unwrap_or_default())
}

/// The same of a thread: each may be in one of its own below its process's.
pub(crate) fn of_thread(machine: &Machine, pid: u32, tid: u32) -> Vec<Cgroup> {
    let text = machine.tree.read(&format!("/proc/{pid}/task/{tid}/cgroup"));
    cgroups(&text.unwrap_or_default())
}

/// Whether some disk has a limit for a process, of its cgroup (version 2) or of one above.
pub fn has_disk_limit(machine: &Machine, pid: u32) -> bool {
    let limits = |path: &str| machine.tree.read(&format!("/sys/fs/cgroup{path}/io.max"));
    // The kernel lists disks with a limit alone.
    let has_one = |path: &str| limits(path).is_ok_and(|text| !text.trim().is_empty());
    let own = of(machine, pid);
    own.iter().flat_map(Cgroup::ancestors).any(has_one)
}

/// Lines are `HIERARCHY:CONTROLLERS:PATH`; the path may have colons.
fn cgroups(text: &str) -> Vec<Cgroup> {
    let cgroup = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        (path != "/").then(|| Cgroup {
            path: path.to_owned(),
            is_systemds: matches!(controllers, "" | "name=systemd"),
        })
    };
    text.lines().filter_map(cgroup).collect()
}

impl Cgroup {
    /// It and all above it, but for the root.
    pub fn ancestors(&self) -> impl Iterator<Item = &str> {
        std::iter::successors(Some(self.path.as_str()), |path| {
            let (above, _) = path.rsplit_once('/')?;
            (!above.is_empty()).then_some(above)
        })
    }

    /// The components that can be units, from the root on, each with whether it is one of the system's systemd: that
    /// has nothing but slices above a unit. What is below a unit belongs to whoever runs in it, such as a container or a
    /// user's own systemd, and has any name that they like; so does what a user's login makes.
    pub fn units(&self) -> impl Iterator<Item = (&str, bool)> {
        let mut is_the_systems = self.is_systemds;
        let parts = self.path.split('/').filter(|part| !part.is_empty());
        parts.filter_map(move |part| {
            let was = is_the_systems;
            is_the_systems &=
                part.strip_suffix(".slice").is_some() && !is_slice_of_ordinary_user(part);
            is_unit(part).then_some((part, was))
        })
    }
}

/// Whether it has the name of a unit that processes run in.
fn is_unit(part: &str) -> bool {
    [".service", ".scope", ".slice"]
        .iter()
        .any(|end| part.ends_with(end))
}

fn is_slice_of_ordinary_user(part: &str) -> bool {
    let user = part
        .strip_prefix("user-")
        .and_then(|rest| rest.strip_suffix(".slice"));
    user.is_some_and(|user| user.parse::<u32>().is_ok_and(|user| user != 0))
}

/// A unit's name or a path with systemd's escapes (`\x2d`) read, as TOML reads them in ordinary quotes.
pub(super) fn unescaped(name: &str) -> String {
    let mut parts = name.split("\\x");
    let mut read = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part
            .get(..2)
            .and_then(|digits| u8::from_str_radix(digits, 16).ok())
            .filter(u8::is_ascii);
        if let Some(code) = code {
            read.push(code.into());
            read.push_str(&part[2..]);
        } else {
            read.push_str("\\x");
            read.push_str(part);
        }
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeHost;

    fn unit_of_the_system(text: &str, unit: &str) -> Option<bool> {
        let all = cgroups(text);
        let mut found = all.iter().flat_map(Cgroup::units);
        found.find_map(|(part, is_the_systems)| (part == unit).then_some(is_the_systems))
    }

    #[test]
    fn units_are_the_systems_only() {
        let scope = r"machine-qemu\x2d1\x2drt.scope";
        let machine = format!("0::/machine.slice/{scope}/libvirt/emulator\n");
        assert_eq!(unit_of_the_system(&machine, scope), Some(true));
        assert_eq!(unit_of_the_system(&machine, "machine-qemu"), None);
        assert_eq!(unit_of_the_system(&machine, "machine.slice"), Some(true));
        let named = format!("12:cpu:/x\n1:name=systemd:/machine.slice/{scope}\n");
        assert_eq!(unit_of_the_system(&named, scope), Some(true));
        for path in [
            // Users' own systemds, root's too, and their logins.
            format!("0::/user.slice/user-1000.slice/user@1000.service/app.slice/{scope}"),
            format!("0::/user.slice/user-0.slice/user@0.service/{scope}"),
            format!("0::/user.slice/user-1000.slice/{scope}"),
            // Containers': LXC's, libvirt's or nspawn's, a service's own.
            format!("0::/lxc.payload.web/system.slice/{scope}"),
            format!("0::/machine.slice/libpod-1.scope/system.slice/{scope}"),
            format!("0::/system.slice/docker.service/{scope}"),
            format!("0::/{scope}/{scope}").replace(scope, "a.service"),
            // A hierarchy that systemd does not keep.
            format!("4:cpu,cpuacct:/machine.slice/{scope}"),
        ] {
            let of_the_system = cgroups(&path)
                .iter()
                .flat_map(Cgroup::units)
                .any(|(part, is_the_systems)| part == scope && is_the_systems);
            assert!(!of_the_system, "{path}");
        }
    }

    #[test]
    fn paths_of_both_versions() {
        let text = "12:cpu,cpuacct:/machine/rt\n1:name=systemd:/\n0::/a:b\ntorn\n";
        let all = cgroups(text);
        let paths: Vec<&str> = all.iter().map(|it| it.path.as_str()).collect();
        assert_eq!(paths, ["/machine/rt", "/a:b"]);
        let above: Vec<&str> = all[0].ancestors().collect();
        assert_eq!(above, ["/machine/rt", "/machine"]);
    }

    #[test]
    fn escapes_are_read_as_toml_reads_them() {
        for (written, read) in [
            (
                r"machine-qemu\x2d1\x2dweb.scope",
                "machine-qemu-1-web.scope",
            ),
            (r"a\x2", r"a\x2"),
            (r"a\xzz\x20b", r"a\xzz b"),
            (r"\xc3", r"\xc3"),
            ("plain.service", "plain.service"),
        ] {
            assert_eq!(unescaped(written), read);
        }
    }

    #[test]
    fn a_limit_of_any_disk_at_any_cgroup_above_counts() {
        let host = FakeHost::default();
        let (machine, pid) = (host.machine(), 100);
        host.file("/proc/100/cgroup", "0::/machine.slice/web.scope/emulator\n");
        assert!(!has_disk_limit(&machine, pid));
        host.file("/sys/fs/cgroup/machine.slice/io.max", "\n");
        assert!(!has_disk_limit(&machine, pid));
        let limit = "8:16 rbps=max wbps=2097152 riops=max wiops=max\n";
        host.file("/sys/fs/cgroup/other.slice/io.max", limit);
        assert!(!has_disk_limit(&machine, pid));
        host.file("/sys/fs/cgroup/machine.slice/io.max", limit);
        assert!(has_disk_limit(&machine, pid));
    }
}
