//! `vm.toml`: what a VM is. Every key, with its default, is in `docs/reference/vm.toml.md`.

use serde::Deserialize;
use std::path::{Path, PathBuf};
use steadyvm_sockets::Limits;

use crate::layout;
use crate::thread;
use steadyvm_fault::{Fault as Error, Result};

/// The most VCPUs of a VM.
pub const MAX_VCPUS: u8 = 4;
/// The longest name: it is part of the names of threads.
const MAX_NAME: usize = 32;
/// The longest name of a port: more than any program's, less than a page.
const MAX_PORT_NAME: usize = 64;
/// Less is too little for a stock kernel to unpack itself.
const LEAST_MEMORY_MIB: u64 = 64;
/// More than a VM of this monitor's size needs; page tables and slots are made for it.
const MOST_MEMORY_MIB: u64 = 64 << 10;

/// A terabyte of console is a mistake.
const MOST_CONSOLE_MIB: u64 = 1 << 20;

/// What the kernel gets when `cmdline` is not set: the serial console, no search for a PCI bus
/// that is not there, and a panic ends the VM.
pub const DEFAULT_COMMAND_LINE: &str = "console=ttyS0 pci=off panic=-1 quiet";

/// A VM.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// Its name, in the names of its threads and in messages.
    pub name: String,
    /// The kernel: a bzImage.
    pub kernel: PathBuf,
    /// The initramfs.
    pub initramfs: Option<PathBuf>,
    /// The kernel's command line.
    #[serde(default = "default_command_line")]
    pub cmdline: String,
    /// Memory in MiB.
    #[serde(default = "default_memory_mib")]
    pub memory_mib: u64,
    /// Number of VCPUs, 1 to 4.
    #[serde(default = "one")]
    pub vcpus: u8,
    /// Numbers of the VCPUs that run at [`rt_priority`](Self::rt_priority).
    #[serde(default)]
    pub rt_vcpus: Vec<u8>,
    /// `SCHED_FIFO` priority of the RT VCPUs' threads, 1 to 98: the kernel's migration threads have 99.
    #[serde(default = "default_rt_priority")]
    pub rt_priority: i32,
    /// Whether all memory of the VM and of its monitor is locked.
    #[serde(default = "yes")]
    pub lock_memory: bool,
    /// What the kernel adds to the monitor's score when it looks for a process to kill because memory is
    /// short, in thousandths of all memory: -1000 (never) to 1000. Without it what it has stays.
    pub oom_score_adj: Option<i16>,
    /// Where the serial console goes.
    #[serde(default)]
    pub console: Console,
    /// MiB that the console may write to a file; what comes after is dropped.
    #[serde(default = "default_console_max_mib")]
    pub console_max_mib: u64,
    /// The user, by number, that the monitor becomes once everything is open; root alone can.
    pub user: Option<u32>,
    /// The group, by number; without it the number of the user.
    pub group: Option<u32>,
    /// Whether the guest may run guests of its own.
    #[serde(default)]
    pub nested: bool,
    /// Whether the guest has the processor's performance counters.
    #[serde(default)]
    pub pmu: bool,
    /// Disks, in the guest `/dev/vda` and so on.
    #[serde(default)]
    pub disk: Vec<Disk>,
    /// Network cards.
    #[serde(default)]
    pub net: Vec<Net>,
    /// A channel into the guest that is no network.
    pub channel: Option<Channel>,
    /// Outsourced sockets; without it the guest has no such device.
    pub sockets: Option<Sockets>,
}

/// Where the serial console goes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(from = "String")]
pub enum Console {
    /// Standard input and output.
    #[default]
    Standard,
    /// Output to a file, which is emptied first; no input.
    File(PathBuf),
}

impl From<String> for Console {
    fn from(text: String) -> Self {
        if text == "stdio" {
            Self::Standard
        } else {
            Self::File(text.into())
        }
    }
}

/// A virtio-serial port over a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Channel {
    /// The socket on which whoever controls the guest listens.
    pub socket: PathBuf,
    /// The port's name in the guest: `/dev/virtio-ports/NAME` where udev runs.
    pub name: String,
}

/// A disk: a file or block device.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// The file or block device.
    pub path: PathBuf,
    /// Whether the guest may only read it.
    #[serde(default)]
    pub read_only: bool,
}

/// A network card: virtio-net over vhost-net and a tap device.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Net {
    /// The tap device, which must be there already.
    pub tap: String,
    /// The card's address.
    pub mac: Mac,
}

/// A hardware address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Mac(pub [u8; 6]);

