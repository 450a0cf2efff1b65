//! A VM's file in /run/steadyvm.d, as the plan and `apply` read it, and as the hook finds it again.

use std::fmt::Write;

use steadyvm_config::{DropIn, quoted};
use steadyvm_host::CpuSet;

use super::holder::Holder;
use super::interface::Interface;

/// The class that ranks a VM's other threads, as its vhost workers. It is there without being written.
const CLASS: &str = "rt";

/// A VM, in the words of steadyvm.toml.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description<'a> {
    pub name: &'a str,
    /// The systemd unit that it runs in, where that is known: nobody else can claim it, as a name can be.
    pub unit: Option<&'a str>,
    pub interface: Interface,
    /// The CPUs that its VCPUs may use, where those are not all.
    pub cpus: Option<&'a CpuSet>,
    pub held: Held,
}

/// How long a VM counts: while one of these lives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// Its monitor.
    pub process: Option<Holder>,
    /// Who is about to start that.
    pub prepared_by: Option<Holder>,
}

impl Description<'_> {
    /// The file's text.
    pub fn text(&self) -> String {
        let Interface {
            period_us,
            budget_us,
            vcpus,
        } = self.interface;
        let mut text = format!(
            "# Written by `steadyvm hook` before the VM started, and deleted when it ends.\n[[vm]]\nname = {}\n\
             class = \"{CLASS}\"\ninterface = \"mpr\"\nperiod = \"{period_us}us\"\nbudget = \"{}us\"\nvcpus = {vcpus}\n",
            quoted(self.name),
            budget_us * u64::from(vcpus),
        );
        if let Some(unit) = self.unit {
            // Writing to a string does not fail.
            let _ = writeln!(text, "unit = {}", quoted(unit));
        }
        if let Some(cpus) = self.cpus {
            let cpus: Vec<String> = cpus.iter().map(|cpu| cpu.to_string()).collect();
            let _ = writeln!(text, "cpus = [{}]", cpus.join(", "));
        }
        if let Some(process) = self.held.process {
            let _ = writeln!(text, "process = {process}");
        }
        if let Some(caller) = self.held.prepared_by {
            let _ = writeln!(text, "prepared_by = {caller}");
        }
        text
    }
}

/// What a file says of its VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    pub name: String,
    pub held: Held,
}

/// The VM of a file; none of one that is damaged.
pub fn read(text: &str) -> Option<Read> {
    let vm = DropIn::parse("", text).ok()?.vm.pop()?.value;
    Some(Read {
        name: vm.name?,
        held: Held {
            process: vm.process.map(Holder::from),
            prepared_by: vm.prepared_by.map(Holder::from),
        },
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INTERFACE: Interface = Interface {
        period_us: 10_000,
        budget_us: 4000,
        vcpus: 2,
    };

    #[test]
    fn a_file_is_as_recorded_and_is_read_again() {
        let holder = Holder {
            pid: 4711,
            start_ticks: 12345,
        };
        let cpus: CpuSet = "2-3".parse().unwrap();
        let described = Description {
            name: "instance-00000001",
            unit: Some("machine-qemu\\x2d1\\x2dinstance\\x2d00000001.scope"),
            interface: INTERFACE,
            cpus: Some(&cpus),
            held: Held {
                process: Some(holder),
                prepared_by: None,
            },
        };
        let text = described.text();
        assert_eq!(text, include_str!("../../../nova/tests/data/drop-in.toml"));
        let found = read(&text).unwrap();
        assert_eq!(
            (found.name.as_str(), found.held),
            (described.name, described.held)
        );
    }

    proptest! {
        #[test]
        fn any_name_of_a_vm_is_toml(name in any::<String>()) {
            let described = Description { name: &name, unit: Some(&name), interface: INTERFACE, cpus: None, held: Held::default() };
            let found = read(&described.text()).unwrap();
            prop_assert_eq!(found.name, name);
        }

        #[test]
        fn no_text_panics(text in ".{0,80}") {
            let _ = read(&text);
        }
    }
}
