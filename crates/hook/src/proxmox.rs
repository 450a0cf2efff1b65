//! Proxmox VE's hookscript: `HOOK VMID PHASE`. VMs are known by number: names need not be unique.
//!
//! The notes of a VM carry its keys, a line each (`rt:budget=8ms`). Proxmox keeps them as comments at the head of
//! /etc/pve/qemu-server/VMID.conf, encoded as in URLs; what stands below a `[` is a snapshot's. The file is not here any
//! more when a VM has migrated away, so that its end is told by the number alone. A failure at `pre-start` refuses the
//! start, one at any other phase Proxmox ignores; after a start that failed it calls no `post-stop`.

use std::collections::BTreeMap;
use std::fs;

use steadyvm_fault::At;
use steadyvm_host::CpuSet;

use super::interface::{KEYS, Specs, interface_of};
use super::keeper::{Keeper, Vm, Wish};
use crate::error::Result;

/// What Proxmox is doing with a VM, of which this hook does something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Before the VM is started. A failure refuses the start.
    PreStart,
    /// It runs.
    PostStart,
    /// It has ended, or has migrated away.
    PostStop,
}

impl Phase {
    /// The phase of this word; none of others, at which there is nothing to do.
    pub fn of(word: &str) -> Option<Self> {
        Some(match word {
            "pre-start" => Self::PreStart,
            "post-start" => Self::PostStart,
            "post-stop" => Self::PostStop,
            _ => return None,
        })
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::PreStart => "pre-start",
            Self::PostStart => "post-start",
            Self::PostStop => "post-stop",
        }
    }
}

/// Does what there is to do.
///
/// # Errors
/// What was not done. At [`Phase::PreStart`]: why this VM may not start here.
pub fn run(number: u32, phase: Phase, keeper: &Keeper, it_asks: &dyn Fn()) -> Result<()> {
    let configurations = &keeper.places().configurations;
    let path = configurations.join(format!("{number}.conf"));
    let vm = Vm::Proxmox { number };
    if phase == Phase::PostStop {
        keeper.forget(&vm)?;
        return keeper.apply(None);
    }
    // A VM that Proxmox could not read it would not start.
    let text = fs::read(&path).at("cannot read", &path);
    let wish = match (text, phase) {
        (Ok(text), _) => {
            wish(&String::from_utf8_lossy(&text), it_asks).doing(format!("VM {number}"))?
        }
        (Err(_), Phase::PreStart) => None,
        (Err(error), _) => return Err(error.into()),
    };
    match (phase, wish) {
        (Phase::PreStart, Some(wish)) => keeper.prepare(&vm, &wish),
        (Phase::PreStart, None) => Ok(()),
        (_, wish) => keeper.started(&vm, wish.as_ref()),
    }
}

/// What a VM's configuration asks for; none if it asks for nothing.
fn wish(text: &str, it_asks: &dyn Fn()) -> Result<Option<Wish>> {
    let (mut specs, mut values) = (Specs::new(), BTreeMap::new());
    for line in text.lines().take_while(|line| !line.starts_with('[')) {
        let notes = (line.strip_prefix('#')).or_else(|| line.strip_prefix("description:"));
        if let Some(notes) = notes {
            for note in decoded(notes).lines() {
                let (key, value) = note.trim().split_once('=').unwrap_or_default();
                if KEYS.contains(&key) {
                    specs.insert(key.to_owned(), value.to_owned());
                }
            }
        } else if let Some((key, value)) = line.split_once(':') {
            values.insert(key.trim(), value.trim());
        }
    }
    if specs.is_empty() {
        return Ok(None);
    }
    it_asks();
    let number = |key: &str| -> Result<Option<u32>> {
        let value = values.get(key);
        let read = value.map(|value| value.parse().doing(format!("{key}: {value:?}")));
        Ok(read.transpose()?)
    };
    let all = number("cores")?
        .unwrap_or(1)
        .saturating_mul(number("sockets")?.unwrap_or(1));
    // What is plugged in, of those that there may be.
    let vcpus = number("vcpus")?.unwrap_or(all);
    let Some(interface) = interface_of(&specs, vcpus)? else {
        return Ok(None);
    };
    let cpus = values.get("affinity").map(|text| {
        let cpus = text.parse::<CpuSet>();
        cpus.doing(format!("affinity: {text:?}"))
    });
    let cpus = cpus.transpose()?.filter(|cpus| !cpus.is_empty());
    Ok(Some(Wish { interface, cpus }))
}

/// Text as it was before `%XX` stood for its special characters.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = |byte: u8| char::from(byte).to_digit(16);
        let byte = match after {
            [high, low, ..] if *first == b'%' => hex(*high).zip(hex(*low)),
            _ => None,
        };
        if let Some((high, low)) = byte {
            bytes.push((high * 16 + low) as u8);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CONFIGURATION: &str = "#a game server, 100%25 ours\n#rt%3Abudget=8ms\n#rt:period=10ms\nboot: order=scsi0\ncores: 4\n\
        name: web\nsockets: 1\nvcpus: 2\n\n[before-upgrade]\n#rt:budget=1ms\n#rt:period=1ms\ncores: 1\nvcpus: 1\n";

    fn read(text: &str) -> Option<(u64, u64, u32)> {
        let interface = wish(text, &|| ()).unwrap()?.interface;
        Some((interface.period_us, interface.budget_us, interface.vcpus))
    }

    #[test]
    fn notes_at_the_head_count_and_snapshots_do_not() {
        assert_eq!(read(CONFIGURATION), Some((10_000, 4000, 2)));
        let all = CONFIGURATION.replacen("vcpus: 2\n", "", 1);
        assert_eq!(read(&all), Some((10_000, 2000, 4)));
        let none = CONFIGURATION.replacen("#rt", "#art", 2);
        assert_eq!(read(&none), None);
        let old = "description: rt:budget=8ms%0Art:period=10ms%0A\n";
        assert_eq!(read(old), Some((10_000, 8000, 1)));
    }

    #[test]
    fn an_affinity_is_the_vms_cpus() {
        let text = format!("affinity: 2-3,6\n{CONFIGURATION}");
        let cpus = wish(&text, &|| ()).unwrap().unwrap().cpus;
        assert_eq!(cpus.unwrap().to_string(), "2-3,6");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (from, to, words) in [
            ("8ms", "8s", "is no time"),
            ("cores: 4", "cores: many", "cores"),
            ("cores: 4", "affinity: all", "affinity"),
        ] {
            let error = wish(&CONFIGURATION.replacen(from, to, 1), &|| ()).unwrap_err();
            assert!(format!("{error:#}").contains(words), "{error:#}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(#rt:[a-z]{0,7}=[0-9%a-f]{0,6}\n|.{0,20}\n){0,6}") {
            let _ = wish(&text, &|| ());
        }

        #[test]
        fn what_was_encoded_is_decoded(text in any::<String>()) {
            let bytes: Vec<String> = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
            let encoded = bytes.concat();
            prop_assert_eq!(decoded(&encoded), text);
        }
    }
}
