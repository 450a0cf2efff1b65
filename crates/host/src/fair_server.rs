//! The fair server's share in small pieces.
//!
//! From Linux 6.12 on, normal threads that SCHED_FIFO threads leave no time get 50 ms of each second on
//! their CPU (`fair_server_init`, kernel/sched/fair.c) **in one piece, before every SCHED_FIFO
//! thread**: whatever a real-time path's priorities are, it waits that long. Rule: the share stays, the
//! piece becomes [`PIECE_NS`], and the period shrinks with it.

use crate::change::{Change, Form, Step};
use crate::error::HostError;
use crate::machine::Machine;

/// The longest time for which normal threads stand before real-time ones.
const PIECE_NS: u64 = 1_000_000;
/// debugfs of the scheduler; a kernel without `CONFIG_SCHED_DEBUG` has no such place.
const DIRECTORY: &str = "/sys/kernel/debug/sched/fair_server";

/// The files of a CPU, in nanoseconds.
fn file(cpu: usize, name: &str) -> String {
    format!("{DIRECTORY}/cpu{cpu}/{name}")
}

/// All files that [`steps`] may change.
pub(crate) fn files(machine: &Machine) -> Vec<String> {
    let online = machine.online().unwrap_or_default();
    let of_cpu = |cpu| ["runtime", "period"].map(|name| file(cpu, name));
    online.iter().flat_map(of_cpu).collect()
}

/// Steps that cut the share of each CPU into small pieces. None where there is no fair server, where
/// somebody has switched it off, or where its pieces are small already.
pub(crate) fn steps(machine: &Machine) -> Result<Vec<Step>, HostError> {
    let mut steps = Vec::new();
    for cpu in machine.online()?.iter() {
        let read = |name| {
            let text = machine.tree.read(&file(cpu, name)).ok()?;
            text.trim().parse::<u64>().ok()
        };
        let (Some(runtime), Some(period)) = (read("runtime"), read("period")) else {
            continue;
        };
        if runtime <= PIECE_NS {
            continue;
        }
        let shorter = u128::from(period) * u128::from(PIECE_NS) / u128::from(runtime);
        // The runtime first: the kernel refuses one that is longer than the period.
        for (name, old, new) in [
            ("runtime", runtime, u128::from(PIECE_NS)),
            ("period", period, shorter),
        ] {
            steps.push(Step {
                change: Change::File {
                    path: file(cpu, name),
                    form: Form::Text,
                    old: old.to_string(),
                    new: new.to_string(),
                },
                why: "so that normal threads get their share in pieces of 1 ms, not of 50".into(),
                required: false,
            });
        }
    }
    Ok(steps)
}

/// The steps of a plan that follows one whose steps `own` are in force: theirs stay as they are.
pub(crate) fn steps_after(machine: &Machine, own: &[Step]) -> Result<Vec<Step>, HostError> {
    let is_ours = |step: &&Step| matches!(&step.change, Change::File { path, .. } if path.starts_with(DIRECTORY));
    let kept: Vec<Step> = own.iter().filter(is_ours).cloned().collect();
    if kept.is_empty() {
        return steps(machine);
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeHost;

    fn host(runtime: &str, period: &str) -> FakeHost {
        let host = FakeHost::new(2);
        host.writable_file(&file(0, "runtime"), runtime);
        host.writable_file(&file(0, "period"), period);
        host
    }

    fn values(host: &FakeHost) -> Vec<String> {
        let steps = steps(&host.machine()).unwrap();
        steps.iter().map(|step| step.change.to_string()).collect()
    }

    #[test]
    fn the_share_stays_and_the_piece_shrinks_runtime_first() {
        let told = values(&host("50000000\n", "1000000000\n"));
        assert_eq!(told.len(), 2);
        assert!(
            told[0].contains("runtime") && told[0].ends_with("50000000 -> 1000000"),
            "{told:?}"
        );
        assert!(told[1].ends_with("1000000000 -> 20000000"), "{told:?}");
    }

    #[test]
    fn a_plan_that_follows_keeps_the_steps_in_force() {
        let host = host("50000000\n", "1000000000\n");
        let own = steps(&host.machine()).unwrap();
        host.writable_file(&file(0, "runtime"), "1000000\n");
        host.writable_file(&file(0, "period"), "20000000\n");
        assert_eq!(steps_after(&host.machine(), &own).unwrap(), own);
    }

    #[test]
    fn what_is_off_small_or_missing_is_left_alone() {
        for (runtime, period) in [
            ("0\n", "1000000000\n"),
            ("1000000\n", "20000000\n"),
            ("x", "1"),
        ] {
            assert!(values(&host(runtime, period)).is_empty());
        }
        assert!(steps(&FakeHost::new(2).machine()).unwrap().is_empty());
    }
}
