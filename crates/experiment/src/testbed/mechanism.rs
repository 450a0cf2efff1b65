//! Puts threads of a host under a mechanism, and back.

use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::time::Duration;
use steadyvm_lab::agent::{Connection, Process};
use steadyvm_lab::{At, Error, Result};
use steadyvm_stats::steps::percentile_of_ends;

/// The scheduler's section for the loader.
const CONFIG: &str = "/run/vcpu.toml";
/// An emulated host verifies the BPF scheduler within this time, and takes it off.
const PATIENCE: Duration = Duration::from_secs(120);
/// Of a lab's host.
const ALL_CPUS: &str = "0,1";
/// RT VCPUs under stock FIFO.
const FIFO_PRIORITY: &str = "70";

/// Who schedules the RT VCPUs: a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// The kernel's normal scheduler, which knows no budget.
    Fair,
    /// FIFO priority 70, which knows no budget either.
    Fifo,
    /// `SCHED_DEADLINE`.
    Deadline,
    /// Our `sched_ext` scheduler.
    Ext,
}

impl Mechanism {
    /// In the order shown.
    pub const ALL: [Self; 4] = [Self::Fair, Self::Fifo, Self::Deadline, Self::Ext];

    /// Its name in tables.
    pub fn title(self) -> &'static str {
        match self {
            Self::Fair => "stock fair",
            Self::Fifo => "stock FIFO 70",
            Self::Deadline => "deadline",
            Self::Ext => "ext",
        }
    }

    /// Whether it knows budgets.
    pub fn has_budgets(self) -> bool {
        matches!(self, Self::Deadline | Self::Ext)
    }
}

/// A thread that stands for a VCPU, and what it is granted.
#[derive(Debug, Clone, Copy)]
pub struct Granted<'n> {
    /// Its name for the scheduler.
    pub name: &'n str,
    /// The thread.
    pub tid: u32,
    /// Budget in each period, in microseconds.
    pub budget_us: u64,
    /// The period, in microseconds.
    pub period_us: u64,
}

/// How the `ext` scheduler serves all of them.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// What orders them: a word of `[host] scheduler`.
    pub scheduler: &'static str,
    /// When it looks at budgets: at multiples of so many microseconds; 0: at exact times.
    pub quantum_us: u64,
    /// Their CPU; `None`: any.
    pub cpu: Option<u32>,
}

impl Policy {
    /// gEDF, as the dissertation's section 4.3.1, at exact times.
    const GLOBAL_EDF: Self = Self {
        scheduler: "gedf",
        quantum_us: 0,
        cpu: None,
    };
}

/// The running loader of the `sched_ext` scheduler, if it is loaded.
#[derive(Default)]
pub struct Enforcement {
    loader: Option<Process>,
}

impl Enforcement {
    /// Puts threads, normal ones before, under a mechanism. Of others nothing changes, but that the `ext`
    /// scheduler has all normal threads.
    ///
    /// # Errors
    /// The host refuses, or does not answer.
    pub fn apply(
        &mut self,
        host: &Connection,
        mechanism: Mechanism,
        granted: &[Granted],
    ) -> Result<()> {
        self.apply_policy(host, mechanism, granted, Policy::GLOBAL_EDF)
    }

