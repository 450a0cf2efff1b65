//! The emulated host, running.

use crate::agent::Connection;
use crate::artifact::PackedInitramfs;
use crate::carry;
use crate::emulator::{Accelerator, Card, Machine, Monitor};
use crate::guest::{self, Guest};
use crate::machine_state;
use crate::namespace::Namespace;
use crate::progress::{News, Observer};
use crate::qemu::{self, Qemu};
use crate::scheduling;
use crate::{At, Blame, Error, Result};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use steadyvm_methods::Switches;

/// A host boots in 2 to 7 s on an idle machine; a loaded one gets this long.
pub const BOOT_PATIENCE: Duration = Duration::from_secs(120);

/// How often a host is booted before it counts as broken.
const BOOT_ATTEMPTS: u32 = 4;
/// So much of a console is shown with an error.
const CONSOLE_LINES: usize = 10;
/// The CPU that takes all cards' interrupts until a method moves them. With all on one, every method
/// has to tell the networks apart by itself.
pub(crate) const INTERRUPTS_CPU: usize = 0;
/// Four times what the emulator's main loop holds its lock for, in the mean.
const LOCK_SPIN_US: u32 = 20;
/// How often a guest is started before its host counts as broken.
const GUEST_ATTEMPTS: u32 = 3;

/// A network that joins the outside to the emulated host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// The name of its card and bridge in the host, and of its tap device outside.
    pub name: &'static str,
    /// Third byte of its addresses: 10.77.SUBNET.0/24.
    subnet: u8,
}

/// The network of the latency-critical service.
pub const RT: Network = Network {
    name: "rt",
    subnet: 1,
};
/// The network of everything else.
pub const BULK: Network = Network {
    name: "bulk",
    subnet: 2,
};
/// Both, in the order of the host's cards.
pub const NETWORKS: [Network; 2] = [RT, BULK];

impl Network {
    /// The address with this last byte.
    pub fn address(self, last: u8) -> Ipv4Addr {
        [10, 77, self.subnet, last].into()
    }

    /// The load generators' address.
    pub fn outside(self) -> Ipv4Addr {
        self.address(1)
    }

    /// The host's own address.
    pub fn host(self) -> Ipv4Addr {
        self.address(2)
    }

    /// The bridge's name in the host.
    pub fn bridge(self) -> String {
        format!("br-{}", self.name)
    }

    fn mac(self) -> String {
        format!("52:54:00:77:{:02x}:02", self.subnet)
    }
}

/// What to boot.
#[derive(Debug, Clone)]
pub struct HostSpecification {
    /// Name for messages and files, such as the method's.
    pub name: String,
    /// Kernel image.
    pub kernel: PathBuf,
    /// Initramfs made for that kernel; it lives as long as somebody may boot it.
    pub initramfs: Arc<PackedInitramfs>,
    /// The user space's image.
    pub image: PathBuf,
    /// More words for the kernel's command line.
    pub kernel_words: String,
    /// The QEMU that it runs in.
    pub emulator: PathBuf,
    /// How the host's instructions run.
    pub accelerator: Accelerator,
    /// Where logs go.
    pub log_directory: PathBuf,
    /// How long the host may take to come up.
    pub boot_patience: Duration,
    /// The CPU of this machine that all the host's processors share until
    /// [`EmulatedHost::spread_processors`]; `None` gives each one of its own from the start.
    pub boot_on_cpu: Option<usize>,
    /// The CPU of this machine that stands for the host's devices from
    /// [`EmulatedHost::spread_processors`] on; `None`: any.
    pub devices_on_cpu: Option<usize>,
    /// Whether it has an IOMMU, which passing a device to a guest takes.
    pub iommu: bool,
    /// Whether it has a disk that it and its guests may write.
    pub scratch: bool,
    /// Its memory.
    pub memory_mib: u32,
}

/// A booted host. Dropping it removes everything that belongs to it.
pub struct EmulatedHost {
    name: String,
    qemu: Qemu,
    connection: Connection,
    outside: Namespace,
    console: PathBuf,
    guest_patience: Duration,
    devices_on_cpu: Option<usize>,
    /// Whether guests' taps are ports of Open vSwitch.
    pub(crate) has_open_vswitch: bool,
}

