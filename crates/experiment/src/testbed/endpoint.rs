//! What packets go between: VMs, or processes in network namespaces.

use super::setting::{Endpoints, Setting};
use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;
use steadyvm_lab::agent::{Connection, Process};
use steadyvm_lab::host::{EmulatedHost, RT};
use steadyvm_lab::laboratory::guest;
use steadyvm_lab::progress::Observer;
use steadyvm_lab::{Error, Result};

/// The two that are measured.
const HIGH: [&str; 2] = ["high1", "high2"];
/// The others.
const LOW: [&str; 3] = ["low1", "low2", "low3"];
/// The first one's last byte of its address; the others follow.
const FIRST_ADDRESS: u8 = 10;
/// Enough for a guest's system and its loads.
const GUEST_MEMORY_MIB: u32 = 160;
/// Guests of one host that boot side by side.
const BOOTED_AT_ONCE: usize = 2;
/// What a guest whose tap takes its packets one by one may have on the way: more than a ring of 256
/// packets holds, so that it never is what limits it.
const SEND_BUFFER_BYTES: u32 = 16 << 20;
/// The priority of the measured processes in a namespace, with every method; VMs get theirs from the
/// method. Below `rx_level/CPU` (70): at its priority a process that does not sleep would keep its own
/// packets from being polled.
const PROCESS_PRIORITY: &str = "60";
/// Inside of a guest, for every method: before the guest's own housekeeping.
const GUEST_PROCESS_PRIORITY: &str = "50";

/// A process starts within this time, on a loaded machine too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// One of them.
pub(crate) struct Endpoint {
    /// Its device on the host's bridge.
    pub device: String,
    /// Its address.
    pub address: Ipv4Addr,
    name: &'static str,
    connection: Connection,
    /// The words before those of a process.
    by: Vec<String>,
    /// The FIFO priority of its loads, if they have one.
    priority: Option<&'static str>,
}

/// All of a host.
pub(crate) struct Party {
    /// The two that are measured.
    pub high: [Endpoint; 2],
    /// The others.
    pub low: Vec<Endpoint>,
}

impl Endpoint {
    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Starts a process there, at normal priority.
    pub fn spawn(&self, words: &[&str]) -> Result<Process> {
        let by = self.by.iter().map(String::as_str);
        let words: Vec<&str> = by.chain(words.iter().copied()).collect();
        self.connection.spawn(&words)
    }

    /// Starts a load, at the endpoint's priority, that says when it is ready.
    pub fn start(&self, words: &[&str]) -> Result<Process> {
        let mut with_priority = Vec::new();
        if let Some(priority) = self.priority {
            with_priority.extend(["chrt", "-f", priority]);
        }
        with_priority.extend(words);
        let mut process = self.spawn(&with_priority)?;
        process.wait_for_line("ready", PATIENCE)?;
        Ok(process)
    }
}

impl Party {
    /// Starts all of them on a host's bridge.
    pub fn start(host: &EmulatedHost, setting: Setting, observer: &dyn Observer) -> Result<Self> {
        let names: Vec<&'static str> = HIGH.into_iter().chain(LOW).collect();
        let mut started = match setting.endpoints {
            Endpoints::Vms => {
                host.require_kvm()?;
                start_guests(host, &names, setting, observer)?
            }
            Endpoints::Namespaces => {
                let numbered = names.iter().enumerate();
                numbered
                    .map(|(number, name)| make_namespace(host, name, number, setting))
                    .collect::<Result<Vec<_>>>()?
            }
        };
        let low = started.split_off(HIGH.len());
        let high = started
            .try_into()
            .map_err(|_| Error::machine("start the endpoints", "there are fewer than two"))?;
        Ok(Self { high, low })
    }

    /// The devices of the others.
    pub fn low_devices(&self) -> impl Iterator<Item = &str> {
        self.low.iter().map(|endpoint| &*endpoint.device)
    }

    /// Those that are machines, with their names.
    pub fn machines(&self) -> impl Iterator<Item = (&str, &Connection)> {
        let all = self.high.iter().chain(&self.low);
        all.filter(|it| it.by.is_empty())
            .map(|it| (it.name, &it.connection))
    }

