//! Whose process may say which VM it is.
//!
//! A name is a claim that anybody can make who may open `/dev/kvm`, and some units hold processes of others. So the user
//! of a process decides, by the kernel's word: `/proc/PID/status` has users by this host's numbers, also of a process that
//! is root in a user namespace of its own. Root of a container without one has number 0 here, too; the namespaces of such a
//! process are not those of this host's first.

use std::collections::BTreeMap;

use crate::settings::Machine;
use steadyvm_config::User;

/// Who libvirt's monitors run as: Debian's, and others'.
const OF_LIBVIRT: [&str; 2] = ["libvirt-qemu", "qemu"];
pub(super) const ROOT: u32 = 0;

/// The users of a host by name.
pub(super) struct Passwd(BTreeMap<String, u32>);

impl Passwd {
    pub fn read(machine: &Machine) -> Self {
        let text = machine.tree.read("/etc/passwd").unwrap_or_default();
        // NAME:PASSWORD:NUMBER:...; the first of a name counts.
        let mut users = BTreeMap::new();
        for line in text.lines() {
            let mut fields = line.split(':');
            let (name, number) = (fields.next(), fields.nth(1));
            if let (Some(name), Some(Ok(number))) = (name, number.map(str::parse)) {
                users.entry(name.to_owned()).or_insert(number);
            }
        }
        Self(users)
    }

    /// The users that are believed: root, and those of the file, or libvirt's where it names none.
    pub fn believed(&self, of_file: &[User]) -> Vec<u32> {
        let mut all = self.root_and(of_file);
        if of_file.is_empty() {
            all.extend(OF_LIBVIRT.iter().filter_map(|name| self.0.get(*name)));
        }
        all
    }

    /// Root, and those of the file.
    pub fn root_and(&self, of_file: &[User]) -> Vec<u32> {
        let mut all = vec![ROOT];
        all.extend(of_file.iter().filter_map(|user| self.number(user)));
        all
    }

    fn number(&self, user: &User) -> Option<u32> {
        match user {
            User::Number(number) => Some(*number),
            User::Name(name) => self.0.get(name).copied(),
        }
    }

    /// A user as a file would name them: by name where there is one.
    pub fn user(&self, number: u32) -> User {
        let mut named = self.0.iter().filter(|(_, other)| **other == number);
        named
            .next()
            .map_or(User::Number(number), |(name, _)| User::Name(name.clone()))
    }

    /// The same for people.
    pub fn describe(&self, number: u32) -> String {
        match self.user(number) {
            User::Number(number) => number.to_string(),
            User::Name(name) => format!("{number} ({name})"),
        }
    }
}

/// The users that a process has: real, effective, saved and that of its files. All have to be believed: what starts a
/// program with the set-user-ID bit leaves its own real one, and may leave it a VM and words, too. None if it has ended.
pub(super) fn users(machine: &Machine, pid: u32) -> Vec<u32> {
    let text = machine.tree.read(&format!("/proc/{pid}/status"));
    let text = text.unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Uid:"));
    let numbers = line.unwrap_or_default().split_ascii_whitespace();
    numbers.filter_map(|number| number.parse().ok()).collect()
}

/// The namespaces that a container has of its own.
const OF_A_CONTAINER: [&str; 2] = ["pid", "cgroup"];

/// The namespaces of this host's first process, or of the caller where that one cannot be looked at.
pub(super) struct FirstNamespaces([Option<String>; 2]);

impl FirstNamespaces {
    pub fn read(machine: &Machine) -> Self {
        Self(
            OF_A_CONTAINER.map(|kind| {
                namespace(machine, "1", kind).or_else(|| namespace(machine, "self", kind))
            }),
        )
    }

    /// Whether a process is in a container: it has other namespaces.
    pub fn exclude(&self, machine: &Machine, pid: u32) -> bool {
        let mut all = OF_A_CONTAINER.iter().zip(&self.0);
        all.any(|(kind, first)| {
            first.is_some() && namespace(machine, &pid.to_string(), kind) != *first
        })
    }
}

fn namespace(machine: &Machine, process: &str, kind: &str) -> Option<String> {
    machine
        .tree
        .link(&format!("/proc/{process}/ns/{kind}"))
        .ok()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;
    use crate::settings::fake::FakeHost;

    #[test]
    fn libvirts_users_are_believed_where_they_are_and_no_others_are_named() {
        let host = FakeHost::default();
        let text = "root:x:0:0::/root:/bin/sh\ntorn\nlibvirt-qemu:x:64055:1::/:\nalice:x:1000:1::/:\nalice:x:0:0::/:\n";
        host.file("/etc/passwd", text);
        let passwd = Passwd::read(&host.machine());
        assert_eq!(passwd.believed(&[]), [0, 64055]);
        let users = [
            User::Name("alice".into()),
            User::Number(7),
            User::Name("absent".into()),
        ];
        assert_eq!(passwd.believed(&users), [0, 1000, 7]);
        assert_eq!(passwd.describe(1000), "1000 (alice)");
        assert_eq!(passwd.describe(7), "7");
        assert_eq!(
            Passwd::read(&FakeHost::default().machine()).believed(&[]),
            [0]
        );
    }

    /// In a user namespace of its own it calls itself root; the kernel tells whose it is.
    #[test]
    fn roots_number_in_a_users_own_namespace_is_not_roots() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("not tested: only root becomes another user");
            return;
        }
        let words =
            "--reuid 65534 --regid 65534 --clear-groups unshare --user --map-root-user sh -c";
        let script = "id -u; exec cat";
        let mut process = Command::new("setpriv")
            .args(words.split(' '))
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let output = process.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut said).unwrap();
        let found = users(&Machine::real(), process.id());
        drop(process.stdin.take());
        process.wait().unwrap();
        if said.is_empty() {
            eprintln!("not tested: this machine lets no user make user namespaces");
            return;
        }
        assert_eq!(said, "0\n");
        assert_eq!(found, [65534; 4]);
    }

    #[test]
    fn a_container_is_told_by_its_namespaces() {
        let host = FakeHost::default();
        let machine = host.machine();
        let is_contained = |machine, pid| FirstNamespaces::read(machine).exclude(machine, pid);
        // A kernel without namespaces has no containers.
        assert!(!is_contained(&machine, 100));
        let link = |process: u32, kind: &str, target: &str| {
            let path = format!("/proc/{process}/ns/{kind}");
            host.edit(|state| state.links.insert(path, target.into()));
        };
        for process in [1, 100] {
            link(process, "pid", "pid:[1]");
            link(process, "cgroup", "cgroup:[1]");
        }
        assert!(!is_contained(&machine, 100));
        link(100, "cgroup", "cgroup:[2]");
        assert!(is_contained(&machine, 100));
        link(100, "cgroup", "cgroup:[1]");
        link(100, "pid", "pid:[2]");
        assert!(is_contained(&machine, 100));
    }
}
