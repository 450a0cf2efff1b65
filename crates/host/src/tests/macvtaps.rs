//! Macvtaps of VMs: no multicast frame waits for a normal thread. On fake hosts, and on a macvtap of this machine's kernel.

use std::fs::File;
use std::path::Path;

use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use super::crash::crashing;
use super::namespace::{in_own_namespace, ip};
use super::scenario::{control, directory, paper_host};
use crate::discover::{self, Processes};
use crate::doctor;
use crate::engine::Snapshot;
use crate::fake::{FakeHost, Fault};
use crate::planner::Group;
use crate::profile::{Profile, file};
use crate::settings::links::{NOTHING_QUEUED, card_below, macvtap_of, macvtaps_above};
use crate::settings::{BroadcastCutoff, Change, ChangeOf, Device, Machine, Restored, SettingKind};

const FILE: &str = "[class.a]\nvhost = 50\n[[vm]]\nname = \"rt\"\nclass = \"a\"\n[[vm]]\nname = \"bulk\"\nclass = \"a\"\n";

fn profile() -> Profile {
    file::parse("steadyvm.toml", FILE).unwrap()
}

/// Both VMs of the paper's host have a macvtap on `bulk0`, and somebody else has one on `rt0`.
fn host() -> FakeHost {
    let host = paper_host(2);
    host.macvtap("vt0", 90, "bulk0");
    host.macvtap("vt1", 91, "bulk0");
    host.macvtap("other", 92, "rt0");
    host.open(100, 40, "/dev/tap90", Some("246:90"));
    host.open(200, 40, "/dev/tap91", Some("246:91"));
    host
}

fn cutoffs(host: &FakeHost) -> Vec<(String, i32)> {
    host.state().broadcast_cutoffs.into_iter().collect()
}

fn of_doctor(host: &FakeHost, card: &str) -> (doctor::Status, String) {
    let report = doctor::examine(&host.machine());
    let id = format!("network.macvtap-multicast.{card}");
    let check = report.checks.into_iter().find(|check| check.id == id);
    let check = check.unwrap();
    (check.status, format!("{} {}", check.found, check.fix))
}

#[test]
fn the_cutoff_of_each_card_below_a_vms_macvtap_is_set_once_and_undone() {
    let (host, directory) = (host(), directory());
    let before = host.state();
    assert_eq!(of_doctor(&host, "bulk0").0, doctor::Status::Warn);
    assert!(
        of_doctor(&host, "bulk0")
            .1
            .contains("type macvtap bclim -1")
    );
    let control = control(&host, &directory);
    let applied = control.apply_profile(&profile()).unwrap();
    let group = Group::Macvtaps("bulk0".into());
    let steps = applied.steps.iter().filter(|step| step.group == group);
    assert_eq!(steps.count(), 1, "two VMs, one card");
    assert_eq!(cutoffs(&host), [("bulk0".to_owned(), NOTHING_QUEUED)]);
    assert_eq!(of_doctor(&host, "bulk0").0, doctor::Status::Ok);
    assert_eq!(of_doctor(&host, "rt0").0, doctor::Status::Warn);
    assert!(!control.show().unwrap().has_drifted());
    control.undo().unwrap();
    assert_eq!(host.state(), before);
}

#[test]
fn it_goes_with_the_last_macvtap_and_is_set_again_for_the_next() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    control.apply_profile(&profile()).unwrap();
    let desired = control.desired_in_force().unwrap().unwrap();
    host.remove_macvtap("vt0");
    assert!(
        !control.show().unwrap().has_drifted(),
        "the other one keeps it"
    );
    host.remove_macvtap("vt1");
    assert_eq!(cutoffs(&host), []);
    control.reconcile_each(&desired).unwrap();
    host.macvtap("vt2", 93, "bulk0");
    host.open(100, 40, "/dev/tap93", Some("246:93"));
    assert!(control.show().unwrap().has_drifted());
    control.reconcile_each(&desired).unwrap();
    assert_eq!(cutoffs(&host), [("bulk0".to_owned(), NOTHING_QUEUED)]);
    control.undo().unwrap();
    assert_eq!(cutoffs(&host), []);
}

#[test]
fn what_somebody_set_is_kept_and_what_somebody_changed_is_named() {
    let (host, directory) = (host(), directory());
    let before = {
        host.edit(|state| {
            state
                .broadcast_cutoffs
                .insert("bulk0".into(), NOTHING_QUEUED)
        });
        host.state()
    };
    let control = control(&host, &directory);
    control.apply_profile(&profile()).unwrap();
    control.undo().unwrap();
    assert_eq!(host.state(), before, "it was so before");
    host.edit(|state| state.broadcast_cutoffs.clear());
    control.apply_profile(&profile()).unwrap();
    host.edit(|state| state.broadcast_cutoffs.insert("bulk0".into(), 5));
    let undone = control.undo().unwrap();
    assert_eq!(undone.changed_by_others.len(), 1, "{undone:?}");
    assert_eq!(cutoffs(&host), [("bulk0".to_owned(), 5)]);
}

