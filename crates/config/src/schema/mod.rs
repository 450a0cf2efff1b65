//! The tables of the file. A table's documentation is its section of the reference page, and a key's documentation is the
//! key's row there.

/// A table of the file: the structure that reads it, and its section of the pages, of the same lines.
///
/// A key has its documentation, what serde is told of it, its type, and its default in words; then, where the type does
/// not say it, what kind of value it has.
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
                $key:ident: $type:ty = $default:literal $(as $kind:literal)?,
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
                    kind: table!(@kind $type $(, $kind)?),
                    default: $default,
                    meaning: &[$($meaning),+],
                }),*],
            };
        }
    };
}

pub(crate) mod cluster_simulation;
pub(crate) mod host;
pub(crate) mod host_service;
pub(crate) mod kernel;
pub(crate) mod net;
pub(crate) mod nic;
pub(crate) mod random;
pub(crate) mod request;
pub(crate) mod service;
pub(crate) mod simulate;
pub(crate) mod vm;

use std::collections::BTreeMap;

use self::host::Host;
use self::host_service::HostService;
use self::kernel::Kernel;
use self::net::Net;
use self::nic::Nic;
use self::service::{Flow, Service};
use self::vm::Vm;
use crate::source::Source;
use crate::{DropIn, Error, Placed};

table! {
    section "Top level";
    #[derive(Default)]
    #[serde(default, expecting = "an object with \"vm\" and \"host\", or a service")]
    pub struct File {
        /// CPUs for VMs, and who schedules them. `[[host]]`, several: a cluster, for `plan` alone
        host: Option<Placed<Host>> = "all CPUs of this host, `pedf`; `apply` plans nothing",
        /// settings that VMs, cards and queues share
        class: BTreeMap<String, Placed<Vm>> = "`rt`, `best-effort`",
        /// VMs
        vm: Vec<Placed<Vm>> = "none",
        /// request/response services and their bounds
        service: Vec<Placed<Service>> = "none",
        /// other traffic on the services' paths
        flow: Vec<Placed<Flow>> = "none",
        /// the host's network stack
        net: Net = "nothing is set",
        /// threads of the host's kernel
        kernel: Kernel = "nothing is set",
        /// network cards
        nic: Vec<Placed<Nic>> = "none",
        /// services of the host itself, by their systemd units
        host_service: Vec<Placed<HostService>> = "none",
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

    /// What a VM has of a key: its own, else that of its class, else that of what the class extends.
    pub fn of_vm<T>(&self, vm: &Vm, key: impl Fn(&Vm) -> Option<T>) -> Option<T> {
        let mut next = vm.class.as_ref();
        let mut found = key(vm);
        // Classes that extend each other in a circle are refused by who reads them; here the circle ends.
        for _ in 0..self.class.len() {
            if found.is_some() {
                break;
            }
            let class = self.class.get(next?)?;
            found = key(class);
            next = class.extends.as_ref();
        }
        found
    }

    /// The names of its VMs.
    pub fn vm_names(&self) -> impl Iterator<Item = &str> {
        self.vm.iter().filter_map(|vm| vm.name.as_deref())
    }
}
