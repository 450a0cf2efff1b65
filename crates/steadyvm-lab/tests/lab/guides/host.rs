//! The README and docs/guide/host.md.

use crate::guides::reader::{
    Reader, end_web, keep_state, press_control_c, require_restored, spawn, start_web,
};
use crate::support::debian;
use crate::support::libvirt::inside;

const PAGE: &str = "docs/guide/host.md";

#[test]
#[ignore = "needs the lab: make guide-tests"]
fn a_newcomer_walks_through_the_guide() {
    let host = debian::host();
    start_web(&host);
    keep_state(&host);
    let mut reader = Reader::new(&host);
    reader.follow(PAGE, "host.rs::a_newcomer_walks_through_the_guide", |_| {
        false
    });
    reader.require_no_difference();
    // The page takes everything back at its end.
    inside(&host, "systemctl disable --now steadyvm.service");
    require_restored(&host);
    end_web(&host);
}

#[test]
#[ignore = "needs the lab: make guide-tests"]
fn the_readme_is_typed() {
    let host = debian::host();
    start_web(&host);
    keep_state(&host);
    let mut reader = Reader::new(&host);
    reader.follow("README.md", "host.rs::the_readme_is_typed", |words| {
        let watches = words.contains("steadyvm watch");
        if watches {
            let watching = spawn(&host, words);
            inside(
                &host,
                "until steadyvm status --json | grep -q '\"watch\": *true'; do :; done",
            );
            press_control_c(watching);
            inside(&host, "steadyvm status");
        }
        watches
    });
    reader.require_no_difference();
    require_restored(&host);
    end_web(&host);
}

/// tuned looks for profiles elsewhere from 2.23 on, and Debian 13 has 2.25.
#[test]
#[ignore = "needs the lab: make guide-tests"]
fn tuned_takes_the_packages_profile() {
    let host = debian::host();
    inside(&host, "systemctl start dbus.service tuned.service");
    let mut reader = Reader::new(&host);
    reader.follow(PAGE, "host.rs::tuned_takes_the_packages_profile", |_| false);
    let active = inside(&host, "tuned-adm active");
    inside(&host, "tuned-adm off; systemctl stop tuned.service");
    reader.require_no_difference();
    assert!(active.contains("steadyvm-host"), "{active}");
}
