//! `steadyvm-lab load attack`: what somebody who means harm does to a host, as a load.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use steadyvm_cli::output;
use steadyvm_fault::Fault;
use steadyvm_load::attack::{
    self, Aim, AttackError, Attacked, Frames, LEAST_BYTES, MOST_BYTES, Pace, Sender, To,
    USUAL_MOST_BYTES,
};

use super::layer2::{refused, stopped_by_signals};

/// The port that discards (RFC 863): where nobody listens.
const PORT: u16 = 9;
const SOCKETS: u32 = 10_000;

/// Which attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    /// The shortest UDP packets to an address, each from another port.
    UdpSmall,
    /// The same to a group: an IPv4 address or a hardware address.
    Multicast,
    /// The same to everybody on the interface's network.
    Broadcast,
    /// IPv4 fragments to an address that never become whole.
    Fragments,
    /// First segments (SYN) of TCP connections to an address.
    TcpConnect,
    /// ARP requests for an address, each by another sender.
    Arp,
    /// ICMP echo requests to an address.
    Icmp,
    /// The longest frames to an address or a hardware address.
    Transmit,
    /// Tiny frames to nobody: what is left is the card's doorbell.
    Doorbells,
    /// Threads that compute.
    Compute,
    /// Timers that expire at once, one after the other.
    Timers,
    /// Threads that interrupt each other's CPUs (membarrier).
    Interrupts,
    /// Small writes to a file or a disk, each of which has to reach the disk.
    Disk,
    /// Lines to a terminal, such as a guest's console.
    Console,
    /// Thousands of UDP sockets that send to an address.
    Sockets,
}

/// How an attack works, and what it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Frames(Frames),
    Compute,
    Timers,
    Interrupts,
    Disk,
    Console,
    Sockets,
}

impl Name {
    fn way(self) -> Way {
        match self {
            Self::UdpSmall => Way::Frames(Frames::UdpSmall),
            Self::Multicast => Way::Frames(Frames::Multicast),
            Self::Broadcast => Way::Frames(Frames::Broadcast),
            Self::Fragments => Way::Frames(Frames::Fragments),
            Self::TcpConnect => Way::Frames(Frames::TcpConnect),
            Self::Arp => Way::Frames(Frames::Arp),
            Self::Icmp => Way::Frames(Frames::Icmp),
            Self::Transmit => Way::Frames(Frames::Transmit),
            Self::Doorbells => Way::Frames(Frames::Doorbells),
            Self::Compute => Way::Compute,
            Self::Timers => Way::Timers,
            Self::Interrupts => Way::Interrupts,
            Self::Disk => Way::Disk,
            Self::Console => Way::Console,
            Self::Sockets => Way::Sockets,
        }
    }

    fn word(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |it| it.get_name().to_owned())
    }
}

/// Load a host as somebody who means harm does.
///
/// For tests on machines of your own: it takes what it gets. Attacks by frames need an interface and root (`CAP_NET_RAW`); the
/// others need neither. It says "attacking" on standard error as it begins, and prints what was attempted, what the kernel took,
/// what it had no room for, and the rate. Ctrl-C ends it early.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which attack.
    #[arg(value_enum)]
    name: Name,
    /// The interface of an attack by frames, such as eth0.
    interface: Option<String>,
    /// For so many seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Attempts per second, of all threads together [default: as many as go].
    #[arg(long, value_name = "N")]
    rate: Option<NonZeroU32>,
    /// Whom it is for: an IPv4 address, or a hardware address where frames need no more.
    #[arg(long, value_name = "ADDRESS")]
    to: Option<To>,
    /// The hardware address of who has that address [default: who answers ARP].
    #[arg(long, value_name = "ADDRESS", value_parser = hardware)]
    hardware: Option<Hardware>,
    /// The IPv4 address that packets come from [default: the interface's].
    #[arg(long, value_name = "ADDRESS")]
    from: Option<Ipv4Addr>,
    /// UDP's or TCP's port there [default: 9, which discards].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// transmit: bytes of each frame without its checksum [default: 1514].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(LEAST_BYTES as i64..=MOST_BYTES as i64))]
    bytes: Option<u32>,
    /// compute, timers, interrupts: threads [default: one per CPU].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// disk: where the file is made, which is gone at the end.
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// disk: instead of a file, a disk whose first MiB is written over.
    #[arg(long, value_name = "FILE", conflicts_with = "directory")]
    device: Option<PathBuf>,
    /// console: the terminal, such as /dev/console.
    #[arg(long, value_name = "FILE")]
    terminal: Option<PathBuf>,
    /// sockets: how many [default: 10000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    sockets: Option<u32>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