    /// The same, the `ext` scheduler by a policy.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub fn apply_policy(
        &mut self,
        host: &Connection,
        mechanism: Mechanism,
        granted: &[Granted],
        policy: Policy,
    ) -> Result<()> {
        if mechanism != Mechanism::Ext {
            self.end(host)?;
        }
        for it in granted {
            let tid = it.tid.to_string();
            let ns = |us: u64| (us * 1000).to_string();
            // `SCHED_DEADLINE` wants all CPUs of its domain; so have the others.
            run(host, &["taskset", "-cp", ALL_CPUS, &tid])?;
            match mechanism {
                Mechanism::Fair | Mechanism::Ext => run(host, &["chrt", "-o", "-p", "0", &tid])?,
                Mechanism::Fifo => run(host, &["chrt", "-f", "-p", FIFO_PRIORITY, &tid])?,
                Mechanism::Deadline => {
                    let (budget, period) = (ns(it.budget_us), ns(it.period_us));
                    run(
                        host,
                        &[
                            "chrt", "-d", "-T", &budget, "-D", &period, "-P", &period, "-p", "0",
                            &tid,
                        ],
                    )?;
                }
            }
        }
        if mechanism == Mechanism::Ext {
            self.load(host, &config(granted, policy), granted)?;
        }
        Ok(())
    }

    /// Makes the threads normal ones again; the scheduler stays loaded for the next ones. The kernel keeps a sleeping
    /// thread's reservation in its account (crates/host/src/threads.rs, `give_back`); a reader of this file has it count anew.
    pub fn release(host: &Connection, granted: &[Granted]) -> Result<()> {
        for it in granted {
            run(host, &["chrt", "-o", "-p", "0", &it.tid.to_string()])?;
        }
        run(host, &["cat", "/proc/sys/kernel/sched_rt_runtime_us"])
    }

    fn load(&mut self, host: &Connection, config: &str, granted: &[Granted]) -> Result<()> {
        run(
            host,
            &["sh", "-c", &format!("cat > {CONFIG} <<'END'\n{config}END")],
        )?;
        let threads: Vec<String> = granted
            .iter()
            .map(|it| format!("--thread={}={}", it.name, it.tid))
            .collect();
        let verb = if self.loader.is_some() {
            "apply"
        } else {
            "run"
        };
        let mut words = vec!["steadyvm", "sched", "ext", verb, "--config", CONFIG];
        words.extend(threads.iter().map(String::as_str));
        if self.loader.is_some() {
            return run(host, &words);
        }
        let mut loader = host.spawn(&words)?;
        loader.wait_for_line("scheduling", PATIENCE)?;
        self.loader = Some(loader);
        Ok(())
    }

    /// Ends the `sched_ext` scheduler, if it is loaded.
    pub fn end(&mut self, host: &Connection) -> Result<()> {
        let Some(loader) = self.loader.take() else {
            return Ok(());
        };
        run(host, &["steadyvm", "sched", "ext", "stop"])?;
        loader.finish(PATIENCE).map(drop)
    }

    /// The threads that the `ext` scheduler works by: the loader's own, and the kernel's that wake them. None if it is not loaded.
    ///
    /// # Errors
    /// The host does not answer.
    pub fn threads(&self, host: &Connection) -> Result<Vec<u32>> {
        let Some(loader) = &self.loader else {
            return Ok(Vec::new());
        };
        let script = format!(
            "ls /proc/{}/task; pgrep -x irq_work/[0-9]+ || :",
            loader.pid()
        );
        let text = host.text(&["sh", "-euc", &script])?;
        let threads = text.split_whitespace().map(str::parse);
        threads
            .collect::<std::result::Result<_, _>>()
            .doing("find the scheduler's threads")
    }

    /// How long the scheduler's decisions took since it was loaded; `None` if it is not.
    ///
    /// # Errors
    /// The kernel has taken it off, or it does not answer.
    pub fn decisions(&self, host: &Connection) -> Result<Option<Decisions>> {
        if self.loader.is_none() {
            return Ok(None);
        }
        let what = "ask the scheduler for its costs";
        let text = host.text(&["steadyvm", "top", "--budgets", "--once", "--json"])?;
        let standing: Standing = serde_json::from_str(&text).doing(what)?;
        if !standing.attached {
            return Err(Error::machine(what, "the kernel has ended it"));
        }
        Ok(Some(standing.decisions))
    }
}

/// What is read of `steadyvm top --budgets --once --json`.
#[derive(Deserialize)]
struct Standing {
    attached: bool,
    decisions: Decisions,
}

/// A histogram of times.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decisions {
    /// Upper ends of its steps in ns and how many decisions each has; without empty ones, in ascending order.
    pub up_to_ns: Vec<(u64, u64)>,
    /// The longest, in ns.
    pub max_ns: u64,
    /// All together, in ns.
    pub total_ns: u64,
}

