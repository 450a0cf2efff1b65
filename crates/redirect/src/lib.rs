//! One card for many VMs: takes a VM's packets from the card to the VM's tap, past the host's bridge.
//!
//! Two ways. [`receive`] and [`send`] join a network device that receives only this VM's packets, such as a virtual
//! function of the card, with the tap, a direction each (tcx, Linux 6.6). [`by_address`] attaches an
//! XDP program to the card itself, which looks the destination address up and hands the frame to the tap;
//! what the VM sends goes the ordinary way.
//!
//! Mechanism only. Everything is held by pins in one directory of a BPF file system; [`remove`] ends it.
//! A packet that no program redirects goes on as if there were none.

mod budgets;

use std::fs;
use std::io;
use std::mem::size_of;
use std::os::fd::AsFd;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Mutex;

use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::{
    AsRawLibbpf, Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject, ProgramMut,
    set_print,
};
use serde::{Deserialize, Serialize};

pub use budgets::{Budget, Received, limit, limits, received};

use budgets::{BUDGETS, RECEIVED};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/redirect.bpf.o"));

/// libbpf has one place for what it prints.
static PRINTING: Mutex<()> = Mutex::new(());

const SETTINGS: &str = "settings";
const COUNTERS: &str = "counters";
const TAPS: &str = "taps";
const CPUS: &str = "cpus";
const TO_TAP: &str = "to_tap";
const FROM_TAP: &str = "from_tap";
const BY_ADDRESS: &str = "by_address";

/// Bytes of `settings` in bpf/redirect.bpf.c: two indices, an address, two bytes unused.
const SETTINGS_BYTES: usize = 2 * size_of::<u32>() + 8;

/// Packets to others that wait for a CPU's thread: a ring of a fast card.
const QUEUE_PACKETS: u32 = 2048;

/// A hardware address.
pub type Address = [u8; 6];

/// A step that the kernel refused, and why.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action}: {cause}")]
pub struct Error {
    /// The step.
    pub action: String,
    /// The kernel's reason.
    pub cause: io::Error,
}

/// The result of a step.
pub type Result<T> = std::result::Result<T, Error>;

/// A tap, the device that receives its VM's packets, and the VM's address. Devices by their index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The virtual function's network device.
    pub function: u32,
    /// The tap.
    pub tap: u32,
    /// The VM's address. Frames of other senders on the tap go by the bridge.
    pub address: Address,
}

/// Packets since the programs are there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Redirected to a tap.
    pub to_tap: u64,
    /// Redirected from the tap to the function.
    pub from_tap: u64,
    /// Left to the ordinary way.
    pub passed: u64,
}

trait Cannot<T> {
    fn cannot(self, action: impl Into<String>) -> Result<T>;
}

impl<T> Cannot<T> for libbpf_rs::Result<T> {
    fn cannot(self, action: impl Into<String>) -> Result<T> {
        self.map_err(|error| Error {
            action: action.into(),
            cause: io::Error::new(error.kind_of_io(), error.to_string()),
        })
    }
}

impl<T> Cannot<T> for io::Result<T> {
    fn cannot(self, action: impl Into<String>) -> Result<T> {
        self.map_err(|cause| Error {
            action: action.into(),
            cause,
        })
    }
}

trait KindOfIo {
    fn kind_of_io(&self) -> io::ErrorKind;
}

impl KindOfIo for libbpf_rs::Error {
    fn kind_of_io(&self) -> io::ErrorKind {
        match self.kind() {
            libbpf_rs::ErrorKind::NotFound => io::ErrorKind::NotFound,
            libbpf_rs::ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
            libbpf_rs::ErrorKind::AlreadyExists => io::ErrorKind::AlreadyExists,
            _ => io::ErrorKind::Other,
        }
    }
}

/// Hands what a function receives to a tap. `directory` is made, below a BPF file system.
///
/// # Errors
/// A device is gone, or the kernel has no tcx. Then nothing is left behind.
pub fn receive(directory: &Path, pair: &Pair) -> Result<()> {
    make(directory, || {
        let mut object = load(|map| fill(map, pair), &[TO_TAP])?;
        pin_map(&mut object, ".rodata", &directory.join(SETTINGS))?;
        pin_map(&mut object, COUNTERS, &directory.join(COUNTERS))?;
        attach(&object, directory, TO_TAP, pair.function)
    })
}

