//! The network part of steadyvm.toml. What is for the plan of VCPUs is left to `steadyvm plan`.
//!
//! ```toml
//! [net]                       # the host's deferred work; rcu, timers and device_irq stand above VCPUs unless set
//! budget_packets = 64
//!
//! [class.rt.net]              # what the VMs, NICs and queues of class rt get
//! irq = 80                    # FIFO priority, or "normal"
//! vhost = 75
//!
//! [[nic]]
//! name = "eth1"
//! class = "rt"
//! ```
//!
//! Rule: a class's `net` is its own, then that of the class it extends. Classes "rt" and "best-effort"
//! are there without being written ([`Class::built_in`]); a file that writes one of them, and not what it extends,
//! extends that. An unknown field is an error. Every field: docs/reference/steadyvm.toml.md.

use std::collections::BTreeMap;

use serde::de::{self, IgnoredAny};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::demux::{DemuxProfile, DemuxTable};
use super::flows::SteerTable;
use super::profile::{
    Class, HIGHEST_PRIORITY, LARGEST_BATCH, NicProfile, Profile, Softirqs, TapQdisc,
    ThreadPriority, VmProfile,
};
use crate::cpu_set::CpuSet;
use crate::error::HostError;
use crate::machine::{User, printable};

/// The file. Tables of the plan are named, so that a misspelt one is an error.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    net: HostTable,
    #[serde(default)]
    class: BTreeMap<String, Spanned<ClassTable>>,
    #[serde(default)]
    nic: Vec<Spanned<NicTable>>,
    #[serde(default)]
    vm: Vec<Spanned<VmTable>>,
    #[serde(rename = "host")]
    _host: Option<IgnoredAny>,
    #[serde(rename = "service")]
    _service: Option<IgnoredAny>,
    #[serde(rename = "flow")]
    _flow: Option<IgnoredAny>,
    #[serde(rename = "random")]
    _random: Option<IgnoredAny>,
    /// For whom enforces budgets, and for `steadyvm simulate`.
    #[serde(rename = "sched")]
    _sched: Option<IgnoredAny>,
    #[serde(rename = "simulate")]
    _simulate: Option<IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct HostTable {
    budget_packets: Option<u32>,
    budget_us: Option<u32>,
    ksoftirqd: Option<ThreadPriority>,
    rcu: Option<ThreadPriority>,
    timers: Option<ThreadPriority>,
    device_irq: Option<ThreadPriority>,
    fair_server_us: Option<u32>,
    levels_from: Option<u32>,
    demux: Option<Spanned<DemuxTable>>,
}

