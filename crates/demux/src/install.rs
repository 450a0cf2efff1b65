//! Loading, pinning and ending the programs.
//!
//! Order: the programs that keep the table come first, then the sockets that are bound already,
//! then XDP. So a socket that is bound meanwhile is entered by the programs, and no packet is
//! looked up in a table that is not filled. Everything is held by pins in one directory.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use aya::maps::{Array, CpuMap, Map, MapData, MapInfo, PerCpuArray};
use aya::programs::links::FdLink;
use aya::programs::{CgroupAttachMode, CgroupSock, FExit, ProgramError, Xdp, XdpMode};
use aya::{Btf, BtfError, Ebpf, EbpfLoader};
use serde::{Deserialize, Serialize};

use crate::levels::LEVELS;
use crate::shared::{BoundSocket, Queues, Settings, Specification};
use crate::table;

/// The compiled programs, aligned as an ELF file must be.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/demux.bpf.o"));

/// Packets that wait for a level's thread: RTCA's limit of a per-level queue.
const QUEUE_PACKETS: u32 = 600;

/// The kernel's functions at whose end a thread has a new priority, or a socket a port that it did not ask
/// for; and whether every kernel has them.
const FOLLOWED: [(&str, &str, bool); 4] = [
    ("demux_priority_changed", "__sched_setscheduler", true),
    ("demux_chosen_udp", "udp_lib_get_port", true),
    ("demux_connected4", "inet_hash_connect", true),
    ("demux_connected6", "inet6_hash_connect", false),
];

const MAPS: [&str; 5] = ["settings", "ports", "sockets", "others", "counters"];
const COUNTERS: usize = 8;

/// Lines of a long message that are shown.
const KEPT_LINES: usize = 6;

/// What went wrong, and where.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action}: {cause}")]
pub struct Error {
    /// What was tried.
    pub action: String,
    /// Why it failed.
    pub cause: String,
}

/// What is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// NICs that XDP is attached to.
    pub nics: Vec<String>,
    /// The settings, as the programs have them.
    settings: Vec<u8>,
    /// The names of the levels' threads, from the lowest.
    pub threads: Vec<String>,
}

/// Packets since the programs were installed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// TCP and UDP to a port.
    pub to_ports: u64,
    /// Protocols without a process.
    pub to_kernel: u64,
    /// Fragments: they go to the lowest level, in order.
    pub fragments: u64,
    /// Malformed ones: they go to the lowest level, for the host's stack to drop.
    pub malformed: u64,
    /// To ports that nobody has bound.
    pub unknown_ports: u64,
    /// That could not be handed to a level's thread, or not be marked because the driver has no room
    /// for it, and took the ordinary way.
    pub not_sent: u64,
    /// Of those to protocols without a process, those beyond the rate that is served at the highest
    /// level (1,000/s a CPU): they go to the lowest.
    pub kernel_over_rate: u64,
    /// Sockets of real-time threads that the table had no room for: their packets are of the lowest
    /// level.
    pub sockets_not_listed: u64,
    /// By level, from the lowest.
    pub levels: Vec<u64>,
}

pub(crate) fn failed<E: std::error::Error>(action: impl Into<String>) -> impl FnOnce(E) -> Error {
    let action = action.into();
    move |error| {
        let mut cause = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            let deeper = error.to_string();
            if !cause.ends_with(&deeper) {
                cause = format!("{cause}: {deeper}");
            }
            source = error.source();
        }
        let cause = shortened(&cause);
        Error { action, cause }
    }
}

/// The verifier's log may have a hundred thousand lines; its verdict is at the end.
fn shortened(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() <= 2 * KEPT_LINES {
        return text.to_owned();
    }
    let (first, last) = (&lines[..1], &lines[lines.len() - KEPT_LINES..]);
    format!("{}\n  ...\n{}", first.join("\n"), last.join("\n"))
}

