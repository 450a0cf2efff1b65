//! `steadyvm lab experiment`: experiments of papers, in the emulated host.

mod nisp;
mod registered;
mod rtca;
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
    /// On one CPU of the emulated host: a process at high priority that computes for 48 ms every
    /// 120 ms (--scale), and a process at low priority that receives UDP packets, which come in bursts
    /// (MMPP-2) at rising mean rates up to the most that the best method can receive. In each round the methods
    /// take turns at every rate, and without packets. Shown for every method and rate: the jobs' response
    /// times, how many miss a deadline of 64 and of 120 ms, their jitter, and what the receiver and the CPU did;
    /// response and jitter over those without packets, and received packets over the first method's.
    ///
    /// With --protocol tcp, a TCP stream at full speed takes the place of the bursts. In each round the jobs are
    /// done without it; then one connection flows before as many jobs, next to them, and after them. Shown for
    /// every method: the same of the jobs without and with the stream; what the stream carried in each phase, and
    /// after the jobs over before them, in the first second too; segments sent again, probes and timeouts.
    Nisp(nisp::Args),
    /// RTCA, section VI-B: round trips and throughput between two while others send.
    ///
    /// In the emulated host: two high-priority VMs (or processes in network namespaces) and three of low
    /// priority on one bridge. Of those none (Base), one (Light), two (Medium) or all (Heavy) send UDP packets
    /// to another as fast as they go. Shown for every method and level: median and 95th percentile of round
    /// trips between the two, also over those at Base, the throughput of a TCP stream between them, and the
    /// cost: CPU time and what the others received.
    Rtca(rtca::Args),
    /// RT-Xen on KVM: an RT VCPU's share, isolation, the scheduler's cost, a service in its budget.
    ///
    /// On one emulated host, in turns: the stock fair scheduler, stock FIFO 70, `SCHED_DEADLINE`, and our `sched_ext`
    /// scheduler. Shown for each: the share of a VCPU with 40 % granted, alone and beside others; deadline misses of
    /// three domains of periodic tasks, one of them overloaded; context switches and how long a decision takes; round
    /// trips of `NetRT` in a VM under its planned budget, beside the plan's bound. Shown for `sched_ext`: what its
    /// quantum costs. The dissertation's figures stand beside.
    Vcpu(vcpu::Args),
    #[command(flatten)]
    Registered(registered::Registered),
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.verb {
        Verb::Nisp(args) => nisp::run(args),
        Verb::Rtca(args) => rtca::run(args),
        Verb::Vcpu(args) => vcpu::run(args),
        Verb::Registered(experiment) => experiment.run().map(|()| ExitCode::SUCCESS),
    }
}