impl TryFrom<String> for Mac {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        let mut mac = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut mac {
            let part = parts.next().filter(|part| part.len() == 2);
            *byte = part
                .and_then(|part| u8::from_str_radix(part, 16).ok())
                .ok_or_else(|| {
                    format!("\"{text}\" is no hardware address, such as 52:54:00:78:00:01")
                })?;
        }
        if parts.next().is_some() {
            return Err(format!("\"{text}\" has more than six bytes"));
        }
        if mac[0] & 1 != 0 {
            return Err(format!(
                "\"{text}\" is a group's address: its first byte is odd"
            ));
        }
        Ok(Self(mac))
    }
}

/// A poll that takes longer is kept from nothing but by its VM's budget.
const MOST_POLL_US: u64 = 10_000;

/// The outsourced sockets of a VM.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sockets {
    /// The network namespace of the guest's sockets.
    pub namespace: Namespace,
    /// Sockets at a time.
    pub max_sockets: u32,
    /// MiB that all their buffers may hold.
    pub buffer_mib: u64,
    /// KiB of data in one request.
    pub request_kib: u32,
    /// The highest `SO_PRIORITY` that the guest may set, 0 to 6: higher ones are for who administers
    /// the network.
    pub max_priority: u8,
    /// How long a VCPU that waits polls the namespace's card before it sleeps, in µs; 0: not at all. Only where the card's
    /// queues are the namespace's own.
    pub poll_us: u32,
    /// Whether the namespace may be that of the host itself, with its loopback and all its addresses.
    pub allow_host_network: bool,
}

impl Default for Sockets {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            namespace: Namespace::default(),
            max_sockets: limits.sockets,
            buffer_mib: limits.buffer_bytes >> 20,
            request_kib: limits.request_bytes >> 10,
            max_priority: limits.priority,
            poll_us: 0,
            allow_host_network: false,
        }
    }
}

impl Sockets {
    /// As `crates/sockets` has them.
    pub fn limits(&self) -> Limits {
        Limits {
            sockets: self.max_sockets,
            buffer_bytes: self.buffer_mib << 20,
            request_bytes: self.request_kib << 10,
            priority: self.max_priority,
            ..Limits::default()
        }
    }
}

/// Which network namespace the guest's sockets are in.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(from = "String")]
pub enum Namespace {
    /// "new": one without a name that ends with the VM. It has only a loopback interface.
    #[default]
    New,
    /// "current": the one in which the monitor is started.
    Current,
    /// An existing one: a name of `ip netns`, or a path, which has a '/'.
    Existing(PathBuf),
}

impl From<String> for Namespace {
    fn from(text: String) -> Self {
        match text.as_str() {
            "new" => Self::New,
            "current" => Self::Current,
            _ if text.contains('/') => Self::Existing(text.into()),
            _ => Self::Existing(Path::new("/run/netns").join(text)),
        }
    }
}

fn default_command_line() -> String {
    DEFAULT_COMMAND_LINE.to_owned()
}

const fn default_memory_mib() -> u64 {
    256
}

const fn default_console_max_mib() -> u64 {
    64
}

const fn one() -> u8 {
    1
}

/// What `steadyvm apply --method` gives to RT VCPUs.
const fn default_rt_priority() -> i32 {
    70
}

const fn yes() -> bool {
    true
}

impl Configuration {
    /// Reads and checks a file's text; `place` is its name in errors.
    ///
    /// # Errors
    /// What is wrong, with its line.
    pub fn parse(text: &str, place: &str) -> Result<Self> {
        let configuration: Self =
            toml::from_str(text).map_err(|error| Error::input(place, error))?;
        configuration.check(place)?;
        Ok(configuration)
    }

    /// Makes paths that are relative to the file's directory absolute.
    #[must_use]
    pub fn relative_to(mut self, directory: &Path) -> Self {
        let resolve = |path: &mut PathBuf| *path = directory.join(&*path);
        resolve(&mut self.kernel);
        self.initramfs.iter_mut().for_each(resolve);
        self.disk
            .iter_mut()
            .for_each(|disk| resolve(&mut disk.path));
        if let Console::File(path) = &mut self.console {
            resolve(path);
        }
        if let Some(channel) = &mut self.channel {
            resolve(&mut channel.socket);
        }
        if let Some(Sockets {
            namespace: Namespace::Existing(path),
            ..
        }) = &mut self.sockets
        {
            resolve(path);
        }
        self
    }

    /// How many virtio devices it has.
    pub fn virtio_devices(&self) -> usize {
        let single = [self.channel.is_some(), self.sockets.is_some()];
        self.disk.len() + self.net.len() + single.into_iter().filter(|there| *there).count()
    }