impl EmulatedHost {
    /// Boots a host and sets its networks up: each card in a bridge of its own.
    pub fn boot(specification: &HostSpecification) -> Result<Self> {
        let outside = Namespace::new()?;
        let console = specification
            .log_directory
            .join(format!("{}.console", specification.name));
        keep_earlier(&console)?;
        let log = specification
            .log_directory
            .join(format!("{}.qemu", specification.name));
        let arguments = machine(specification, &console).host_arguments();
        let mut qemu = qemu::start(
            &specification.emulator,
            &arguments,
            Some(&outside),
            &log,
            Vec::new(),
        )?;
        for network in NETWORKS {
            outside.ip(&format!(
                "address add {}/24 dev {}",
                network.outside(),
                network.name
            ))?;
            outside.ip(&format!("link set dev {} up", network.name))?;
        }
        quiet_emulator(&mut qemu, specification.boot_on_cpu)?;
        qemu.monitor.resume()?;
        let place = format!("the emulated host \"{}\"", specification.name);
        let channel = qemu
            .channel
            .try_clone()
            .doing("talk to the emulated host")?;
        let writer = qemu
            .channel
            .try_clone()
            .doing("talk to the emulated host")?;
        let connection = Connection::establish(place, channel, writer, specification.boot_patience)
            .map_err(|error| with_console(error, &console))?;
        let host = Self {
            name: specification.name.clone(),
            qemu,
            connection,
            outside,
            console,
            guest_patience: specification.boot_patience.max(guest::BOOT_PATIENCE),
            devices_on_cpu: specification.devices_on_cpu,
            has_open_vswitch: false,
        };
        host.set_networks_up()?;
        Ok(host)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id of its QEMU.
    pub fn emulator(&self) -> u32 {
        self.qemu.process.pid()
    }

    /// Where processes in it are started.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The network namespace of the load generators.
    pub fn outside(&self) -> &Namespace {
        &self.outside
    }

    /// Starts a guest, described by a machine whose cards name taps still to be made and whose
    /// networks are given in the same order.
    ///
    /// Under emulation a guest may reset itself while it boots, for no fault of its kernel: it
    /// is then started again, and the observer told.
    pub fn start_guest(
        &self,
        machine: &Machine,
        networks: &[Network],
        observer: &dyn Observer,
    ) -> Result<Guest> {
        for (card, network) in machine.cards.iter().zip(networks) {
            if card.function.is_some() {
                continue;
            }
            if card.macvtap {
                self.make_macvtap(card, *network)?;
                continue;
            }
            self.ip(&format!("tuntap add dev {} mode tap vnet_hdr", card.tap))?;
            self.join_bridge(&card.tap, *network)?;
        }
        let mut attempts_left = GUEST_ATTEMPTS;
        loop {
            attempts_left -= 1;
            match Guest::start(&self.connection, machine, self.guest_patience) {
                Err(error) if attempts_left > 0 && self.connection.run(&["true"]).is_ok() => {
                    observer.tell(News::Note(format!("{error}\n  starting the guest again")));
                }
                result => return result.map_err(|error| self.with_own_end(error)),
            }
        }
    }

    /// Adds how the host ended to an error that came because it did.
    fn with_own_end(&self, error: Error) -> Error {
        match self.connection.run(&["true"]) {
            Ok(_) => error,
            Err(_) => with_console(error, &self.console),
        }
    }

    /// Makes a network namespace of this name for a VM's outsourced sockets, with an address in a
    /// network, and joins it to the network's bridge: the host and the VMs there reach it.
    pub fn make_namespace(&self, name: &str, network: Network, address: Ipv4Addr) -> Result<()> {
        let bridge = network.bridge();
        self.ip(&format!("netns add {name}"))?;
        self.ip(&format!(
            "link add dev {name} type veth peer name eth0 netns {name}"
        ))?;
        self.ip(&format!("link set dev {name} master {bridge} up"))?;
        self.set_namespace_up(name, address)
    }

    /// The same on the network's card itself, which leaves its bridge. Nothing is between the card
    /// and the sockets then, neither a bridge nor the backlog that a veth shares with all others of
    /// its CPU; and the host itself does not reach them. The card is the namespace's alone, as is its queue.
    pub fn make_namespace_on_card(
        &self,
        name: &str,
        network: Network,
        address: Ipv4Addr,
    ) -> Result<()> {
        let card = network.name;
        self.ip(&format!("netns add {name}"))?;
        self.ip(&format!("link set dev {card} nomaster"))?;
        self.ip(&format!(
            "link add link {card} name eth0 netns {name} type macvlan mode passthru nopromisc"
        ))?;
        self.set_namespace_up(name, address)
    }

    fn set_namespace_up(&self, name: &str, address: Ipv4Addr) -> Result<()> {
        for words in [
            "link set dev lo up",
            &format!("address add {address}/24 dev eth0"),
            "link set dev eth0 up",
        ] {
            self.ip(&format!("-n {name} {words}"))?;
        }
        Ok(())
    }

    /// The process id of a guest's monitor.
    pub fn guest_pid(&self, name: &str) -> Result<i32> {
        let text = self.connection.text(&["cat", &carry::pid_file(name)])?;
        text.trim()
            .parse()
            .doing(format!("read the process id of guest {name}"))
    }

    /// Checks that guests can run in the host with KVM.
    pub fn require_kvm(&self) -> Result<()> {
        let found = self.connection.run(&["test", "-c", "/dev/kvm"]);
        found.map(drop).map_err(|_| {
            let what = format!("find KVM in the emulated host \"{}\"", self.name);
            Error::lack(what, "it has no /dev/kvm").what_to_do(format!(
                "its console tells why kvm_amd or kvm_intel did not start: {}",
                self.console.display()
            ))
        })
    }

    /// Puts a method's settings in force with the host's own copy of this program, for a network's card; the
    /// other options of `steadyvm apply --method` name the service.
    pub fn put_in_force(
        &self,
        switches: impl Into<Switches>,
        network: Network,
        options: &[String],
    ) -> Result<()> {
        let switches = switches.into();
        if switches.is_vanilla() {
            return Ok(());
        }
        let method = switches.to_string();
        let mut argv = vec!["steadyvm", "apply", "--method", &*method];
        argv.extend(["--nic", network.name]);
        argv.extend(options.iter().map(String::as_str));
        self.connection
            .run(&argv)
            .map(drop)
            .doing(format!("put {method} in force"))
    }

    /// Gives each of the host's processors a CPU of this machine, and its devices theirs if they have one. Then a
    /// processor that shares its CPU neither with them nor with another one has it for itself.
    pub fn spread_processors(&mut self) -> Result<()> {
        let threads = self.qemu.monitor.processor_threads()?;
        let mut placed = threads.iter().enumerate();
        placed.try_for_each(|(cpu, thread)| scheduling::pin(*thread, cpu))?;
        let Some(devices) = self.devices_on_cpu else {
            return Ok(());
        };
        scheduling::pin(self.qemu.process.pid() as i32, devices)?;
        if threads.len() > scheduling::cpus() || !scheduling::real_time_is_unlimited()? {
            return Ok(());
        }
        let mut apart = (0..).zip(threads).filter(|(cpu, _)| *cpu != devices);
        apart.try_for_each(|(_, thread)| {
            scheduling::make_fifo(thread, scheduling::PROCESSOR_PRIORITY)
        })
    }

    /// Writes what the host's kernel has said to `NAME.dmesg` next to the console, which shows errors only; and
    /// where it has lockdep, what that says of itself to `NAME.lockdep_stats`. The host goes on for that.
    fn keep_kernel_log(&mut self) -> Result<()> {
        const LOCKDEP: &str = "/proc/lockdep_stats";
        self.resume()?;
        let keep = |extension: &str, text: String| {
            let path = self.console.with_extension(extension);
            fs::write(&path, text).at("write", &path)
        };
        keep("dmesg", self.connection.text(&["dmesg"])?)?;
        if self.connection.run(&["test", "-e", LOCKDEP]).is_ok() {
            keep("lockdep_stats", self.connection.text(&["cat", LOCKDEP])?)?;
        }
        Ok(())
    }

    /// Adds to an error where the state is kept that the host and its guests were in then, `NAME.state` next to
    /// the console; or how the host ended, if it did.
    pub fn with_state<'c>(
        &'c self,
        error: Error,
        guests: impl IntoIterator<Item = (&'c str, &'c Connection)>,
    ) -> Error {
        let mut error = self.with_own_end(error);
        let path = self.console.with_extension("state");
        let machines = [("the host", &self.connection)].into_iter().chain(guests);
        let kept = fs::write(&path, machine_state::of(machines));
        let _ = match kept {
            Ok(()) => write!(error.why, "\n  its state then: {}", path.display()),
            Err(why) => write!(error.why, "\n  write {}: {why}", path.display()),
        };
        error
    }

