//! What a process calls its VM: on its command line, and in the names of its threads.

use super::netdevs::comma_separated;

/// What `steadyvm up` has open for its name, which neither Linux nor anybody else cuts: a file of memory (`memfd`).
pub(super) const FILE_OF_NAME: &str = "steadyvm-up:";

/// The name that the target of a descriptor gives a VM of `steadyvm up`.
pub(super) fn name_of_file(target: &str) -> Option<&str> {
    let name = target.strip_prefix("/memfd:")?.strip_prefix(FILE_OF_NAME)?;
    Some(name.strip_suffix(" (deleted)").unwrap_or(name))
}

/// A name as a thread of `steadyvm up` has it, `vcpu1/NAME`, of which Linux keeps 15 bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CutName {
    pub name: String,
    /// Whether it may go on.
    pub is_cut: bool,
}

impl CutName {
    /// Of a VCPU's thread.
    pub fn of_vcpu(comm: &str) -> Option<Self> {
        let (role, name) = comm.split_once('/')?;
        role.strip_prefix("vcpu")?.parse::<u32>().ok()?;
        Some(Self {
            name: name.to_owned(),
            is_cut: comm.len() == 15,
        })
    }

    /// All that may stand for a name.
    pub fn all_for(name: &str) -> impl Iterator<Item = Self> {
        // Of "vcpu0/" there are 9 bytes left.
        let longest = name.len().min(9);
        let starts = (0..=longest).filter_map(|length| name.get(..length));
        let cut = starts.map(|start| Self {
            name: start.to_owned(),
            is_cut: true,
        });
        cut.chain([Self {
            name: name.to_owned(),
            is_cut: false,
        }])
    }
}

/// The names that a monitor's command line gives its VM. On Proxmox VE that is the number alone: the name beside it is its
/// tenant's to choose, and need not be the only one.
pub(super) fn names(command_line: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(command_line);
    let words: Vec<&str> = text.split('\0').collect();
    let (mut names, mut numbers) = (Vec::new(), Vec::new());
    for pair in words.windows(2) {
        match pair[0] {
            "-name" | "--name" => names.extend(guest_name(pair[1])),
            "-id" | "--id" => numbers.push(pair[1].to_owned()),
            _ => {}
        }
    }
    let by_sign = words.iter().filter_map(|word| word.strip_prefix("--id="));
    numbers.extend(by_sign.map(str::to_owned));
    if numbers.is_empty() { names } else { numbers }
}

/// The guest's name in QEMU's `-name [guest=]NAME[,KEY=VALUE]...`, keys in any order, the last of
/// several.
fn guest_name(value: &str) -> Option<String> {
    let options = comma_separated(value);
    let mut guests =
        options
            .iter()
            .enumerate()
            .filter_map(|(place, option)| match option.split_once('=') {
                Some((key, value)) => (key == "guest").then(|| value.to_owned()),
                // Only the first may do without a key.
                None => (place == 0).then(|| option.clone()),
            });
    guests.next_back()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_on_command_lines() {
        for (words, expected) in [
            (&["qemu", "-name", "rt,debug-threads=on"][..], &["rt"][..]),
            (&["qemu", "-name", "guest=rt,debug-threads=on"], &["rt"]),
            (&["qemu", "-name", "debug-threads=on,guest=rt"], &["rt"]),
            (&["qemu", "-name", "guest=a,guest=rt"], &["rt"]),
            (&["qemu", "-name", "a,,b,process=x"], &["a,b"]),
            (&["qemu", "-name", "guest=a,,,,b"], &["a,,b"]),
            (&["qemu", "-name", "process=rt"], &[]),
            (&["kvm", "-id", "100", "-name", "rt"], &["100"]),
            (&["kvm", "-name", "rt", "-id", "100"], &["100"]),
            (&["firecracker", "--id=rt"], &["rt"]),
            (&["qemu", "-append", "rt"], &[]),
            (&["qemu", "-name"], &[]),
        ] {
            // As the kernel gives it: each word ends with a zero.
            let line = words.join("\0");
            assert_eq!(names(line.as_bytes()), expected, "{words:?}");
        }
    }

    #[test]
    fn names_that_linux_may_have_cut() {
        let stands_for = |comm: &str, name: &str| {
            let cut = CutName::of_vcpu(comm);
            cut.is_some_and(|cut| CutName::all_for(name).any(|it| it == cut))
        };
        assert!(stands_for("vcpu0/rt", "rt"));
        assert!(!stands_for("vcpu0/rt", "rt2"));
        assert!(!stands_for("disk0/rt", "rt"));
        assert!(stands_for("vcpu0/a-longer-", "a-longer-name"));
        assert!(stands_for("vcpu0/a-longer-n", "a-longer-n"));
        assert!(stands_for("vcpu100/a-longe", "a-longer-name"));
        assert!(!stands_for("vcpu0/a-longer", "a-longer-name"));
        let file = "/memfd:steadyvm-up:production-a (deleted)";
        assert_eq!(name_of_file(file), Some("production-a"));
        assert_eq!(name_of_file("/memfd:other (deleted)"), None);
    }

    proptest! {
        /// Whatever a VM is called, QEMU's own way of writing it is read back.
        #[test]
        fn a_name_with_any_commas(name in "[a-z,= ]{1,12}", first in any::<bool>()) {
            let written = format!("guest={}", name.replace(',', ",,"));
            let value = if first {
                format!("{written},debug-threads=on")
            } else {
                format!("debug-threads=on,{written}")
            };
            prop_assert_eq!(guest_name(&value), Some(name));
        }

        #[test]
        fn no_command_line_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64), name in ".{0,12}") {
            let _ = names(&bytes);
            prop_assert!(CutName::all_for(&name).count() >= 2);
        }
    }
}
