//! `steadyvm-lab experiment`: experiments of papers, in the emulated host.

mod nisp;
mod page;
mod registered;
mod rtca;
pub mod run;
mod simulated;
mod vcpu;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// Experiments of the papers.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// NISP, section V: periodic jobs next to packets for a lower priority.
    ///
    /// Two processes share one CPU of the emulated host. One of high priority computes for 48 ms every 120 ms (--scale).
    /// One of low priority receives UDP packets in bursts (MMPP-2), at rising mean rates up to the most that the best
    /// method can receive. In each round the methods take turns at every rate, and without packets.
    ///
    /// The tables have, per method and rate, the jobs' response times, missed deadlines (64 and 120 ms), jitter, received
    /// packets and CPU time. Response times and jitter are shown relative to the run without packets, received packets
    /// relative to the first method.
    ///
    /// With --protocol tcp a TCP stream at full speed replaces the bursts. Each round does the jobs without it; then one
    /// connection flows before, during and after as many jobs. The tables have job response times with and without the
    /// stream, the stream's throughput before, during and after the jobs, the ratio after/before (also for the first
    /// second), retransmitted segments, probes and timeouts.
    Nisp(nisp::Args),
    /// RTCA, section VI-B: round trips and throughput between two VMs while other VMs send.
    ///
    /// The emulated host has two VMs of high priority (or processes in network namespaces) and three of low priority on
    /// one bridge. Interference levels: Base (no other VM sends), Light (one sends UDP at full speed), Medium (two), Heavy
    /// (three). The tables have, per method and level, the median and 95th percentile of round trips between the two VMs,
    /// their ratio to Base, the throughput of a TCP stream between them, CPU time, and the packets that the others received.
    Rtca(rtca::Args),
    /// RT-Xen on KVM: an RT VCPU's share, isolation, the scheduler's cost, a service in its budget.
    ///
    /// Four mechanisms take turns on one emulated host: the stock fair scheduler, stock FIFO 70, `SCHED_DEADLINE`, and the
    /// `sched_ext` scheduler of steadyvm. The tables have, per mechanism, the share of a VCPU with a budget of 40 %, alone
    /// and beside others; deadline misses of three domains of periodic tasks, one of them overloaded; context switches and
    /// the time of a decision; NetRT round trips in a VM with its planned budget, beside the plan's bound. For `sched_ext`
    /// they have the cost of its quantum. The dissertation's figures stand beside.
    Vcpu(vcpu::Args),
    /// Figures of the RT-Xen dissertation by the simulator, as Markdown; boots nothing.
    Simulated(simulated::Args),
    /// Write the page of a finished run again, from its results.json, meta.json and tables.txt.
    ///
    /// The sentence and the picture follow from results.json.
    Page(page::Args),
    #[command(flatten)]
    Registered(registered::Registered),
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.verb {
        Verb::Nisp(args) => nisp::run(args),
        Verb::Rtca(args) => rtca::run(args),
        Verb::Vcpu(args) => vcpu::run(args),
        Verb::Simulated(args) => simulated::run(args).map(|()| ExitCode::SUCCESS),
        Verb::Page(args) => page::run(args).map(|()| ExitCode::SUCCESS),
        Verb::Registered(experiment) => experiment.run().map(|()| ExitCode::SUCCESS),
    }
}