    /// Gives a guest's only card an address and sets it up. If that does not end, the error tells both machines' states.
    pub fn set_network_up(&self, guest: &Guest, name: &str, address: Ipv4Addr) -> Result<()> {
        let state = |error| self.with_state(error, [(name, guest.connection())]);
        guest.set_network_up(address).map_err(state)
    }

    /// Stops the host's processors and clock.
    pub fn pause(&mut self) -> Result<()> {
        self.qemu.monitor.pause()
    }

    /// Lets it go on.
    pub fn resume(&mut self) -> Result<()> {
        self.qemu.monitor.resume()
    }

    /// Runs `ip WORDS` in the host.
    pub fn ip(&self, words: &str) -> Result<()> {
        let argv: Vec<&str> = ["ip"].into_iter().chain(words.split_whitespace()).collect();
        self.connection.run(&argv).map(drop)
    }

    fn set_networks_up(&self) -> Result<()> {
        let cards = self
            .connection
            .text(&["sh", "-c", "grep -H . /sys/class/net/*/address"])?;
        for network in NETWORKS {
            let card = device_with_address(&cards, &network.mac()).ok_or_else(|| {
                let why = format!("no card has the address {}", network.mac());
                Error::machine(format!("find the {} network's card", network.name), why)
            })?;
            let (name, bridge) = (network.name, network.bridge());
            self.ip(&format!("link set dev {card} name {name}"))?;
            self.one_queue(name)?;
            self.ip(&format!(
                "link add name {bridge} type bridge stp_state 0 forward_delay 0"
            ))?;
            self.ip(&format!("address add {}/24 dev {bridge}", network.host()))?;
            self.ip(&format!("link set dev {name} master {bridge} up"))?;
            self.ip(&format!("link set dev {bridge} up"))?;
            self.interrupts_to_cpu(name, INTERRUPTS_CPU)?;
        }
        Ok(())
    }

