//! Queueing disciplines, flow steering and taps of the fake host.

use std::io;
use std::time::Duration;

use super::calls::{
    Deferral, FlowRule, FlowTable, Links, Moderation, Napi, PortSocket, Qdisc, UNLIMITED_BYTES,
};
use super::macvlan::DEFAULT_CUTOFF;
use crate::address::Address;
use crate::settings::fake::{FakeHost, FakeState, error};

/// What a fake kernel attaches by itself.
const DEFAULT_QDISC: &str = "pfifo_fast";

/// Places in a fake NIC's rule table.
const PLACES: u32 = 16;

impl FakeState {
    fn must_have(&self, device: &str) -> io::Result<()> {
        self.paths()
            .iter()
            .any(|path| {
                path == &format!("/sys/class/net/{device}")
                    || path.starts_with(&format!("/sys/class/net/{device}/"))
            })
            .then_some(())
            .ok_or_else(|| error(libc::ENODEV))
    }

    /// The descriptors by which a process has queues of a tap attached.
    fn queues_of(&self, pid: u32, tap: &str) -> io::Result<Vec<u32>> {
        if !self.threads.contains_key(&pid) {
            return Err(error(libc::ESRCH));
        }
        let directory = format!("/proc/{pid}/fdinfo/");
        let is_queue = |text: &str| text.lines().any(|line| line == format!("iff:\t{tap}"));
        let queues = self.files.iter().filter(|(_, text)| is_queue(text));
        let descriptors =
            queues.filter_map(|(path, _)| path.strip_prefix(&directory)?.parse().ok());
        Ok(descriptors.collect())
    }

    fn must_be_queue(&self, pid: u32, descriptor: u32, tap: &str) -> io::Result<()> {
        let is_one = self.queues_of(pid, tap)?.contains(&descriptor);
        is_one.then_some(()).ok_or_else(|| error(libc::ENODEV))
    }
}

impl FakeState {
    fn card_below(&self, macvtap: &str) -> io::Result<String> {
        self.must_have(macvtap)?;
        let card = self.macvtaps.get(macvtap).cloned();
        card.ok_or_else(|| error(libc::EOPNOTSUPP))
    }
}

impl FakeHost {
    /// Adds a macvtap with this number on a card.
    pub fn macvtap(&self, name: &str, index: u32, card: &str) {
        let net = "/sys/class/net";
        let device = format!("{net}/{name}/macvtap/tap{index}");
        self.file(&format!("{net}/{name}/ifindex"), &format!("{index}\n"));
        self.file(&format!("{net}/{name}/lower_{card}"), "");
        self.file(&format!("{device}/dev"), &format!("246:{index}\n"));
        self.edit(|state| {
            let above = state.real(&format!("{net}/{card}/upper_{name}"));
            state.files.insert(above, String::new());
            let class = format!("/sys/class/macvtap/tap{index}");
            state.links.insert(class, device);
            state.macvtaps.insert(name.to_owned(), card.to_owned());
        });
    }

    /// Removes a macvtap. The last one takes the cutoff of its card with it.
    pub fn remove_macvtap(&self, name: &str) {
        self.edit(|state| {
            let own = format!("/sys/class/net/{name}/");
            let above = format!("/upper_{name}");
            state
                .files
                .retain(|path, _| !path.starts_with(&own) && !path.ends_with(&above));
            state.links.retain(|_, target| !target.starts_with(&own));
            let card = state.macvtaps.remove(name).unwrap_or_default();
            if !state.macvtaps.values().any(|other| *other == card) {
                state.broadcast_cutoffs.remove(&card);
            }
        });
    }
}

impl Links for FakeHost {
    fn root_qdisc(&self, device: &str) -> io::Result<Qdisc> {
        let inner = self.lock();
        inner.state.must_have(device)?;
        let own = inner.state.qdiscs.get(device).cloned();
        Ok(Qdisc {
            is_default: own.is_none(),
            kind: own.unwrap_or_else(|| DEFAULT_QDISC.to_owned()),
        })
    }

