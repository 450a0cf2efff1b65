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
use crate::tags;

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
    let classes = Path::new("/sys/class/net");
    for nic in &specification.nics {
        let read = failed(format!("read the features of {nic}"));
        let found = tags::of(classes, nic).map_err(read)?;
        tags::refuse_lost(classes, specification, nic, found)?;
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
    use super::{FOLLOWED, asked, attach, leave_out, opened, program, write};
    use crate::installed::{COUNTERS, of_each_cpu};
    use crate::levels::Levels;
    use crate::shared::{Frames, Queues, Settings, Specification};
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
            frames: Vec::new(),
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

    pub(crate) fn naming(frames: Vec<Frames>, queues: Queues) -> Specification {
        Specification {
            nics: vec!["nic".into()],
            levels: Levels::new(vec![0, 20, 50]).unwrap(),
            queues,
            frames,
        }
    }

    pub(crate) const BY_THREADS: Queues = Queues::Threads { cpu: 0 };

    /// A frame of an EtherType, with a tag if it has one.
    fn frame(ethertype: u16, tag: Option<u16>) -> Vec<u8> {
        let mut frame = vec![1, 0x0c, 0xcd, 4, 0, 1, 2, 0, 0, 0, 0, 9];
        if let Some(tag) = tag {
            frame.extend(0x8100_u16.to_be_bytes());
            frame.extend(tag.to_be_bytes());
        }
        frame.extend(ethertype.to_be_bytes());
        frame.resize(64, 0);
        frame
    }

    /// How many of these frames the program counts at each level, and how many as named.
    fn levels_of(specification: &Specification, frame: &[u8], repeat: u32) -> ([u64; 3], u64) {
        let object = loaded();
        let settings = Settings::of(specification).bytes();
        write(&object, "settings", &[0; 4], &settings, "set").unwrap();
        for (level, cpu) in super::level_threads(specification) {
            let value = [600_u32.to_ne_bytes(), 0_u32.to_ne_bytes()].concat();
            write(&object, level, &cpu.to_ne_bytes(), &value, "start").unwrap();
        }
        let xdp = program(&object, "demux_xdp").unwrap();
        xdp.test_run(ProgramInput {
            data_in: Some(frame),
            repeat,
            ..ProgramInput::default()
        })
        .unwrap();
        let counters = object.maps().find(|map| map.name() == "counters").unwrap();
        let read = |index| of_each_cpu(&counters, index).unwrap().iter().sum::<u64>();
        assert_eq!(read(5), 0, "all were handed to a level's thread");
        ([0, 1, 2].map(|level| read(COUNTERS + level)), read(8))
    }

    /// Needs root. A stream of Sampled Values has 4,000 frames a second; 20,000 at once here.
    #[test]
    fn no_rate_sends_frames_that_the_file_names_to_another_level() {
        const FRAMES: u32 = 20_000;
        let sampled_values = Frames {
            ethertype: Some(0x88ba),
            level: 1,
            ..Frames::default()
        };
        let named = naming(vec![sampled_values], BY_THREADS);
        let all = u64::from(FRAMES);
        let found = levels_of(&named, &frame(0x88ba, None), FRAMES);
        assert_eq!(found, ([0, all, 0], all));
        // What is not named has the rate that it had.
        let (levels, named_too) = levels_of(&named, &frame(0x88b8, None), FRAMES);
        assert_eq!(named_too, 0);
        assert!(levels[0] > all / 2 && levels[2] >= 100, "{levels:?}");
    }

    /// Needs root. Beside a model of what each rule means, for all rules and frames of a few values.
    #[test]
    fn the_first_rule_that_a_frame_is_of_gives_its_level() {
        let (types, tags) = (
            [0x88ba, 0x0806],
            [None, Some(5), Some(0x8005), Some(0x8006)],
        );
        let options = |some: u16| [None, Some(some)];
        let mut rules = Vec::new();
        for ethertype in options(0x88ba) {
            for vlan in options(5) {
                for pcp in options(4).map(|pcp| pcp.map(|pcp| pcp as u8)) {
                    let rule = Frames {
                        ethertype,
                        vlan,
                        pcp,
                        level: 0,
                    };
                    if ethertype.is_some() || rule.has_tag() {
                        rules.push(rule);
                    }
                }
            }
        }
        let is_of = |rule: &Frames, ethertype: u16, tag: Option<u16>| {
            rule.ethertype.is_none_or(|own| own == ethertype)
                && rule
                    .vlan
                    .is_none_or(|own| tag.is_some_and(|tag| tag & 0xfff == own))
                && rule
                    .pcp
                    .is_none_or(|own| tag.is_some_and(|tag| tag >> 13 == u16::from(own)))
        };
        for first in &rules {
            let with_levels = vec![
                Frames { level: 1, ..*first },
                // Everything with a tag.
                Frames {
                    vlan: Some(6),
                    level: 0,
                    ..Frames::default()
                },
            ];
            let named = naming(with_levels, BY_THREADS);
            for ethertype in types {
                for tag in tags {
                    let found = levels_of(&named, &frame(ethertype, tag), 1);
                    let expected = if is_of(first, ethertype, tag) {
                        ([0, 1, 0], 1)
                    } else if tag == Some(0x8006) {
                        ([1, 0, 0], 1)
                    } else {
                        // ARP, and what else has no process: the highest.
                        ([0, 0, 1], 0)
                    };
                    assert_eq!(found, expected, "{first:?}: {ethertype:#x} {tag:?}");
                }
            }
        }
    }

    /// Needs root. Damaged IP of a VLAN that is named is not raised; a whole datagram is.
    #[test]
    fn damaged_frames_are_of_no_rule() {
        let of_vlan = Frames {
            vlan: Some(5),
            level: 2,
            ..Frames::default()
        };
        let named = naming(vec![of_vlan], BY_THREADS);
        let damaged = frame(0x0800, Some(5));
        assert_eq!(levels_of(&named, &damaged, 1), ([1, 0, 0], 0));
        let mut whole = damaged;
        // An IPv4 header of 20 bytes, in all 28, of UDP with 8.
        (whole[18], whole[21], whole[27], whole[43]) = (0x45, 28, 17, 8);
        assert_eq!(levels_of(&named, &whole, 1), ([0, 0, 1], 1));
    }

    /// Needs root. Tags that are in frames bring them to their VLAN, through a level's thread: in a network namespace of the
    /// test's own, whose sender writes tags into frames as a wire has them.
    #[test]
    fn frames_with_their_tags_reach_the_vlan_through_a_levels_thread() {
        let reach = || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let try_ip = |words: &str| {
                let done = Command::new("ip").args(words.split(' ')).output().unwrap();
                let said = String::from_utf8_lossy(&done.stderr).into_owned();
                done.status.success().then_some(()).ok_or(said)
            };
            let ip = |words: &str| {
                try_ip(words).unwrap_or_else(|said| panic!("ip {words}: {said}"));
            };
            ip("link add card type veth peer name wire");
            let trial = try_ip("link add link card name card.4 type vlan id 4");
            if trial.is_err_and(|said| said.contains("Unknown device type")) {
                eprintln!("not tested: this kernel has no VLANs (CONFIG_VLAN_8021Q)");
                return;
            }
            crate::tags::tests::into_frames("wire");
            for end in ["card", "wire"] {
                ip(&format!("link set {end} up"));
                ip(&format!("link add link {end} name {end}.5 type vlan id 5"));
                ip(&format!("link set {end}.5 up"));
            }
            ip("address add 10.9.5.1/24 broadcast 10.9.5.255 dev wire.5");
            let object = loaded();
            let specification = naming(Vec::new(), BY_THREADS);
            let settings = Settings::of(&specification).bytes();
            write(&object, "settings", &[0; 4], &settings, "set").unwrap();
            for (level, cpu) in super::level_threads(&specification) {
                let value = [600_u32.to_ne_bytes(), 0_u32.to_ne_bytes()].concat();
                write(&object, level, &cpu.to_ne_bytes(), &value, "start").unwrap();
            }
            let xdp = program(&object, "demux_xdp").unwrap();
            let _attached = attach(&xdp, "card", true).unwrap();
            let received = || {
                let devices = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
                let line = devices
                    .lines()
                    .find(|line| line.trim().starts_with("card.5:"));
                let count = line.unwrap().split_whitespace().nth(2).unwrap();
                count.parse::<u64>().unwrap()
            };
            let before = received();
            let socket = std::net::UdpSocket::bind("10.9.5.1:0").unwrap();
            socket.set_broadcast(true).unwrap();
            let until = Instant::now() + std::time::Duration::from_secs(10);
            while received() < before + 10 {
                assert!(
                    Instant::now() < until,
                    "{} of 10 frames",
                    received() - before
                );
                socket.send_to(b"x", "10.9.5.255:9").unwrap();
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            let counters = object.maps().find(|map| map.name() == "counters").unwrap();
            let read = |index| of_each_cpu(&counters, index).unwrap().iter().sum::<u64>();
            assert!(
                read(COUNTERS) >= 10 && read(5) == 0,
                "through the lowest level's thread"
            );
        };
        std::thread::spawn(reach).join().unwrap();
    }
}