type Hardware = [u8; 6];

fn hardware(text: &str) -> Result<Hardware, String> {
    match text.parse()? {
        To::Hardware(address) => Ok(address),
        To::Address(_) => Err("write a hardware address, such as 52:54:00:78:00:01".to_owned()),
    }
}

impl Args {
    /// Runs the verb.
    pub fn run(&self) -> Result<()> {
        self.check()?;
        let stop = stopped_by_signals()?;
        let pace = Pace {
            per_second: self.rate,
            duration: Duration::from_secs(self.seconds.into()),
            stop: &stop,
        };
        let attacked = self.attack(&pace)?;
        if self.json {
            return output::json(&attacked);
        }
        output::line(&words(&attacked))
    }

    fn what(&self) -> String {
        format!("cannot attack by {}", self.name.word())
    }

    /// Refuses options that the attack has no use for, and asks for those that it needs.
    fn check(&self) -> Result<(), Fault> {
        let way = self.name.way();
        let is_frames = matches!(way, Way::Frames(_));
        let has_address = !matches!(way, Way::Frames(Frames::Broadcast | Frames::Doorbells));
        let is_asked_for = is_frames && has_address && way != Way::Frames(Frames::Arp);
        let has_packets = is_frames && !matches!(way, Way::Frames(Frames::Arp | Frames::Doorbells));
        let has_port = has_packets && way != Way::Frames(Frames::Icmp) || way == Way::Sockets;
        let in_threads = matches!(way, Way::Compute | Way::Timers | Way::Interrupts);
        let may_be_for = is_frames && way != Way::Frames(Frames::Broadcast) || way == Way::Sockets;
        for (given, is_given, is_used) in [
            ("an interface", self.interface.is_some(), is_frames),
            ("--to", self.to.is_some(), may_be_for),
            ("--hardware", self.hardware.is_some(), is_asked_for),
            ("--from", self.from.is_some(), has_packets),
            ("--port", self.port.is_some(), has_port),
            (
                "--bytes",
                self.bytes.is_some(),
                way == Way::Frames(Frames::Transmit),
            ),
            ("--threads", self.threads.is_some(), in_threads),
            ("--directory", self.directory.is_some(), way == Way::Disk),
            ("--device", self.device.is_some(), way == Way::Disk),
            ("--terminal", self.terminal.is_some(), way == Way::Console),
            ("--sockets", self.sockets.is_some(), way == Way::Sockets),
        ] {
            if is_given && !is_used {
                let why = format!("it has no use for {given}");
                return Err(Fault::input(self.what(), why).what_to_do("leave it out"));
            }
        }
        Ok(())
    }

    fn attack(&self, pace: &Pace) -> Result<Attacked, Fault> {
        let threads = self.threads.unwrap_or_else(cpus);
        let ours = |error| self.fault(error);
        match self.name.way() {
            Way::Frames(frames) => self.frames(frames, pace),
            Way::Compute => begun(|| attack::compute(threads, pace)).map_err(ours),
            Way::Timers => begun(|| attack::timers(threads, pace)).map_err(ours),
            Way::Interrupts => begun(|| attack::interrupts(threads, pace)).map_err(ours),
            Way::Disk => self.disk(pace),
            Way::Console => {
                let terminal = self.needed(self.terminal.as_deref(), "--terminal FILE")?;
                let done = begun(|| attack::console(terminal, pace));
                done.map_err(|error| in_place(error, terminal))
            }
            Way::Sockets => {
                let to = self.needed(self.to, "--to ADDRESS")?;
                let To::Address(address) = to else {
                    return Err(self.fault(AttackError::NotAnAddress(to)));
                };
                let to = SocketAddrV4::new(address, self.port.unwrap_or(PORT));
                let sockets = self.sockets.unwrap_or(SOCKETS);
                begun(|| attack::sockets(to, sockets, pace)).map_err(ours)
            }
        }
    }