/// A `[class.NAME]`: its other fields are the plan's.
#[derive(Deserialize)]
struct ClassTable {
    extends: Option<String>,
    net: Option<NetTable>,
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
struct NetTable {
    irq: Option<ThreadPriority>,
    napi: Option<ThreadPriority>,
    threaded_napi: Option<bool>,
    cpus: Option<Vec<usize>>,
    vhost: Option<ThreadPriority>,
    vcpu: Option<ThreadPriority>,
    io: Option<ThreadPriority>,
    main: Option<ThreadPriority>,
    tap_qdisc: Option<TapQdisc>,
    #[serde(default, deserialize_with = "batch")]
    tap_batch: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NicTable {
    name: String,
    class: String,
    #[serde(default)]
    queues: Vec<QueueTable>,
    #[serde(default)]
    steer: Vec<Spanned<SteerTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QueueTable {
    queue: u32,
    class: String,
}

/// A `[[vm]]`: its other fields are the plan's. It is found by its name, or by the unit or cgroup that it runs in.
#[derive(Deserialize)]
struct VmTable {
    name: Option<String>,
    class: Option<String>,
    unit: Option<Spanned<String>>,
    cgroup: Option<Spanned<String>>,
    user: Option<Spanned<UserField>>,
}

/// One user, or several.
#[derive(Deserialize, Clone)]
#[serde(untagged, expecting = "a user by name or number, or a list of users")]
enum UserField {
    One(User),
    Several(Vec<User>),
}

/// Reads the network part of a file. `name` is the file's, for messages.
///
/// # Errors
/// What is wrong, with its line and column.
pub fn parse(name: &str, text: &str) -> Result<Profile, HostError> {
    let profile = parse_any(name, text)?;
    let asked = Profile {
        vms: profile.vms.iter().filter(|vm| vm.asks()).cloned().collect(),
        ..profile.clone()
    };
    if asked == Profile::default() {
        let what = "nothing in it is for the network";
        return Err(Reader { name, text }.wrong(
            0,
            what,
            "add [net], a [[nic]] with a class, or net settings to the class of a VM",
        ));
    }
    Ok(profile)
}

/// As [`parse`], also of a file that says nothing of the network.
///
/// # Errors
/// What is wrong, with its line and column.
pub fn parse_any(name: &str, text: &str) -> Result<Profile, HostError> {
    let reader = Reader { name, text };
    let file: File = toml::from_str(text).map_err(|error| {
        let place = error.span().map_or(0, |span| span.start);
        reader.wrong(
            place,
            error.message(),
            "see docs/design/no-patch-profile.md",
        )
    })?;
    let classes = &file.class;
    let mut profile = Profile {
        softirqs: file.net.softirqs(&reader)?,
        fair_server_us: file.net.fair_server_us,
        demux: file.net.demux(&reader)?,
        ..Profile::default()
    };
    for nic in &file.nic {
        let read = reader.nic(nic, classes)?;
        if profile.nics.iter().any(|other| other.name == read.name) {
            let what = format!("NIC \"{}\" is there twice", read.name);
            return Err(reader.wrong(nic.span().start, &what, "give each NIC one [[nic]]"));
        }
        profile.nics.push(read);
    }
    for vm in &file.vm {
        profile.vms.extend(reader.vm(vm, classes)?);
    }
    // A VCPU that computes without end must not stop the threads that all of the host depends on.
    let above = profile.highest_of_tenants().map(|highest| highest + 1);
    let above = above
        .filter(|above| *above <= HIGHEST_PRIORITY)
        .map(ThreadPriority::Fifo);
    let softirqs = &mut profile.softirqs;
    softirqs.rcu = softirqs.rcu.or(above);
    softirqs.timers = softirqs.timers.or(above);
    softirqs.device_irq = softirqs.device_irq.or(above);
    profile.check()?;
    Ok(profile)
}

fn batch<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let packets = i64::deserialize(deserializer)?;
    let batch = u32::try_from(packets).ok();
    let batch = batch.filter(|batch| (1..=LARGEST_BATCH).contains(batch));
    let refused = || format!("tap_batch {packets} is not one of 1 to {LARGEST_BATCH}");
    batch.map(Some).ok_or_else(|| de::Error::custom(refused()))
}

struct Reader<'t> {
    name: &'t str,
    text: &'t str,
}

impl Reader<'_> {
    /// "FILE line L column C" of a byte offset.
    fn place(&self, offset: usize) -> String {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
        format!("{} line {line} column {column}", self.name)
    }

    fn wrong(&self, offset: usize, what: &str, fix: &str) -> HostError {
        HostError::BadInput {
            what: format!("{}: {what}", self.place(offset)),
            fix: fix.into(),
        }
    }

    /// The network settings of a class over those of the classes it extends; none if neither has
    /// any.
    fn class(
        &self,
        name: &str,
        at: usize,
        classes: &BTreeMap<String, Spanned<ClassTable>>,
    ) -> Result<Option<Class>, HostError> {
        let mut settings: Option<Class> = None;
        let mut chain: Vec<&str> = Vec::new();
        let (mut next, mut at) = (Some(name), at);
        while let Some(wanted) = next {
            let Some((key, table)) = classes.get_key_value(wanted) else {
                if let Some(built_in) = Class::built_in(wanted) {
                    settings.get_or_insert_default().fill_from(&built_in);
                    break;
                }
                let what = format!("there is no class \"{wanted}\"");
                return Err(self.wrong(at, &what, &format!("add [class.{wanted}.net]")));
            };
            at = table.span().start;
            if chain.contains(&key.as_str()) {
                let circle = format!("{} -> {key}", chain.join(" -> "));
                let what = format!("classes extend each other in a circle: {circle}");
                return Err(self.wrong(at, &what, "break it"));
            }
            chain.push(key);
            let table = table.get_ref();
            if let Some(net) = &table.net {
                let own = net.read(name).map_err(|what| {
                    self.wrong(
                        at,
                        &format!("class \"{key}\": {what}"),
                        "name CPUs of this host",
                    )
                })?;
                settings.get_or_insert_default().fill_from(&own);
            }
            next = table.extends.as_deref();
            if next.is_none()
                && let Some(built_in) = Class::built_in(key)
            {
                settings.get_or_insert_default().fill_from(&built_in);
            }
        }
        if let Some(settings) = &mut settings {
            name.clone_into(&mut settings.name);
        }
        Ok(settings)
    }

