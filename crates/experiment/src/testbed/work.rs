//! The work of a request: CPU time of the VCPU in which it is answered.

use super::ask::ask;
use super::phase;
use steadyvm_lab::agent::Connection;
use steadyvm_lab::host::EmulatedHost;
use steadyvm_lab::{At, Error, Result};

/// What is planned for a request, of the longest that was measured: a longer one may come.
const MARGIN_PERCENT: u64 = 120;
/// Answers each line with the CPU time of the thread in its first argument, without a process of its own for that.
const CPU_TIME: &str =
    "echo ready; while read -r; do read -r ran _ < /proc/$1/schedstat; echo $ran; done";

/// The thread of a VM's only VCPU.
///
/// # Errors
/// It is not there.
pub(crate) fn vcpu(host: &EmulatedHost, name: &str) -> Result<u32> {
    let monitor = host.guest_pid(name)?;
    // QEMU's name, and that of `steadyvm up`.
    let script = format!("grep -lxE 'CPU 0/KVM|vcpu0/.*' /proc/{monitor}/task/*/comm");
    let text = host.connection().text(&["sh", "-euc", &script])?;
    let thread = text.trim().split('/').nth(4).and_then(|it| it.parse().ok());
    thread.ok_or_else(|| Error::machine(format!("find the VCPU of {name}"), text))
}

/// What to plan for a request, in microseconds: the high-water mark of measurement-based timing analysis, and a margin.
/// `request` sends one, by its number, and waits for the reply; exits to the host and the guest's interrupts are included.
///
/// # Errors
/// The thread is gone, or what `request` gives.
pub(crate) fn planned_us(
    host: &Connection,
    vcpu: u32,
    requests: u64,
    mut request: impl FnMut(u64) -> Result<()>,
) -> Result<u64> {
    let words = ["bash", "-c", CPU_TIME, "bash", &vcpu.to_string()];
    let mut counter = host.spawn(&words)?;
    counter.wait_for_line("ready", phase::SERVICE_PATIENCE)?;
    let mut ran_ns = || -> Result<u64> {
        let text = ask(&mut counter, "", phase::SERVICE_PATIENCE)?;
        text.trim().parse().doing("read the VCPU's CPU time")
    };
    let mut longest_ns = 0;
    for number in 0..requests {
        let before = ran_ns()?;
        request(number)?;
        longest_ns = longest_ns.max(ran_ns()? - before);
    }
    counter.end_of_input()?;
    Ok((longest_ns * MARGIN_PERCENT / 100).div_ceil(1000))
}
