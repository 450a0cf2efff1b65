//! Virtual functions of the fake host's cards, and the programs that join them with taps.

use std::io;

use steadyvm_redirect::{Counters, Pair};

use super::calls::{Joint, Redirects};
use crate::address::Address;
use crate::settings::fake::{FakeHost, FakeState, error};

/// The most functions of a fake card.
const MOST: u32 = 7;

impl FakeHost {
    /// Adds a card that can have functions, and has so many. Their devices are numbered after the card's.
    pub fn card_with_functions(&self, card: &str, index: u32, count: u32) {
        let device = format!("/sys/class/net/{card}/device");
        self.file(&format!("/sys/class/net/{card}/ifindex"), &format!("{index}\n"));
        self.file(&format!("{device}/sriov_totalvfs"), &format!("{MOST}\n"));
        self.writable_file(&format!("{device}/sriov_numvfs"), "0\n");
        self.edit(|state| state.make_functions(card, count));
    }
}

impl FakeState {
    /// What the kernel does when `sriov_numvfs` is written.
    pub(crate) fn make_functions(&mut self, card: &str, count: u32) {
        let device = format!("/sys/class/net/{card}/device");
        self.files
            .insert(format!("{device}/sriov_numvfs"), format!("{count}\n"));
        self.files
            .retain(|path, _| !path.starts_with(&format!("{device}/virtfn")));
        self.files
            .retain(|path, _| !path.starts_with(&format!("/sys/class/net/{card}v")));
        self.function_addresses
            .retain(|(of, _), _| of != card);
        let first = self.files.get(&format!("/sys/class/net/{card}/ifindex"));
        let first: u32 = first.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        for number in 0..count {
            let name = format!("{card}v{number}");
            let index = format!("{}\n", first + 1 + number);
            let of_function = format!("{device}/virtfn{number}/net/{name}/ifindex");
            self.files.insert(of_function, index.clone());
            self.files
                .insert(format!("/sys/class/net/{name}/ifindex"), index);
            self.files
                .insert(format!("/sys/class/net/{name}/flags"), "0x1002\n".into());
            self.function_addresses
                .insert((card.to_owned(), number), [0; 6]);
        }
    }

    pub(crate) fn function_address(&self, card: &str, number: u32) -> io::Result<Address> {
        let found = self.function_addresses.get(&(card.to_owned(), number));
        found.copied().ok_or_else(|| error(libc::ENODEV))
    }

    fn has_index(&self, index: u32) -> bool {
        let is_it = |(path, text): (&String, &String)| {
            let is_index = path.starts_with("/sys/class/net/") && path.ends_with("/ifindex");
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
            Some(pair) if inner.state.has_index(pair.tap) && inner.state.has_index(pair.function) => {
                Joint::Whole(*pair)
            }
            Some(_) => Joint::Broken,
        })
    }

    fn join(&self, name: &str, pair: &Pair) -> io::Result<()> {
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

    fn remove(&self, name: &str) -> io::Result<()> {
        if !self.lock().state.redirects.contains_key(name) {
            return Ok(());
        }
        self.mutate(|state| {
            state.redirects.remove(name);
            Ok(())
        })
    }

    fn counters(&self, name: &str) -> io::Result<Option<Counters>> {
        let is_there = self.lock().state.redirects.contains_key(name);
        Ok(is_there.then(Counters::default))
    }
}
