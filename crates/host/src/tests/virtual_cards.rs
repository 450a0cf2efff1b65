//! Interfaces of the kernel's own making: a veth or a tunnel is polled in threads of its class's rank.

use super::net::{kept, profile};
use super::scenario::{control, directory, paper_host};
use crate::error::HostError;
use crate::fake::FakeHost;
use crate::settings::threads::Scheduling;

const THREADED: &str = "/sys/class/net/veth0/threaded";
const FILE: &str = "[[nic]]\nname = \"veth0\"\nclass = \"rt\"\n";

/// A veth, with the NAPIs that the kernel gives it once it merges packets (GRO), or without.
fn host(napis: &[u32]) -> FakeHost {
    let host = paper_host(2);
    host.writable_file(THREADED, "0\n");
    host.file("/sys/class/net/veth0/ifindex", "9\n");
    if napis.is_empty() {
        // As the kernel refuses it (EOPNOTSUPP, `modify_napi_threaded()`).
        host.edit(|state| state.unthreadable.insert(THREADED.into()));
    } else {
        host.edit(|state| state.napi_threads.insert("veth0".into(), napis.to_vec()));
    }
    host
}

#[test]
fn the_napis_of_a_veth_are_threads_with_the_rank_of_its_class() {
    let (host, directory) = (host(&[81, 82]), directory());
    let before = kept(host.state());
    let control = control(&host, &directory);
    let applied = control.apply_profile(&profile(FILE)).unwrap();
    assert_eq!(applied.warnings, [""; 0]);
    for tid in [81, 82] {
        let scheduling = host.state().threads[&tid].scheduling;
        assert_eq!(scheduling, Scheduling::fifo(78, 0), "{tid}");
    }
    control.undo().unwrap();
    assert_eq!(kept(host.state()), before);
}

#[test]
fn a_veth_without_napis_is_told_with_what_to_do() {
    let (host, directory) = (host(&[]), directory());
    let control = control(&host, &directory);
    let applied = control.apply_profile(&profile(FILE)).unwrap();
    let [warning] = &applied.warnings[..] else {
        panic!("{:?}", applied.warnings);
    };
    assert!(
        warning.contains("no NAPI of its own") && warning.contains("ethtool -K veth0 gro on"),
        "{warning}"
    );
}

#[test]
fn bridges_taps_bonds_vlans_and_macvlans_are_no_such_interfaces() {
    for (mark, text) in [
        ("bridge/bridge_id", "1\n"),
        ("tun_flags", "1\n"),
        ("bonding/mode", "1\n"),
        ("uevent", "DEVTYPE=vlan\nINTERFACE=veth0\n"),
        ("uevent", "DEVTYPE=macvlan\n"),
    ] {
        let (host, directory) = (host(&[81]), directory());
        host.file(&format!("/sys/class/net/veth0/{mark}"), text);
        let control = control(&host, &directory);
        let refused = control.apply_profile(&profile(FILE)).unwrap_err();
        assert!(
            matches!(&refused, HostError::BadInput { what, .. } if what.contains("no interrupt")),
            "{refused}"
        );
    }
}