/// Installs the programs. `directory` is below a BPF file system, `cgroup` a cgroup v2, below
/// which sockets are watched. `sockets` reads those that are bound already; it is called after
/// the programs that watch are at work.
///
/// # Errors
/// What the kernel refused. What was pinned before that is left for [`remove`].
pub fn install(
    directory: &Path,
    cgroup: &Path,
    specification: &Specification,
    sockets: &mut dyn FnMut() -> io::Result<Vec<BoundSocket>>,
) -> Result<(), Error> {
    if matches!(specification.queues, Queues::Threads { .. }) {
        for nic in &specification.nics {
            refuse_vlans(Path::new("/sys/class/net"), nic)?;
        }
    }
    fs::create_dir(directory).map_err(failed(format!("make {}", directory.display())))?;
    let mut loader = EbpfLoader::new();
    for map in MAPS {
        loader.map_pin_path(map, directory.join(map));
    }
    let threads = level_threads(specification);
    for &(map, cpu) in &threads {
        loader.map_pin_path(map, directory.join(map));
        // A kernel for few CPUs has no larger ones.
        loader.map_max_entries(map, cpu + 1);
    }
    // Levels that have no thread are not there; the programs name them all the same.
    for map in &LEVEL_MAPS[threads.len()..] {
        loader.map_max_entries(map, 1);
    }
    let mut programs = loader
        .load(OBJECT)
        .map_err(failed("load the BPF programs"))?;
    let settings = Settings::of(specification);
    let map = programs
        .map_mut("settings")
        .ok_or_else(missing("settings"))?;
    Array::<_, Settings>::try_from(map)
        .and_then(|mut map| map.set(0, settings, 0))
        .map_err(failed("write the settings"))?;
    for (level, cpu) in threads {
        let map = programs.map_mut(level).ok_or_else(missing("level"))?;
        CpuMap::try_from(map)
            .map_err(failed("open a level"))?
            .set(cpu, QUEUE_PACKETS, None, 0)
            .map_err(failed(format!("start the thread of {level}")))?;
    }
    table::load(&mut programs, directory)?;
    watch_sockets(&mut programs, directory, cgroup)?;
    table::refresh(directory, sockets)?;
    let mode = match specification.queues {
        Queues::Threads { .. } => XdpMode::Default,
        // Marks are metadata, which only drivers hand on.
        Queues::Kernel => XdpMode::Driver,
    };
    attach_to_nics(&mut programs, directory, &specification.nics, mode)
}

/// Refuses a NIC whose VLANs need the tags that it takes off: a frame that goes through a CPU map has lost
/// them (the kernel makes its skb from the bytes alone) and would be received on the NIC itself.
fn refuse_vlans(classes: &Path, nic: &str) -> Result<(), Error> {
    let refused = |cause: String| {
        Err(Error {
            action: format!("demultiplex {nic} by threads"),
            cause: format!(
                "{cause}, and frames would lose their VLAN: use rt_from (a kernel with levels), or leave {nic} out"
            ),
        })
    };
    let path = classes.join(nic);
    let entries = fs::read_dir(&path).map_err(failed(format!("list {}", path.display())))?;
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(upper) = name.strip_prefix("upper_") else {
            continue;
        };
        let kind = fs::read_to_string(entry.path().join("uevent")).unwrap_or_default();
        if kind.lines().any(|line| line == "DEVTYPE=vlan") {
            return refused(format!("it has the VLAN device {upper}"));
        }
    }
    // A bridge that tells VLANs apart; none where the NIC is in no bridge.
    let filtering = path.join("brport/bridge/bridge/vlan_filtering");
    if fs::read_to_string(filtering).is_ok_and(|text| text.trim() == "1") {
        return refused("it is in a bridge that filters VLANs".into());
    }
    Ok(())
}

/// The maps of the levels that have threads, and the CPU of these.
fn level_threads(specification: &Specification) -> Vec<(&'static str, u32)> {
    let Queues::Threads { cpu } = specification.queues else {
        return Vec::new();
    };
    let maps = &LEVEL_MAPS[..specification.levels.count()];
    maps.iter().map(|&map| (map, cpu)).collect()
}

/// The maps of the levels.
const LEVEL_MAPS: [&str; LEVELS] = ["level_0", "level_1", "level_2", "level_3"];

