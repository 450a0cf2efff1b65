//! Whether the `sched_ext` scheduler may be had: the kernel has it, and has not ended it too often.
//!
//! The loader notes each time that the kernel ends it (`steadyvm_sched::ejection`). A cause that stays, as a thread that keeps a CPU
//! from all normal ones, would otherwise be loaded again at each look.

use std::path::Path;

use steadyvm_sched::ejection::{self, Ejection, Verdict};
use steadyvm_sched::service::{self, Request};
use steadyvm_sched::{Error, SCHED_EXT, is_attached};

/// What is known of it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ext {
    /// Whether the kernel has it.
    pub exists: bool,
    /// Whether it may be started.
    pub verdict: Verdict,
    /// How often the kernel has ended it, and how the last time.
    ended: Option<(usize, Ejection)>,
}

impl Ext {
    /// On this host.
    pub fn now() -> Self {
        let socket = Path::new(service::SOCKET);
        let ends = ejection::read(socket);
        Self {
            exists: Path::new(SCHED_EXT).exists(),
            ..Self::of(&ends, ejection::boottime_s())
        }
    }

    /// On a kernel that has it, after these ends.
    pub fn of(ends: &[Ejection], now_boottime_s: u64) -> Self {
        Self {
            exists: true,
            verdict: ejection::verdict(ends, now_boottime_s),
            ended: ends.last().map(|last| (ends.len(), last.clone())),
        }
    }

    /// Why it is not at work though a file wants it; `instead` is what keeps the budgets.
    pub fn held_off(&self, instead: &str) -> Option<String> {
        let (count, last) = self.ended.as_ref()?;
        let then = match self.verdict {
            Verdict::MayRun => return None,
            Verdict::Waits { .. } => "it is loaded again after a pause".to_owned(),
            Verdict::GivenUp => {
                "it is not loaded again until `steadyvm apply`: remove the cause first".to_owned()
            }
        };
        let times = if *count == 1 { "time" } else { "times" };
        Some(format!(
            "the kernel has ended the scheduler of VCPU budgets {count} {times}, the last time for: {}; {instead} meanwhile; {then}",
            last.reason
        ))
    }

    /// What is to be told of an end that came after what was known `before` and is waited after no longer; none if there is none.
    ///
    /// A look may come only after the pause: the end is told all the same.
    pub fn ended_since(&self, before: &Self) -> Option<String> {
        let (_, last) = self.ended.as_ref()?;
        let known = before.ended.as_ref().map(|(_, last)| last);
        (self.verdict == Verdict::MayRun && known != Some(last)).then(|| {
            format!(
                "the kernel has ended the scheduler of VCPU budgets, for: {}; it is loaded again",
                last.reason
            )
        })
    }
}

/// A person asks for it again.
pub fn forget() -> std::io::Result<()> {
    ejection::forget(Path::new(service::SOCKET))
}

/// What hinders asking the loader that is at work: it does not answer, or is of another version.
pub fn trouble() -> Option<String> {
    if !is_attached() {
        return None;
    }
    match service::ask(Path::new(service::SOCKET), &Request::Enforced) {
        Err(error @ (Error::Silent { .. } | Error::OtherVersion { .. })) => Some(error.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ends: &[u64], now_boottime_s: u64) -> Ext {
        let end = |&boottime_s: &u64| Ejection {
            boottime_s,
            unix_s: boottime_s,
            reason: format!("stall {boottime_s}"),
        };
        Ext::of(&ends.iter().map(end).collect::<Vec<_>>(), now_boottime_s)
    }

    #[test]
    fn an_end_is_told_once_whenever_the_next_look_comes() {
        // A look within the pause tells it, and the one after the pause does not tell it again.
        let (before, within, after) = (at(&[], 990), at(&[1000], 1005), at(&[1000], 1011));
        assert!(within.held_off("none").unwrap().contains("stall 1000"));
        assert_eq!(within.ended_since(&before), None);
        assert_eq!(after.held_off("none"), None);
        assert_eq!(after.ended_since(&within), None);
        // The first look comes after the pause.
        let told = after.ended_since(&before).unwrap();
        assert!(
            told.contains("has ended the scheduler") && told.contains("stall 1000"),
            "{told}"
        );
        // A second end, of which the pause is over, too.
        let second = at(&[1000, 1050], 1111);
        assert!(second.ended_since(&after).unwrap().contains("stall 1050"));
        // What was there from the start is known.
        assert_eq!(after.ended_since(&after), None);
    }
}
