//! The running kernel's answers to [`Links`].

use std::io;
use std::thread;
use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::calls::{Deferral, FlowRule, FlowTable, Links, Moderation, Napi, PortSocket, Qdisc};
use super::{ethtool, function, link, macvlan, netdev, qdisc, sockets, tap};
use crate::address::Address;

/// The network devices of the running kernel, in the network namespace of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct KernelLinks;

impl Links for KernelLinks {
    fn root_qdisc(&self, device: &str) -> io::Result<Qdisc> {
        qdisc::root(device)
    }

    fn replace_root_qdisc(&self, device: &str, kind: &str) -> io::Result<()> {
        qdisc::replace_root(device, kind)
    }

    fn delete_root_qdisc(&self, device: &str) -> io::Result<()> {
        qdisc::delete_root(device)
    }

    fn flow_steering(&self, device: &str) -> io::Result<bool> {
        ethtool::flow_steering(device)
    }

    fn set_flow_steering(&self, device: &str, on: bool) -> io::Result<()> {
        ethtool::set_flow_steering(device, on)
    }

    fn flow_rules(&self, device: &str) -> io::Result<FlowTable> {
        ethtool::flow_rules(device)
    }

    fn insert_flow_rule(&self, device: &str, place: u32, rule: &FlowRule) -> io::Result<()> {
        ethtool::insert_flow_rule(device, place, rule)
    }

    fn delete_flow_rule(&self, device: &str, place: u32) -> io::Result<()> {
        ethtool::delete_flow_rule(device, place)
    }

    fn moderation(&self, device: &str) -> io::Result<Moderation> {
        ethtool::moderation(device)
    }

    fn rx_frames(&self, device: &str) -> io::Result<u32> {
        ethtool::rx_frames(device)
    }

    fn set_rx_frames(&self, device: &str, frames: u32) -> io::Result<()> {
        ethtool::set_rx_frames(device, frames)
    }

    fn tap_send_buffer(&self, pid: u32, descriptor: u32, tap: &str) -> io::Result<u32> {
        tap::send_buffer(pid, descriptor, tap)
    }

    fn set_tap_send_buffer(
        &self,
        pid: u32,
        descriptor: u32,
        tap: &str,
        bytes: u32,
    ) -> io::Result<()> {
        tap::set_send_buffer(pid, descriptor, tap, bytes)
    }

    fn broadcast_cutoff(&self, device: &str) -> io::Result<i32> {
        macvlan::broadcast_cutoff(device)
    }

    fn set_broadcast_cutoff(&self, device: &str, cutoff: i32) -> io::Result<()> {
        macvlan::set_broadcast_cutoff(device, cutoff)
    }

    fn function_address(&self, card: &str, number: u32) -> io::Result<Address> {
        function::address(card, number)
    }

    fn set_function_address(&self, card: &str, number: u32, address: Address) -> io::Result<()> {
        function::set_address(card, number, address)
    }

    fn set_up(&self, device: &str, is_up: bool) -> io::Result<()> {
        function::set_up(device, is_up)
    }

    fn set_up_from(&self, device: &str, is_up: bool, cpu: usize) -> io::Result<()> {
        let switch = || {
            // Elsewhere is as good as it was.
            let _ = sched_setaffinity(Pid::from_raw(0), &only(cpu)?);
            function::set_up(device, is_up)
        };
        thread::scope(|scope| {
            let panicked = |_| Err(io::Error::other("the thread that switches it panicked"));
            scope.spawn(switch).join().unwrap_or_else(panicked)
        })
    }

    fn await_link(&self, device: &str, patience: Duration) -> io::Result<bool> {
        link::wait(device, patience)
    }

    fn napis(&self, device: &str) -> io::Result<Vec<Napi>> {
        netdev::napis(device)
    }

    fn set_deferral(&self, device: &str, napi: u32, deferral: Deferral) -> io::Result<()> {
        netdev::set_deferral(device, napi, deferral)
    }

    fn set_napi_threaded(&self, device: &str, napi: u32, threaded: u32) -> io::Result<()> {
        netdev::set_threaded(device, napi, threaded)
    }

    fn redirects_by_xdp(&self, device: &str) -> io::Result<bool> {
        netdev::redirects_by_xdp(device)
    }

    fn port_sockets(&self) -> io::Result<Vec<PortSocket>> {
        sockets::with_ports()
    }
}

/// One CPU, of those that the kernel's smallest set has room for.
fn only(cpu: usize) -> io::Result<CpuSet> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu)?;
    Ok(cpus)
}