/// Hands what a VM sends to the function that it receives by. The card must know the VM's address by then: it sends nothing
/// for a sender that is not the function's.
///
/// # Errors
/// A device is gone, or nothing of the pair is there. What was there before stays.
pub fn send(directory: &Path, pair: &Pair) -> Result<()> {
    let open = |object: &mut OpenObject| {
        fill(object, pair)?;
        // One count for both directions.
        let mut maps = object.maps_mut();
        let counters = maps.find(|map| map.name() == COUNTERS);
        let mut counters = counters.ok_or_else(|| broken("find the counters", "there are none"))?;
        let path = directory.join(COUNTERS);
        let pinned = open_map(directory, COUNTERS)?;
        counters
            .reuse_fd(pinned.as_fd())
            .cannot(format!("use {}", path.display()))
    };
    let object = load(open, &[FROM_TAP])?;
    attach(&object, directory, FROM_TAP, pair.tap)
}

fn attach(object: &Object, directory: &Path, name: &str, device: u32) -> Result<()> {
    let mut link = attach_tcx(&program(object, name)?, device)?;
    link.pin(directory.join(name)).cannot(format!("pin {name}"))
}

/// Ends the direction from the tap. Nothing there is no error.
///
/// # Errors
/// The pin cannot be removed.
pub fn send_no_more(directory: &Path) -> io::Result<()> {
    ignore_absent(fs::remove_file(directory.join(FROM_TAP)))
}

/// The pair that is joined there; none if nothing is.
///
/// # Errors
/// The directory is there and something of the pair is missing: a device went, or joining was interrupted.
pub fn joined(directory: &Path) -> Result<Option<Pair>> {
    if !directory.exists() {
        return Ok(None);
    }
    let settings = open_map(directory, SETTINGS)?;
    let bytes = settings.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
    let bytes = bytes.cannot("read the settings")?.unwrap_or_default();
    let pair = pair_of(&bytes).ok_or_else(|| broken("read the settings", "they are cut"))?;
    for (name, device) in [(TO_TAP, pair.function), (FROM_TAP, pair.tap)] {
        if attached_to(&directory.join(name))? != device {
            return Err(broken(format!("find {name}"), "its device went"));
        }
    }
    Ok(Some(pair))
}

/// Attaches the XDP program to a card, without any VM, and starts a thread per CPU of `cpus` that other packets go on in. The
/// threads are called `cpumap/CPU/map:NUMBER`. `directory` is made, below a BPF file system.
///
/// # Errors
/// The driver has no XDP, or another program is there. Then nothing is left behind.
pub fn by_address(directory: &Path, card: u32, cpus: &[u32]) -> Result<()> {
    make(directory, || {
        let object = load_by_address(directory, cpus)?;
        let program = program(&object, BY_ADDRESS)?;
        let index = i32::try_from(card).unwrap_or(-1);
        let mut link = quietly(|| program.attach_xdp(index)).cannot("attach XDP to the card")?;
        let path = directory.join(BY_ADDRESS);
        link.pin(path).cannot("pin the XDP program")
    })
}

/// Loads the XDP program, pins its maps, and starts its threads.
fn load_by_address(directory: &Path, cpus: &[u32]) -> Result<Object> {
    let room = cpus.iter().max().map_or(1, |last| last + 1);
    let mut object = load(|object| size(object, CPUS, room), &[BY_ADDRESS])?;
    for name in [TAPS, CPUS, COUNTERS, RECEIVED, BUDGETS] {
        pin_map(&mut object, name, &directory.join(name))?;
    }
    let threads = open_map(directory, CPUS)?;
    for cpu in cpus {
        threads
            .update(&cpu.to_ne_bytes(), &cpu_value(), MapFlags::ANY)
            .cannot(format!("start a thread on CPU {cpu}"))?;
    }
    Ok(object)
}

