//! Where in the caller's input something is: a line of a file, or the path of a field.

use serde::{Deserialize, de::IgnoredAny};
use std::collections::BTreeMap;
use toml::Spanned;

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

#[derive(Deserialize)]
struct Spans {
    #[serde(default)]
    class: BTreeMap<String, Spanned<IgnoredAny>>,
    #[serde(default, alias = "vms")]
    vm: Vec<Spanned<VmSpans>>,
    #[serde(default, alias = "services")]
    service: Vec<Spanned<IgnoredAny>>,
}

#[derive(Deserialize)]
struct VmSpans {
    #[serde(default)]
    tasks: Vec<Spanned<IgnoredAny>>,
}

/// "line L column C" of a byte offset.
pub(super) fn line(text: &str, offset: usize) -> String {
    let before = text.get(..offset).unwrap_or(text);
    let number = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
    format!("line {number} column {column}")
}

impl Places {
    /// The places of a text that was read as a request before.
    pub(super) fn of_toml(text: &str) -> Self {
        let Ok(spans) = toml::from_str::<Spans>(text) else {
            return Self::Lines(Lines::default());
        };
        let at = |span: std::ops::Range<usize>| line(text, span.start);
        let vm = |vm: &Spanned<VmSpans>| {
            let tasks = vm.get_ref().tasks.iter().map(|task| at(task.span()));
            (at(vm.span()), tasks.collect())
        };
        Self::Lines(Lines {
            vms: spans.vm.iter().map(vm).collect(),
            services: spans
                .service
                .iter()
                .map(|service| at(service.span()))
                .collect(),
            classes: (spans.class.into_iter())
                .map(|(name, class)| (name, at(class.span())))
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