    fn must_have_class(
        &self,
        name: &str,
        at: usize,
        classes: &BTreeMap<String, Spanned<ClassTable>>,
    ) -> Result<Class, HostError> {
        self.class(name, at, classes)?.ok_or_else(|| {
            let what = format!("class \"{name}\" has no settings for the network");
            self.wrong(at, &what, &format!("add [class.{name}.net]"))
        })
    }

    fn nic(
        &self,
        table: &Spanned<NicTable>,
        classes: &BTreeMap<String, Spanned<ClassTable>>,
    ) -> Result<NicProfile, HostError> {
        let at = table.span().start;
        let nic = table.get_ref();
        let mut queues = BTreeMap::new();
        for QueueTable { queue, class } in &nic.queues {
            let class = self.must_have_class(class, at, classes)?;
            if queues.insert(*queue, class).is_some() {
                let what = format!("NIC \"{}\": queue {queue} is there twice", nic.name);
                return Err(self.wrong(at, &what, "give each queue one class"));
            }
        }
        let steer = nic.steer.iter().map(|rule| {
            let wrong = |what: String| {
                let what = format!("NIC \"{}\": {what}", nic.name);
                self.wrong(
                    rule.span().start,
                    &what,
                    "see docs/design/no-patch-profile.md",
                )
            };
            rule.get_ref().read().map_err(wrong)
        });
        Ok(NicProfile {
            name: nic.name.clone(),
            class: self.must_have_class(&nic.class, at, classes)?,
            queues,
            steer: steer.collect::<Result<_, _>>()?,
            place: self.place(at),
            ..NicProfile::default()
        })
    }

    /// A VM whose class has settings for the network, or that says where it runs; others are the plan's alone.
    fn vm(
        &self,
        table: &Spanned<VmTable>,
        classes: &BTreeMap<String, Spanned<ClassTable>>,
    ) -> Result<Option<VmProfile>, HostError> {
        let at = table.span().start;
        let VmTable {
            name,
            class,
            unit,
            cgroup,
            user,
        } = table.get_ref();
        // Terminals obey them, and no monitor is told such a name.
        if let Some(name) = name.as_ref().filter(|name| name.contains(char::is_control)) {
            let what = format!(
                "the VM's name \"{}\" has control characters",
                printable(name)
            );
            return Err(self.wrong(
                at,
                &what,
                "name it by its unit or cgroup, and call it something else",
            ));
        }
        let class = match class {
            Some(class) => self.class(class, at, classes)?,
            None => None,
        };
        if class.is_none() && unit.is_none() && cgroup.is_none() && user.is_none() {
            return Ok(None);
        }
        let Some(name) = name else {
            let fix = "give it one: the plan and warnings call it so";
            return Err(self.wrong(at, "this VM has no name", fix));
        };
        if let (Some(_), Some(cgroup)) = (unit, cgroup) {
            let what = format!("VM \"{name}\" has both a unit and a cgroup");
            return Err(self.wrong(cgroup.span().start, &what, "keep one"));
        }
        Ok(Some(VmProfile {
            name: name.clone(),
            class: class.unwrap_or_default(),
            unit: self.checked(name, unit.as_ref(), unit_is_wrong)?,
            cgroup: self.checked(name, cgroup.as_ref(), cgroup_is_wrong)?,
            users: self.users(name, user.as_ref())?,
            place: self.place(at),
            ..VmProfile::default()
        }))
    }

