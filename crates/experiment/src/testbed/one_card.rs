//! A host whose VMs share one card, and what is set on it for the real-time VM's packets.

use super::method::ComparedMethod;
use super::receivers::{Receivers, Server};
use super::{Guests, Method};
use std::time::Duration;
use steadyvm_lab::agent::Status;
use steadyvm_lab::host::{EmulatedHost, HostSpecification, RT};
use steadyvm_lab::laboratory::HostKernel;
use steadyvm_lab::progress::Observer;
use steadyvm_lab::{Error, Result};

/// What is set on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// Nothing.
    Stock,
    /// A method of `steadyvm apply`, without a function of the card.
    Method(Method),
    /// A way of the real-time VM's packets past those of others, kept by the host: `nic` and `way` in the VM's table.
    Way(&'static str),
    /// The same, and what the VM's packets may cost the host is bounded.
    BoundedWay(&'static str),
    /// The same, and the vhost workers of the third VM are bounded.
    BoundedNeighbour(&'static str),
    /// Every VM of a card has the way, the receive work of all but the stream's is bounded, and so is what the card hands its
    /// bridge for everybody.
    EveryVm(&'static str),
    /// A way, and the shared card's threads have a rank below those of the VM in place of none.
    RankedCard(&'static str, Polls),
}

/// Which threads poll where the kernel has interrupt threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Polls {
    /// The shared card's NAPI threads, and the interrupt threads of the VM's function.
    CardByNapi,
    /// Interrupt threads of both. In their softirqs each may poll for the other.
    ByInterrupts,
    /// The shared card's interrupt threads, and the NAPI threads of the VM's function.
    VmByNapi,
}

pub(crate) const FUNCTION: How = How::Way("function");
pub(crate) const XDP: How = How::Way("xdp");
pub(crate) const BOUNDED_FUNCTION: How = How::BoundedWay("function");
pub(crate) const BOUNDED_XDP: How = How::BoundedWay("xdp");

/// A fifth of a CPU. A packet on an emulated card costs a hundred times what it costs on a real one: 1,000 packets per second pass
/// an XDP program.
const RECEIVE: &str = "receive = { budget = \"2ms\", period = \"10ms\", packet = \"200us\" }\n";

/// The third VM's workers have as much of a CPU as the real-time VM's packets.
const NEIGHBOUR: &str = "[[vm]]\nname = \"attacker\"\nclass = \"best-effort\"\nreceive = { vhost_budget = \"2ms\", period = \"10ms\" }\n";

/// The host's file where the real-time VM has a way of its own on the card.
fn file(way: &str, receive: &str) -> String {
    format!("[[vm]]\nname = \"rt\"\nclass = \"rt\"\nnic = \"rt\"\nway = \"{way}\"\n{receive}")
}

/// The host's file where every VM has a way of its own on the card.
fn file_of_every_vm(way: &str) -> String {
    let nic = format!("class = \"best-effort\"\nnic = \"rt\"\nway = \"{way}\"\n");
    format!(
        "{}[[vm]]\nname = \"bulk\"\n{nic}\
         [[vm]]\nname = \"attacker\"\n{nic}\
         receive = {{ budget = \"2ms\", vhost_budget = \"2ms\", period = \"10ms\", packet = \"200us\" }}\n",
        file(way, RECEIVE)
    )
}

/// What an operator types to limit the frames to groups and to everybody that pass from a card to its bridge: those of
/// docs/design/security.md.
fn limit_of_groups(card: &str) -> [String; 2] {
    [
        format!("tc qdisc add dev {card} clsact"),
        format!(
            "tc filter add dev {card} ingress protocol all flower dst_mac 01:00:00:00:00:00/01:00:00:00:00:00 \
             action police pkts_rate 500 pkts_burst 50 conform-exceed drop/ok"
        ),
    ]
}

/// Puts that in force.
fn limit_groups(host: &EmulatedHost) -> Result<()> {
    for module in ["sch_ingress", "cls_flower", "act_police"] {
        host.load_later_module(module)?;
    }
    let script = limit_of_groups(RT.name).join("\n");
    host.connection().run(&["sh", "-euc", &script]).map(drop)
}

/// The shared card's class: below every stage of class `rt`. And who polls.
fn class_of_card(polls: Polls) -> String {
    let (card, vm) = (polls == Polls::CardByNapi, polls == Polls::VmByNapi);
    format!(
        "[class.rt]\nthreaded_napi = {vm}\n[class.shared]\nirq = 40\nnapi = 40\nthreaded_napi = {card}\n\
         [[nic]]\nname = \"rt\"\nclass = \"shared\"\n"
    )
}

const PATH: &str = "/run/steadyvm.toml";
/// The tap of the guest that receives the stream.
const TAP_OF_STREAM: &str = "tap-bulk";
/// Putting a file in force takes this long at most, on a loaded machine too.
const PATIENCE: Duration = Duration::from_secs(120);

impl How {
    fn method(self, kernel: HostKernel) -> Option<ComparedMethod> {
        let Self::Method(method) = self else {
            return None;
        };
        Some(ComparedMethod {
            method,
            kernel,
            kernel_is_named: true,
        })
    }

    /// Boots a host of this kernel with a service's guest and a stream's guest. Nothing is set on it yet.
    pub fn boot(
        self,
        host: HostSpecification,
        kernel: HostKernel,
        observer: &dyn Observer,
    ) -> Result<(EmulatedHost, Receivers)> {
        let method = self.method(kernel);
        let words = method.map(ComparedMethod::kernel_words).unwrap_or_default();
        let guests = method.map_or(Guests::Qemu, |it| it.row().guests);
        let specification = HostSpecification {
            kernel_words: format!("{} {words}", host.kernel_words),
            iommu: guests == Guests::Passthrough,
            ..host
        };
        let host = EmulatedHost::boot(&specification)?;
        let receivers = Receivers::in_guests(guests, &host, &Server::netrt(), observer)?;
        Ok((host, receivers))
    }

    /// Whether a file is in force on the host, so that `steadyvm status` knows its VMs.
    pub fn has_file(self) -> bool {
        !matches!(self, Self::Stock | Self::Method(_))
    }

    fn shared(host: &EmulatedHost, file: &str) -> Result<()> {
        apply_file(host, file)?;
        host.interrupts_of_shared_card()
    }

    /// Puts it in force.
    pub fn put_in_force(self, host: &EmulatedHost, receivers: &Receivers) -> Result<()> {
        match self {
            Self::Stock => Ok(()),
            Self::Method(method) => host.put_in_force(method, RT, &receivers.named),
            Self::Way(way) => Self::shared(host, &file(way, "")),
            Self::BoundedWay(way) => Self::shared(host, &file(way, RECEIVE)),
            Self::BoundedNeighbour(way) => Self::shared(host, &(file(way, RECEIVE) + NEIGHBOUR)),
            Self::EveryVm(way) => {
                limit_groups(host)?;
                Self::shared(host, &file_of_every_vm(way))
            }
            Self::RankedCard(way, polls) => {
                Self::shared(host, &(class_of_card(polls) + &file(way, "")))
            }
        }
    }
}

/// Lets both guests' packets come by one card.
pub(crate) fn share(host: &EmulatedHost) -> Result<()> {
    host.share_one_card(TAP_OF_STREAM)
}

/// Puts a file in force on the host.
pub(crate) fn apply_file(host: &EmulatedHost, text: &str) -> Result<()> {
    let script = format!("cat > {PATH} && steadyvm apply {PATH}");
    let applied = host.connection().spawn(&["sh", "-euc", &script])?;
    applied.input(text.as_bytes())?;
    applied.end_of_input()?;
    let finished = applied.finish(PATIENCE)?;
    if finished.status == Status::Exited(0) {
        return Ok(());
    }
    let said = [finished.output, finished.error].concat();
    let said = String::from_utf8_lossy(&said);
    let why = format!("{}: {}", finished.status, said.trim());
    Err(Error::machine("put the host's file in force", why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_steadyvms() {
        for text in [
            file("function", RECEIVE),
            file("xdp", RECEIVE) + NEIGHBOUR,
            file_of_every_vm("function"),
        ] {
            let profile = steadyvm_host::profile::file::parse("steadyvm.toml", &text).unwrap();
            assert_eq!(profile.vms[0].name, "rt", "{text}");
        }
    }

    #[test]
    fn the_limit_of_groups_is_the_pages() {
        let page = include_str!("../../../../docs/design/security.md");
        for command in limit_of_groups("eth0") {
            assert!(page.lines().any(|line| line == command), "{command}");
        }
    }

    #[test]
    fn a_peer_has_the_guests_and_the_command_line_that_it_needs() {
        let kernel = HostKernel::V7_3Rt;
        let tuned = How::Method(Method::Tuned).method(kernel).unwrap();
        assert_eq!(tuned.row().guests, Guests::RealTime);
        assert!(tuned.kernel_words().contains("isolcpus="));
        let passed_through = How::Method(Method::VfRanked).method(kernel).unwrap();
        assert_eq!(passed_through.row().guests, Guests::Passthrough);
        assert!(passed_through.kernel_words().contains("iommu"));
        for method in [Method::PreemptRt, Method::StockProfile, Method::RtProfile] {
            let own = How::Method(method).method(kernel).unwrap();
            assert_eq!((own.row().guests, &*own.kernel_words()), (Guests::Qemu, ""));
        }
        assert!(FUNCTION.method(kernel).is_none() && How::Stock.method(kernel).is_none());
    }
}
