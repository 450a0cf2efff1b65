//! Loading, pinning and ending the programs.
//!
//! Order: the programs that keep the table come first, then the sockets that are bound already,
//! then XDP. So a socket that is bound meanwhile is entered by the programs, and no packet is
//! looked up in a table that is not filled. Everything is held by pins in one directory.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use libbpf_rs::btf::{Btf, types};
use libbpf_rs::{
    Link, MapCore, MapFlags, Object, ObjectBuilder, OpenObject, ProgramMut, Xdp, XdpFlags,
};
use nix::net::if_::if_nametoindex;

use crate::error::{Error, asked, failed};
use crate::installed::LEVEL_MAPS;
use crate::shared::{BoundSocket, Queues, Settings, Specification};
use crate::table;

/// The compiled programs.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/demux.bpf.o"));

/// Packets that wait for a level's thread: RTCA's limit of a per-level queue.
const QUEUE_PACKETS: u32 = 600;

/// `XDP_ATTACHED_DRV` of `linux/if_link.h`: the driver runs the program.
const BY_THE_DRIVER: u8 = 1;

/// The kernel's functions at whose end a thread has a new priority, or a socket a port that it did not ask
/// for; and whether every kernel has them.
const FOLLOWED: [(&str, &str, bool); 4] = [
    ("demux_priority_changed", "__sched_setscheduler", true),
    ("demux_chosen_udp", "udp_lib_get_port", true),
    ("demux_connected4", "inet_hash_connect", true),
    ("demux_connected6", "inet6_hash_connect", false),
];

/// The programs that the kernel runs where a socket gets its port, and where it is released.
const WATCHING: [&str; 3] = ["demux_bound4", "demux_bound6", "demux_released"];

const MAPS: [&str; 5] = ["settings", "ports", "sockets", "others", "counters"];

/// Installs the programs. `directory` is below a BPF file system, `cgroup` a cgroup v2, below
/// which sockets are watched. `sockets` reads those that are bound already; it is called after
/// the programs that watch are at work.
///
/// # Errors
/// What the kernel refused. What was pinned before that is left for [`remove`](crate::remove).
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
    let threads = level_threads(specification);
    let mut object = opened()?;
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let thread = threads.iter().find(|(level, _)| *level == name);
        if MAPS.contains(&name.as_str()) || thread.is_some() {
            asked(format!("pin {name}"), || {
                map.set_pin_path(directory.join(&name))
            })?;
        }
        if let Some((_, cpu)) = thread {
            // A kernel for few CPUs has no larger ones.
            asked(format!("size {name}"), || map.set_max_entries(cpu + 1))?;
        }
    }
    let types = asked("read the kernel's types (BTF)", Btf::from_vmlinux)?;
    for (name, function, everywhere) in FOLLOWED {
        if !everywhere && types.type_by_name::<types::Func<'_>>(function).is_none() {
            leave_out(&mut object, name);
        }
    }
    let object = asked("load the BPF programs", || object.load())?;
    let settings = Settings::of(specification).bytes();
    let first = 0_u32.to_ne_bytes();
    write(&object, "settings", &first, &settings, "write the settings")?;
    for (level, cpu) in threads {
        // `struct bpf_cpumap_val`: the length of its queue, and no program of its own.
        let value = [QUEUE_PACKETS.to_ne_bytes(), 0_u32.to_ne_bytes()].concat();
        let action = format!("start the thread of {level}");
        write(&object, level, &cpu.to_ne_bytes(), &value, &action)?;
    }
    let list = directory.join(table::LIST);
    let mut listing = program(&object, table::LIST)?;
    asked(format!("pin {}", list.display()), || listing.pin(&list))?;
    watch_sockets(&object, directory, cgroup)?;
    table::refresh(directory, sockets)?;
    attach_to_nics(&object, directory, specification)
}

/// The programs, before they are loaded. Levels that have no thread are not there; the programs name them all the same.
fn opened() -> Result<OpenObject, Error> {
    let mut object = asked("open the compiled BPF programs", || {
        ObjectBuilder::default().name("demux")?.open_memory(OBJECT)
    })?;
    for mut map in object.maps_mut() {
        if LEVEL_MAPS.iter().any(|level| map.name() == *level) {
            asked("size a level", || map.set_max_entries(1))?;
        }
    }
    Ok(object)
}

fn leave_out(object: &mut OpenObject, name: &str) {
    if let Some(mut program) = object.progs_mut().find(|program| program.name() == name) {
        program.set_autoload(false);
    }
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

fn program<'o>(object: &'o Object, name: &str) -> Result<ProgramMut<'o>, Error> {
    let mut programs = object.progs_mut();
    let found = programs.find(|program| program.name() == name);
    found.ok_or_else(|| missing(name))
}

fn missing(name: &str) -> Error {
    Error {
        action: "use the compiled BPF programs".into(),
        cause: format!("there is no {name}"),
    }
}