    fn check(&self, place: &str) -> Result<()> {
        let refuse = |key: &str, why: String| Err(Error::input(format!("{place}: {key}"), why));
        let named =
            |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
        if self.name.is_empty() || self.name.len() > MAX_NAME || !self.name.chars().all(named) {
            return refuse(
                "name",
                format!(
                    "\"{}\" is not 1 to {MAX_NAME} letters, digits, '-', '_' or '.'",
                    self.name
                ),
            );
        }
        if !(1..=MAX_VCPUS).contains(&self.vcpus) {
            return refuse("vcpus", format!("{} is not 1 to {MAX_VCPUS}", self.vcpus));
        }
        if let Some(number) = self.rt_vcpus.iter().find(|number| **number >= self.vcpus) {
            let last = self.vcpus - 1;
            return refuse(
                "rt_vcpus",
                format!("there is no VCPU {number}: they are 0 to {last}"),
            );
        }
        if let Some(adjustment) = self.oom_score_adj
            && !(-1000..=1000).contains(&adjustment)
        {
            return refuse(
                "oom_score_adj",
                format!("{adjustment} is not -1000 to 1000"),
            );
        }
        if !(1..=thread::HIGHEST_FIFO).contains(&self.rt_priority) {
            return refuse(
                "rt_priority",
                format!("{} is not 1 to 98", self.rt_priority),
            );
        }
        if !(1..=MOST_CONSOLE_MIB).contains(&self.console_max_mib) {
            return refuse(
                "console_max_mib",
                format!("{} is not 1 to {MOST_CONSOLE_MIB}", self.console_max_mib),
            );
        }
        if !(LEAST_MEMORY_MIB..=MOST_MEMORY_MIB).contains(&self.memory_mib) {
            return refuse(
                "memory_mib",
                format!(
                    "{} is not {LEAST_MEMORY_MIB} to {MOST_MEMORY_MIB}",
                    self.memory_mib
                ),
            );
        }
        if self.cmdline.len() >= layout::COMMAND_LINE_SIZE || !self.cmdline.is_ascii() {
            let most = layout::COMMAND_LINE_SIZE - 1;
            return refuse("cmdline", format!("is not ASCII of at most {most} bytes"));
        }
        if self.virtio_devices() > layout::MAX_DEVICES {
            let most = layout::MAX_DEVICES;
            return refuse("disk, net", format!("more than {most} devices"));
        }
        for net in &self.net {
            if net.tap.is_empty() || net.tap.len() > 15 || net.tap.contains(['/', '\0', ' ']) {
                return refuse("net.tap", format!("\"{}\" is no interface's name", net.tap));
            }
        }
        if let Some(channel) = &self.channel {
            let named = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
            let name = &channel.name;
            if name.is_empty() || name.len() > MAX_PORT_NAME || !name.bytes().all(named) {
                return refuse(
                    "channel.name",
                    format!(
                        "\"{name}\" is not 1 to {MAX_PORT_NAME} printable characters without '/'"
                    ),
                );
            }
        }
        self.sockets
            .iter()
            .try_for_each(|sockets| sockets.check(place))
    }
}

impl Sockets {
    pub(crate) fn check(&self, place: &str) -> Result<()> {
        let within = |key: &str, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            let why = format!("{value} is not {least} to {most}");
            Err(Error::input(format!("{place}: sockets.{key}"), why))
        };
        within("max_sockets", self.max_sockets.into(), 1, 1 << 20)?;
        within("buffer_mib", self.buffer_mib, 1, 1 << 20)?;
        within("request_kib", self.request_kib.into(), 4, 16 << 10)?;
        within("max_priority", self.max_priority.into(), 0, 6)?;
        within("poll_us", self.poll_us.into(), 0, MOST_POLL_US)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LEAST: &str = "name = \"a\"\nkernel = \"k\"\n";

    fn parse(more: &str) -> Result<Configuration> {
        Configuration::parse(&format!("{LEAST}{more}"), "vm.toml")
    }

    fn refusal(more: &str) -> String {
        parse(more).unwrap_err().to_string()
    }

    #[test]
    fn only_name_and_kernel_are_needed() {
        let configuration = parse("").unwrap();
        assert_eq!((configuration.vcpus, configuration.memory_mib), (1, 256));
        assert!(configuration.lock_memory && configuration.sockets.is_none());
        assert_eq!(configuration.console, Console::Standard);
    }

