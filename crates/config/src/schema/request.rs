//! A request in JSON: what a file says, with plural names for lists, and the unit of numbers that are times.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::File;
use super::host::Host;
use super::host_service::HostService;
use super::kernel::Kernel;
use super::net::Net;
use super::nic::Nic;
use super::service::{Flow, Service};
use super::vm::Vm;
use crate::Placed;

/// The unit of whole numbers that are times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum UnitName {
    /// As in a file.
    #[serde(rename = "ns")]
    Nanosecond,
}

/// A request.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with \"vms\" and \"host\", or a service"
)]
pub struct Request {
    host: Option<Placed<Host>>,
    #[serde(default)]
    class: BTreeMap<String, Placed<Vm>>,
    #[serde(default, alias = "vm")]
    vms: Vec<Placed<Vm>>,
    #[serde(default, alias = "service")]
    services: Vec<Placed<Service>>,
    #[serde(default, alias = "flow")]
    flows: Vec<Placed<Flow>>,
    #[serde(default)]
    net: Net,
    #[serde(default)]
    kernel: Kernel,
    #[serde(default)]
    nic: Vec<Placed<Nic>>,
    #[serde(default)]
    host_service: Vec<Placed<HostService>>,
    /// Which words it is made of; none: those of version 1.
    pub schema_version: Option<u32>,
    /// None: a unit that only the caller knows.
    pub unit: Option<UnitName>,
}

impl Request {
    /// What it says, as a file does.
    pub fn into_file(self) -> File {
        File {
            host: self.host,
            class: self.class,
            vm: self.vms,
            service: self.services,
            flow: self.flows,
            net: self.net,
            kernel: self.kernel,
            nic: self.nic,
            host_service: self.host_service,
        }
    }
}