fn write(object: &Object, map: &str, key: &[u8], value: &[u8], action: &str) -> Result<(), Error> {
    let found = object.maps().find(|found| found.name() == map);
    let found = found.ok_or_else(|| missing(map))?;
    asked(action, || found.update(key, value, MapFlags::ANY))
}

/// The pin holds it from then on; dropped, the value closes its own descriptor only.
fn pin(link: &mut Link, path: &Path) -> Result<(), Error> {
    asked(format!("pin {}", path.display()), || link.pin(path))
}

fn watch_sockets(object: &Object, directory: &Path, cgroup: &Path) -> Result<(), Error> {
    for (name, function, _) in FOLLOWED {
        let follow = program(object, name)?;
        if !follow.autoload() {
            continue;
        }
        let mut link = asked(format!("follow {function}"), || follow.attach_trace())?;
        pin(&mut link, &directory.join(format!("link-{name}")))?;
    }
    let group = File::open(cgroup).map_err(failed(format!("open {}", cgroup.display())))?;
    for name in WATCHING {
        let watch = program(object, name)?;
        let action = format!("attach {name} to {}", cgroup.display());
        // A link always stands beside others.
        let mut link = asked(action, || watch.attach_cgroup(group.as_raw_fd()))?;
        pin(&mut link, &directory.join(format!("link-{name}")))?;
    }
    Ok(())
}

fn attach_to_nics(
    object: &Object,
    directory: &Path,
    specification: &Specification,
) -> Result<(), Error> {
    let demux = program(object, "demux_xdp")?;
    // Marks are metadata, which only drivers hand on.
    let by_the_driver = specification.queues == Queues::Kernel;
    for nic in &specification.nics {
        let mut link = attach(&demux, nic, by_the_driver)?;
        pin(&mut link, &directory.join(format!("xdp-{nic}")))?;
    }
    Ok(())
}

/// Where a driver cannot run the program, the kernel does, later on the packet's way: not `by_the_driver`.
fn attach(demux: &ProgramMut<'_>, nic: &str, by_the_driver: bool) -> Result<Link, Error> {
    let action = format!("attach XDP to {nic} (is another program there?)");
    let index = if_nametoindex(nic).map_err(failed(action.clone()))? as i32;
    let link = asked(action.clone(), || demux.attach_xdp(index))?;
    if by_the_driver {
        let found = asked(action.clone(), || {
            Xdp::new(demux.as_fd()).query(index, XdpFlags::NONE)
        })?;
        if found.attach_mode != BY_THE_DRIVER {
            return Err(Error {
                action,
                cause: "its driver has no XDP, and levels of the kernel need it".into(),
            });
        }
    }
    Ok(link)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{FOLLOWED, asked, attach, leave_out, opened, program, refuse_vlans, write};
    use crate::installed::{COUNTERS, of_each_cpu};
    use crate::levels::Levels;
    use crate::shared::{Queues, Settings, Specification};
    use libbpf_rs::{MapCore, Object, ProgramInput};
    use nix::sched::{CloneFlags, unshare};
    use std::process::Command;
    use std::time::Instant;

    /// Without what follows changes of priority, which is for a kernel that lets its functions be followed: the lab's,
    /// `tests/lab/net.rs` of steadyvm-lab.
    pub(crate) fn loaded() -> Object {
        let mut object = opened().unwrap();
        for (name, ..) in FOLLOWED {
            leave_out(&mut object, name);
        }
        asked("load the BPF programs", || object.load()).unwrap()
    }

    /// Needs root. Nothing is attached.
    #[test]
    fn the_verifier_takes_xdp_and_what_watches_sockets() {
        let object = loaded();
        for name in super::WATCHING.into_iter().chain(["demux_xdp"]) {
            assert!(program(&object, name).unwrap().autoload(), "{name}");
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
        let object = loaded();
        let specification = Specification {
            nics: Vec::new(),
            levels: Levels::new(vec![0, 20]).unwrap(),
            queues: Queues::Kernel,
        };
        let settings = Settings::of(&specification).bytes();
        write(&object, "settings", &[0; 4], &settings, "set").unwrap();
        let xdp = program(&object, "demux_xdp").unwrap();
        let start = Instant::now();
        xdp.test_run(ProgramInput {
            data_in: Some(frame),
            repeat: FRAMES,
            ..ProgramInput::default()
        })
        .unwrap();
        let took_ms = start.elapsed().as_millis() as u64 + 1;
        let counters = object.maps().find(|map| map.name() == "counters").unwrap();
        let values = |index: usize| of_each_cpu(&counters, index).unwrap();
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
        let taken = || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let pair = "link add jumbo mtu 9000 type veth peer name other mtu 9000";
            let added = Command::new("ip").args(pair.split(' ')).status().unwrap();
            assert!(added.success());
            let object = loaded();
            let xdp = program(&object, "demux_xdp").unwrap();
            let _attached = attach(&xdp, "jumbo", true).unwrap();
        };
        std::thread::spawn(taken).join().unwrap();
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
}
