//! Virtual functions of the fake host's cards, and the programs that join them with taps.

use std::collections::BTreeMap;
use std::io;

use steadyvm_redirect::{Counters, Pair};

use super::calls::{Joint, PacketBudget, Program, Received, Redirects};
use crate::address::Address;
use crate::parse::PF_KTHREAD;
use crate::settings::fake::{FakeHost, FakeIrq, FakeState, FakeThread, error};
use crate::settings::threads::Scheduling;

/// The most functions of a fake card.
const MOST: u32 = 7;

impl FakeHost {
    /// Lets a card have functions, and gives it so many. Without a device it gets one.
    pub fn card_with_functions(&self, card: &str, index: u32, count: u32) {
        let class = format!("/sys/class/net/{card}");
        self.edit(|state| {
            let index_file = state.real(&format!("{class}/ifindex"));
            state
                .files
                .entry(index_file)
                .or_insert(format!("{index}\n"));
            let device = state.real(&format!("{class}/device"));
            let total = format!("{device}/sriov_totalvfs");
            state.files.insert(total, format!("{MOST}\n"));
            let present = format!("{device}/sriov_numvfs");
            state.writable.insert(present.clone());
            state.make_functions(&present, count);
        });
    }
}

impl FakeState {
    /// What the kernel does when this file, `sriov_numvfs`, is written: the card restarts, and functions come or go, each with
    /// a device that has an interrupt and its thread.
    pub(crate) fn make_functions(&mut self, present: &str, count: u32) {
        let device = present.trim_end_matches("/sriov_numvfs").to_owned();
        self.files.insert(present.to_owned(), format!("{count}\n"));
        let names = self.paths();
        let card = names.iter().find_map(|path| {
            let name = path.strip_prefix("/sys/class/net/")?.split('/').next()?;
            (self.real(&format!("/sys/class/net/{name}/device")) == device).then(|| name.to_owned())
        });
        let Some(card) = card else { return };
        let index = self
            .files
            .get(&self.real(&format!("/sys/class/net/{card}/ifindex")));
        let index: u32 = index.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let of_functions = format!("{device}/virtfn");
        let of_devices = format!("/sys/class/net/{card}v");
        let stays =
            |path: &String| !path.starts_with(&of_functions) && !path.starts_with(&of_devices);
        self.files.retain(|path, _| stays(path));
        self.writable.retain(stays);
        self.function_addresses.retain(|(of, _), _| *of != card);
        self.irqs
            .retain(|_, irq| !irq.name.starts_with(&format!("{card}v")));
        let of_function = format!("-{card}v");
        self.threads
            .retain(|_, thread| !thread.comm.contains(&of_function));
        for number in 0..count {
            let name = format!("{card}v{number}");
            let own = 2000 + 10 * index + number;
            let class = format!("/sys/class/net/{name}");
            self.files
                .insert(format!("{device}/virtfn{number}/net/{name}"), String::new());
            self.files
                .insert(format!("{class}/ifindex"), format!("{own}\n"));
            self.files
                .insert(format!("{class}/flags"), "0x1002\n".into());
            self.files
                .insert(format!("{class}/device/msi_irqs/{own}"), "msix\n".into());
            let threaded = format!("{class}/threaded");
            self.files.insert(threaded.clone(), "0\n".into());
            self.writable.insert(threaded);
            let action = format!("{name}-rx-0");
            let irq = FakeIrq {
                name: action.clone(),
                cpus: self.online.clone(),
                effective: 0,
                managed: false,
                deferred: false,
            };
            self.irqs.insert(own, irq);
            let thread = FakeThread {
                pid: own,
                comm: format!("irq/{own}-{action}"),
                parent: 2,
                flags: PF_KTHREAD,
                start_time: u64::from(own),
                scheduling: Scheduling::fifo(50, 0),
                cpus: self.online.clone(),
            };
            self.threads.insert(own, thread);
            self.function_addresses
                .insert((card.clone(), number), [0; 6]);
        }
        self.restart_irq_threads(&[card]);
    }

    pub(crate) fn function_address(&self, card: &str, number: u32) -> io::Result<Address> {
        let found = self.function_addresses.get(&(card.to_owned(), number));
        found.copied().ok_or_else(|| error(libc::ENODEV))
    }

    fn has_index(&self, index: u32) -> bool {
        let is_it = |(path, text): (&String, &String)| {
            let is_index = path.contains("/net/") && path.ends_with("/ifindex");
            is_index && text.trim() == index.to_string()
        };
        self.files.iter().any(is_it)
    }
}

impl Redirects for FakeHost {
    fn joint(&self, name: &str) -> io::Result<Joint> {
        let inner = self.lock();
        Ok(match inner.state.redirects.get(name) {
            None => Joint::Absent,
            Some(pair)
                if inner.state.has_index(pair.tap)
                    && inner.state.has_index(pair.function)
                    && inner.state.sending.contains(name) =>
            {
                Joint::Whole(*pair)
            }
            Some(_) => Joint::Broken,
        })
    }

