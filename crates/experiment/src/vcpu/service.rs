//! `NetRT` in the VM: the service, its plan, its requests.

use crate::testbed::{phase, work};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use steadyvm_lab::agent::{Connection, Process};
use steadyvm_lab::{At, Error, Guest, Namespace, Result, scheduling};
use steadyvm_load::netrt::{self, ClientOptions, ClientRun, End, Intervals};

/// Where the plan's file goes.
const FILE: &str = "/run/vcpu-plan.toml";
/// The plan. Its times are upper estimates for an emulated host, not for hardware; `EXECUTION_US` is measured.
const PLAN: &str = "[host]
pcpus = 2
scheduler = \"gedf\"
enforce = \"auto\"

[[vm]]
name = \"rt\"
class = \"rt\"
interface = \"prm\"
period = \"5ms\"

[[service]]
vm = \"rt\"
c = \"EXECUTION_USus\"
t = \"20ms\"
limit = \"40ms\"
wake = \"500us\"
send = \"500us\"

[service.receive]
interrupt = \"500us\"
packet = \"500us\"
";
/// Between two requests; the shortest is the plan's `t`.
const INTERVALS: Intervals = Intervals {
    shortest: Duration::from_millis(20),
    longest: Duration::from_millis(40),
};
/// Requests before the counted ones.
const WARMUP_REQUESTS: u64 = 50;
/// A reply that takes longer is lost.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Requests by which the service's execution time is measured, one at a time.
const CALIBRATION_REQUESTS: u64 = 200;

/// What the plan grants the service's VCPU, and promises for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Budget in each period, in microseconds.
    pub budget_us: u64,
    /// The period, in microseconds.
    pub period_us: u64,
    /// No request takes longer, in microseconds.
    pub bound_us: u64,
    /// CPU time of the VCPU that is planned for a request, in microseconds.
    #[serde(default)]
    pub execution_us: u64,
}

/// Has `steadyvm plan` compute it, for the longest that a request costs the VCPU here.
///
/// # Errors
/// The plan is refused, or has no budget and bound; no request is answered.
pub fn plan(host: &Connection, vcpu: u32, outside: &Namespace, address: Ipv4Addr) -> Result<Plan> {
    send(outside, address, 0, WARMUP_REQUESTS, 1)?;
    let one = |seed| send(outside, address, seed, 0, 1).map(drop);
    let execution_us = work::planned_us(host, vcpu, CALIBRATION_REQUESTS, one)?;
    let file = PLAN.replace("EXECUTION_US", &execution_us.to_string());
    let script = format!("cat > {FILE} <<'END'\n{file}END\nsteadyvm plan --json {FILE}");
    let text = host.text(&["bash", "-euc", &script])?;
    parse(&text, execution_us).ok_or_else(|| Error::machine("plan the service's budget", text))
}

fn parse(text: &str, execution_us: u64) -> Option<Plan> {
    let report: serde_json::Value = serde_json::from_str(text).ok()?;
    if report["feasible"] != true {
        return None;
    }
    let install = &report["vms"][0]["vcpus"][0]["install"];
    let us = |value: &serde_json::Value| Some(value.as_u64()?.div_ceil(1000));
    Some(Plan {
        budget_us: us(&install["runtime_ns"])?,
        period_us: us(&install["period_ns"])?,
        bound_us: us(&report["services"][0]["bound"])?,
        execution_us,
    })
}

/// Starts the service on the guest's second CPU, which the card interrupts.
///
/// # Errors
/// The guest refuses, or the service does not listen.
pub fn start(vm: &Guest) -> Result<Process> {
    crate::testbed::receivers::card_to_rt_vcpu(vm)?;
    let listen = format!("{}:{}", Ipv4Addr::UNSPECIFIED, phase::NETRT_PORT);
    let words = [
        "taskset", "-c", "1", "chrt", "-f", "50", "steadyvm", "netrt", "serve", &listen,
    ];
    let mut service = vm.connection().spawn(&words)?;
    service.wait_for_line("ready", phase::SERVICE_PATIENCE)?;
    Ok(service)
}

/// Sends requests from outside until all are answered or lost.
///
/// # Errors
/// The socket cannot be made or written to.
pub fn request(
    outside: &Namespace,
    address: Ipv4Addr,
    seed: u64,
    requests: u64,
) -> Result<ClientRun> {
    send(outside, address, seed, WARMUP_REQUESTS, requests)
}

fn send(
    outside: &Namespace,
    address: Ipv4Addr,
    seed: u64,
    warmup: u64,
    requests: u64,
) -> Result<ClientRun> {
    let options = ClientOptions {
        seed,
        warmup,
        end: End::Requests(requests),
        timeout: TIMEOUT,
        intervals: INTERVALS,
        ..ClientOptions::default()
    };
    outside.enter(|| {
        scheduling::make_fifo(0, scheduling::CLIENT_PRIORITY)?;
        let what = "send NetRT requests";
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).doing(what)?;
        socket.connect((address, phase::NETRT_PORT)).doing(what)?;
        let never = AtomicBool::new(false);
        netrt::run(&socket, &options, &never, &mut |_| {}).doing(what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_that_is_refused_or_has_no_budget_is_none() {
        let text = r#"{"feasible": true, "services": [{"bound": 9000001}], "vms": [{"vcpus": [{"install":
            {"runtime_ns": 4000000, "period_ns": 10000000}}]}]}"#;
        let plan = Plan {
            budget_us: 4000,
            period_us: 10_000,
            bound_us: 9001,
            execution_us: 1500,
        };
        assert_eq!(parse(text, 1500), Some(plan));
        assert_eq!(parse(&text.replace("true", "false"), 1500), None);
        assert_eq!(parse(&text.replace("install", "other"), 1500), None);
        assert_eq!(parse("no JSON", 1500), None);
    }
}