    #[test]
    fn every_key_is_taken() {
        let text = r#"
            initramfs = "i"
            cmdline = "console=ttyS0"
            memory_mib = 512
            vcpus = 2
            rt_vcpus = [1]
            rt_priority = 60
            lock_memory = false
            oom_score_adj = -900
            console = "log"
            console_max_mib = 3
            user = 1000
            group = 1001
            nested = true
            pmu = true
            [[disk]]
            path = "d"
            read_only = true
            [[net]]
            tap = "tap0"
            mac = "52:54:00:78:00:01"
            [channel]
            socket = "agent.socket"
            name = "org.qemu.guest_agent.0"
            [sockets]
            namespace = "web"
            max_sockets = 100
            buffer_mib = 64
            request_kib = 64
            max_priority = 3
            poll_us = 50
            allow_host_network = true
        "#;
        let configuration = parse(text).unwrap().relative_to(Path::new("/vms"));
        assert_eq!(configuration.kernel, Path::new("/vms/k"));
        assert_eq!(configuration.disk[0].path, Path::new("/vms/d"));
        assert_eq!(configuration.console, Console::File("/vms/log".into()));
        assert_eq!(configuration.net[0].mac, Mac([0x52, 0x54, 0, 0x78, 0, 1]));
        assert_eq!(configuration.virtio_devices(), 4);
        let channel = configuration.channel.clone().unwrap();
        assert_eq!(channel.socket, Path::new("/vms/agent.socket"));
        assert_eq!(channel.name, "org.qemu.guest_agent.0");
        let sockets = configuration.sockets.clone().unwrap();
        assert_eq!(
            sockets.namespace,
            Namespace::Existing("/run/netns/web".into())
        );
        // A path is the file's, as every other.
        let path = parse("[sockets]\nnamespace = \"./web\"").unwrap();
        let path = path.relative_to(Path::new("/vms")).sockets.unwrap();
        assert_eq!(path.namespace, Namespace::Existing("/vms/./web".into()));
        let limits = sockets.limits();
        assert_eq!((limits.sockets, limits.buffer_bytes), (100, 64 << 20));
        assert_eq!((limits.request_bytes, limits.priority), (64 << 10, 3));
        assert!(sockets.allow_host_network && configuration.nested && configuration.pmu);
        assert_eq!(
            (configuration.user, configuration.group),
            (Some(1000), Some(1001))
        );
        assert_eq!(configuration.console_max_mib, 3);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (more, expected) in [
            ("vcpu = 2", "line 3"),
            ("vcpu = 2", "unknown field `vcpu`"),
            ("[sockets]\nport = 1", "unknown field `port`"),
            ("vcpus = 0", "vm.toml: vcpus: 0 is not 1 to 4"),
            ("vcpus = 5", "vcpus: 5"),
            ("rt_vcpus = [1]", "there is no VCPU 1: they are 0 to 0"),
            ("rt_priority = 0", "rt_priority"),
            ("rt_priority = 99", "rt_priority: 99 is not 1 to 98"),
            ("oom_score_adj = -1001", "oom_score_adj: -1001 is not"),
            ("console_max_mib = 0", "console_max_mib"),
            ("user = \"root\"", "expected u32"),
            (
                "[sockets]\nmax_priority = 7",
                "max_priority: 7 is not 0 to 6",
            ),
            (
                "[sockets]\npoll_us = 10001",
                "poll_us: 10001 is not 0 to 10000",
            ),
            ("memory_mib = 63", "memory_mib"),
            (
                "[[net]]\ntap = \"t\"\nmac = \"52:54:00:78:00\"",
                "no hardware address",
            ),
            ("[[net]]\ntap = \"t\"\nmac = \"53:54:00:78:00:01\"", "group"),
            (
                "[[net]]\ntap = \"../t\"\nmac = \"52:54:00:78:00:01\"",
                "net.tap",
            ),
            ("[channel]\nsocket = \"s\"\nname = \"a/b\"", "channel.name"),
            (
                "[sockets]\nmax_sockets = 0",
                "sockets.max_sockets: 0 is not 1",
            ),
        ] {
            let said = refusal(more);
            assert!(said.contains(expected), "{more}: {said}");
        }
        let unnamed = Configuration::parse("name = \"a b\"\nkernel = \"k\"", "vm.toml");
        assert!(unnamed.unwrap_err().to_string().contains("letters"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,200}") {
            let _ = Configuration::parse(&text, "x");
        }

        #[test]
        fn what_is_accepted_fits_the_machine(
            vcpus in 0_u8..8, rt in prop::collection::vec(0_u8..8, 0..4), memory in 0_u64..1 << 18,
        ) {
            let text = format!("vcpus = {vcpus}\nrt_vcpus = {rt:?}\nmemory_mib = {memory}");
            if let Ok(configuration) = parse(&text) {
                prop_assert!((1..=MAX_VCPUS).contains(&configuration.vcpus));
                prop_assert!(configuration.rt_vcpus.iter().all(|number| *number < vcpus));
                prop_assert!((LEAST_MEMORY_MIB..=MOST_MEMORY_MIB).contains(&memory));
            }
        }
    }
}
