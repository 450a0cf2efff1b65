//! docs/guide/shared-card.md: a VM's packets past a card's ring that others fill, too.

use crate::guides::reader::{Reader, end_web, keep_state, require_restored, start_web};
use crate::support::debian::{self, DebianHost};
use crate::support::libvirt::inside;

/// Whether a program sorts the card's packets.
fn is_sorted(host: &DebianHost) -> bool {
    inside(host, "ip link show dev eth1").contains(" xdp")
}

#[test]
#[ignore = "needs the lab: make guide-tests"]
fn a_shared_card_sorts_as_the_guide_says() {
    const PAGE: &str = "docs/guide/shared-card.md";
    let host = debian::host();
    start_web(&host);
    keep_state(&host);
    assert!(!is_sorted(&host));
    let mut looked = false;
    let mut reader = Reader::new(&host);
    reader.follow(
        PAGE,
        "shared_card.rs::a_shared_card_sorts_as_the_guide_says",
        |words| {
            if words == "steadyvm status" {
                assert!(
                    is_sorted(&host),
                    "{}",
                    inside(&host, "steadyvm status || true")
                );
                looked = true;
            }
            false
        },
    );
    reader.require_no_difference();
    assert!(looked, "the page applies its file");
    assert!(!is_sorted(&host));
    require_restored(&host);
    end_web(&host);
}