    /// An igb has a queue a CPU and spreads flows over them by a hash with a random key: whether two
    /// loads share a CPU would be chance, another one each time a port number changes.
    fn one_queue(&self, device: &str) -> Result<()> {
        let argv = ["ethtool", "--set-channels", device, "combined", "1"];
        self.connection.run(&argv).map(drop)
    }

    /// Lets one CPU take a device's interrupts.
    pub fn interrupts_to_cpu(&self, device: &str, cpu: usize) -> Result<()> {
        let script = format!(
            "for irq in $(sed -n 's/^ *\\([0-9]*\\):.* {device}\\(-.*\\)\\?$/\\1/p' /proc/interrupts); do \
             echo {cpu} > /proc/irq/$irq/smp_affinity_list; done"
        );
        self.connection.run(&["sh", "-euc", &script]).map(drop)
    }
}

/// Where devices and the processor that is measured have CPUs of their own, whoever finds the emulator's
/// lock taken has it sooner if it does not sleep. Else it would keep the holder from its CPU. The
/// distribution's emulator cannot.
fn lock_spin_us(specification: &HostSpecification) -> Option<u32> {
    let is_ours = specification.emulator != Path::new(qemu::PROGRAM);
    let translates = specification.accelerator == Accelerator::Tcg;
    let apart = specification.devices_on_cpu.is_some();
    (is_ours && translates && apart).then_some(LOCK_SPIN_US)
}

