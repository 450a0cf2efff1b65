//! One row's host: the relay, a VM that receives a stream and a real-time neighbour, behind one card.

use super::arrivals::{self, Arrival};
use super::cell::{Cell, FRAMES_PER_S};
use super::contexts::{self, Handing};
use super::row::{Row, Set, Way};
use crate::engine::rounds::{or_broken, station};
use crate::testbed::beside::{BULKS_TAP, Others};
use crate::testbed::one_card::apply_file;
use crate::testbed::phase::SERVICE_PATIENCE;
use crate::testbed::receivers::card_to_rt_vcpu;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use steadyvm_lab::agent::{Connection, Process, Status};
use steadyvm_lab::emulator::Machine;
use steadyvm_lab::host::{EmulatedHost, HostSpecification, RT};
use steadyvm_lab::laboratory::{Laboratory, guest};
use steadyvm_lab::progress::Observer;
use steadyvm_lab::{At, Error, Guest, Result, scheduling};
use steadyvm_load::layer2::{
    MOST_STREAMS, PacketSocket, Protocol, Publication, Published, TallyReport, publish,
};

/// The relay: its name, number, virtual CPUs and the last byte of its address. One virtual CPU is for housekeeping and one for
/// the subscriber.
const RELAY: (&str, u8, u32, u8) = ("rt", 1, 2, 3);
const RELAYS_TAP: &str = "tap-rt";

/// For the command line of a kernel whose devices guests have.
const PASSTHROUGH_WORDS: &str = "intel_iommu=on iommu=pt";

/// What the guide has for a relay and the card of its process bus.
const FILE: &str =
    "[[nic]]\nname = \"rt\"\nclass = \"rt\"\n[[vm]]\nname = \"rt\"\nclass = \"rt\"\n";
/// What the guide has besides where Open vSwitch connects the VMs.
const SWITCH: &str = "[[host_service]]\nunit = \"ovs-vswitchd.service\"\nrank = 85\n";
/// With it NAPI threads poll, also where the kernel has threads of interrupts.
const THREADS: &str = "[class.rt]\nthreaded_napi = true\n";
/// Where the subscriber writes each frame with its arrival.
const CAPTURE: &str = "/run/frames.pcap";
/// Frames that are on their way have arrived by then, or are lost.
const ARRIVING: Duration = Duration::from_secs(3);
/// What is not ended ends after this, in seconds.
const LONGEST_S: u64 = 3600;
/// A capture is read from a slow guest in this time.
const CAPTURE_PATIENCE: Duration = Duration::from_secs(300);
/// What one measurement gives.
#[derive(Debug)]
pub(super) struct Sample {
    pub published: Published,
    /// When sending began and when it ended, in nanoseconds since 1970 by the clock outside.
    pub sending: (u64, u64),
    /// What the subscriber counted.
    pub report: TallyReport,
    pub arrivals: Vec<Arrival>,
    /// Who handed the frames to the relay's device.
    pub handings: Vec<Handing>,
    /// What the TCP stream carried, if one flowed.
    pub mbit_per_s: Option<f64>,
}

/// A booted host with its row's settings in force.
pub(super) struct Layer2Station {
    row: Row,
    host: EmulatedHost,
    relay: Guest,
    others: Others,
    broken: bool,
}

station!(Layer2Station);