    /// Users by name or number; digits alone are a number, as for `chown`.
    fn users(&self, vm: &str, field: Option<&Spanned<UserField>>) -> Result<Vec<User>, HostError> {
        let Some(field) = field else {
            return Ok(Vec::new());
        };
        let users = match field.get_ref() {
            UserField::One(user) => vec![user.clone()],
            UserField::Several(users) => users.clone(),
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
            let what = format!("VM \"{vm}\": `user` names no user");
            let fix =
                "write a name of /etc/passwd or a number, or a list of these, or leave it out";
            self.wrong(field.span().start, &what, fix)
        })
    }

    /// The text of a field, unless it is wrong: `is_wrong` says what and what to do.
    fn checked(
        &self,
        vm: &str,
        field: Option<&Spanned<String>>,
        is_wrong: fn(&str) -> Option<(&'static str, &'static str)>,
    ) -> Result<Option<String>, HostError> {
        let Some(field) = field else { return Ok(None) };
        let text = field.get_ref();
        match is_wrong(text) {
            None => Ok(Some(text.clone())),
            Some((what, fix)) => {
                let what = format!("VM \"{vm}\": \"{}\" {what}", printable(text));
                Err(self.wrong(field.span().start, &what, fix))
            }
        }
    }
}

/// What would never be the unit of a process.
fn unit_is_wrong(unit: &str) -> Option<(&'static str, &'static str)> {
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
fn cgroup_is_wrong(cgroup: &str) -> Option<(&'static str, &'static str)> {
    let is_one = cgroup.starts_with('/') && !cgroup.trim_end_matches('/').is_empty();
    let is_file = cgroup.starts_with("/sys/");
    (!is_one || is_file || cgroup.contains(char::is_control)).then_some((
        "is no cgroup of a VM",
        "write its path as /proc/PID/cgroup has it, such as \"/machine.slice/web\", without /sys/fs/cgroup",
    ))
}

impl NetTable {
    fn read(&self, name: &str) -> Result<Class, String> {
        let cpus = match &self.cpus {
            None => None,
            Some(list) if list.is_empty() => return Err("cpus is empty".into()),
            Some(list) => {
                let most = crate::cpu_set::MAX_CPU;
                if let Some(cpu) = list.iter().find(|&&cpu| cpu > most) {
                    return Err(format!("there can be no CPU {cpu}"));
                }
                Some(list.iter().copied().collect::<CpuSet>())
            }
        };
        Ok(Class {
            name: name.to_owned(),
            irq: self.irq,
            napi: self.napi,
            threaded_napi: self.threaded_napi,
            cpus,
            vhost: self.vhost,
            vhost_is_built_in: false,
            vcpu: self.vcpu,
            io: self.io,
            main: self.main,
            tap_qdisc: self.tap_qdisc,
            tap_batch: self.tap_batch,
        })
    }
}

impl HostTable {
    fn demux(&self, reader: &Reader<'_>) -> Result<Option<DemuxProfile>, HostError> {
        let Some(table) = &self.demux else {
            return Ok(None);
        };
        let start = table.span().start;
        let wrong = |what: String| {
            reader.wrong(
                start,
                &what,
                "see docs/design/no-patch-profile.md, early demultiplexing",
            )
        };
        table
            .get_ref()
            .read(self.levels_from, reader.place(start))
            .map(Some)
            .map_err(wrong)
    }

    fn softirqs(&self, reader: &Reader<'_>) -> Result<Softirqs, HostError> {
        let limits = [
            ("budget_packets", self.budget_packets, 1, 65_536),
            // The kernel counts in ticks; less than one is none at all.
            ("budget_us", self.budget_us, 1_000, 1_000_000),
            ("fair_server_us", self.fair_server_us, 500, 50_000),
            ("levels_from", self.levels_from, 1, HIGHEST_PRIORITY),
        ];
        for (name, value, least, most) in limits {
            if let Some(value) = value.filter(|value| !(least..=most).contains(value)) {
                let at = reader.text.find(name).unwrap_or(0);
                let what = format!("[net] {name} = {value} is out of range");
                return Err(reader.wrong(at, &what, &format!("use {least} to {most}")));
            }
        }
        if let (Some(ThreadPriority::Fifo(own)), Some(levels_from)) =
            (self.ksoftirqd, self.levels_from)
            && own >= levels_from
        {
            let at = reader.text.find("ksoftirqd").unwrap_or(0);
            let what = format!(
                "[net] ksoftirqd = {own} does not stand below levels_from = {levels_from}: what urgent \
                 threads leave to it would be as urgent"
            );
            return Err(reader.wrong(at, &what, "use a ksoftirqd below levels_from"));
        }
        Ok(Softirqs {
            budget_packets: self.budget_packets,
            budget_us: self.budget_us,
            ksoftirqd: self.ksoftirqd,
            rcu: self.rcu,
            timers: self.timers,
            device_irq: self.device_irq,
            levels_from: self.levels_from,
        })
    }
}
