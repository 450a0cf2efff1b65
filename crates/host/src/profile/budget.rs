//! A budget of a virtual CPU, and what the kernel would refuse of it.

use serde::{Deserialize, Serialize};

use crate::settings::threads::Scheduling;

/// The least runtime that the kernel takes (`DL_SCALE` bits: include/linux/sched.h).
const LEAST_RUNTIME_NS: u64 = 1 << 10;

/// `sysctl_sched_dl_period_min` of kernel/sched/deadline.c.
const LEAST_PERIOD_NS: u64 = 100_000;

/// `sysctl_sched_dl_period_max` of kernel/sched/deadline.c, 2^22 us.
const MOST_PERIOD_NS: u64 = (1 << 22) * 1000;

/// Of each CPU, per cent: the kernel's 95 less the fair server's 5.
pub const USABLE_PERCENT: u8 = 90;

/// Of each CPU, per cent: the scheduler has no other threads to care for than those that it gives the rest.
pub const USABLE_BY_EXT_PERCENT: u8 = 95;

/// CPU time of a virtual CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuBudget {
    /// CPU time in every period.
    pub runtime_ns: u64,
    /// When that time is there at the latest, after the virtual CPU wakes.
    pub deadline_ns: u64,
    /// The period.
    pub period_ns: u64,
    /// The one CPU that it is kept on; none: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Of VCPUs that come at the same time, 0 first. `SCHED_DEADLINE` knows none.
    #[serde(default)]
    pub rank: u32,
}

impl VcpuBudget {
    /// What the kernel would refuse, in words.
    ///
    /// # Errors
    /// The rule that the budget breaks.
    pub fn check(&self) -> Result<(), String> {
        let Self {
            runtime_ns,
            deadline_ns,
            period_ns,
            cpu: _,
            rank: _,
        } = *self;
        let ranges = [
            ("runtime", runtime_ns, LEAST_RUNTIME_NS, deadline_ns),
            ("deadline", deadline_ns, runtime_ns, period_ns),
            ("period", period_ns, LEAST_PERIOD_NS, MOST_PERIOD_NS),
        ];
        for (name, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                return Err(format!(
                    "a {name} of {value} ns is not within {least} to {most} ns, which SCHED_DEADLINE asks for"
                ));
            }
        }
        Ok(())
    }

    pub(crate) fn scheduling(&self, flags: u64) -> Scheduling {
        Scheduling::deadline(self.runtime_ns, self.deadline_ns, self.period_ns, flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_refuses_is_refused_with_its_rule() {
        let good = VcpuBudget {
            runtime_ns: 2_000_000,
            deadline_ns: 10_000_000,
            period_ns: 10_000_000,
            cpu: None,
            rank: 0,
        };
        good.check().unwrap();
        for (bad, name) in [
            (
                VcpuBudget {
                    runtime_ns: 1000,
                    ..good
                },
                "runtime",
            ),
            (
                VcpuBudget {
                    runtime_ns: 10_000_001,
                    ..good
                },
                "runtime",
            ),
            (
                VcpuBudget {
                    deadline_ns: 10_000_001,
                    ..good
                },
                "deadline",
            ),
            (
                VcpuBudget {
                    runtime_ns: 50_000,
                    deadline_ns: 99_999,
                    period_ns: 99_999,
                    ..good
                },
                "period",
            ),
            (
                VcpuBudget {
                    period_ns: MOST_PERIOD_NS + 1,
                    ..good
                },
                "period",
            ),
        ] {
            assert!(
                bad.check().unwrap_err().starts_with(&format!("a {name}")),
                "{bad:?}"
            );
        }
    }
}
