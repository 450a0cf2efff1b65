//! Levels of the receive path, on kernels with our patches (docs/design/receive-path-levels.md).

use steadyvm_demux::MARK;

use super::step::Step;
use crate::error::HostError;
use crate::settings::files::known::{PRIORITY, QUANTUM, THREAD_PRIORITY, XDP_PRIORITY};
use crate::settings::{ChangeOf, File, Form, Machine};

/// Packets of one poll of the lowest level: what the RT level's thread waits for at most. Measured in
/// docs/design/receive-path-levels.md, "The quantum".
const LOWEST_QUANTUM: u32 = 16;

/// The steps that put the NAPIs of IRQ threads with this priority or more on the RT level. `asker`
/// wants it, and `instead` is what to do without. A step may change nothing.
pub(crate) fn steps(
    machine: &Machine,
    priority: u32,
    asker: &str,
    instead: &str,
) -> Result<Vec<Step>, HostError> {
    let read = |path| read(machine, path, asker, instead);
    let (old, quantum) = (read(PRIORITY)?, read(QUANTUM)?);
    let why = "so that the RT NIC's packets wait for nobody else's";
    let first = step(machine, PRIORITY, old, priority.to_string(), why);
    let why = "so that a poll of other NICs that has begun ends soon";
    let shorter = shorter(&quantum);
    Ok(vec![first, step(machine, QUANTUM, quantum, shorter, why)])
}

/// The steps that send packets which an XDP program has marked ([`MARK`]) to the RT level, whose
/// threads then have `rank`: the interrupt threads of a marking card may stand below what computes. `asker`
/// wants it, and `instead` is what to do without.
///
/// `rtnet_skb_prio` has no part in it, since any socket that may set `SO_PRIORITY` could reach the RT level by that
/// (finding S1).
pub(crate) fn mark_steps(
    machine: &Machine,
    rank: u32,
    asker: &str,
    instead: &str,
) -> Result<Vec<Step>, HostError> {
    let read = |path| read(machine, path, asker, instead);
    let (marks, threads) = (read(XDP_PRIORITY)?, read(THREAD_PRIORITY)?);
    let why = "so that the kernel takes the marks of early demultiplexing";
    let lowest = match marks.as_str() {
        "0" => MARK.to_string(),
        in_use => in_use.to_owned(),
    };
    let first = step(machine, XDP_PRIORITY, marks, lowest, why);
    let why = "so that marked packets do not wait for what computes";
    let higher = match threads.parse::<u32>() {
        Ok(own) if own >= rank => threads.clone(),
        _ => rank.to_string(),
    };
    Ok(vec![
        first,
        step(machine, THREAD_PRIORITY, threads, higher, why),
    ])
}

fn read(machine: &Machine, path: &str, asker: &str, instead: &str) -> Result<String, HostError> {
    let text = machine
        .tree
        .read(path)
        .map_err(|_| HostError::Unsupported {
            missing: format!("{asker} needs a kernel with {path}"),
            fix: format!("build one with kernel/patches/6.12 (kernel/README.md), or {instead}"),
        })?;
    Ok(text.trim().to_owned())
}

fn step(machine: &Machine, path: &str, old: String, new: String, why: &str) -> Step {
    let setting = File::new(machine, path, Form::Text);
    Step::required(ChangeOf { setting, old, new }, why)
}

/// With no more than [`LOWEST_QUANTUM`] packets at the lowest level, as the kernel prints it.
fn shorter(quantum: &str) -> String {
    match quantum.split_once(char::is_whitespace) {
        Some((lowest, others))
            if lowest
                .parse()
                .is_ok_and(|lowest: u32| lowest > LOWEST_QUANTUM) =>
        {
            format!("{LOWEST_QUANTUM}\t{}", others.trim())
        }
        _ => quantum.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantum_that_is_short_already_stays() {
        for (quantum, expected) in [
            ("64\t64", "16\t64"),
            ("17 1", "16\t1"),
            ("16\t64", "16\t64"),
            ("1\t64", "1\t64"),
            ("what is this", "what is this"),
        ] {
            assert_eq!(shorter(quantum), expected);
        }
    }
}