    fn disk(&self, pace: &Pace) -> Result<Attacked, Fault> {
        if let Some(device) = &self.device {
            let done = begun(|| attack::device(device, pace));
            return done.map_err(|error| in_place(error, device));
        }
        let directory = self.directory.as_deref();
        let directory = self.needed(directory, "--directory DIR or --device FILE")?;
        let done = begun(|| attack::disk(directory, pace));
        done.map_err(|error| in_place(error, directory))
    }

    fn frames(&self, frames: Frames, pace: &Pace) -> Result<Attacked, Fault> {
        let interface = self.needed(self.interface.as_deref(), "an INTERFACE")?;
        let aim = Aim {
            to: self.to,
            hardware: self.hardware,
            from: self.from,
            port: self.port.unwrap_or(PORT),
            bytes: self.bytes.map_or(USUAL_MOST_BYTES, |it| it as usize),
        };
        let sender = Sender::open(interface, frames, &aim);
        let sent = sender.and_then(|sender| begun(|| sender.run(pace)));
        sent.map_err(|error| match error {
            AttackError::Io(error) => refused("send on", interface, &error),
            error => self.fault(error),
        })
    }

    fn needed<T>(&self, given: Option<T>, words: &str) -> Result<T, Fault> {
        given.ok_or_else(|| {
            Fault::input(self.what(), format!("it needs {words}"))
                .what_to_do("see steadyvm-lab load attack --help")
        })
    }

    fn fault(&self, error: AttackError) -> Fault {
        let what_to_do = match error {
            AttackError::NoTarget => "name somebody with --to",
            AttackError::NotAnAddress(_) => {
                "give --to an IPv4 address; --hardware says who has it where nobody answers ARP"
            }
            AttackError::NotHardware(_) => "give --to a hardware address, or leave it out",
            AttackError::NotOneMachine(_) => "give --to the IPv4 address of one machine",
            AttackError::NotMulticast(_) => {
                "give --to a group, such as 239.1.1.1 or 01:0c:cd:01:00:01"
            }
            AttackError::NoAnswer(_) => {
                "check the address, or give the machine's hardware address with --hardware"
            }
            AttackError::Bytes(_) | AttackError::TooLong(_) => "give fewer with --bytes",
            AttackError::OneThread => "run it where there are two CPUs, with --threads 2 or more",
            AttackError::NoDisk | AttackError::NoTerminal | AttackError::Io(_) => "",
        };
        let what = self.what();
        match error {
            AttackError::Io(error) => Fault::machine(what, error),
            AttackError::NoAnswer(_) => Fault::machine(what, error).what_to_do(what_to_do),
            _ => Fault::input(what, error).what_to_do(what_to_do),
        }
    }
}

/// Does it, and tells whoever waits for its beginning.
fn begun<T>(attack: impl FnOnce() -> T) -> T {
    output::say("attacking");
    attack()
}

fn cpus() -> u32 {
    thread::available_parallelism().map_or(1, |it| it.get() as u32)
}

fn in_place(error: AttackError, path: &Path) -> Fault {
    let what_to_do = match &error {
        AttackError::NoDisk => "`lsblk` lists them",
        AttackError::NoTerminal => "`tty` tells a terminal's file",
        AttackError::Io(error) if error.kind() == ErrorKind::ResourceBusy => {
            "name one that is not mounted and that nobody uses"
        }
        _ => "name one that is there and that this user may write",
    };
    Fault::input(format!("cannot write to {}", path.display()), error).what_to_do(what_to_do)
}

fn words(attacked: &Attacked) -> String {
    let Attacked {
        attempted,
        sent,
        refused,
        duration_s,
        per_s,
        sockets,
    } = attacked;
    let by = sockets.map_or_else(String::new, |it| format!(" by {it} sockets"));
    format!(
        "attempted {attempted}{by}, sent {sent}, refused {refused} in {duration_s:.1} s: {per_s:.0} per second"
    )
}
