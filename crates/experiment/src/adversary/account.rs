//! Of the CPU time that a host spent on packets: how much threads spent that work for one VM alone.
//!
//! Spent is the time of all threads that receive or hand on: polls (`napi/`, `backlog_napi/`), interrupts of network devices
//! (`irq/`), softirqs (`ksoftirqd/`), vhost workers (`vhost-`). Charged is the time of those that `steadyvm status` counts for a
//! VM. What an interrupt does in a thread that it meets is in neither.

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use steadyvm_lab::agent::Connection;
use steadyvm_lab::{At, Result};

/// CPU time of the host's packets in one measurement, in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Account {
    pub spent_ns: u64,
    pub charged_ns: u64,
    /// Nanoseconds of threads that count for no VM, by name.
    pub of_nobody: BTreeMap<String, u64>,
}

/// The receiving threads at one moment: name and CPU time by thread id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Times(BTreeMap<u32, (String, u64)>);

/// Network devices, a word each, and after an empty line each thread's id, CPU time and name. A thread may end meanwhile.
const THREADS: &str = "ls /sys/class/net; echo; \
     for task in /proc/[0-9]*/task/[0-9]*; do \
       { read -r name < $task/comm && read -r ns rest < $task/schedstat && echo \"${task##*/} $ns $name\"; } 2>/dev/null || :; \
     done";

/// What `steadyvm status --json` says of receive work.
#[derive(Deserialize)]
struct Status {
    receive_work: Vec<Work>,
}

#[derive(Deserialize)]
struct Work {
    threads: Vec<Thread>,
}

#[derive(Deserialize)]
struct Thread {
    tid: u32,
}

impl Times {
    /// Reads them.
    pub fn now(host: &Connection) -> Result<Self> {
        Ok(Self::of(&host.text(&["sh", "-euc", THREADS])?))
    }

    fn of(text: &str) -> Self {
        let (devices, threads) = text.split_once("\n\n").unwrap_or_default();
        let devices: BTreeSet<&str> = devices.split_whitespace().collect();
        let time = |line: &str| {
            let mut words = line.splitn(3, ' ');
            let (tid, ns, name) = (words.next()?, words.next()?, words.next()?);
            let time = (tid.parse().ok()?, (name.to_owned(), ns.parse().ok()?));
            receives(name, &devices).then_some(time)
        };
        Self(threads.lines().filter_map(time).collect())
    }

    /// What was spent since, and how much of it by threads that count for a VM. `None`: steadyvm counts no VM's threads here.
    pub fn account_since(&self, before: &Self, host: &Connection) -> Result<Option<Account>> {
        // It ends with 1 where something drifted, which is no matter here.
        let text = host.text(&["sh", "-euc", "steadyvm status --json || :"])?;
        let status: Status = serde_json::from_str(&text).doing("read steadyvm's status")?;
        let counted: BTreeSet<u32> = status
            .receive_work
            .iter()
            .flat_map(|work| work.threads.iter().map(|it| it.tid))
            .collect();
        Ok((!counted.is_empty()).then(|| self.account(before, &counted)))
    }

    fn account(&self, before: &Self, counted: &BTreeSet<u32>) -> Account {
        let mut account = Account::default();
        for (tid, (name, now)) in &self.0 {
            let before = before.0.get(tid).map_or(0, |(_, ns)| *ns);
            let spent_ns = now.saturating_sub(before);
            account.spent_ns += spent_ns;
            if counted.contains(tid) {
                account.charged_ns += spent_ns;
            } else if spent_ns > 0 {
                *account.of_nobody.entry(name.clone()).or_default() += spent_ns;
            }
        }
        account
    }
}

fn receives(name: &str, devices: &BTreeSet<&str>) -> bool {
    if ["napi/", "backlog_napi/", "ksoftirqd/", "vhost-"]
        .iter()
        .any(|start| name.starts_with(start))
    {
        return true;
    }
    // Such as irq/29-rt-rx-0, cut after 15 bytes.
    let of_interrupt = name.strip_prefix("irq/").and_then(|it| it.split_once('-'));
    of_interrupt.is_some_and(|(_, of)| {
        devices.iter().any(|device| {
            of.strip_prefix(device)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        })
    })
}

/// The charged part of what was spent in several measurements; none where nothing was counted.
pub(super) fn charged_fraction(accounts: &[Account]) -> Option<f64> {
    let (charged, spent) = accounts.iter().fold((0, 0), |(charged, spent), it| {
        (charged + it.charged_ns, spent + it.spent_ns)
    });
    (spent > 0).then(|| charged as f64 / spent as f64)
}

/// So many threads are named.
const NAMED_THREADS: usize = 5;

/// The threads that count for no VM and take the most, with their percent of what was spent; none where they take nothing.
pub(super) fn of_nobody<'a>(accounts: impl IntoIterator<Item = &'a Account>) -> Option<String> {
    let (mut spent, mut by_name) = (0, BTreeMap::<&str, u64>::new());
    for account in accounts {
        spent += account.spent_ns;
        for (name, ns) in &account.of_nobody {
            *by_name.entry(name).or_default() += ns;
        }
    }
    let mut most: Vec<(&str, u64)> = by_name.into_iter().collect();
    most.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let said = most.iter().take(NAMED_THREADS);
    let said: Vec<String> = said
        .map(|(name, ns)| format!("{name} {:.1} %", 100.0 * *ns as f64 / spent as f64))
        .collect();
    (!said.is_empty()).then(|| said.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
lo
rt
rtv0

16 500 ksoftirqd/0
41 1000 irq/29-rt-rx-0
42 2000 irq/30-rtv0-rx-
43 50 irq/31-virtio0-
44 60 napi/rtv0-8193
45 70 vhost-900
46 90 steadyvm
";

    #[test]
    fn what_is_spent_is_of_threads_that_handle_packets_and_charged_what_counts_for_a_vm() {
        let before = Times::of(BEFORE);
        assert_eq!(
            before.0.keys().copied().collect::<Vec<_>>(),
            [16, 41, 42, 44, 45]
        );
        let mut now = before.clone();
        for (tid, more) in [(16, 10), (42, 100), (45, 40)] {
            now.0.get_mut(&tid).unwrap().1 += more;
        }
        // A thread that began meanwhile.
        now.0.insert(99, ("napi/rt-8194".to_owned(), 50));
        let account = now.account(&before, &BTreeSet::from([42, 45, 7]));
        let expected = Account {
            spent_ns: 200,
            charged_ns: 140,
            of_nobody: [("ksoftirqd/0", 10), ("napi/rt-8194", 50)]
                .map(|(name, ns)| (name.to_owned(), ns))
                .into(),
        };
        assert_eq!(account, expected);
        let all = [expected, Account::default()];
        assert_eq!(charged_fraction(&all), Some(0.7));
        let said = of_nobody(&all).unwrap();
        assert_eq!(said, "napi/rt-8194 25.0 %, ksoftirqd/0 5.0 %");
        assert_eq!((charged_fraction(&[]), of_nobody(&[])), (None, None));
    }
}