fn watch_sockets(programs: &mut Ebpf, directory: &Path, cgroup: &Path) -> Result<(), Error> {
    let types = Btf::from_sys_fs().map_err(failed("read the kernel's types (BTF)"))?;
    for (name, function, everywhere) in FOLLOWED {
        let follow: &mut FExit = program(programs, name)?;
        match follow.load(function, &types) {
            Err(ProgramError::Btf(BtfError::UnknownBtfTypeName { .. })) if !everywhere => continue,
            other => other.map_err(failed(format!("follow {function}")))?,
        }
        let link = follow
            .attach()
            .map_err(failed(format!("follow {function}")))?;
        let link = follow.take_link(link).map_err(failed("keep a link"))?;
        pin(FdLink::from(link), directory.join(format!("link-{name}")))?;
    }
    let group = File::open(cgroup).map_err(failed(format!("open {}", cgroup.display())))?;
    for name in ["demux_bound4", "demux_bound6", "demux_released"] {
        let watch: &mut CgroupSock = program(programs, name)?;
        watch.load().map_err(failed(format!("load {name}")))?;
        // A link always stands beside others; the kernel takes no flags for it.
        let link = watch
            .attach(&group, CgroupAttachMode::Single)
            .map_err(failed(format!("attach {name} to {}", cgroup.display())))?;
        let link = watch.take_link(link).map_err(failed("keep a link"))?;
        let link = FdLink::try_from(link).map_err(failed("keep a link"))?;
        pin(link, directory.join(format!("link-{name}")))?;
    }
    Ok(())
}

fn attach_to_nics(
    programs: &mut Ebpf,
    directory: &Path,
    nics: &[String],
    mode: XdpMode,
) -> Result<(), Error> {
    let demux: &mut Xdp = program(programs, "demux_xdp")?;
    demux.load().map_err(failed("load the XDP program"))?;
    for nic in nics {
        let hint = match mode {
            XdpMode::Driver => "is another program there, or has its driver no XDP?",
            _ => "is another program there?",
        };
        let link = demux
            .attach(nic, mode)
            .map_err(failed(format!("attach XDP to {nic} ({hint})")))?;
        let link = demux.take_link(link).map_err(failed("keep a link"))?;
        let link = FdLink::try_from(link).map_err(failed("keep a link"))?;
        pin(link, directory.join(format!("xdp-{nic}")))?;
    }
    Ok(())
}

pub(crate) fn program<'p, P>(programs: &'p mut Ebpf, name: &str) -> Result<&'p mut P, Error>
where
    &'p mut P: TryFrom<&'p mut aya::programs::Program>,
    <&'p mut P as TryFrom<&'p mut aya::programs::Program>>::Error: std::error::Error,
{
    programs
        .program_mut(name)
        .ok_or_else(missing("program"))?
        .try_into()
        .map_err(failed(format!("find the program {name}")))
}

fn missing(what: &'static str) -> impl Fn() -> Error {
    move || Error {
        action: "use the compiled BPF programs".into(),
        cause: format!("there is no {what}"),
    }
}

fn pin(link: FdLink, path: PathBuf) -> Result<(), Error> {
    let text = path.display().to_string();
    // The pin holds it from now on; the value would hold it too.
    link.pin(path)
        .map(drop)
        .map_err(failed(format!("pin {text}")))
}

pub(crate) fn open<M>(directory: &Path, name: &str) -> Result<M, Error>
where
    M: TryFrom<Map>,
    M::Error: std::error::Error,
{
    let path = directory.join(name);
    let action = || format!("open {}", path.display());
    let data = MapData::from_pin(&path).map_err(failed(action()))?;
    let map = Map::from_map_data(data).map_err(failed(action()))?;
    M::try_from(map).map_err(failed(action()))
}

/// What is installed; none if nothing is.
///
/// # Errors
/// It is there and cannot be read: it was left half installed.
pub fn installed(directory: &Path) -> Result<Option<Installed>, Error> {
    let names = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(failed(format!("list {}", directory.display())))?,
    };
    let mut nics: Vec<String> = names
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_prefix("xdp-").map(str::to_owned))
        .collect();
    nics.sort();
    table::present(directory)?;
    let settings: Array<MapData, Settings> = open(directory, "settings")?;
    let settings = settings.get(&0, 0).map_err(failed("read the settings"))?;
    let mut threads = Vec::new();
    for map in LEVEL_MAPS.iter().map(|map| directory.join(map)) {
        if map.exists() {
            let info = MapInfo::from_pin(&map).map_err(failed("read a level"))?;
            threads.push(format!("cpumap/{}/map:{}", settings.cpu, info.id()));
        }
    }
    Ok(Some(Installed {
        nics,
        settings: settings.bytes(),
        threads,
    }))
}