    /// The options of `steadyvm apply --method` that name the two: their VMs, or these processes.
    pub fn options(
        &self,
        host: &EmulatedHost,
        endpoints: Endpoints,
        processes: &[u32],
    ) -> Result<Vec<String>> {
        let option = |name: &str, value: String| [name.to_owned(), value];
        let named = match endpoints {
            Endpoints::Vms => {
                let monitor = |it: &Endpoint| Ok(format!("{}:0", host.guest_pid(it.name)?));
                let monitors = self.high.iter().map(monitor).collect::<Result<Vec<_>>>()?;
                monitors
                    .into_iter()
                    .map(|it| option("--vm", it))
                    .collect::<Vec<_>>()
            }
            Endpoints::Namespaces => {
                let processes = processes.iter().map(ToString::to_string);
                processes.map(|it| option("--process", it)).collect()
            }
        };
        Ok(named.into_iter().flatten().collect())
    }
}

fn is_high(name: &str) -> bool {
    HIGH.contains(&name)
}

fn address(number: usize) -> Ipv4Addr {
    RT.address(FIRST_ADDRESS + number as u8)
}

fn start_guests(
    host: &EmulatedHost,
    names: &[&'static str],
    setting: Setting,
    observer: &dyn Observer,
) -> Result<Vec<Endpoint>> {
    let numbered: Vec<(usize, &'static str)> = names.iter().copied().enumerate().collect();
    let mut started = Vec::new();
    for some in numbered.chunks(BOOTED_AT_ONCE) {
        let booted: Vec<Result<Endpoint>> = thread::scope(|scope| {
            let boot = |&(number, name): &(usize, &'static str)| {
                scope.spawn(move || start_guest(host, name, number, setting, observer))
            };
            let boots: Vec<_> = some.iter().map(boot).collect();
            let panicked = |_| Err(Error::machine("start a guest", "a thread panicked"));
            boots
                .into_iter()
                .map(|boot| boot.join().unwrap_or_else(panicked))
                .collect()
        });
        for endpoint in booted {
            started.push(endpoint?);
        }
    }
    Ok(started)
}

fn start_guest(
    host: &EmulatedHost,
    name: &'static str,
    number: usize,
    setting: Setting,
    observer: &dyn Observer,
) -> Result<Endpoint> {
    let mut machine = guest(name, 1 + number as u8, 1);
    machine.memory_mib = GUEST_MEMORY_MIB;
    if setting.has_batches && !is_high(name) {
        for card in &mut machine.cards {
            card.send_buffer_bytes = Some(SEND_BUFFER_BYTES);
        }
    }
    let device = machine.cards[0].tap.clone();
    let started = host.start_guest(&machine, &[RT], observer)?;
    started.set_network_up(address(number))?;
    Ok(Endpoint {
        device,
        address: address(number),
        name,
        connection: started.connection().clone(),
        by: Vec::new(),
        priority: is_high(name).then_some(GUEST_PROCESS_PRIORITY),
    })
}

/// A pair of veth devices. By default all of them share each CPU's backlog; where the kernel has
/// levels, those of the high-priority endpoints get NAPIs of their own, on the RT level.
fn make_namespace(
    host: &EmulatedHost,
    name: &'static str,
    number: usize,
    setting: Setting,
) -> Result<Endpoint> {
    host.make_namespace(name, RT, address(number))?;
    if is_high(name) && setting.method.has_levels() {
        // A veth device uses its NAPI with GRO only, and only for what its peer does not segment itself.
        let to_rt_level = |device: &str| {
            format!("ethtool -K {device} gro on tso off; echo 1 > /sys/class/net/{device}/rx_level")
        };
        let inside = to_rt_level("eth0");
        let here = ["sh", "-euc", &to_rt_level(name)];
        host.connection().run(&here)?;
        let there = ["ip", "netns", "exec", name, "sh", "-euc", &inside];
        host.connection().run(&there)?;
    }
    let by = ["ip", "netns", "exec", name];
    Ok(Endpoint {
        device: name.to_owned(),
        address: address(number),
        name,
        connection: host.connection().clone(),
        by: by.map(str::to_owned).into(),
        priority: is_high(name).then_some(PROCESS_PRIORITY),
    })
}