/// The names of the threads that packets to others go on in, by CPU.
///
/// # Errors
/// The program is not there.
pub fn threads(directory: &Path) -> Result<Vec<String>> {
    let map = open_map(directory, CPUS)?;
    let number = map.info().cannot("look at the CPU map")?.info.id;
    let cpus = (0..map.max_entries()).filter(|cpu| {
        let value = map.lookup(&cpu.to_ne_bytes(), MapFlags::ANY);
        value.ok().flatten().is_some()
    });
    Ok(cpus
        .map(|cpu| format!("cpumap/{cpu}/map:{number}"))
        .collect())
}

/// The VMs that the XDP program of a directory serves: address and index of the tap.
///
/// # Errors
/// It is not there, or its card went.
pub fn addresses(directory: &Path) -> Result<Vec<(Address, u32)>> {
    if attached_to(&directory.join(BY_ADDRESS))? == 0 {
        return Err(broken("find the XDP program", "its card went"));
    }
    let taps = open_map(directory, TAPS)?;
    let mut found = Vec::new();
    for key in taps.keys() {
        let tap = taps.lookup(&key, MapFlags::ANY).cannot("read a tap")?;
        let tap = tap.and_then(|bytes| bytes.try_into().ok());
        if let (Some(address), Some(tap)) = (key.first_chunk(), tap) {
            found.push((*address, u32::from_ne_bytes(tap)));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Has the XDP program hand frames to this address to this tap.
///
/// # Errors
/// The program is not there, or serves a thousand VMs already.
pub fn serve(directory: &Path, address: Address, tap: u32) -> Result<()> {
    budgets::count(directory, address)?;
    let taps = open_map(directory, TAPS)?;
    taps.update(&key_of(address), &tap.to_ne_bytes(), MapFlags::ANY)
        .cannot("enter the VM's address")
}

/// Takes that back, with its budget and its count. An address that is not served is no error.
///
/// # Errors
/// The program is not there.
pub fn forget(directory: &Path, address: Address) -> Result<()> {
    let taps = open_map(directory, TAPS)?;
    match taps.delete(&key_of(address)) {
        Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
            Err(error).cannot("forget the VM's address")
        }
        // Last: no packet of it is let pass that its budget would not.
        _ => budgets::forget(directory, address),
    }
}

/// Packets since the programs of a directory are there.
///
/// # Errors
/// They are not.
pub fn counters(directory: &Path) -> Result<Counters> {
    let map = open_map(directory, COUNTERS)?;
    let read = |index: u32| -> Result<u64> {
        let values = map.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY);
        let values = values.cannot("read a counter")?.unwrap_or_default();
        let of_cpu = |bytes: &Vec<u8>| bytes.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
        Ok(values.iter().filter_map(of_cpu).sum())
    };
    Ok(Counters {
        to_tap: read(0)?,
        from_tap: read(1)?,
        passed: read(2)?,
    })
}

/// Ends the programs of a directory. Nothing there is no error.
///
/// # Errors
/// A pin cannot be removed.
pub fn remove(directory: &Path) -> io::Result<()> {
    // What the VM sends goes the ordinary way first, and what it receives last, when the bridge knows it again.
    for name in [
        FROM_TAP, TO_TAP, BY_ADDRESS, SETTINGS, COUNTERS, TAPS, CPUS, RECEIVED, BUDGETS,
    ] {
        ignore_absent(fs::remove_file(directory.join(name)))?;
    }
    ignore_absent(fs::remove_dir(directory))
}

fn ignore_absent(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn broken(action: impl Into<String>, cause: &str) -> Error {
    Error {
        action: action.into(),
        cause: io::Error::other(cause.to_owned()),
    }
}

/// Makes the directory and what `work` pins in it, or nothing.
fn make(directory: &Path, work: impl FnOnce() -> Result<()>) -> Result<()> {
    fs::create_dir_all(directory).cannot(format!(
        "make {} (is a BPF file system mounted? mount -t bpf bpf /sys/fs/bpf)",
        directory.display()
    ))?;
    work().inspect_err(|_| {
        // The first error is the one to tell.
        let _ = remove(directory);
    })
}

fn key_of(address: Address) -> [u8; 8] {
    let mut key = [0; 8];
    key[..6].copy_from_slice(&address);
    key
}

/// `struct bpf_cpumap_val`: packets that wait for the thread, and no program there.
fn cpu_value() -> [u8; 8] {
    let mut value = [0; 8];
    value[..4].copy_from_slice(&QUEUE_PACKETS.to_ne_bytes());
    value
}

fn size(object: &mut OpenObject, name: &str, entries: u32) -> Result<()> {
    let mut maps = object.maps_mut();
    let map = maps.find(|map| map.name() == name);
    let mut map = map.ok_or_else(|| broken(format!("find the map {name}"), "there is none"))?;
    map.set_max_entries(entries)
        .cannot(format!("size the map {name}"))
}

fn fill(object: &mut OpenObject, pair: &Pair) -> Result<()> {
    let mut bytes = Vec::with_capacity(SETTINGS_BYTES);
    bytes.extend(pair.tap.to_ne_bytes());
    bytes.extend(pair.function.to_ne_bytes());
    bytes.extend(key_of(pair.address));
    let mut maps = object.maps_mut();
    let settings = maps.find(|map| map.name().to_string_lossy().ends_with(".rodata"));
    let mut settings = settings.ok_or_else(|| broken("find the settings", "there are none"))?;
    settings
        .set_initial_value(&bytes)
        .cannot("write the settings")
}

fn pair_of(bytes: &[u8]) -> Option<Pair> {
    let number = |from: usize| {
        let bytes = bytes.get(from..)?.first_chunk()?;
        Some(u32::from_ne_bytes(*bytes))
    };
    Some(Pair {
        tap: number(0)?,
        function: number(4)?,
        address: *bytes.get(8..)?.first_chunk()?,
    })
}

/// Loads these programs and no other.
fn load(prepare: impl FnOnce(&mut OpenObject) -> Result<()>, programs: &[&str]) -> Result<Object> {
    let mut object = ObjectBuilder::default()
        .open_memory(OBJECT)
        .cannot("open the BPF programs")?;
    for mut program in object.progs_mut() {
        let is_wanted = programs.iter().any(|name| program.name() == *name);
        program.set_autoload(is_wanted);
    }
    prepare(&mut object)?;
    quietly(|| object.load()).cannot("load the BPF programs")
}

fn program<'o>(object: &'o Object, name: &str) -> Result<ProgramMut<'o>> {
    let found = object.progs_mut().find(|program| program.name() == name);
    found.ok_or_else(|| broken(format!("find the program {name}"), "there is none"))
}

