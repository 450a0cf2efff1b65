//! Random plan files over all keys.
//!
//! Times are whole multiples of a unit that the file has, so that instants coincide as they seldom do among random
//! nanoseconds. VMs join while the plan is feasible; then given budgets grow while it is.

use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use toml::{Table, Value};

use super::accepted;

/// A file, and what its times are made of.
pub(super) struct File {
    pub table: Table,
    pub unit_us: u64,
    /// The longest period there can be in it.
    pub longest_us: u64,
}

struct Draw {
    random: ChaCha8Rng,
    unit_us: u64,
    cpus: u32,
    /// What CPU 0 of the plan is called.
    first_cpu: u32,
    /// The server's word.
    server: &'static str,
    /// Whether who is enforced has a budget for each wake-up counted.
    is_costly: bool,
    /// Whether guests are believed (`isolate = false`).
    believes: bool,
}

/// The file of this number; `None` if no VM of it is accepted.
pub(super) fn file(number: u64) -> Option<File> {
    let mut random = ChaCha8Rng::seed_from_u64(number);
    let unit_us = *[1_000, 250, 100, 37].choose(&mut random)?;
    let mut draw = Draw {
        random,
        unit_us,
        cpus: 1,
        first_cpu: 0,
        server: "cbs",
        is_costly: false,
        believes: false,
    };
    let mut table = Table::new();
    table.insert("host".to_owned(), draw.host().into());
    if draw.chance(0.2) {
        let mut class = Table::new();
        let mut settings = Table::new();
        let period = draw.period();
        settings.insert("period".to_owned(), period);
        class.insert("c".to_owned(), settings.into());
        table.insert("class".to_owned(), class.into());
    }
    let count = draw.random.random_range(1..=draw.cpus as usize + 3);
    for number in 0..count {
        let has_class = table.contains_key("class");
        let vm = draw.vm(number, has_class);
        join(&mut table, "vm", vm);
    }
    if draw.chance(0.3) {
        for number in 0..draw.random.random_range(1..=2) {
            let service = draw.service(number, &table);
            join(&mut table, "service", service);
        }
        if draw.chance(0.5) {
            let flow = draw.flow();
            join(&mut table, "flow", flow);
        }
    }
    let is_empty = !table.contains_key("vm") && !table.contains_key("service");
    if is_empty {
        return None;
    }
    draw.grow(&mut table);
    Some(File {
        table,
        unit_us,
        longest_us: unit_us * LONGEST,
    })
}

/// Units.
const LONGEST: u64 = 48;

/// Adds an entry to a list of tables if the plan stays feasible.
fn join(table: &mut Table, list: &str, entry: Table) {
    let mut next = table.clone();
    let entries = next.entry(list).or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(entries) = entries {
        entries.push(entry.into());
    }
    if accepted(&next).is_some() {
        *table = next;
    }
}

impl Draw {
    fn chance(&mut self, share: f64) -> bool {
        self.random.random_bool(share)
    }

