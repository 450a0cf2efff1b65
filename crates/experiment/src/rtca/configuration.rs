//! What is compared: a method, and how many packets of one endpoint are taken at a time.

use crate::testbed::{Endpoints, Setting};
use std::fmt;
use std::str::FromStr;

use steadyvm_lab::{Error, Result};
use steadyvm_methods::Method;

/// The most packets that a poll takes on Linux (`NAPI_POLL_WEIGHT`), and so the largest batch.
pub const LARGEST_BATCH: u32 = 64;

/// A method, plain or with a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Configuration {
    /// What is set on the host; it decides the kernel.
    pub method: Method,
    /// The packets taken of one endpoint before a more urgent one is looked at; `None` leaves the
    /// plain path with its own.
    pub batch: Option<u32>,
}

impl Configuration {
    /// Refuses a batch where nothing can keep it.
    pub(super) fn check(self, endpoints: Endpoints) -> Result<()> {
        let is_possible = match endpoints {
            Endpoints::Vms => true,
            Endpoints::Namespaces => self.batch.is_none() || self.method.has_levels(),
        };
        if is_possible {
            return Ok(());
        }
        let why = "between network namespaces only the kernel with levels has a batch";
        let method = self.method;
        Err(
            Error::input(format!("measure {self}"), why).what_to_do(format!(
                "use {method} alone, {}:N, or --endpoints vms, whose taps have one on any kernel",
                Method::RtPollList
            )),
        )
    }
}

impl Configuration {
    /// The setting of its host.
    pub(super) fn setting(self, endpoints: Endpoints) -> Setting {
        Setting {
            method: self.method,
            has_batches: self.batch.is_some(),
            endpoints,
        }
    }
}

/// The settings of several, each once.
pub(super) fn settings(configurations: &[Configuration], endpoints: Endpoints) -> Vec<Setting> {
    let mut settings = Vec::new();
    for configuration in configurations {
        let setting = configuration.setting(endpoints);
        if !settings.contains(&setting) {
            settings.push(setting);
        }
    }
    settings
}

impl fmt::Display for Configuration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.batch {
            None => write!(formatter, "{}", self.method),
            Some(batch) => write!(formatter, "{}:{batch}", self.method),
        }
    }
}

impl FromStr for Configuration {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (method, batch) = match text.split_once(':') {
            None => (text, None),
            Some((method, batch)) => (method, Some(parse_batch(batch)?)),
        };
        Ok(Self {
            method: Method::of_host_named(method).map_err(|error| error.to_string())?,
            batch,
        })
    }
}

fn parse_batch(text: &str) -> std::result::Result<u32, String> {
    let batch = text.parse().ok();
    batch
        .filter(|batch| (1..=LARGEST_BATCH).contains(batch))
        .ok_or_else(|| {
            format!(
                "`{text}` is no batch: use 1 to {LARGEST_BATCH}, the most that one poll takes; for the larger \
                 ones of RTCA (238) use the method alone: the plain path goes on by its own budgets"
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_back() {
        for name in ["vanilla", "preempt-rt:64", "rt-poll-list:1"] {
            let configuration: Configuration = name.parse().unwrap();
            assert_eq!(configuration.to_string(), name);
        }
    }

    #[test]
    fn what_is_no_configuration_is_refused_with_a_reason() {
        for (text, reason) in [
            ("vanila", "vanila"),
            ("rt-poll-list:", "1 to 64"),
            ("rt-poll-list:0", "1 to 64"),
            ("rt-poll-list:65", "1 to 64"),
            ("rt-poll-list:238", "the method alone"),
            ("rt-poll-list:1:2", "1 to 64"),
        ] {
            let error = text.parse::<Configuration>().unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn namespaces_have_a_batch_with_levels_only() {
        for (name, is_possible) in [
            ("vanilla", true),
            ("rt-poll-list:1", true),
            ("rt-poll-list", true),
            ("preempt-rt:1", false),
        ] {
            let configuration: Configuration = name.parse().unwrap();
            let found = configuration.check(Endpoints::Namespaces).is_ok();
            assert_eq!(found, is_possible, "{name}");
            configuration.check(Endpoints::Vms).unwrap();
        }
    }

    #[test]
    fn batches_of_a_method_share_a_host_and_the_plain_path_has_its_own() {
        let names = [
            "vanilla",
            "rt-poll-list:1",
            "rt-poll-list:64",
            "rt-poll-list",
        ];
        let configurations = names.map(|name| name.parse().unwrap());
        let settings = settings(&configurations, Endpoints::Vms);
        let names: Vec<String> = settings.iter().map(|it| it.name()).collect();
        assert_eq!(names, ["vanilla", "rt-poll-list-batches", "rt-poll-list"]);
    }
}