    fn replace_root_qdisc(&self, device: &str, kind: &str) -> io::Result<()> {
        self.mutate(|state| {
            state.must_have(device)?;
            state.qdiscs.insert(device.to_owned(), kind.to_owned());
            Ok(())
        })
    }

    fn delete_root_qdisc(&self, device: &str) -> io::Result<()> {
        self.mutate(|state| {
            state.must_have(device)?;
            let own = state.qdiscs.remove(device);
            own.map(drop).ok_or_else(|| error(libc::ENOENT))
        })
    }

    fn flow_steering(&self, device: &str) -> io::Result<bool> {
        let inner = self.lock();
        let steering = inner.state.flow_steering.get(device);
        steering
            .map(|steering| steering.on)
            .ok_or_else(|| error(libc::EOPNOTSUPP))
    }

    fn set_flow_steering(&self, device: &str, on: bool) -> io::Result<()> {
        self.mutate(|state| {
            let steering = state.flow_steering.get_mut(device);
            steering.ok_or_else(|| error(libc::EOPNOTSUPP))?.on = on;
            Ok(())
        })
    }

    fn flow_rules(&self, device: &str) -> io::Result<FlowTable> {
        let inner = self.lock();
        let steering = inner.state.flow_steering.get(device);
        let steering = steering.ok_or_else(|| error(libc::EOPNOTSUPP))?;
        Ok(FlowTable {
            rules: steering.rules.clone(),
            size: Some(PLACES),
        })
    }

    fn insert_flow_rule(&self, device: &str, place: u32, rule: &FlowRule) -> io::Result<()> {
        self.mutate(|state| {
            let steering = state.flow_steering.get_mut(device);
            let steering = steering.ok_or_else(|| error(libc::EOPNOTSUPP))?;
            if !steering.on || place >= PLACES {
                return Err(error(libc::EINVAL));
            }
            steering.rules.insert(place, Some(*rule));
            Ok(())
        })
    }

    fn delete_flow_rule(&self, device: &str, place: u32) -> io::Result<()> {
        self.mutate(|state| {
            let steering = state.flow_steering.get_mut(device);
            let steering = steering.ok_or_else(|| error(libc::EOPNOTSUPP))?;
            let rule = steering.rules.remove(&place);
            rule.map(drop).ok_or_else(|| error(libc::ENOENT))
        })
    }

    fn moderation(&self, device: &str) -> io::Result<Moderation> {
        let inner = self.lock();
        let found = inner.state.moderation.get(device);
        found.copied().ok_or_else(|| error(libc::EOPNOTSUPP))
    }

    fn rx_frames(&self, device: &str) -> io::Result<u32> {
        let inner = self.lock();
        inner.state.must_have(device)?;
        Ok(inner.state.rx_frames.get(device).copied().unwrap_or(0))
    }

    fn set_rx_frames(&self, device: &str, frames: u32) -> io::Result<()> {
        self.mutate(|state| {
            state.must_have(device)?;
            state.rx_frames.insert(device.to_owned(), frames);
            state.rx_frames.retain(|_, frames| *frames != 0);
            Ok(())
        })
    }

    fn tap_send_buffer(&self, pid: u32, descriptor: u32, tap: &str) -> io::Result<u32> {
        let inner = self.lock();
        inner.state.must_be_queue(pid, descriptor, tap)?;
        let limited = inner.state.send_buffers.get(&(pid, descriptor));
        Ok(limited.copied().unwrap_or(UNLIMITED_BYTES))
    }