#[test]
fn a_kernel_without_a_cutoff_and_a_card_elsewhere_are_told_of() {
    let (host, directory) = (host(), directory());
    host.file("/proc/sys/kernel/osrelease", "6.1.0-40-amd64\n");
    let control = control(&host, &directory);
    let applied = control.apply_profile(&profile()).unwrap();
    assert!(
        applied
            .warnings
            .iter()
            .any(|it| it.contains("before Linux 6.4") && it.contains("a tap on a bridge")),
        "{:?}",
        applied.warnings
    );
    assert_eq!(cutoffs(&host), []);
    let (status, text) = of_doctor(&host, "bulk0");
    assert_eq!(status, doctor::Status::Warn);
    assert!(text.contains("no cutoff"), "{text}");
    control.undo().unwrap();
    host.file("/proc/sys/kernel/osrelease", "6.12.0\n");
    host.edit(|state| state.files.remove("/sys/class/net/vt0/lower_bulk0"));
    let applied = control.apply_profile(&profile()).unwrap();
    assert!(
        applied
            .warnings
            .iter()
            .any(|it| it.contains("vt0 is in another network namespace"))
    );
    assert_eq!(
        cutoffs(&host),
        [("bulk0".to_owned(), NOTHING_QUEUED)],
        "by the other VM"
    );
}

#[test]
fn a_crash_or_refusal_at_any_step_is_undone() {
    let host = host();
    let before = host.state();
    for fault in [
        Fault::CrashBefore,
        Fault::CrashAfter,
        Fault::Refuse(libc::EPERM),
        Fault::Ignore,
    ] {
        for at in 0.. {
            let directory = directory();
            let control = control(&host, &directory);
            let start = host.mutations();
            host.fault_at(at, fault);
            crashing(|| {
                let _ = control.apply_profile(&profile());
            });
            let reached = host.mutations() > start + at;
            host.heal();
            assert_eq!(control.undo().unwrap().failed, [] as [String; 0]);
            assert_eq!(host.state(), before, "{fault:?} at {at}");
            if !reached {
                break;
            }
        }
    }
}

/// Opens a macvtap as a VM's monitor does: by the character device that sysfs has the numbers of.
fn open(directory: &Path, macvtap: &str, device: &str) -> File {
    let numbers =
        std::fs::read_to_string(format!("/sys/class/net/{macvtap}/{device}/dev")).unwrap();
    let (major, minor) = numbers.trim().split_once(':').unwrap();
    let number = makedev(major.parse().unwrap(), minor.parse().unwrap());
    let path = directory.join(device);
    mknod(&path, SFlag::S_IFCHR, Mode::S_IRUSR | Mode::S_IWUSR, number).unwrap();
    File::options().read(true).write(true).open(path).unwrap()
}

#[test]
fn a_macvtap_of_the_kernel_is_found_set_and_restored() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not tested: only root makes network namespaces");
        return;
    }
    in_own_namespace(|| {
        let machine = Machine::real();
        ip("link add card0 type veth peer name wire0");
        for (name, mode) in [("vt0", "bridge"), ("vt1", "private")] {
            ip(&format!(
                "link add link card0 name {name} type macvtap mode {mode}"
            ));
        }
        let index = std::fs::read_to_string("/sys/class/net/vt0/ifindex").unwrap();
        let device = format!("tap{}", index.trim());
        assert_eq!(macvtap_of(&machine, &device).as_deref(), Some("vt0"));
        assert_eq!(card_below(&machine, "vt0").as_deref(), Some("card0"));
        let mut above = macvtaps_above(&machine, "card0");
        above.sort();
        assert_eq!(above, ["vt0", "vt1"]);
        let before = Snapshot::take(&machine).unwrap();
        let setting = BroadcastCutoff {
            card: Device::find(&machine, "card0"),
        };
        let old = setting.read(&machine).unwrap();
        assert_eq!(old, 1);
        let new = NOTHING_QUEUED;
        let change = Change::from(ChangeOf {
            setting: setting.clone(),
            old,
            new,
        });
        change.make(&machine).unwrap();
        for name in ["vt0", "vt1"] {
            assert_eq!(
                machine.links.broadcast_cutoff(name).unwrap(),
                -1,
                "{name}: of the card"
            );
        }
        let other = machine.links.broadcast_cutoff("wire0").unwrap_err();
        assert_eq!(other.raw_os_error(), Some(libc::EOPNOTSUPP));
        ip("link set card0 name card9");
        assert_eq!(change.restore(&machine), Restored::Restored { note: None });
        ip("link set card9 name card0");
        assert_eq!(setting.read(&machine).unwrap(), 1);
        assert_eq!(
            Snapshot::take(&machine).unwrap().differences(&before),
            [] as [String; 0]
        );
        // It goes with the last one.
        change.make(&machine).unwrap();
        for name in ["vt0", "vt1"] {
            ip(&format!("link delete {name}"));
        }
        assert!(setting.read(&machine).unwrap_err().is_vanished());
        assert_eq!(change.restore(&machine), Restored::Vanished);
        ip("link add link card0 name vt2 type macvtap mode bridge");
        assert_eq!(setting.read(&machine).unwrap(), 1);
        // A process that has it open is found by the numbers of the device.
        let index = std::fs::read_to_string("/sys/class/net/vt2/ifindex").unwrap();
        let device = format!("tap{}", index.trim());
        let directory = tempfile::tempdir().unwrap();
        let _open = open(directory.path(), "vt2", &device);
        let threads = machine.threads_of(std::process::id());
        let processes = Processes::of(&threads);
        let found = discover::macvtaps_of(&machine, &processes, std::process::id());
        assert_eq!(found, ["vt2"]);
    });
}