    fn word(&mut self, words: &[&'static str]) -> &'static str {
        words.choose(&mut self.random).copied().unwrap_or("")
    }

    fn time(&self, units: u64) -> Value {
        format!("{}us", units * self.unit_us).into()
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        self.random.random_range(low..=high.max(low))
    }

    /// A period of VCPUs.
    fn period(&mut self) -> Value {
        if self.chance(0.1) {
            let mut range = Table::new();
            let from = self.between(3, 6);
            range.insert("from".to_owned(), self.time(from));
            range.insert("to".to_owned(), self.time(from + 6));
            range.insert("step".to_owned(), self.time(2));
            return range.into();
        }
        let units = self.between(3, 16);
        self.time(units)
    }

    fn host(&mut self) -> Table {
        let mut host = Table::new();
        self.cpus = [1, 1, 1, 2, 2, 3, 4]
            .choose(&mut self.random)
            .copied()
            .unwrap_or(1);
        if self.chance(0.15) {
            self.first_cpu = 2;
            let cpus = format!("2-{}", 1 + self.cpus);
            host.insert("cpus".to_owned(), cpus.into());
        } else {
            host.insert("pcpus".to_owned(), i64::from(self.cpus).into());
        }
        let enforce = self.word(&["", "", "none", "ext", "ext", "deadline", "deadline"]);
        if !enforce.is_empty() {
            host.insert("enforce".to_owned(), enforce.into());
        }
        // What SCHED_DEADLINE is not is refused: drawn, but seldom.
        let plain = enforce == "deadline" && !self.chance(0.1);
        let schedulers: &[&str] = if plain {
            &["pedf", "gedf"]
        } else {
            &["pedf", "gedf", "pdm", "gdm"]
        };
        let scheduler = self.word(schedulers);
        host.insert("scheduler".to_owned(), scheduler.into());
        self.server = if plain {
            "cbs"
        } else {
            self.word(&[
                "cbs",
                "periodic",
                "sporadic",
                "deferrable",
                "capacity-reclaiming",
            ])
        };
        if self.server != "cbs" || self.chance(0.5) {
            host.insert("server".to_owned(), self.server.into());
        }
        if self.server == "cbs" && self.chance(0.25) {
            self.believes = true;
            host.insert("isolate".to_owned(), false.into());
        }
        if self.chance(0.45) {
            let overheads = self.overheads(&mut host);
            host.insert("overheads".to_owned(), overheads.into());
        }
        host
    }

    /// Costs, and the host's quantum.
    fn overheads(&mut self, host: &mut Table) -> Table {
        let mut overheads = Table::new();
        if self.chance(0.5) {
            let quantum = match self.between(0, 2) {
                0 => self.unit_us,
                1 => self.unit_us * self.random.random_range(2..=3),
                _ => (self.unit_us / 3).max(1),
            };
            host.insert("quantum".to_owned(), format!("{quantum}us").into());
        }
        for key in ["decision", "context_switch", "migration", "cache_reload"] {
            if self.chance(0.35) {
                let most = if self.chance(0.2) { 2 } else { 12 };
                let cost = self.between(1, self.unit_us / most);
                overheads.insert(key.to_owned(), format!("{cost}us").into());
                self.is_costly = true;
            }
        }
        // More than any guest here wakes.
        if self.chance(0.1) {
            overheads.insert("wakeups".to_owned(), 30.into());
        }
        overheads
    }

    fn vm(&mut self, number: usize, has_class: bool) -> Table {
        let mut vm = Table::new();
        vm.insert("name".to_owned(), format!("vm{number}").into());
        if has_class && self.chance(0.5) {
            vm.insert("class".to_owned(), "c".into());
        }
        if self.chance(0.2) {
            let all: Vec<u32> = (self.first_cpu..self.first_cpu + self.cpus).collect();
            let some: Vec<Value> = all
                .iter()
                .filter(|_| self.random.random_bool(0.6))
                .map(|&cpu| Value::Integer(cpu.into()))
                .collect();
            if !some.is_empty() {
                vm.insert("cpus".to_owned(), some.into());
            }
        }
        match self.between(0, 19) {
            0 => {
                vm.insert("rt".to_owned(), false.into());
                let count = self.random.random_range(1..=2);
                vm.insert("vcpus".to_owned(), Value::Integer(count));
            }
            1..=14 if self.believes => self.reservation(&mut vm),
            1..=5 => self.given(&mut vm),
            6..=8 if self.server == "cbs" => self.reservation(&mut vm),
            _ => self.tasks(&mut vm),
        }
        // Only SCHED_DEADLINE bounds what receives.
        if self.server == "cbs" && self.chance(0.1) {
            let period = self.between(2, 16);
            let budget = self.between(1, period / 2);
            let mut receive = Table::new();
            receive.insert("vhost_budget".to_owned(), self.time(budget));
            receive.insert("period".to_owned(), self.time(period));
            receive.insert("workers".to_owned(), Value::Integer(1));
            vm.insert("receive".to_owned(), receive.into());
        }
        vm
    }

    /// A budget, and nothing known of its guest.
    fn given(&mut self, vm: &mut Table) {
        let vcpus = if self.cpus > 1 && self.chance(0.25) {
            2
        } else {
            1
        };
        let period = self.between(2, 16);
        let budget = self.between(1, period * vcpus);
        vm.insert("budget".to_owned(), self.time(budget));
        vm.insert("period".to_owned(), self.time(period));
        if vcpus > 1 {
            vm.insert("vcpus".to_owned(), Value::Integer(2));
        }
    }

    fn reservation(&mut self, vm: &mut Table) {
        let interface = self.word(&["reservation", "reservation", "best"]);
        vm.insert("interface".to_owned(), interface.into());
        let mut task = self.task(1);
        task.remove("suspension");
        vm.insert("tasks".to_owned(), Value::Array(vec![task.into()]));
    }

    fn tasks(&mut self, vm: &mut Table) {
        let count = self.random.random_range(1..=3);
        let several = self.cpus > 1 && self.chance(0.35);
        let scheduler = if several {
            self.word(&["edf", "dm", "gedf", "pedf", "pedf"])
        } else {
            self.word(&["edf", "edf", "dm", "gedf", "pedf"])
        };
        let interface = match scheduler {
            "gedf" => self.word(&["mpr", "dmpr"]),
            "edf" | "dm" if several => self.word(&["mpr", "dmpr"]),
            _ => "prm",
        };
        if self.chance(0.9) || several {
            vm.insert("scheduler".to_owned(), scheduler.into());
            vm.insert("interface".to_owned(), interface.into());
        }
        if self.chance(0.9) && !vm.contains_key("class") {
            let period = self.period();
            vm.insert("period".to_owned(), period);
        }
        if several {
            vm.insert("vcpus".to_owned(), Value::Integer(2));
        }
        let tasks: Vec<Value> = (0..count).map(|_| self.task(count).into()).collect();
        vm.insert("tasks".to_owned(), tasks.into());
        let one_period = vm.get("period").is_some_and(Value::is_str);
        if interface != "dmpr" && scheduler != "pedf" && one_period && self.chance(0.15) {
            // Above the least one, if it is; else the plan refuses.
            let budget = self.between(1, 8);
            vm.insert("budget".to_owned(), self.time(budget));
        }
    }

    fn task(&mut self, of: u64) -> Table {
        let mut task = Table::new();
        let period = self.between(4, LONGEST);
        let execution = self.between(1, period * 2 / (3 * of));
        let deadline = if self.chance(0.6) {
            period
        } else {
            self.between(execution, period)
        };
        task.insert("c".to_owned(), self.time(execution));
        task.insert("d".to_owned(), self.time(deadline));
        task.insert("t".to_owned(), self.time(period));
        if self.chance(0.2) {
            let jitter = self.between(1, (deadline - execution) / 3);
            task.insert("jitter".to_owned(), self.time(jitter));
        }
        if matches!(self.server, "periodic" | "deferrable") && self.chance(0.25) {
            let asleep = self.between(1, (deadline - execution) / 3);
            task.insert("suspension".to_owned(), self.time(asleep));
        }
        if self.chance(0.05) {
            task.insert("execution_percent".to_owned(), Value::Integer(120));
        }
        task
    }

    /// A part of a unit: paths take less time than tasks.
    fn part(&mut self) -> Value {
        let us = self.between(1, self.unit_us / 4);
        format!("{us}us").into()
    }

    fn service(&mut self, number: usize, file: &Table) -> Table {
        let mut service = Table::new();
        service.insert("name".to_owned(), format!("service{number}").into());
        let vms: Vec<&Table> = (file
            .get("vm")
            .and_then(Value::as_array)
            .into_iter()
            .flatten())
        .filter_map(Value::as_table)
        .filter(|vm| vm.contains_key("tasks"))
        .collect();
        let own = vms.is_empty() || self.chance(0.4);
        let (period, execution) = if own {
            service.insert("vm".to_owned(), format!("own{number}").into());
            let period = self.between(4, LONGEST);
            let execution = self.between(1, period / 2);
            service.insert("c".to_owned(), self.time(execution));
            service.insert("t".to_owned(), self.time(period));
            (period, execution)
        } else {
            let vm = vms[self.random.random_range(0..vms.len())];
            let name = vm.get("name").and_then(Value::as_str).unwrap_or("");
            service.insert("vm".to_owned(), name.into());
            service.insert("task".to_owned(), "tasks[0]".into());
            (LONGEST, 2)
        };
        let limit = self.between(execution + 1, period + 4);
        service.insert("limit".to_owned(), self.time(limit));
        if self.chance(0.7) {
            let mut receive = Table::new();
            let packet = self.part();
            receive.insert("packet".to_owned(), packet);
            let interrupt = self.part();
            receive.insert("interrupt".to_owned(), interrupt);
            if self.chance(0.5) {
                receive.insert("on".to_owned(), "rx".into());
                let level = self.random.random_range(0..=1);
                receive.insert("level".to_owned(), Value::Integer(level));
            } else {
                let ahead = self.random.random_range(0..=3);
                receive.insert("ahead".to_owned(), Value::Integer(ahead));
            }
            service.insert("receive".to_owned(), receive.into());
        }
        if self.chance(0.6) {
            let wake = self.part();
            service.insert("wake".to_owned(), wake);
        }
        if self.chance(0.4) {
            let send = self.part();
            service.insert("send".to_owned(), send);
        } else if self.chance(0.5) {
            let mut send = Table::new();
            for key in ["guest", "host", "nic", "packet"] {
                let part = self.part();
                send.insert(key.to_owned(), part);
            }
            send.insert("on".to_owned(), "tx".into());
            let level = self.random.random_range(0..=1);
            send.insert("level".to_owned(), Value::Integer(level));
            service.insert("send".to_owned(), send.into());
        }
        service
    }

    fn flow(&mut self) -> Table {
        let mut flow = Table::new();
        let on = self.word(&["rx", "tx"]);
        flow.insert("on".to_owned(), on.into());
        let packet = self.part();
        flow.insert("packet".to_owned(), packet);
        let period = self.between(1, 8);
        flow.insert("t".to_owned(), self.time(period));
        let level = self.random.random_range(0..=1);
        flow.insert("level".to_owned(), Value::Integer(level));
        flow
    }

    /// Given budgets grow by units while the plan is feasible.
    fn grow(&mut self, table: &mut Table) {
        let vms = table
            .get("vm")
            .and_then(Value::as_array)
            .map_or(0, Vec::len);
        for number in 0..vms {
            for _ in 0..4 {
                let mut next = table.clone();
                let vm = (next.get_mut("vm").and_then(Value::as_array_mut))
                    .and_then(|vms| vms.get_mut(number))
                    .and_then(Value::as_table_mut);
                let Some(vm) = vm.filter(|vm| !vm.contains_key("tasks")) else {
                    break;
                };
                let budget = (vm.get("budget").and_then(Value::as_str))
                    .and_then(|text| text.strip_suffix("us")?.parse::<u64>().ok());
                let Some(budget) = budget else { break };
                let more = format!("{}us", budget + self.unit_us);
                vm.insert("budget".to_owned(), more.into());
                if accepted(&next).is_none() {
                    break;
                }
                *table = next;
            }
        }
    }
}