    fn set_tap_send_buffer(
        &self,
        pid: u32,
        descriptor: u32,
        tap: &str,
        bytes: u32,
    ) -> io::Result<()> {
        self.mutate(|state| {
            state.must_be_queue(pid, descriptor, tap)?;
            for queue in state.queues_of(pid, tap)? {
                state.send_buffers.insert((pid, queue), bytes);
            }
            state
                .send_buffers
                .retain(|_, bytes| *bytes != UNLIMITED_BYTES);
            Ok(())
        })
    }

    fn broadcast_cutoff(&self, device: &str) -> io::Result<i32> {
        let inner = self.lock();
        let card = inner.state.card_below(device)?;
        let cutoff = inner.state.broadcast_cutoffs.get(&card);
        Ok(cutoff.copied().unwrap_or(DEFAULT_CUTOFF))
    }

    fn set_broadcast_cutoff(&self, device: &str, cutoff: i32) -> io::Result<()> {
        self.mutate(|state| {
            let card = state.card_below(device)?;
            state.broadcast_cutoffs.insert(card, cutoff);
            state
                .broadcast_cutoffs
                .retain(|_, cutoff| *cutoff != DEFAULT_CUTOFF);
            Ok(())
        })
    }

    fn function_address(&self, card: &str, number: u32) -> io::Result<Address> {
        self.lock().state.function_address(card, number)
    }

    fn set_function_address(&self, card: &str, number: u32, address: Address) -> io::Result<()> {
        self.mutate(|state| {
            state.function_address(card, number)?;
            let function = (card.to_owned(), number);
            state.function_addresses.insert(function, address);
            Ok(())
        })
    }

    fn set_up(&self, device: &str, is_up: bool) -> io::Result<()> {
        self.mutate(|state| {
            state.must_have(device)?;
            let flags = if is_up { "0x1003\n" } else { "0x1002\n" };
            let path = format!("/sys/class/net/{device}/flags");
            state.files.insert(path, flags.to_owned());
            Ok(())
        })
    }

    fn set_up_from(&self, device: &str, is_up: bool, cpu: usize) -> io::Result<()> {
        self.set_up(device, is_up)?;
        self.edit(|state| {
            if !is_up && state.asks_from.get(device) == Some(&cpu) {
                state.without_link.remove(device);
            }
        });
        Ok(())
    }

    fn await_link(&self, device: &str, _patience: Duration) -> io::Result<bool> {
        let state = &self.lock().state;
        state.must_have(device)?;
        Ok(!state.without_link.contains(device))
    }

    fn napis(&self, device: &str) -> io::Result<Vec<Napi>> {
        let inner = self.lock();
        let found = inner.state.napis.get(device);
        found.cloned().ok_or_else(|| error(libc::ENOENT))
    }

    fn set_deferral(&self, device: &str, napi: u32, deferral: Deferral) -> io::Result<()> {
        self.mutate(|state| {
            let napis = state.napis.get_mut(device).into_iter().flatten();
            let mut found = napis.filter(|it| it.id == napi);
            let found = found.next().ok_or_else(|| error(libc::ENOENT))?;
            let own = found.deferral.as_mut();
            *own.ok_or_else(|| error(libc::EOPNOTSUPP))? = deferral;
            Ok(())
        })
    }

    fn set_napi_threaded(&self, device: &str, napi: u32, threaded: u32) -> io::Result<()> {
        self.mutate(|state| {
            let napis = state.napis.get_mut(device).into_iter().flatten();
            let mut found = napis.filter(|it| it.id == napi);
            let found = found.next().ok_or_else(|| error(libc::ENOENT))?;
            let own = found.threaded.as_mut();
            *own.ok_or_else(|| error(libc::EOPNOTSUPP))? = threaded;
            state.thread_napis(device);
            Ok(())
        })
    }

    fn redirects_by_xdp(&self, device: &str) -> io::Result<bool> {
        Ok(self.lock().state.with_xdp.contains(device))
    }

    fn port_sockets(&self) -> io::Result<Vec<PortSocket>> {
        Ok(self.lock().state.sockets.clone())
    }
}