fn pin_map(object: &mut Object, name: &str, path: &Path) -> Result<()> {
    let mut maps = object.maps_mut();
    let map = maps.find(|map| map.name().to_string_lossy().ends_with(name));
    let mut map = map.ok_or_else(|| broken(format!("find the map {name}"), "there is none"))?;
    map.pin(path).cannot(format!("pin {}", path.display()))
}

fn open_map(directory: &Path, name: &str) -> Result<MapHandle> {
    let path = directory.join(name);
    MapHandle::from_pinned_path(&path).cannot(format!("open {}", path.display()))
}

/// The index of the device that a pinned link is attached to; 0 when the device went.
fn attached_to(path: &Path) -> Result<u32> {
    let link = Link::open(path).cannot(format!("open {}", path.display()))?;
    let info = link.info().cannot(format!("look at {}", path.display()))?;
    Ok(match info.info {
        LinkTypeInfo::Tcx(tcx) => tcx.ifindex,
        LinkTypeInfo::Xdp(xdp) => xdp.ifindex,
        _ => 0,
    })
}

/// libbpf-rs has no call for it.
fn attach_tcx(program: &ProgramMut<'_>, device: u32) -> Result<Link> {
    let index = i32::try_from(device).unwrap_or(-1);
    // SAFETY: the program is loaded and outlives the call; no options are allowed as a null pointer.
    let link = quietly(|| unsafe {
        libbpf_sys::bpf_program__attach_tcx(program.as_libbpf_object().as_ptr(), index, ptr::null())
    });
    match NonNull::new(link) {
        // SAFETY: libbpf made this link just now, and nobody else has it.
        Some(link) => Ok(unsafe { Link::from_ptr(link) }),
        None => Err(io::Error::last_os_error()).cannot("attach a program to a device (tcx)"),
    }
}

/// libbpf prints why it fails; the error says it, too.
fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let _alone = PRINTING.lock();
    let before = set_print(None);
    let done = work();
    set_print(before);
    done
}