impl Decisions {
    /// What came after `earlier`. The longest stays that of all.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |end: u64| {
            let found = earlier.up_to_ns.iter().find(|(other, _)| *other == end);
            found.map_or(0, |(_, count)| *count)
        };
        let steps = self.up_to_ns.iter();
        Self {
            up_to_ns: steps
                .map(|&(end, count)| (end, count.saturating_sub(before(end))))
                .filter(|(_, count)| *count > 0)
                .collect(),
            max_ns: self.max_ns,
            total_ns: self.total_ns.saturating_sub(earlier.total_ns),
        }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.up_to_ns.iter().map(|(_, count)| count).sum()
    }

    /// The upper end of the step that has this percentile, nearest-rank, in ns; `None` without decisions.
    pub fn percentile_ns(&self, percent: f64) -> Option<u64> {
        percentile_of_ends(&self.up_to_ns, self.max_ns, percent)
    }

    /// Both together.
    pub fn merge(&mut self, other: &Self) {
        for &(end, count) in &other.up_to_ns {
            match self.up_to_ns.binary_search_by_key(&end, |(end, _)| *end) {
                Ok(at) => self.up_to_ns[at].1 += count,
                Err(at) => self.up_to_ns.insert(at, (end, count)),
            }
        }
        self.max_ns = self.max_ns.max(other.max_ns);
        self.total_ns += other.total_ns;
    }
}

/// The words that put a thread under stock FIFO, and back.
pub fn fifo(tid: u32) -> (String, String) {
    let before = format!("chrt -f -p {FIFO_PRIORITY} {tid}");
    (before, format!("chrt -o -p 0 {tid}"))
}

fn run(host: &Connection, words: &[&str]) -> Result<()> {
    host.run(words).map(drop)
}

/// Deferrable servers, as the dissertation's.
fn config(granted: &[Granted], policy: Policy) -> String {
    let mut text = format!(
        "[host]\nenforce = \"ext\"\nserver = \"deferrable\"\nscheduler = \"{}\"\nquantum = \"{}us\"\n",
        policy.scheduler, policy.quantum_us
    );
    for it in granted {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "[[vm]]\nname = \"{}\"\nbudget = \"{}us\"\nperiod = \"{}us\"",
            it.name, it.budget_us, it.period_us
        );
        if let Some(cpu) = policy.cpu {
            let _ = writeln!(text, "cpus = [{cpu}]");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decisions(up_to_ns: &[(u64, u64)], max_ns: u64) -> Decisions {
        Decisions {
            up_to_ns: up_to_ns.to_vec(),
            max_ns,
            total_ns: 10 * max_ns,
        }
    }

    #[test]
    fn percentiles_are_of_what_came_in_between() {
        let before = decisions(&[(100, 5), (200, 5)], 180);
        let after = decisions(&[(100, 5), (200, 104), (400, 1)], 390);
        let between = after.since(&before);
        assert_eq!(between.up_to_ns, [(200, 99), (400, 1)]);
        assert_eq!(between.count(), 100);
        assert_eq!(between.percentile_ns(50.0), Some(200));
        assert_eq!(between.percentile_ns(99.0), Some(200));
        // No step's end is beyond the longest.
        assert_eq!(between.percentile_ns(100.0), Some(390));
        assert_eq!(Decisions::default().percentile_ns(50.0), None);
    }

    #[test]
    fn rounds_are_counted_together() {
        let mut all = decisions(&[(200, 2)], 150);
        all.merge(&decisions(&[(100, 1), (200, 3)], 180));
        assert_eq!(all.up_to_ns, [(100, 1), (200, 5)]);
        assert_eq!((all.max_ns, all.total_ns), (180, 3300));
    }

    #[test]
    fn the_schedulers_section_has_every_thread() {
        let granted = Granted {
            name: "d1",
            tid: 7,
            budget_us: 4,
            period_us: 10,
        };
        let text = config(&[granted], Policy::GLOBAL_EDF);
        assert!(
            text.ends_with(
                "quantum = \"0us\"\n[[vm]]\nname = \"d1\"\nbudget = \"4us\"\nperiod = \"10us\"\n"
            ),
            "{text}"
        );
        let pinned = Policy {
            scheduler: "gfp",
            quantum_us: 500,
            cpu: Some(1),
        };
        let text = config(&[granted], pinned);
        assert!(text.contains("scheduler = \"gfp\"\nquantum = \"500us\"\n"));
        assert!(text.ends_with("period = \"10us\"\ncpus = [1]\n"), "{text}");
    }
}
