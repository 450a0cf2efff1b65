//! When figures no longer count.
//!
//! Rule: costs are those of a kernel on a processor. Another release schedules otherwise, another CPU has other caches, and
//! in 90 days firmware, microcode and the other load of a host have changed.

use std::fmt;

use serde::Serialize;
use steadyvm_host::Machine;

use crate::calibration::{Calibration, MOST_DAYS};

/// A clock may have been set: so much in the future is no reason, s.
const CLOCK_ERROR_S: u64 = 86_400;

/// What figures must be of to count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Here {
    /// The kernel's release.
    pub kernel: String,
    /// The CPU model.
    pub cpu: String,
}

/// Why figures do not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "by", rename_all = "kebab-case")]
pub enum Stale {
    /// They are of another kernel.
    Kernel {
        /// That kernel.
        then: String,
        /// The one that runs.
        now: String,
    },
    /// They are of another processor.
    Cpu {
        /// That processor.
        then: String,
        /// The one of this host.
        now: String,
    },
    /// They are old.
    Date {
        /// So many days.
        days: u64,
    },
    /// They are from the future.
    Future {
        /// Their date.
        date: String,
    },
}

impl Here {
    /// This host.
    pub fn of(machine: &Machine) -> Self {
        let unknown = || "unknown".to_owned();
        let cpuinfo = machine.tree.read("/proc/cpuinfo").unwrap_or_default();
        Self {
            kernel: machine.kernel_release().unwrap_or_else(unknown),
            cpu: cpu_of(&cpuinfo).unwrap_or_else(unknown),
        }
    }
}

/// The model by /proc/cpuinfo. arm64 has numbers of its maker and of the part alone.
fn cpu_of(cpuinfo: &str) -> Option<String> {
    let value = |key: &str| {
        let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = lines.find(|(name, _)| name.trim() == key)?;
        let value = value.trim();
        (!value.is_empty()).then(|| value.to_owned())
    };
    value("model name").or_else(|| {
        let (maker, part) = (value("CPU implementer")?, value("CPU part")?);
        Some(format!("implementer {maker} part {part}"))
    })
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel { then, now } => {
                write!(f, "it is of kernel {then}, and {now} runs")
            }
            Self::Cpu { then, now } => {
                write!(f, "it is of CPU \"{then}\", and this host has \"{now}\"")
            }
            Self::Date { days } => {
                write!(
                    f,
                    "it is {days} days old, and counts for {MOST_DAYS} at most"
                )
            }
            Self::Future { date } => write!(f, "its date, {date}, is in the future"),
        }
    }
}

impl Calibration {
    /// Why it does not count on a host at a time; none if it does.
    pub fn stale(&self, here: &Here, now_unix_s: u64) -> Option<Stale> {
        if self.kernel != here.kernel {
            return Some(Stale::Kernel {
                then: self.kernel.clone(),
                now: here.kernel.clone(),
            });
        }
        if self.cpu != here.cpu {
            return Some(Stale::Cpu {
                then: self.cpu.clone(),
                now: here.cpu.clone(),
            });
        }
        self.stale_by_date(now_unix_s)
    }

    /// The same whatever the host.
    pub fn stale_by_date(&self, now_unix_s: u64) -> Option<Stale> {
        if self.unix_s > now_unix_s.saturating_add(CLOCK_ERROR_S) {
            return Some(Stale::Future {
                date: crate::date(self.unix_s),
            });
        }
        let days = now_unix_s.saturating_sub(self.unix_s) / 86_400;
        (days > MOST_DAYS).then_some(Stale::Date { days })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::tests::calibration;

    #[test]
    fn figures_count_on_their_kernel_and_cpu_for_90_days() {
        let found = calibration();
        let here = Here {
            kernel: found.kernel.clone(),
            cpu: found.cpu.clone(),
        };
        let stale = |here: &Here, days: i64| {
            let now = found.unix_s.checked_add_signed(days * 86_400).unwrap();
            let stale = found.stale(here, now)?;
            Some(stale.to_string())
        };
        assert_eq!(stale(&here, 0), None);
        assert_eq!(stale(&here, 90), None);
        // A clock that was set back by a day.
        assert_eq!(stale(&here, -1), None);
        assert!(stale(&here, 91).unwrap().contains("91 days old"));
        assert!(stale(&here, -2).unwrap().contains("future"));
        let other_kernel = Here {
            kernel: "7.0".into(),
            ..here.clone()
        };
        let said = stale(&other_kernel, 0).unwrap();
        assert!(
            said.contains("7.0") && said.contains(&found.kernel),
            "{said}"
        );
        let other_cpu = Here {
            cpu: "another".into(),
            ..here
        };
        assert!(stale(&other_cpu, 0).unwrap().contains("\"another\""));
    }

    #[test]
    fn the_cpu_is_told_by_its_model_or_its_numbers() {
        let x86 = "processor\t: 0\nmodel\t\t: 85\nmodel name\t: Xeon (R) @ 2.0\nflags\t\t: fpu\n";
        assert_eq!(cpu_of(x86).as_deref(), Some("Xeon (R) @ 2.0"));
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(cpu_of(arm).as_deref(), Some("implementer 0x41 part 0xd0c"));
        assert_eq!(cpu_of("model name\t:\n"), None);
    }
}
