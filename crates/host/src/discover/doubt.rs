//! Why a process is not taken for what it seems to be, and the processes of a systemd unit.

use std::collections::BTreeSet;
use std::fmt::Display;

use super::cgroup::unescaped;
use super::processes::Processes;
use crate::printable::printable;
use crate::settings::Machine;
use steadyvm_config::User;

/// Why a process is not taken for the VM or service that it seems to be.
pub(super) enum Doubt {
    /// It has a user who is not believed.
    User(u32),
    /// It runs in namespaces of its own.
    Contained,
    /// Its unit is not one of the system's systemd.
    UnitOfOthers,
    /// Linux has cut its name, and that of others, too.
    Cut,
}

/// The most processes that one warning names.
pub(super) const MOST_NAMED: usize = 3;

/// Why a process is not believed what it says; none if it is, or has ended.
pub(super) fn of(
    machine: &Machine,
    processes: &Processes<'_>,
    pid: u32,
    believed: &[u32],
) -> Option<Doubt> {
    let process = processes.get(pid)?;
    let own = process.users(machine, pid);
    let other = own.iter().find(|user| !believed.contains(user));
    // One that has ended has none.
    let other = other.copied().map(Doubt::User);
    let is_contained = || processes.is_contained(machine, pid);
    other.or_else(|| is_contained().then_some(Doubt::Contained))
}

/// The processes of a unit, each with the reason why it is not believed to be in it, if there is one.
pub(super) fn in_unit(
    machine: &Machine,
    processes: &Processes<'_>,
    unit: &str,
    believed: &[u32],
) -> Vec<(u32, Option<Doubt>)> {
    let doubt = |pid| of(machine, processes, pid, believed);
    let places = processes.places(machine);
    let all = places.units.get(&unescaped(unit));
    let all: Vec<_> = all.into_iter().flatten().collect();
    let is_written_so =
        |(name, is_the_systems, _): &&&(String, bool, u32)| name == unit && *is_the_systems;
    let exact: BTreeSet<u32> = all.iter().filter(is_written_so).map(|it| it.2).collect();
    if !exact.is_empty() {
        return exact.into_iter().map(|pid| (pid, doubt(pid))).collect();
    }
    let or_doubt = |(_, is_the_systems, pid): &(String, bool, u32)| {
        let others = (!is_the_systems).then_some(Doubt::UnitOfOthers);
        (*pid, others.or_else(|| doubt(*pid)))
    };
    all.into_iter().map(or_doubt).collect()
}

/// What is looked for: what to do about a doubt depends on it.
#[derive(Clone, Copy)]
pub(super) enum Sought {
    /// A VM.
    Vm,
    /// A service of the host.
    HostService,
}

/// One warning of all processes that are not taken for what is wanted.
pub(super) fn tell(
    machine: &Machine,
    processes: &Processes<'_>,
    sought: Sought,
    wanted: &dyn Display,
    believed: &[u32],
    doubted: &[(u32, Doubt)],
) -> Option<String> {
    let passwd = processes.passwd(machine);
    let one = |(pid, doubt): &(u32, Doubt)| {
        let here = || place_of(machine, processes, *pid);
        let fix_of_vm = |fix: &str| match sought {
            Sought::Vm => format!(". If it is the one, {fix}"),
            Sought::HostService => String::new(),
        };
        match doubt {
            Doubt::User(user) => {
                let all: Vec<String> = believed.iter().map(|it| passwd.describe(*it)).collect();
                let user_of_file = match passwd.user(*user) {
                    User::Number(number) => number.to_string(),
                    User::Name(name) => format!("\"{}\"", printable(&name)),
                };
                let table = match sought {
                    Sought::Vm => "[[vm]], or name it by its process on a command line",
                    Sought::HostService => "[[host_service]]",
                };
                format!(
                    "process {pid} is of user {}, and only these are believed: {}. If it is the one, add `user = \
                     {user_of_file}` to its {table}",
                    printable(&passwd.describe(*user)),
                    printable(&all.join(", "))
                )
            }
            Doubt::Contained => format!(
                "process {pid} runs in a container, which has namespaces of its own{}",
                fix_of_vm(&format!("name it by its cgroup, {}", here()))
            ),
            Doubt::UnitOfOthers => format!(
                "process {pid} is in {}, which is no unit of the system's systemd{}",
                here(),
                fix_of_vm("name it by that cgroup")
            ),
            Doubt::Cut => format!(
                "process {pid} is one of several whose threads' names Linux has cut. Start it again by this version of \
                 steadyvm, or name it by its unit, cgroup or process"
            ),
        }
    };
    let mut told: Vec<String> = doubted.iter().take(MOST_NAMED).map(one).collect();
    if told.is_empty() {
        return None;
    }
    if doubted.len() > MOST_NAMED {
        told.push("and there are more".into());
    }
    Some(format!("not taken for {wanted}: {}", told.join("; ")))
}

/// Where a process runs, for people.
pub(super) fn place_of(machine: &Machine, processes: &Processes<'_>, pid: u32) -> String {
    let process = processes.get(pid);
    let path = process.and_then(|it| it.cgroups(machine, pid).last());
    path.map_or_else(
        || "the root cgroup".to_owned(),
        |it| printable(&it.path).into_owned(),
    )
}
