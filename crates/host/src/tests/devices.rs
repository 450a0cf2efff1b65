//! Network devices that are renamed, swapped or replaced while settings are in force.

use super::net::{FILE, host, kept, profile};
use super::scenario::{control, paper_host};
use crate::undone::Undone;

const THREADED: &str =
    "[class.c]\nthreaded_napi = true\n[[nic]]\nname = \"bulk0\"\nclass = \"c\"\n";

fn directory() -> tempfile::TempDir {
    super::scenario::directory()
}

#[test]
fn a_renamed_nic_and_tap_get_their_settings_back() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    let mut expected = host.state();
    control.apply_profile(&profile(FILE)).unwrap();
    for (name, new) in [("bulk0", "lan7"), ("rt0", "wan7"), ("tap-rt", "vnet9")] {
        host.rename(name, new);
    }
    let shown = control.show().unwrap();
    assert!(
        shown.settings.iter().all(|setting| setting.holds),
        "{shown:?}"
    );
    let undone = control.undo().unwrap();
    assert_eq!((undone.failed.len(), undone.vanished), (0, 0), "{undone:?}");
    // Only the names differ from before.
    for (name, new) in [("bulk0", "lan7"), ("rt0", "wan7"), ("tap-rt", "vnet9")] {
        host.rename(new, name);
    }
    let mut after = host.state();
    for state in [&mut expected, &mut after] {
        state.links.clear();
    }
    assert_eq!(kept(after), kept(expected));
}

#[test]
fn swapped_nics_keep_what_is_theirs() {
    let (host, directory) = (paper_host(2), directory());
    let control = control(&host, &directory);
    let threaded = |name: &str| {
        let tree = host.machine().tree;
        tree.read(&format!("/sys/class/net/{name}/threaded"))
            .unwrap()
    };
    control.apply_profile(&profile(THREADED)).unwrap();
    // Someone polls the other in threads too.
    let other = host.machine().tree;
    other.write("/sys/class/net/rt0/threaded", "1").unwrap();
    for (name, new) in [("bulk0", "spare"), ("rt0", "bulk0"), ("spare", "rt0")] {
        host.rename(name, new);
    }
    assert_eq!(control.undo().unwrap().restored, 1);
    assert_eq!(
        (threaded("rt0").as_str(), threaded("bulk0").as_str()),
        ("0\n", "1\n")
    );
}

#[test]
fn a_nic_that_has_the_name_of_one_that_is_gone_is_left() {
    let (host, directory) = (paper_host(2), directory());
    let control = control(&host, &directory);
    control.apply_profile(&profile(THREADED)).unwrap();
    let device = host.state().links["/sys/class/net/bulk0"].clone();
    host.file(&format!("{device}/ifindex"), "4711\n");
    let before = host.state();
    let undone = control.undo().unwrap();
    let expected = Undone {
        vanished: 1,
        ..Undone::default()
    };
    assert_eq!((undone, host.state()), (expected, before));
}