impl Layer2Station {
    /// Boots the host with its guests, puts the row in force and stops the host's clock.
    pub fn boot(
        laboratory: &Laboratory,
        row: Row,
        on_cpu: usize,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let host = laboratory.host(row.setting.name, row.setting.kernel)?;
        let iommu = row.way == Way::Passthrough;
        let words = if iommu { PASSTHROUGH_WORDS } else { "" };
        let specification = HostSpecification {
            boot_on_cpu: Some(on_cpu),
            kernel_words: format!("{} {words}", host.kernel_words),
            iommu,
            ..host
        };
        let mut host = EmulatedHost::boot(&specification)?;
        host.require_kvm()?;
        if row.way == Way::OpenVswitch {
            host.use_open_vswitch(RT)?;
        }
        let (relay, others) = start_guests(&host, row.way, observer)?;
        card_to_rt_vcpu(&relay)?;
        if row.way == Way::Macvtap {
            subscribe_macvtaps(&host)?;
        }
        match row.set {
            Set::Nothing => {}
            Set::File => apply_file(&host, FILE)?,
            Set::Switch => apply_file(&host, &format!("{FILE}{SWITCH}"))?,
            Set::Threads => apply_file(&host, &format!("{THREADS}{FILE}"))?,
            Set::Method(method) => {
                let monitor = host.guest_pid(RELAY.0)?;
                let named = ["--vm".to_owned(), format!("{monitor}:1")];
                host.put_in_force(method, RT, &named)?;
            }
        }
        host.pause()?;
        host.spread_processors()?;
        Ok(Self {
            row,
            host,
            relay,
            others,
            broken: false,
        })
    }

    /// Lets the host run for one condition: so many frames of all streams.
    pub fn measure(&mut self, cell: Cell, frames: u64) -> Result<Sample> {
        let measured = self.resume_and_measure(cell, frames);
        let machines = [
            ("the relay", self.relay.connection()),
            ("the bulk VM", self.others.bulk.connection()),
            ("the neighbour", self.others.neighbour.connection()),
        ];
        or_broken(measured, (&self.host, &mut self.broken), self.row, machines)
    }

    fn resume_and_measure(&mut self, cell: Cell, frames: u64) -> Result<Sample> {
        self.host.resume()?;
        let (frames, duration) = due(cell, frames);
        contexts::begin(self.host.connection(), RELAYS_TAP)?;
        let subscriber = start_subscriber(self.relay.connection(), frames)?;
        let running = self.others.begin(&self.host, cell.beside, duration)?;
        let begun_ns = now_ns();
        let published = self.publish(cell, duration)?;
        let ended_ns = now_ns();
        let mbit_per_s = running.end()?;
        let report = end_subscriber(&subscriber)?;
        let handings = contexts::end(self.host.connection())?;
        let capture = self.relay.connection().spawn(&["cat", CAPTURE])?;
        let capture = capture.finish(CAPTURE_PATIENCE)?.output;
        self.host.pause()?;
        Ok(Sample {
            published,
            sending: (begun_ns, ended_ns),
            report,
            arrivals: arrivals::arrivals(&capture)?,
            handings,
            mbit_per_s,
        })
    }

    /// Sends from outside at real-time priority, for the time that the frames take.
    fn publish(&self, cell: Cell, duration: Duration) -> Result<Published> {
        self.host.outside().enter(|| {
            scheduling::make_fifo(0, scheduling::CLIENT_PRIORITY)?;
            let what = "publish Sampled Values";
            let socket = PacketSocket::sending(RT.name).doing(what)?;
            let publication = Publication::SampledValues {
                per_second: FRAMES_PER_S,
            };
            let never = AtomicBool::new(false);
            publish(&socket, &publication, cell.streams, None, duration, &never).doing(what)
        })
    }
}

/// The clock that the publisher's marks have.
fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

/// How many frames are sent, as many of each stream, and how long that takes. The publisher sends what is due before the end.
fn due(cell: Cell, frames: u64) -> (u64, Duration) {
    let streams = u64::from(cell.streams);
    let of_stream = frames.div_ceil(streams).max(1);
    let duration = Duration::from_nanos(of_stream * 1_000_000_000 / u64::from(FRAMES_PER_S));
    (of_stream * streams, duration)
}

fn start_guests(host: &EmulatedHost, way: Way, observer: &dyn Observer) -> Result<(Guest, Others)> {
    thread::scope(|scope| {
        let relay = scope.spawn(|| start_relay(host, way, observer));
        let others = Others::start(host, observer, |machine| by_macvtap(machine, way));
        let panicked = |_| Err(Error::machine("start a guest", "a thread panicked"));
        let relay = relay.join().unwrap_or_else(panicked);
        Ok((relay?, others?))
    })
}

