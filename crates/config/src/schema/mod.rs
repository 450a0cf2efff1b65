//! The tables of the file. A table's documentation is its section of the reference page, and a key's documentation is the
//! key's row there.

/// A table of the file: the structure that reads it, and its section of the pages, of the same lines.
///
/// A key has its documentation, what serde is told of it, its type, and its default in words; then, where the type does
/// not say it, what kind of value it has, and another name by which it is taken.
macro_rules! table {
    (@kind $type:ty) => { <$type as crate::page::Kind>::WORDS };
    (@kind $type:ty, $kind:literal) => { $kind };
    (
        section $heading:literal;
        $(#[doc = $about:literal])*
        $(#[derive($($derive:ident),+)])?
        $(#[serde($($container:tt)*)])?
        pub struct $name:ident {
            $(
                $(#[doc = $meaning:literal])+
                $(#[serde($($field:tt)*)])?
                $key:ident: $type:ty = $default:literal $(as $kind:literal)? $(or $alias:tt)?,
            )*
        }
    ) => {
        #[doc = $heading]
        ///
        $(#[doc = $about])*
        #[derive(Debug, Clone, serde::Deserialize $($(, $derive)+)?)]
        #[serde(deny_unknown_fields)]
        $(#[serde($($container)*)])?
        #[allow(clippy::doc_markdown, reason = "the text is a page's, too")]
        pub struct $name {
            $(
                $(#[doc = $meaning])+
                $(#[serde($($field)*)])?
                $(#[serde(alias = $alias)])?
                pub $key: $type,
            )*
        }

        impl crate::page::Kind for $name {
            const WORDS: &'static str = "table";
            const LIST: &'static str = "list of tables";
        }

        impl crate::page::Table for $name {
            const SECTION: crate::page::Section = crate::page::Section {
                heading: $heading,
                about: &[$($about),*],
                keys: &[$(crate::page::Key {
                    name: stringify!($key),
                    alias: &[$($alias)?],
                    kind: table!(@kind $type $(, $kind)?),
                    default: $default,
                    meaning: &[$($meaning),+],
                }),*],
            };
        }
    };
}

pub(crate) mod class;
pub(crate) mod host;
pub(crate) mod net;
pub(crate) mod nic;
pub(crate) mod random;
pub(crate) mod sched;
pub(crate) mod service;
pub(crate) mod simulate;
pub(crate) mod vm;

use std::collections::BTreeMap;

use serde::Deserialize;

use self::host::Host;
use self::net::Net;
use self::nic::Nic;
use self::random::Random;
use self::sched::Sched;
use self::service::{Flow, Service};
use self::simulate::Simulate;
use self::vm::Vm;
use crate::reader::Source;
use crate::{DropIn, Error, Placed};

/// The unit of whole numbers that are times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum UnitName {
    /// As in a file.
    #[serde(rename = "ns")]
    Nanosecond,
}

table! {
    section "Top level";
    #[derive(Default)]
    #[serde(expecting = "an object with \"vms\" and \"host\", or a service")]
    pub struct File {
        /// CPUs for VMs, and who schedules them. `[[host]]`, several: a cluster, for `plan` alone
        host: Option<Placed<Host>> = "one CPU, `pedf`",
        /// settings that VMs, cards and queues share
        #[serde(default)]
        class: BTreeMap<String, Placed<Vm>> = "`rt`, `best-effort`",
        /// VMs; the plural names are for JSON requests, here and below
        #[serde(default)]
        vm: Vec<Placed<Vm>> = "none" or "vms",
        /// request/response services and their bounds
        #[serde(default)]
        service: Vec<Placed<Service>> = "none" or "services",
        /// other traffic on the services' paths
        #[serde(default)]
        flow: Vec<Placed<Flow>> = "none" or "flows",
        /// the host's deferred work
        #[serde(default)]
        net: Net = "nothing is set",
        /// network cards
        #[serde(default)]
        nic: Vec<Placed<Nic>> = "none",
        /// which mechanism keeps budgets
        sched: Option<Placed<Sched>> = "no budget is kept",
        /// for `steadyvm simulate`
        simulate: Option<Placed<Simulate>> = "see below",
        /// for `steadyvm plan --sweep`
        random: Option<Placed<Random>> = "none",
        /// of JSON requests, for `plan` alone; another than 1 is refused
        schema_version: Option<u32> = "1",
        /// of JSON requests: `"ns"`
        unit: Option<UnitName> = "the caller's" as "text",
    }
}

impl File {
    /// Reads a file. `name` is what messages call it; empty where the caller says it.
    ///
    /// # Errors
    /// What is wrong with its form, and where.
    pub fn parse(name: &str, text: &str) -> Result<Self, Error> {
        let source = Source::new(name, text);
        if text.trim_start().starts_with('{') {
            return Err(Error {
                place: (!name.is_empty()).then(|| source.place(0)),
                message: "this is JSON, and its name says TOML; name it *.json, or give it on standard input: \
                          steadyvm plan -"
                    .to_owned(),
            });
        }
        source.read(source.tables()?)
    }

    /// It with the VMs of files beside it.
    #[must_use]
    pub fn with<'d>(&self, files: impl IntoIterator<Item = &'d DropIn>) -> Self {
        let mut all = self.clone();
        let more = files.into_iter().flat_map(|file| &file.vm);
        all.vm.extend(more.cloned());
        all
    }

    /// The names of its VMs.
    pub fn vm_names(&self) -> impl Iterator<Item = &str> {
        self.vm.iter().filter_map(|vm| vm.name.as_deref())
    }
}