impl Installed {
    /// Whether this is what a specification asks for.
    pub fn is(&self, specification: &Specification) -> bool {
        let mut nics = specification.nics.clone();
        nics.sort();
        self.nics == nics && self.settings == Settings::of(specification).bytes()
    }
}

/// Packets since the programs were installed.
///
/// # Errors
/// Nothing is installed.
pub fn counters(directory: &Path) -> Result<Counters, Error> {
    let map: PerCpuArray<MapData, u64> = open(directory, "counters")?;
    let read = |index: usize| -> Result<u64, Error> {
        let values = map
            .get(&(index as u32), 0)
            .map_err(failed("read a counter"))?;
        Ok(values.iter().sum())
    };
    let settings: Array<MapData, Settings> = open(directory, "settings")?;
    let settings = settings.get(&0, 0).map_err(failed("read the settings"))?;
    // The kernel's own level is the highest.
    let levels = 0..=settings.kernel_level as usize;
    Ok(Counters {
        to_ports: read(0)?,
        to_kernel: read(1)?,
        fragments: read(2)?,
        malformed: read(3)?,
        unknown_ports: read(4)?,
        not_sent: read(5)?,
        kernel_over_rate: read(6)?,
        sockets_not_listed: read(7)?,
        levels: levels
            .map(|level| read(COUNTERS + level))
            .collect::<Result<_, _>>()?,
    })
}