fn by_macvtap(machine: &mut Machine, way: Way) {
    for card in &mut machine.cards {
        card.macvtap = way == Way::Macvtap;
    }
}

fn start_relay(host: &EmulatedHost, way: Way, observer: &dyn Observer) -> Result<Guest> {
    let (name, number, cpus, last) = RELAY;
    let mut machine = guest(name, number, cpus);
    by_macvtap(&mut machine, way);
    if way == Way::Passthrough {
        for card in &mut machine.cards {
            card.function = Some(host.make_function(RT, &card.mac)?);
            // The others' packets come by the card as before.
            host.ip(&format!("link set dev {} master {}", RT.name, RT.bridge()))?;
        }
    }
    let relay = host.start_guest(&machine, &[RT], observer)?;
    host.set_network_up(&relay, name, RT.address(last))?;
    let mut cards = machine.cards.iter();
    if let Some(function) = cards.find_map(|card| card.function.as_deref()) {
        relay.await_link()?;
        host.function_to_interrupts_cpu(function)?;
    }
    Ok(relay)
}

/// Lets two macvtaps want the streams: of one alone the kernel hands frames on where it received them. A host's administrator or
/// libvirt (`trustGuestRxFilters`) does that.
fn subscribe_macvtaps(host: &EmulatedHost) -> Result<()> {
    for stream in 1..=MOST_STREAMS {
        let address = Protocol::SampledValues.destination(stream);
        let address = address.map(|byte| format!("{byte:02x}")).join(":");
        for tap in [RELAYS_TAP, BULKS_TAP] {
            host.ip(&format!("maddr add {address} dev {tap}"))?;
        }
    }
    Ok(())
}

/// Starts a subscriber on the relay's second CPU, at real-time priority. It ends by itself when all frames have come.
fn start_subscriber(relay: &Connection, frames: u64) -> Result<Process> {
    let script = format!(
        "rm -f {CAPTURE}; exec taskset -c 1 chrt -f 50 steadyvm-lab load subscribe eth0 --seconds {LONGEST_S} \
         --frames {frames} --pcap {CAPTURE} --json"
    );
    let mut subscriber = relay.spawn(&["sh", "-euc", &script])?;
    subscriber.wait_for_line("listening", SERVICE_PATIENCE)?;
    Ok(subscriber)
}

/// Waits for the subscriber's end; where frames are lost, tells it to end.
fn end_subscriber(subscriber: &Process) -> Result<TallyReport> {
    let what = "subscribe in the relay";
    let (mut output, mut said) = (Vec::new(), Vec::new());
    let status = thread::scope(|scope| {
        let (ended, end) = channel();
        let (output, said) = (&mut output, &mut said);
        scope.spawn(move || {
            let status = subscriber.follow_within(SERVICE_PATIENCE, |stream, data| match stream {
                steadyvm_lab::agent::Stream::Output => output.extend_from_slice(data),
                steadyvm_lab::agent::Stream::Error => said.extend_from_slice(data),
            });
            // Who waits has gone only with this thread.
            let _ = ended.send(status);
        });
        end.recv_timeout(ARRIVING).or_else(|_| {
            subscriber.signal(libc::SIGINT)?;
            end.recv().doing(what)
        })
    })?;
    if status? != Status::Exited(0) {
        let said = String::from_utf8_lossy(&said).into_owned();
        return Err(Error::machine(what, said));
    }
    serde_json::from_slice(&output).doing(what)
}

#[cfg(test)]
mod tests {
    use super::super::cell::CELLS;
    use super::*;

    #[test]
    fn every_frame_of_every_stream_is_due_before_the_end_and_no_other() {
        for cell in CELLS {
            for frames in [1, 7, 200, 1_000_000] {
                let (sent, duration) = due(cell, frames);
                let of_stream = duration.as_nanos() * u128::from(FRAMES_PER_S);
                let due = of_stream.div_ceil(1_000_000_000) * u128::from(cell.streams);
                assert_eq!(due, u128::from(sent));
                assert!((frames..frames + u64::from(MOST_STREAMS)).contains(&sent));
            }
        }
    }
}
