//! Where in the caller's input something is: a line of a file, or the path of a field.

use std::collections::BTreeMap;

use steadyvm_config::{File, Placed};

/// Places of a request's parts.
pub(in crate::plan) enum Places {
    /// JSON: by path.
    Paths,
    /// TOML: by line.
    Lines(Lines),
}

#[derive(Default)]
pub(in crate::plan) struct Lines {
    vms: Vec<(String, Vec<String>)>,
    services: Vec<String>,
    classes: BTreeMap<String, String>,
}

impl Places {
    /// The places of a file's tables.
    pub(super) fn of_toml(file: &File) -> Self {
        let tasks = |vm: &steadyvm_config::Vm| (vm.tasks.iter().flatten()).map(at).collect();
        Self::Lines(Lines {
            vms: (file.vm.iter()).map(|vm| (at(vm), tasks(vm))).collect(),
            services: file.service.iter().map(at).collect(),
            classes: (file.class.iter())
                .map(|(name, class)| (name.clone(), at(class)))
                .collect(),
        })
    }

    pub(super) fn vms(&self) -> String {
        match self {
            Self::Paths => "vms".to_owned(),
            Self::Lines(_) => "the file: [[vm]]".to_owned(),
        }
    }

    pub(super) fn host(&self) -> String {
        match self {
            Self::Paths => "host".to_owned(),
            Self::Lines(_) => "the file: [host]".to_owned(),
        }
    }

    pub(super) fn vm(&self, index: usize) -> String {
        match self {
            Self::Paths => format!("vms[{index}]"),
            Self::Lines(lines) => (lines.vms.get(index))
                .map_or_else(|| format!("vm[{index}]"), |(place, _)| place.clone()),
        }
    }

    /// A field of a VM, or the VM where only lines are known.
    pub(super) fn field(&self, vm: usize, field: &str) -> String {
        match self {
            Self::Paths => format!("vms[{vm}].{field}"),
            Self::Lines(_) => self.vm(vm),
        }
    }

    /// A task of a VM; one from a class is at the VM.
    pub(super) fn task(&self, vm: usize, task: usize) -> String {
        match self {
            Self::Paths => format!("vms[{vm}].tasks[{task}]"),
            Self::Lines(lines) => (lines.vms.get(vm))
                .and_then(|(_, tasks)| tasks.get(task).cloned())
                .unwrap_or_else(|| self.vm(vm)),
        }
    }

    pub(super) fn service(&self, index: usize) -> String {
        match self {
            Self::Paths => format!("services[{index}]"),
            Self::Lines(lines) => {
                (lines.services.get(index).cloned()).unwrap_or_else(|| format!("service[{index}]"))
            }
        }
    }

    pub(super) fn class(&self, name: &str) -> String {
        match self {
            Self::Paths => format!("class.{name}"),
            Self::Lines(lines) => {
                (lines.classes.get(name).cloned()).unwrap_or_else(|| format!("class.{name}"))
            }
        }
    }
}

fn at<T>(value: &Placed<T>) -> String {
    value.place.to_string()
}
