//! The keys for people: the reference page and the man page, made of the tables that read the file.
//!
//! Their text is Markdown: paragraphs, lists, `**bold**`, code and links. The man page has it without links.

mod man;
mod markdown;

use std::collections::BTreeMap;

pub use self::man::man;
pub use self::markdown::markdown;

use steadyvm_methods::Method;

use crate::schema::{
    cluster_simulation, host, host_service, kernel, net, nic, random, service, simulate, vm,
};
use crate::{
    CardWay, Count, CpuNumbers, Distribution, EtherType, File, HostName, InterfaceName, Late,
    Mechanism, Placed, PriorityCodePoint, SchedulerName, ServerName, TapQdisc, ThreadPriority,
    VlanNumber, Written,
};

/// A key of a table.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What kind of value it has.
    pub kind: &'static str,
    /// What holds without it; "needed" if it must be there.
    pub default: &'static str,
    /// What it means, by lines of the source.
    pub meaning: &'static [&'static str],
}

/// A section of the page.
#[derive(Debug, Clone, Copy)]
pub struct Section {
    /// Its heading.
    pub heading: &'static str,
    /// What stands before its keys, by lines of the source.
    pub about: &'static [&'static str],
    /// Its keys, in the order of the table; none of one that is prose.
    pub keys: &'static [Key],
}

/// A table of the file.
pub(crate) trait Table {
    /// Its section.
    const SECTION: Section;
}

/// A type of values, in words.
pub(crate) trait Kind {
    /// The words.
    const WORDS: &'static str;
    /// Those of a list of them.
    const LIST: &'static str = "list";
}

macro_rules! kinds {
    ($($type:ty: $words:literal $(, $list:literal)?;)*) => {
        $(impl Kind for $type {
            const WORDS: &'static str = $words;
            $(const LIST: &'static str = $list;)?
        })*
    };
}

kinds! {
    String: "text", "list of texts";
    bool: "true, false";
    u16: "number";
    u32: "number", "list of numbers";
    u64: "number";
    usize: "number", "list of numbers";
    f64: "number";
    Count: "number";
    Written: "time", "list of times";
    CpuNumbers: "text or list of numbers";
    ThreadPriority: "priority";
    HostName: "word";
    ServerName: "word";
    SchedulerName: "word";
    InterfaceName: "word";
    Method: "word";
    Mechanism: "word";
    TapQdisc: "word";
    CardWay: "word";
    EtherType: "text, or number";
    VlanNumber: "number";
    PriorityCodePoint: "number";
    Late: "word";
    Distribution: "word";
    vm::Period: "time, or table";
    vm::Users: "text, number, or list";
    vm::Holder: "table";
    service::Send: "time, or table";
}

impl<T: Kind> Kind for Option<T> {
    const WORDS: &'static str = T::WORDS;
    const LIST: &'static str = T::LIST;
}

impl<T: Kind> Kind for Placed<T> {
    const WORDS: &'static str = T::WORDS;
    const LIST: &'static str = T::LIST;
}

impl<T: Kind> Kind for Vec<T> {
    const WORDS: &'static str = T::LIST;
}

impl<T> Kind for BTreeMap<String, T> {
    const WORDS: &'static str = "tables by name";
}

/// What stands before the first section.
const INTRODUCTION: &str = include_str!("introduction.txt");

const PROCESSES: Section = Section {
    heading: "Which process is a VM",
    about: &[include_str!("processes.txt")],
    keys: &[],
};

/// All sections, in the order of the page.
const SECTIONS: [Section; 32] = [
    File::SECTION,
    host::Host::SECTION,
    host::Overheads::SECTION,
    vm::Vm::SECTION,
    PROCESSES,
    vm::VmInterface::SECTION,
    vm::ReceiveBudget::SECTION,
    vm::PeriodRange::SECTION,
    vm::Task::SECTION,
    service::Service::SECTION,
    service::Receive::SECTION,
    service::SendParts::SECTION,
    service::Flow::SECTION,
    net::Net::SECTION,
    net::Demux::SECTION,
    net::Level::SECTION,
    net::Frames::SECTION,
    kernel::Kernel::SECTION,
    nic::Nic::SECTION,
    nic::NicQueue::SECTION,
    nic::Steer::SECTION,
    host_service::HostService::SECTION,
    simulate::Simulate::SECTION,
    cluster_simulation::ClusterSimulation::SECTION,
    cluster_simulation::SimulatedHosts::SECTION,
    cluster_simulation::SimulatedVm::SECTION,
    cluster_simulation::SimulatedStart::SECTION,
    cluster_simulation::SimulatedFailures::SECTION,
    cluster_simulation::SimulatedMaintenance::SECTION,
    random::Random::SECTION,
    random::Periods::SECTION,
    random::Column::SECTION,
];

impl Section {
    /// What stands before its keys, as lines of Markdown.
    fn prose(&self) -> String {
        let lines: Vec<&str> = self.about.iter().map(|line| line.trim()).collect();
        lines.join("\n")
    }
}

impl Key {
    /// Its name, as code.
    fn code(&self) -> String {
        format!("`{}`", self.name)
    }

    /// What it means, on one line.
    fn meaning(&self) -> String {
        let lines: Vec<&str> = self.meaning.iter().map(|line| line.trim()).collect();
        lines.join(" ")
    }
}
