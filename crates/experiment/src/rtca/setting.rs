//! What a host is booted with, as opposed to what is set while it runs.

use super::configuration::Configuration;
use crate::rtca::Endpoints;
use steadyvm_host::Method;

/// A host's setting. Two configurations that differ in their batch only share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The method.
    pub method: Method,
    /// Whether packets are taken in batches that can be set; otherwise by the plain path.
    pub has_batches: bool,
    /// What the packets go between.
    pub endpoints: Endpoints,
}

impl Setting {
    /// That of one configuration.
    pub fn of(configuration: Configuration, endpoints: Endpoints) -> Self {
        Self {
            method: configuration.method,
            has_batches: configuration.batch.is_some(),
            endpoints,
        }
    }

    /// Those of several, each once.
    pub fn of_all(configurations: &[Configuration], endpoints: Endpoints) -> Vec<Self> {
        let mut settings = Vec::new();
        for configuration in configurations {
            let setting = Self::of(*configuration, endpoints);
            if !settings.contains(&setting) {
                settings.push(setting);
            }
        }
        settings
    }

    /// A name for messages and files.
    pub fn name(self) -> String {
        let batches = if self.has_batches { "-batches" } else { "" };
        format!("{}{batches}", self.method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_of_a_method_share_a_host_and_the_plain_path_has_its_own() {
        let names = [
            "vanilla",
            "rt-poll-list:1",
            "rt-poll-list:64",
            "rt-poll-list",
        ];
        let configurations = names.map(|name| name.parse().unwrap());
        let settings = Setting::of_all(&configurations, Endpoints::Vms);
        let names: Vec<String> = settings.iter().map(|it| it.name()).collect();
        assert_eq!(names, ["vanilla", "rt-poll-list-batches", "rt-poll-list"]);
    }
}