/// Ends the programs. Nothing installed is no error.
///
/// # Errors
/// A pin cannot be removed.
pub fn remove(directory: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()?;
    // XDP first: packets take the ordinary way before the table goes.
    paths.sort_by_key(|path| {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        (!name.starts_with("xdp-"), !name.starts_with("link-"), name)
    });
    for path in paths {
        fs::remove_file(path)?;
    }
    fs::remove_dir(directory)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{COUNTERS, LEVEL_MAPS, OBJECT, program, refuse_vlans, shortened};
    use crate::levels::Levels;
    use crate::shared::{Queues, Settings, Specification};
    use aya::maps::{Array, PerCpuArray};
    use aya::programs::{CgroupSock, TestRun, TestRunOptions, Xdp, XdpMode};
    use aya::{Ebpf, EbpfLoader};
    use nix::sched::{CloneFlags, unshare};
    use std::process::Command;
    use std::time::Instant;

    pub(crate) fn loaded() -> Ebpf {
        let mut loader = EbpfLoader::new();
        for map in LEVEL_MAPS {
            loader.map_max_entries(map, 1);
        }
        let mut programs = loader.load(OBJECT).unwrap();
        let xdp: &mut Xdp = program(&mut programs, "demux_xdp").unwrap();
        xdp.load().unwrap();
        programs
    }

    /// Needs root. Nothing is attached. What follows changes of priority is for a kernel that lets its
    /// functions be followed: the lab's, `tests/lab/net.rs` of steadyvm.
    #[test]
    fn the_verifier_takes_xdp_and_what_watches_sockets() {
        let mut programs = loaded();
        for name in ["demux_bound4", "demux_bound6", "demux_released"] {
            let watch: &mut CgroupSock = program(&mut programs, name).unwrap();
            watch.load().unwrap();
        }
    }

    /// Frames without a port, which the kernel itself answers or drops: ARP, ICMP of both families, and a
    /// protocol for experiments (RFC 3692).
    fn frames_without_a_port() -> [[u8; 60]; 4] {
        let of_type = |kind: [u8; 2]| {
            let mut frame = [0; 60];
            frame[12..14].copy_from_slice(&kind);
            frame
        };
        let ipv4 = |protocol| {
            let mut frame = of_type([8, 0]);
            (frame[14], frame[17], frame[22], frame[23]) = (0x45, 46, 64, protocol);
            frame
        };
        let mut icmp_of_ipv6 = of_type([0x86, 0xdd]);
        (icmp_of_ipv6[14], icmp_of_ipv6[19], icmp_of_ipv6[20]) = (0x60, 6, 58);
        [of_type([8, 6]), ipv4(1), ipv4(253), icmp_of_ipv6]
    }

    /// Needs root. The kernel runs the program on frames that come from no NIC.
    #[test]
    fn what_strangers_send_without_a_port_has_the_highest_level_up_to_a_rate() {
        frames_without_a_port().iter().for_each(has_a_rate);
    }

    fn has_a_rate(frame: &[u8; 60]) {
        const FRAMES: u32 = 20_000;
        let mut programs = loaded();
        let specification = Specification {
            nics: Vec::new(),
            levels: Levels::new(vec![0, 20]).unwrap(),
            queues: Queues::Kernel,
        };
        let map = programs.map_mut("settings").unwrap();
        Array::<_, Settings>::try_from(map)
            .and_then(|mut map| map.set(0, Settings::of(&specification), 0))
            .unwrap();
        let xdp: &mut Xdp = program(&mut programs, "demux_xdp").unwrap();
        let start = Instant::now();
        xdp.test_run(TestRunOptions {
            data_in: Some(frame),
            repeat: FRAMES,
            ..TestRunOptions::new()
        })
        .unwrap();
        let took_ms = start.elapsed().as_millis() as u64 + 1;
        let counters = programs.map("counters").unwrap();
        let counters: PerCpuArray<_, u64> = PerCpuArray::try_from(counters).unwrap();
        let values = |index: usize| counters.get(&(index as u32), 0).unwrap();
        let read = |index| values(index).iter().sum::<u64>();
        let (kernel, not_sent, over) = (read(1), read(5), read(6));
        assert_eq!((kernel, read(COUNTERS)), (u64::from(FRAMES), over));
        // One buffer for all runs has soon no room for another mark.
        let highest = read(COUNTERS + 1) + not_sent;
        assert_eq!(highest + over, kernel);
        // 100 at once and one a millisecond, each CPU that the run was on.
        let cpus = values(1).iter().filter(|&&count| count > 0).count() as u64;
        assert!(highest >= 100, "{highest}");
        assert!(
            highest <= cpus * (100 + took_ms),
            "{highest} in {took_ms} ms"
        );
    }

    /// Needs root. A NIC whose frames are larger than a page, in a network namespace of the test's own.
    #[test]
    fn a_nic_with_jumbo_frames_is_taken() {
        let attach = || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let pair = "link add jumbo mtu 9000 type veth peer name other mtu 9000";
            let added = Command::new("ip").args(pair.split(' ')).status().unwrap();
            assert!(added.success());
            let mut programs = loaded();
            let xdp: &mut Xdp = program(&mut programs, "demux_xdp").unwrap();
            xdp.attach("jumbo", XdpMode::Driver).unwrap();
        };
        std::thread::spawn(attach).join().unwrap();
    }

    #[test]
    fn a_nic_with_vlans_is_refused() {
        let tree = tempfile::tempdir().unwrap();
        let nic = tree.path().join("nic");
        std::fs::create_dir_all(nic.join("upper_bond")).unwrap();
        std::fs::write(nic.join("upper_bond/uevent"), "DEVTYPE=bond\n").unwrap();
        refuse_vlans(tree.path(), "nic").unwrap();
        std::fs::create_dir_all(nic.join("brport/bridge/bridge")).unwrap();
        std::fs::write(nic.join("brport/bridge/bridge/vlan_filtering"), "0\n").unwrap();
        refuse_vlans(tree.path(), "nic").unwrap();
        std::fs::write(nic.join("brport/bridge/bridge/vlan_filtering"), "1\n").unwrap();
        let error = refuse_vlans(tree.path(), "nic").unwrap_err().to_string();
        assert!(error.contains("filters VLANs"), "{error}");
        std::fs::remove_dir_all(nic.join("brport")).unwrap();
        std::fs::create_dir_all(nic.join("upper_nic.5")).unwrap();
        std::fs::write(
            nic.join("upper_nic.5/uevent"),
            "DEVTYPE=vlan\nINTERFACE=nic.5\n",
        )
        .unwrap();
        let error = refuse_vlans(tree.path(), "nic").unwrap_err().to_string();
        assert!(error.contains("VLAN device nic.5"), "{error}");
        refuse_vlans(tree.path(), "absent").unwrap_err();
    }

    #[test]
    fn only_the_ends_of_a_long_log_are_shown() {
        assert_eq!(shortened("one line"), "one line");
        let log: Vec<String> = (0..1000).map(|line| line.to_string()).collect();
        let short = shortened(&log.join("\n"));
        assert!(
            short.starts_with("0\n") && short.ends_with("\n999"),
            "{short}"
        );
        assert_eq!(short.lines().count(), 8);
    }
}
