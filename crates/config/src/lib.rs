//! steadyvm.toml: every key once, with its documentation, and its one reader.
//!
//! [`File`] is the whole of a file as typed tables. [`File::parse`] reads the owner's file, [`DropIn::parse`] one of the
//! files beside it. Each text is read by itself, and [`File::with`] puts their VMs together as values: so a value keeps
//! the [`Place`] in the file that it was written in. Who uses a table takes it from there and never sees the text. What is a
//! tool's input has a file of its own: [`Simulate`],
//! [`ClusterSimulation`], [`Random`]. [`Request`] has a file's tables from JSON.
//!
//! Rule: the form is checked here: keys, types and words, in every table, whether or not anybody asks for the table. What
//! values mean together is checked by who uses them.
//! [`page`] has the same keys for people: the reference page and the man page.

#![forbid(unsafe_code)]

mod cpus;
mod drop_in;
mod duration;
mod error;
mod ethernet;
mod hints;
mod old;
pub mod page;
mod place;
mod priority;
mod reader;
mod receive;
mod schema;
mod source;
mod words;

pub use cpus::{CpuNumbers, ranges};
pub use drop_in::DropIn;
pub use duration::{Count, Written, parse as duration_ns, show, written};
pub use error::Error;
pub use ethernet::{EtherType, PriorityCodePoint, VlanNumber};
pub use hints::words;
pub use place::{Place, Placed};
pub use priority::{HIGHEST_PRIORITY, ThreadPriority};
pub use reader::untyped;
pub use receive::{ReceiveServers, Share};
pub use schema::File;
pub use schema::cluster_simulation::{
    ClusterSimulation, SimulatedFailures, SimulatedHosts, SimulatedMaintenance, SimulatedStart,
    SimulatedVm,
};
pub use schema::host::{Host, Overheads};
pub use schema::host_service::HostService;
pub use schema::kernel::Kernel;
pub use schema::net::{Demux, Frames, Level, Net};
pub use schema::nic::{Nic, NicQueue, Steer};
pub use schema::random::{Column, Periods, Random};
pub use schema::request::{Request, UnitName};
pub use schema::service::{Flow, Receive, Send, SendParts, Service};
pub use schema::simulate::Simulate;
pub use schema::vm::{
    Holder, Period, PeriodRange, ReceiveBudget, Task, User, Users, Vm, VmInterface,
};
pub use words::{
    CardWay, Distribution, HostName, InterfaceName, Late, Mechanism, PlacementPolicy,
    SchedulerName, ServerName, TapQdisc,
};

/// The largest batch of a tap in packets: what vhost-net hands over at once (`VHOST_NET_BATCH`), and
/// what `rx-frames` is cut to.
pub const LARGEST_BATCH: u32 = 64;

/// A text as a string of TOML, in quotation marks.
pub fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
