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
