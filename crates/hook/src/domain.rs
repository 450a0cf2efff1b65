//! What a domain's XML says of its VM: name, VCPUs, the CPUs that they may use, and its real-time keys.
//!
//! nova writes the flavor's extra specs into the domain's metadata (33 and later), in a namespace that carries its
//! version; a VM that nova does not know has `<interface budget= period= xmlns="urn:steadyvm:rt"/>` there.

use std::collections::BTreeMap;

use roxmltree::{Document, Node, ParsingOptions};
use steadyvm_fault::{At, Fault};
use steadyvm_host::CpuSet;

use super::interface::{OTHERS, PREFIX, Specs};
use crate::error::{Result, refused};

const OWN: &str = "urn:steadyvm:rt";
const NOVA: &str = "http://openstack.org/xmlns/libvirt/nova/";

/// A VM as its domain's XML describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    pub uuid: String,
    pub name: String,
    /// What is ours of what it says.
    pub specs: Specs,
    /// None of a domain that has no such keys: whatever it says of its VCPUs is none of our business.
    pub vcpus: Option<Vcpus>,
}

/// A VM's VCPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vcpus {
    /// Those that it has as it starts, which are fewer than it may get (`<vcpu current=…>`).
    pub count: u32,
    /// The CPUs that each of them may use; none: it does not say.
    pub cpus: Option<CpuSet>,
}

/// Whether a text has a real-time key, as far as that can be told without reading it as XML.
pub fn may_be_real_time(xml: &str) -> bool {
    xml.contains(PREFIX) || xml.contains(OWN)
}

impl Domain {
    /// Reads a domain's XML.
    ///
    /// # Errors
    /// What is no domain.
    pub fn parse(xml: &str) -> Result<Self> {
        let options = ParsingOptions {
            allow_dtd: false,
            ..ParsingOptions::default()
        };
        let document =
            Document::parse_with_options(xml, options).doing("the domain's XML cannot be read")?;
        let root = document.root_element();
        let text = |name| {
            child(root, name)
                .and_then(|node| node.text())
                .map(str::trim)
        };
        let name = text("name").unwrap_or_default();
        if name.is_empty() {
            return refused("the domain's XML has no name".into());
        }
        let uuid = text("uuid").unwrap_or_default().to_ascii_lowercase();
        if !is_uuid(&uuid) {
            return refused("the domain's XML has no uuid".into());
        }
        let specs = specs(root);
        let asks = specs.keys().any(|key| key.starts_with(PREFIX));
        let vcpus = asks.then(|| vcpus(root)).transpose()?;
        Ok(Self {
            uuid,
            name: name.to_owned(),
            specs,
            vcpus,
        })
    }
}

