//! Booted hosts that tests share, one per kernel.
//!
//! Between two tests a host stands still. What a test left running in it is ended, and what it set is set back;
//! a host that is not as it was booted even then is ended, and so is that of a test that failed. Kernels that
//! check themselves are booted for every test: their log is the test's.

use crate::support::outsourced::Lab;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use steadyvm_lab::artifact::Cache;
use steadyvm_lab::host::EmulatedHost;
use steadyvm_lab::laboratory::{HostKernel, Laboratory};
use steadyvm_lab::progress::Silent;
use steadyvm_lab::{Error, Result};

static KEPT: Mutex<BTreeMap<HostKernel, Kept>> = Mutex::new(BTreeMap::new());

/// A host that waits for the next test.
struct Kept {
    host: EmulatedHost,
    laboratory: Arc<Laboratory>,
    booted: State,
}

/// A host for one test.
pub struct SharedHost {
    kernel: HostKernel,
    kept: Option<Kept>,
}

/// A host of this kernel as it was booted.
pub fn host(kernel: HostKernel) -> SharedHost {
    host_with_words(kernel, "")
}

/// The same with more words on its command line: always the same ones for a kernel.
pub fn host_with_words(kernel: HostKernel, words: &str) -> SharedHost {
    let waiting = KEPT
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .remove(&kernel);
    let kept = match waiting {
        Some(mut kept) => {
            kept.host.resume().unwrap();
            kept
        }
        None => boot(kernel, words),
    };
    SharedHost {
        kernel,
        kept: Some(kept),
    }
}

/// The host of guests with outsourced sockets, and a place for what they are made of.
pub fn lab(place: &Path) -> Lab {
    let host = host(HostKernel::V6_12Rt);
    let laboratory = Arc::clone(&host.kept.as_ref().unwrap().laboratory);
    Lab {
        host: Box::new(host),
        laboratory,
        place: place.to_owned(),
    }
}

fn boot(kernel: HostKernel, words: &str) -> Kept {
    let began = Instant::now();
    let logs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shared-hosts");
    std::fs::create_dir_all(&logs).unwrap();
    let cache = Cache::of_this_machine().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_steadyvm-lab"));
    let laboratory = Laboratory::open(&cache, program, &logs, &[kernel], &Silent).unwrap();
    let mut specification = laboratory.host(kernel.name(), kernel).unwrap();
    specification.kernel_words.push_str(words);
    // An emulated machine may reset itself while it boots, for no fault of its kernel. `compare` boots it again, too.
    let boot = || EmulatedHost::boot(&specification);
    let host = boot().or_else(|_| boot()).or_else(|_| boot()).unwrap();
    // The first namespace mounts /run/netns, which stays.
    inside(&host, "ip netns add first && ip netns delete first").unwrap();
    let booted = State::of(&host).unwrap();
    println!("booted {} in {:.1?}", kernel.name(), began.elapsed());
    Kept {
        host,
        laboratory: Arc::new(laboratory),
        booted,
    }
}

impl Deref for SharedHost {
    type Target = EmulatedHost;

    fn deref(&self) -> &EmulatedHost {
        // It is there until this is dropped.
        &self.kept.as_ref().unwrap().host
    }
}

impl Drop for SharedHost {
    fn drop(&mut self) {
        let Some(kept) = self.kept.take() else { return };
        if std::thread::panicking() {
            let name = kept.host.name();
            let console = format!(
                "{}/shared-hosts/{name}.console",
                env!("CARGO_TARGET_TMPDIR")
            );
            let said = std::fs::read(console).unwrap_or_default();
            println!("the host's console:\n{}", String::from_utf8_lossy(&said));
            return;
        }
        if self.kernel.row().checks_itself {
            return;
        }
        match kept.tidied() {
            Ok(kept) => {
                let mut waiting = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
                waiting.insert(self.kernel, kept);
            }
            Err(why) => println!(
                "{} is booted again for the next test: {why}",
                self.kernel.name()
            ),
        }
    }
}

