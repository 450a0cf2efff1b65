//! Fields of a file that several tables have, and how what is wrong with one is told.

use steadyvm_config::{Place, Placed, User, Users};

use crate::address::{Address, is_unicast, parse_address};
use crate::cpu_set::CpuSet;
use crate::discover::LONGEST_THREAD_NAME;
use crate::error::HostError;
use crate::printable::printable;

pub(super) fn wrong(place: &Place, what: &str, fix: &str) -> HostError {
    HostError::BadInput {
        what: format!("{place}: {what}"),
        fix: fix.into(),
    }
}

pub(super) fn address_of(vm: &str, mac: &Placed<String>) -> Result<Address, HostError> {
    let address = parse_address(&mac.value).filter(|address| is_unicast(*address));
    address.ok_or_else(|| {
        let text = printable(&mac.value);
        let what = format!("VM \"{vm}\": `{text}` is no hardware address of one device");
        let fix = "write it as the VM has it, such as \"52:54:00:12:34:56\"";
        wrong(&mac.place, &what, fix)
    })
}

/// Users by name or number; digits alone are a number, as for `chown`.
pub(super) fn users(who: &str, field: Option<&Placed<Users>>) -> Result<Vec<User>, HostError> {
    let Some(field) = field else {
        return Ok(Vec::new());
    };
    let users = match &field.value {
        Users::One(user) => vec![user.clone()],
        Users::Several(users) => users.clone(),
    };
    let read = |user: User| match user {
        User::Name(name) if !name.is_empty() && name.bytes().all(|it| it.is_ascii_digit()) => {
            name.parse().ok().map(User::Number)
        }
        User::Name(name) => {
            let is_one = |it: char| !it.is_control() && !it.is_whitespace() && it != ':';
            (!name.is_empty() && name.chars().all(is_one)).then_some(User::Name(name))
        }
        number @ User::Number(_) => Some(number),
    };
    let users: Option<Vec<User>> = users.into_iter().map(read).collect();
    users.filter(|users| !users.is_empty()).ok_or_else(|| {
        let what = format!("{who}: `user` names no user");
        let fix = "write a name of /etc/passwd or a number, or a list of these, or leave it out";
        wrong(&field.place, &what, fix)
    })
}

/// The text of a field, unless it is wrong: `is_wrong` says what and what to do.
pub(super) fn checked(
    vm: &str,
    field: Option<&Placed<String>>,
    is_wrong: fn(&str) -> Option<(&'static str, &'static str)>,
) -> Result<Option<String>, HostError> {
    let Some(field) = field else { return Ok(None) };
    let text = &field.value;
    match is_wrong(text) {
        None => Ok(Some(text.clone())),
        Some((what, fix)) => {
            let what = format!("VM \"{vm}\": \"{}\" {what}", printable(text));
            Err(wrong(&field.place, &what, fix))
        }
    }
}

/// What would never be the unit of a process.
pub(super) fn unit_is_wrong(unit: &str) -> Option<(&'static str, &'static str)> {
    let stem = [".service", ".scope", ".slice"]
        .iter()
        .find_map(|end| unit.strip_suffix(end));
    let wrong =
        |stem: &str| stem.is_empty() || unit.contains('/') || unit.contains(char::is_control);
    match stem {
        Some(stem) if stem.ends_with('@') => Some((
            "is a template, in which nothing runs",
            "write the name of an instance, such as \"web@1.service\"",
        )),
        Some(stem) if !wrong(stem) => None,
        _ => Some((
            "is no systemd unit that a process runs in",
            "write its whole name, such as \"web.service\", as `systemctl status PID` shows it",
        )),
    }
}

/// What would never be the cgroup of a process, or is everyone's.
pub(super) fn cgroup_is_wrong(cgroup: &str) -> Option<(&'static str, &'static str)> {
    let is_one = cgroup.starts_with('/') && !cgroup.trim_end_matches('/').is_empty();
    let is_file = cgroup.starts_with("/sys/");
    (!is_one || is_file || cgroup.contains(char::is_control)).then_some((
        "is no cgroup of a VM",
        "write its path as /proc/PID/cgroup has it, such as \"/machine.slice/web\", without /sys/fs/cgroup",
    ))
}

/// What no thread of a program is called.
pub(super) fn thread_name_is_wrong(name: &str) -> Option<(&'static str, &'static str)> {
    let written = name.strip_suffix('*').unwrap_or(name);
    let is_one = (1..=LONGEST_THREAD_NAME).contains(&written.len());
    (!is_one || name.contains(char::is_control)).then_some((
        "is no name of a thread",
        "write it as /proc/PID/task/TID/comm has it: 1 to 15 bytes, and behind them `*` if it is a beginning",
    ))
}

/// The CPUs of a list that `key` has.
pub(super) fn cpus_of(key: &str, list: &[usize]) -> Result<CpuSet, String> {
    if list.is_empty() {
        return Err(format!("{key} is empty"));
    }
    let most = crate::cpu_set::MAX_CPU;
    match list.iter().find(|&&cpu| cpu > most) {
        Some(cpu) => Err(format!("there can be no CPU {cpu}")),
        None => Ok(list.iter().copied().collect()),
    }
}