    fn receive(&self, name: &str, pair: &Pair) -> io::Result<()> {
        self.mutate(|state| {
            if state.redirects.contains_key(name) {
                return Err(error(libc::EEXIST));
            }
            if !state.has_index(pair.tap) || !state.has_index(pair.function) {
                return Err(error(libc::ENODEV));
            }
            state.redirects.insert(name.to_owned(), *pair);
            Ok(())
        })
    }

    fn send(&self, name: &str, pair: &Pair) -> io::Result<()> {
        self.mutate(|state| {
            if state.redirects.get(name) != Some(pair) {
                return Err(error(libc::ENOENT));
            }
            // The card sends nothing for a sender that is not the function's.
            if !state
                .function_addresses
                .values()
                .any(|it| *it == pair.address)
            {
                return Err(error(libc::EPERM));
            }
            state.sending.insert(name.to_owned());
            Ok(())
        })
    }

    fn send_no_more(&self, name: &str) -> io::Result<()> {
        if !self.lock().state.sending.contains(name) {
            return Ok(());
        }
        self.mutate(|state| {
            state.sending.remove(name);
            Ok(())
        })
    }

    fn program(&self, name: &str) -> io::Result<Program> {
        let state = &self.lock().state;
        let index = name.trim_end_matches("-xdp").parse();
        Ok(match state.programs.contains_key(name) {
            false => Program::Absent,
            true if index.is_ok_and(|index| state.has_index(index)) => Program::Whole,
            true => Program::Broken,
        })
    }

    fn attach(&self, name: &str, card: u32, cpus: &[u32]) -> io::Result<()> {
        self.mutate(|state| {
            if state.programs.contains_key(name) {
                return Err(error(libc::EEXIST));
            }
            if cpus.is_empty() || !state.has_index(card) {
                return Err(error(libc::ENODEV));
            }
            state.programs.insert(name.to_owned(), BTreeMap::new());
            Ok(())
        })
    }

    fn served(&self, name: &str) -> io::Result<BTreeMap<Address, u32>> {
        let found = self.lock().state.programs.get(name).cloned();
        Ok(found.unwrap_or_default())
    }

    fn serve(&self, name: &str, address: Address, tap: u32) -> io::Result<()> {
        self.mutate(|state| {
            let program = state.programs.get_mut(name);
            let program = program.ok_or_else(|| error(libc::ENOENT))?;
            program.insert(address, tap);
            Ok(())
        })
    }

    fn forget(&self, name: &str, address: Address) -> io::Result<()> {
        let served = self.served(name)?;
        if !served.contains_key(&address) {
            return Ok(());
        }
        self.mutate(|state| {
            let program = state.programs.get_mut(name);
            program.map(|program| program.remove(&address));
            state.packet_budgets.remove(&(name.to_owned(), address));
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let is_there = {
            let state = &self.lock().state;
            state.redirects.contains_key(name) || state.programs.contains_key(name)
        };
        if !is_there {
            return Ok(());
        }
        self.mutate(|state| {
            state.redirects.remove(name);
            state.sending.remove(name);
            state.programs.remove(name);
            state.packet_budgets.retain(|(of, _), _| of != name);
            Ok(())
        })
    }

    fn budgets(&self, name: &str) -> io::Result<BTreeMap<Address, PacketBudget>> {
        let budgets = self.lock().state.packet_budgets.clone().into_iter();
        let own = budgets.filter(|((of, _), _)| of == name);
        Ok(own
            .map(|((_, address), budget)| (address, budget))
            .collect())
    }

    fn limit(&self, name: &str, address: Address, budget: Option<PacketBudget>) -> io::Result<()> {
        if budget.is_none() && !self.budgets(name)?.contains_key(&address) {
            return Ok(());
        }
        self.mutate(|state| {
            let served = state.programs.get(name);
            let served = served.ok_or_else(|| error(libc::ENOENT))?;
            if budget.is_some() && !served.contains_key(&address) {
                return Err(error(libc::ENOENT));
            }
            let key = (name.to_owned(), address);
            match budget {
                Some(budget) => state.packet_budgets.insert(key, budget),
                None => state.packet_budgets.remove(&key),
            };
            Ok(())
        })
    }

    fn received(&self, name: &str) -> io::Result<BTreeMap<Address, Received>> {
        let state = &self.lock().state;
        let served = state.programs.get(name).into_iter().flatten();
        let counted = |(address, _): (&Address, _)| {
            let found = state.received.get(address).copied();
            (*address, found.unwrap_or_default())
        };
        Ok(served.map(counted).collect())
    }

    fn counters(&self, name: &str) -> io::Result<Option<Counters>> {
        let state = &self.lock().state;
        if let Some(served) = state.programs.get(name) {
            let received = |address| state.received.get(address).copied();
            let received: Vec<Received> = served.keys().filter_map(received).collect();
            return Ok(Some(Counters {
                to_tap: received.iter().map(|it| it.packets - it.discarded).sum(),
                passed: state.passed,
                from_tap: 0,
            }));
        }
        let is_there = state.redirects.contains_key(name);
        Ok(is_there.then(Counters::default))
    }
}