fn machine(specification: &HostSpecification, console: &Path) -> Machine {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let card = |network: Network| Card {
        tap: network.name.to_owned(),
        mac: network.mac(),
        send_buffer_bytes: None,
        function: None,
        macvtap: false,
    };
    Machine {
        name: specification.name.clone(),
        monitor: Monitor::Qemu,
        sockets: None,
        kernel: text(&specification.kernel),
        initramfs: text(&specification.initramfs.path()),
        image: text(&specification.image),
        kernel_words: specification.kernel_words.clone(),
        accelerator: specification.accelerator,
        lock_spin_us: lock_spin_us(specification),
        cpus: 2,
        memory_mib: specification.memory_mib,
        real_time: false,
        iommu: specification.iommu,
        scratch: specification.scratch,
        console: text(console),
        cards: NETWORKS.into_iter().map(card).collect(),
    }
}

/// Keeps the kernels' logs of hosts whose figures are measured, which go on from now on. That one cannot
/// be had is said, and does not cost the figures.
pub fn keep_kernel_logs<'h>(
    hosts: impl IntoIterator<Item = &'h mut EmulatedHost>,
    observer: &dyn Observer,
) {
    for host in hosts {
        if let Err(error) = host.keep_kernel_log() {
            observer.tell(News::Note(format!("keep the kernel's log: {error}")));
        }
    }
}

/// Boots what `boot` boots. Under emulation a machine that is started may reset itself for no fault
/// of its kernel, so a boot that failed is tried again, and said.
pub fn boot_again<T>(observer: &dyn Observer, mut boot: impl FnMut() -> Result<T>) -> Result<T> {
    let mut attempts_left = BOOT_ATTEMPTS;
    loop {
        attempts_left -= 1;
        match boot() {
            Err(error) if attempts_left > 0 && error.blame == Blame::Machine => {
                observer.tell(News::Note(format!("{error}\n  booting it again")));
            }
            result => return result,
        }
    }
}

/// Boots what is `wanted`, as many at once as the machine has CPUs, each on a CPU of its own (the
/// number that `boot` gets): kernels that share CPUs while they boot misjudge their timers. `tell`
/// is told what is booted next.
pub fn boot_side_by_side<W: Sync, T: Send>(
    wanted: &[W],
    tell: impl Fn(&[W]),
    boot: impl Fn(&W, usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let boot = &boot;
    let mut booted = Vec::new();
    for wanted in wanted.chunks(scheduling::cpus()) {
        tell(wanted);
        let results: Vec<Result<T>> = thread::scope(|scope| {
            let boots: Vec<_> = wanted
                .iter()
                .enumerate()
                .map(|(cpu, wanted)| scope.spawn(move || boot(wanted, cpu)))
                .collect();
            let panicked = |_| Err(Error::machine("boot a host", "a thread panicked"));
            boots
                .into_iter()
                .map(|boot| boot.join().unwrap_or_else(panicked))
                .collect()
        });
        for result in results {
            booted.push(result?);
        }
    }
    Ok(booted)
}

/// The machine's own scheduling is the lab's noise floor: one processor thread a core, before
/// the machine's other work, and the thread that moves packets before all of them.
fn quiet_emulator(qemu: &mut Qemu, on_cpu: Option<usize>) -> Result<()> {
    for (cpu, thread) in qemu.monitor.processor_threads()?.into_iter().enumerate() {
        scheduling::pin(thread, on_cpu.unwrap_or(cpu))?;
        scheduling::prefer(thread)?;
    }
    let process = qemu.process.pid() as i32;
    scheduling::prefer_session(process)?;
    scheduling::make_fifo(process, scheduling::DEVICE_PRIORITY)
}

/// The device behind "/sys/class/net/DEVICE/address:ADDRESS".
fn device_with_address<'t>(listing: &'t str, address: &str) -> Option<&'t str> {
    listing.lines().find_map(|line| {
        let (path, found) = line.split_once(':')?;
        (found.trim() == address).then(|| path.split('/').nth(4))?
    })
}

