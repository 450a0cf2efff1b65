//! docs/guide/substation.md: a relay with two interfaces, one of which stays ordinary.

use crate::guides::reader::{Reader, keep_state, require_restored};
use crate::support::debian::{self, DebianHost};
use crate::support::libvirt::{STEADY_CLOCK, await_guest, define_with, inside, threads};

/// A domain as the page has it: on the process bus, and on the administration network with the page's address.
fn start_relay(host: &DebianHost) {
    define_with(
        host,
        "relay",
        "10.77.1.4",
        STEADY_CLOCK,
        "iperf3 --forceflush -s",
    );
    inside(
        host,
        "virsh --quiet attach-interface relay bridge br-bulk --model virtio --mac 52:54:00:00:00:02 --config; \
         virsh --quiet start relay",
    );
    await_guest(host, "relay");
}

/// The worker of the process bus has the rank of the class, that of the administration network none.
fn require_one_ordinary_worker(host: &DebianHost) {
    let found = threads(host, "relay");
    let (ranked, ordinary): (Vec<_>, Vec<_>) = found
        .iter()
        .filter(|it| it.is_vhost())
        .partition(|it| it.policy.contains("priority: 75"));
    assert_eq!((ranked.len(), ordinary.len()), (1, 1), "{found:#?}");
    assert!(ordinary[0].policy.contains("SCHED_OTHER"), "{found:#?}");
    // QEMU makes the cards in the domain's order: the process bus first.
    assert!(ranked[0].number < ordinary[0].number, "{found:#?}");
}

#[test]
#[ignore = "needs the lab: make guide-tests"]
fn a_relay_holds_as_the_guide_says() {
    const PAGE: &str = "docs/guide/substation.md";
    let host = debian::host();
    start_relay(&host);
    keep_state(&host);
    let mut reader = Reader::new(&host);
    let mut looked = false;
    reader.follow(
        PAGE,
        "substation.rs::a_relay_holds_as_the_guide_says",
        |words| {
            if words == "steadyvm status" {
                require_one_ordinary_worker(&host);
                looked = true;
            }
            false
        },
    );
    reader.require_no_difference();
    assert!(looked, "the page applies its file");
    require_restored(&host);
    inside(
        &host,
        "virsh --quiet destroy relay; virsh --quiet undefine relay",
    );
}
