//! Flow rules of a card: by EtherType, VLAN and priority.

use super::net::{FILE, host, kept, profile};
use super::scenario::{control, directory};
use crate::fake::Fault;
use crate::profile::file;
use crate::settings::links::{FlowMatch, FlowRule, LinkMatch};

/// Sampled Values and a VLAN's priority come by a queue of their own, and the card is as before after undo.
#[test]
fn frames_are_steered_by_ethertype_vlan_and_priority() {
    let (host, directory) = (host(), directory());
    let before = host.state();
    let control = control(&host, &directory);
    let rules = "{ queue = 1, ethertype = \"0x88ba\" }, { queue = 0, vlan = 5, pcp = 4 }, { queue = 1, ethertype = 0x88b8, vlan = 0 }";
    let text = FILE.replace("{ queue = 1, mac = \"52:54:00:00:00:09\" }", rules);
    control.apply_profile(&profile(&text)).unwrap();
    let rule = |queue, ethertype, vlan, pcp| {
        let link = LinkMatch {
            ethertype,
            vlan,
            pcp,
        };
        let matches = FlowMatch::Link(link);
        Some(FlowRule { matches, queue })
    };
    let rules: Vec<_> = host.state().flow_steering["rt0"]
        .rules
        .values()
        .copied()
        .collect();
    let expected = [
        rule(1, Some(0x88ba), None, None),
        rule(0, None, Some(5), Some(4)),
        rule(1, Some(0x88b8), Some(0), None),
    ];
    assert_eq!(rules, expected);
    let shown = control.show().unwrap();
    let told = "EtherType 0x88ba to queue 1";
    assert!(shown.settings.iter().any(|it| it.new == told && it.holds));
    // The journal reads them back.
    let mutations = host.mutations();
    control.apply_profile(&profile(&text)).unwrap();
    assert_eq!(host.mutations(), mutations);
    control.undo().unwrap();
    assert_eq!(kept(host.state()), kept(before));
}

/// A driver that sorts by addresses alone: its card is as before, and what is left is said.
#[test]
fn a_card_that_cannot_sort_by_ethertype_is_told_what_can() {
    let text = "[class.c]\n[[nic]]\nname = \"rt0\"\nclass = \"rt\"\nsteer = [{ queue = 1, ethertype = \"0x88ba\" }]\n";
    let mut told = 0;
    for at in 0.. {
        let (host, directory) = (host(), directory());
        let before = host.state();
        let control = control(&host, &directory);
        host.fault_at(at, Fault::Refuse(libc::EOPNOTSUPP));
        let report = control.apply_profile_each(&profile(text), &[]).unwrap();
        told += report
            .failed
            .iter()
            .filter(|failure| failure.error.contains("`frames` of [net.demux]"))
            .count();
        if report.failed.is_empty() && report.skipped.is_empty() {
            break;
        }
        assert!(!host.state().flow_steering["rt0"].on || report.failed.is_empty());
        host.heal();
        control.undo().unwrap();
        assert_eq!(kept(host.state()), kept(before));
    }
    assert_eq!(told, 1);
}

#[test]
fn a_rule_of_two_kinds_or_of_none_is_refused_with_its_place() {
    for rule in [
        "{ queue = 1 }",
        "{ queue = 1, mac = \"52:54:00:00:00:09\", vlan = 5 }",
        "{ queue = 1, udp = 7, ethertype = \"0x88ba\" }",
        "{ queue = 1, tcp = 7, pcp = 4 }",
    ] {
        let text = format!("[[nic]]\nname = \"rt0\"\nclass = \"rt\"\nsteer = [{rule}]\n");
        let error = file::parse("steadyvm.toml", &text).unwrap_err().to_string();
        assert!(error.contains("steadyvm.toml line 4"), "{error}");
        assert!(error.contains("or by ethertype, vlan and pcp"), "{error}");
    }
}