/// What a host of this name said before it is booted again is why it is.
fn keep_earlier(console: &Path) -> Result<()> {
    let earlier = console.with_extension("earlier.console");
    match fs::rename(console, &earlier) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).doing(format!("rename {}", console.display()))
        }
        _ => Ok(()),
    }
}

/// Adds what the console says last to an error of a host that did not come up.
fn with_console(mut error: Error, console: &Path) -> Error {
    let mut text = Vec::new();
    let _ = File::open(console).and_then(|mut file| file.read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    let told = telling_lines(&text).join("\n    ");
    error.why = format!("{}\n  from {}:\n    {told}", error.why, console.display());
    error
}

/// How a kernel begins to tell of its own fault.
const FAULTS: [&str; 6] = [
    "BUG: ",
    "Oops: ",
    "kernel BUG at ",
    "general protection fault",
    "watchdog: ",
    "Kernel panic - ",
];

/// The lines of a console that tell why it ended: from the kernel's first fault, else the last ones.
fn telling_lines(console: &str) -> Vec<&str> {
    let lines: Vec<&str> = console.lines().collect();
    let tells = |line: &&str| FAULTS.iter().any(|fault| line.contains(fault));
    let fault = lines.iter().position(tells);
    let first = fault.unwrap_or(lines.len().saturating_sub(CONSOLE_LINES));
    lines.into_iter().skip(first).take(CONSOLE_LINES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Change = fn(&mut HostSpecification);

    #[test]
    fn hosts_beside_devices_of_their_own_try_for_our_emulators_lock() {
        let apart = HostSpecification {
            name: "host".to_owned(),
            kernel: PathBuf::new(),
            initramfs: Arc::new(PackedInitramfs::empty()),
            image: PathBuf::new(),
            kernel_words: String::new(),
            emulator: PathBuf::from("/var/cache/steadyvm/emulator/qemu-system-x86_64"),
            accelerator: Accelerator::Tcg,
            log_directory: PathBuf::new(),
            boot_patience: BOOT_PATIENCE,
            boot_on_cpu: None,
            devices_on_cpu: Some(0),
            iommu: false,
            scratch: false,
            memory_mib: 2048,
        };
        let accelerator = |specification: &HostSpecification| {
            let arguments = machine(specification, Path::new("console")).host_arguments();
            let at = arguments.iter().position(|word| word == "-accel").unwrap();
            arguments[at + 1].clone()
        };
        assert_eq!(accelerator(&apart), "tcg,thread=multi,lock-spin-us=20");
        let others: [(Change, &str); 3] = [
            (|host| host.devices_on_cpu = None, "tcg,thread=multi"),
            (
                |host| host.emulator = qemu::PROGRAM.into(),
                "tcg,thread=multi",
            ),
            (|host| host.accelerator = Accelerator::Kvm, "kvm"),
        ];
        for (change, expected) in others {
            let mut host = apart.clone();
            change(&mut host);
            assert_eq!(accelerator(&host), expected);
        }
    }

    #[test]
    fn a_console_tells_its_first_fault_else_its_end() {
        let lines: Vec<String> = (0..30).map(|line| format!("line {line}")).collect();
        assert_eq!(telling_lines(&lines.join("\n")), &lines[20..]);
        let panic = "[ 2.2] Kernel panic - not syncing: no init".to_owned();
        let fault = "[ 2.1] BUG: kernel NULL pointer dereference".to_owned();
        let console = [&lines[..5], &[fault], &lines[5..7], &[panic], &lines[7..]].concat();
        assert_eq!(telling_lines(&console.join("\n")), &console[5..15]);
        assert!(telling_lines("").is_empty());
    }

    #[test]
    fn a_card_is_found_by_its_address() {
        let listing = "/sys/class/net/eth0/address:52:54:00:77:02:02\n\
                       /sys/class/net/eth1/address:52:54:00:77:01:02\n";
        assert_eq!(device_with_address(listing, &RT.mac()), Some("eth1"));
        assert_eq!(device_with_address(listing, "00:00:00:00:00:00"), None);
    }
}