impl Kept {
    /// As it was booted, and standing still.
    fn tidied(mut self) -> Result<Self> {
        // The interrupts of a CPU that went, the console's among them, have moved to the others for good. What computes there
        // then keeps the host from answering (crates/host/PROMISES.md).
        let log = inside(&self.host, "dmesg")?;
        if log.contains("is now offline") {
            return Err(Error::machine("tidy the host up", "a CPU was offline"));
        }
        self.booted.restore(&self.host)?;
        let now = State::of(&self.host)?;
        if let Some(difference) = self.booted.difference(&now) {
            return Err(Error::machine("tidy the host up", difference));
        }
        self.host.outside().enter(|| {
            let flush = Command::new("ip").args(["neigh", "flush", "all"]).status();
            let flushed = flush.is_ok_and(|status| status.success());
            let error = || Error::machine("tidy the network up", "`ip neigh flush all` fails");
            flushed.then_some(()).ok_or_else(error)
        })?;
        self.host.pause()?;
        Ok(self)
    }
}

/// What a test may leave changed, by what it is; a line each.
#[derive(Debug)]
struct State(BTreeMap<&'static str, BTreeSet<String>>);

const PROCESSES: &str = "processes";
const THREADS: &str = "kernel threads";
const VALUES: &str = "values";
const REST: &str = "the rest";
/// What is listed, and the words that list it.
const LISTINGS: [(&str, &str); 8] = [
    (PROCESSES, "ps -eo pid=,args="),
    (THREADS, "ps -eLo lwp=,ppid=,cls=,rtprio=,comm="),
    (
        VALUES,
        "for file in /proc/sys/net/core/* /proc/sys/kernel/printk* /sys/class/net/*/rx_level; do
           [ ! -f $file ] || echo $file $(cat $file 2> /dev/null); done",
    ),
    ("devices", "ls /sys/class/net"),
    ("namespaces", "ip netns | cut -d ' ' -f 1"),
    ("/run", "ls -A /run"),
    ("/tmp", "ls -A /tmp"),
    (
        REST,
        "steadyvm status --snapshot
         ip -o link | sed 's/^[0-9]*: //'; ip -o -4 address | sed 's/^[0-9]*: //'
         cut -d ' ' -f 1-3 /proc/mounts; cat /sys/devices/system/cpu/online
         stat -c '%a %n' /dev/kvm /dev/vhost-net /dev/net/tun /dev/vda
         ls -A /sys/fs/bpf /run/steadyvm 2>&1; lsmod | cut -d ' ' -f 1
         ls -A /sys/kernel/config/netconsole 2>&1; cat /sys/kernel/tracing/kprobe_events 2>&1",
    ),
];
/// What does away with one of these by its name.
const REMOVALS: [(&str, &str); 4] = [
    ("namespaces", "ip netns delete "),
    ("devices", "ip link delete "),
    ("/run", "rm -rf /run/"),
    ("/tmp", "rm -rf /tmp/"),
];

fn inside(host: &EmulatedHost, words: &str) -> Result<String> {
    host.connection().text(&["sh", "-uc", words])
}

impl State {
    fn of(host: &EmulatedHost) -> Result<Self> {
        let list = |(what, words): (&str, &str)| format!("echo '== {what}'\n{words}\n");
        // A listing that is not there is as good as an empty one.
        let text = inside(host, &(LISTINGS.map(list).concat() + "true"))?;
        let mut listed: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
        let mut current = PROCESSES;
        for line in text.lines() {
            if let Some(title) = line.strip_prefix("== ") {
                let known = LISTINGS.iter().find(|it| it.0 == title);
                current = known.map_or(current, |it| it.0);
                continue;
            }
            let kept = match current {
                PROCESSES => process(line),
                THREADS => thread(line),
                _ => Some(line.trim().to_owned()),
            };
            listed.entry(current).or_default().extend(kept);
        }
        Ok(Self(listed))
    }

    fn lines(&self, what: &str) -> impl Iterator<Item = &str> {
        self.0.get(what).into_iter().flatten().map(String::as_str)
    }

    /// What is there and was not.
    fn added<'n>(&self, now: &'n Self, what: &str) -> Vec<&'n str> {
        let known: BTreeSet<&str> = self.lines(what).collect();
        now.lines(what).filter(|it| !known.contains(it)).collect()
    }

    /// Ends what runs, does away with what is new and sets back what is not as it was.
    fn restore(&self, host: &EmulatedHost) -> Result<()> {
        loop {
            let now = Self::of(host)?;
            let left = self.added(&now, PROCESSES);
            let words = left.iter().filter_map(|it| it.split(' ').next());
            let numbers: Vec<&str> = words.collect();
            if numbers.is_empty() {
                return inside(host, &self.repairs(&now)).map(drop);
            }
            inside(host, &format!("kill -9 {}; true", numbers.join(" ")))?;
        }
    }

    fn repairs(&self, now: &Self) -> String {
        // The next test's log is its own, and so are the guests behind the addresses.
        let mut script = vec!["dmesg -C; ip neigh flush all".to_owned()];
        for (what, words) in REMOVALS {
            let added = self.added(now, what).into_iter();
            script.extend(added.map(|name| format!("{words}{name}")));
        }
        for line in now.added(self, VALUES) {
            let set = |(file, value)| format!("echo {value} > {file}");
            script.extend(line.split_once(' ').map(set));
        }
        let rank = |line| {
            let [policy, priority, name, _] = fields(line);
            (name, (policy, priority))
        };
        let booted: BTreeMap<&str, (&str, &str)> = self.lines(THREADS).map(rank).collect();
        for line in self.added(now, THREADS) {
            let [_, _, name, number] = fields(line);
            script.extend(match booted.get(name).copied() {
                Some(("FF", priority)) => Some(format!("chrt -f -p {priority} {number}")),
                Some(("TS", _)) => Some(format!("chrt -o -p 0 {number}")),
                _ => None,
            });
        }
        script.push("true".to_owned());
        script.join("\n")
    }

    /// What is not as it was; `None` if nothing is.
    fn difference(&self, now: &Self) -> Option<String> {
        let mut found = Vec::new();
        for (what, _) in LISTINGS {
            if what == REST {
                found.extend(self.rest_difference(now));
                continue;
            }
            let without_number = |line: &str| match what {
                // A thread of the same name and rank is as good.
                THREADS => fields(line)[..3].join(" "),
                _ => line.to_owned(),
            };
            // A card whose polls were threads once keeps these threads, which then do nothing.
            let counts = |line: &String| !(what == THREADS && line.starts_with("TS - napi/"));
            let lines = |state: &Self| -> BTreeSet<String> {
                state
                    .lines(what)
                    .map(without_number)
                    .filter(counts)
                    .collect()
            };
            let (before, after) = (lines(self), lines(now));
            let changed = before.symmetric_difference(&after);
            found.extend(changed.map(|it| format!("{what}: {it}")));
        }
        (!found.is_empty()).then(|| found.join("; "))
    }

    /// Threads come and go, those of these listings among them: what a snapshot says of one counts if it was there both
    /// times.
    fn rest_difference(&self, now: &Self) -> Vec<String> {
        let thread = |line: &&str| line.starts_with("\"thread ");
        let number = |line: &&str| line.split(':').next().unwrap_or_default().to_owned();
        let numbers = |state: &Self| -> BTreeSet<String> {
            state
                .lines(REST)
                .filter(thread)
                .map(|it| number(&it))
                .collect()
        };
        let (before, after) = (numbers(self), numbers(now));
        let counts = |line: &&str| {
            let number = number(line);
            !thread(line) || (before.contains(&number) && after.contains(&number))
        };
        let lines = |state: &Self| -> BTreeSet<String> {
            let lines = state.lines(REST).filter(counts);
            // The last entry of an object has no comma.
            lines
                .map(|line| line.trim_end_matches(',').to_owned())
                .collect()
        };
        let changed = lines(self);
        let changed = changed
            .symmetric_difference(&lines(now))
            .cloned()
            .collect::<Vec<_>>();
        changed.iter().map(|it| format!("{REST}: {it}")).collect()
    }
}

/// A process other than those that list them. A kernel thread has no arguments: ps puts its name in brackets.
fn process(line: &str) -> Option<String> {
    let (number, arguments) = line.trim().split_once(' ')?;
    let arguments = arguments.trim();
    let lists = ["[", "ps -eo pid=", "sh -uc echo '== "];
    let counts = !lists.iter().any(|it| arguments.starts_with(it));
    counts.then(|| format!("{number} {arguments}"))
}

/// A kernel thread that keeps its name: policy, priority, name, number.
fn thread(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [number, "2", policy, priority, name] = words[..] else {
        return None;
    };
    let passing = ["kworker", "vhost-", "kvm-"];
    let counts = !passing.iter().any(|it| name.starts_with(it));
    counts.then(|| format!("{policy} {priority} {name} {number}"))
}

fn fields(line: &str) -> [&str; 4] {
    let mut words = line.split(' ');
    std::array::from_fn(|_| words.next().unwrap_or_default())
}