fn child<'x>(node: Node<'x, 'x>, name: &str) -> Option<Node<'x, 'x>> {
    node.children().find(|child| child.has_tag_name(name))
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(place, byte)| match place {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

fn vcpus(root: Node<'_, '_>) -> Result<Vcpus> {
    let vcpu = child(root, "vcpu");
    let count = vcpu.map_or(Ok(1), present)?;
    let cpus = cpus(root, vcpu, count)?;
    Ok(Vcpus { count, cpus })
}

/// The VCPUs that are there: the text of `<vcpu>` is what there may be.
fn present(vcpu: Node<'_, '_>) -> Result<u32> {
    let count = vcpu.attribute("current").or(vcpu.text()).unwrap_or("1");
    let read = count.trim().parse().ok().filter(|&count| count > 0);
    Ok(read.ok_or_else(|| {
        let why = format!("<vcpu> says {count:?}, which is no number of VCPUs");
        Fault::input(why, "")
    })?)
}

/// The CPUs that each of the first `vcpus` VCPUs may use. A list of its own (`<vcpupin>`) stands above that of all.
fn cpus(root: Node<'_, '_>, vcpu: Option<Node<'_, '_>>, vcpus: u32) -> Result<Option<CpuSet>> {
    let of_all = vcpu.and_then(|vcpu| vcpu.attribute("cpuset"));
    let of_all = of_all.map(list).transpose()?;
    let mut pinned = BTreeMap::new();
    let pins = child(root, "cputune");
    let pins = pins.iter().flat_map(Node::children);
    for pin in pins.filter(|node| node.has_tag_name("vcpupin")) {
        let number = pin.attribute("vcpu").and_then(|text| text.parse().ok());
        if let Some(number) = number.filter(|number: &u32| *number < vcpus) {
            pinned.insert(number, list(pin.attribute("cpuset").unwrap_or_default())?);
        }
    }
    let rest = of_all.filter(|_| (pinned.len() as u64) < u64::from(vcpus));
    let common = (pinned.into_values().chain(rest)).reduce(|one, other| one.intersection(&other));
    if common.as_ref().is_some_and(CpuSet::is_empty) {
        return refused(
            "its VCPUs are pinned to CPUs that they do not share, and a budget needs CPUs that all of them may use: \
             remove <vcpupin> (Nova: hw:cpu_policy=dedicated, hw:numa_nodes)"
                .into(),
        );
    }
    Ok(common)
}

/// libvirt's lists: "1-4,^3,6" is CPUs 1, 2, 4 and 6.
fn list(text: &str) -> Result<CpuSet> {
    let (mut cpus, mut except) = (Vec::new(), Vec::new());
    for part in text.split(',').map(str::trim) {
        let (into, part) = match part.strip_prefix('^') {
            Some(part) => (&mut except, part),
            None => (&mut cpus, part),
        };
        let set: CpuSet = (part.parse().ok())
            .filter(|set: &CpuSet| !set.is_empty())
            .ok_or_else(|| Fault::input(format!("{text:?} is no list of CPUs"), ""))?;
        into.extend(set.iter());
    }
    let cpus: CpuSet = (cpus.into_iter())
        .filter(|cpu| !except.contains(cpu))
        .collect();
    if cpus.is_empty() {
        return refused(format!("{text:?} names no CPU"));
    }
    Ok(cpus)
}

fn specs(root: Node<'_, '_>) -> Specs {
    let mut specs = Specs::new();
    let Some(metadata) = child(root, "metadata") else {
        return specs;
    };
    for node in metadata.descendants().filter(Node::is_element) {
        let name = node.tag_name();
        let is_novas =
            (name.namespace().and_then(|uri| uri.strip_prefix(NOVA))).is_some_and(|version| {
                version
                    .bytes()
                    .all(|byte| byte == b'.' || byte.is_ascii_digit())
            });
        if is_novas && name.name() == "extraSpec" {
            let key = node.attribute("name").unwrap_or_default();
            let value = node.text().unwrap_or_default();
            if key.starts_with(PREFIX) || OTHERS.contains(&key) {
                specs.insert(key.to_owned(), value.to_owned());
            }
        }
    }
    let own = metadata.children();
    for node in own.filter(|node| node.has_tag_name((OWN, "interface"))) {
        for attribute in node.attributes() {
            let key = format!("{PREFIX}{}", attribute.name());
            specs.insert(key, attribute.value().to_owned());
        }
    }
    specs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UUID: &str = "5a3b0f6e-1f5c-4c8e-9b86-3f0d9b2f0a01";

    const OURS: &str = "<metadata><s:interface xmlns:s='urn:steadyvm:rt' vcpu_budget='3ms' period='10ms'/></metadata>";

    fn domain(inside: &str) -> Result<Domain> {
        Domain::parse(&format!(
            "<domain><name>game</name><uuid>{UUID}</uuid>{inside}</domain>"
        ))
    }

    #[test]
    fn novas_own_xml_is_read() {
        for (xml, budget) in [
            (
                include_str!("../../../nova/tests/data/nova-33.0.2-rt.xml"),
                Some("8ms"),
            ),
            (
                include_str!("../../../nova/tests/data/nova-34.0.0-rt.xml"),
                Some("8ms"),
            ),
            (
                include_str!("../../../nova/tests/data/nova-34.0.0-ordinary.xml"),
                None,
            ),
            (
                include_str!("../../../nova/tests/data/nova-33.0.2-hints.xml"),
                None,
            ),
        ] {
            let read = Domain::parse(xml).unwrap();
            assert_eq!(
                (read.uuid.as_str(), read.name.as_str()),
                (UUID, "instance-00000001")
            );
            assert_eq!(read.specs.get("rt:budget").map(String::as_str), budget);
            let asks = xml.contains("\"rt:");
            assert_eq!(read.vcpus.map(|vcpus| vcpus.count), asks.then_some(2));
            assert_eq!(may_be_real_time(xml), asks);
        }
    }

    #[test]
    fn a_domain_without_nova_says_it_in_its_metadata() {
        let read = domain(&format!("<vcpu>3</vcpu>{OURS}")).unwrap();
        assert_eq!(read.specs["rt:vcpu_budget"], "3ms");
        assert_eq!(read.specs["rt:period"], "10ms");
        // Elsewhere it is nothing of ours.
        assert!(
            domain("<interface xmlns='urn:steadyvm:rt' budget='3ms'/>")
                .unwrap()
                .specs
                .is_empty()
        );
    }

    #[test]
    fn vcpus_that_may_be_plugged_in_later_do_not_count() {
        let vcpus = |text: &str| {
            let read = domain(&format!("{text}{OURS}")).ok()?;
            Some(read.vcpus?.count)
        };
        assert_eq!(vcpus("<vcpu current='1'>8</vcpu>"), Some(1));
        assert_eq!(vcpus("<vcpu placement='static'>8</vcpu>"), Some(8));
        assert_eq!(vcpus(""), Some(1));
        for wrong in ["<vcpu>two</vcpu>", "<vcpu>0</vcpu>", "<vcpu>-1</vcpu>"] {
            assert_eq!(vcpus(wrong), None, "{wrong}");
            // Of a VM without a budget it is none of ours.
            assert!(domain(wrong).is_ok(), "{wrong}");
        }
    }

    #[test]
    fn the_cpus_are_those_that_every_vcpu_may_use() {
        let cpus = |text: &str| -> Result<Option<String>> {
            let read = domain(&format!("{text}{OURS}"))?;
            Ok(read.vcpus.unwrap().cpus.map(|cpus| cpus.to_string()))
        };
        assert_eq!(cpus("<vcpu>2</vcpu>").unwrap(), None);
        let nova = "<vcpu cpuset='2-15,^3'>2</vcpu>";
        assert_eq!(cpus(nova).unwrap().as_deref(), Some("2,4-15"));
        let pins = |one: &str, two: &str| {
            format!(
                "{nova}<cputune><shares>2048</shares><vcpupin vcpu='0' cpuset='{one}'/><vcpupin vcpu='1' \
                 cpuset='{two}'/></cputune>"
            )
        };
        assert_eq!(cpus(&pins("2-5", "4-7")).unwrap().as_deref(), Some("4-5"));
        let refused = cpus(&pins("2", "4")).unwrap_err().to_string();
        assert!(refused.contains("remove <vcpupin>"), "{refused}");
        for wrong in ["", "a", "3-2", "1,,2", "^1", "1,^1"] {
            assert!(
                cpus(&format!("<vcpu cpuset='{wrong}'>1</vcpu>")).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn what_is_no_domain_is_refused() {
        for text in [
            "",
            "<domain>",
            "<domain/>",
            "<domain><name>a</name></domain>",
            "<domain><name>a</name><uuid>../../etc/passwd-aaaa-aaaa-aaaaaaaaaa</uuid></domain>",
            "<!DOCTYPE d [<!ENTITY e 'x'>]><domain><name>&e;</name></domain>",
        ] {
            assert!(Domain::parse(text).is_err(), "{text}");
        }
        // Depth is no way to end the program.
        let deep = "<a>".repeat(200_000) + &"</a>".repeat(200_000);
        let _ = domain(&deep);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = Domain::parse(&String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn no_change_of_a_real_domain_panics(place in 0_usize..1500, with in ".{0,4}", removed in 0_usize..9) {
            let xml = include_str!("../../../nova/tests/data/nova-34.0.0-rt.xml");
            let mut text: Vec<char> = xml.chars().collect();
            let place = place.min(text.len());
            let end = (place + removed).min(text.len());
            text.splice(place..end, with.chars());
            let _ = Domain::parse(&text.into_iter().collect::<String>());
        }
    }
}
