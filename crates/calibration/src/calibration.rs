//! The figures of a host, as a text of TOML and back.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use steadyvm_config::{Written, quoted, written};

use crate::cost::Cost;
use crate::date::{date, unix_s};

/// The file's version; it changes when a key changes its meaning.
pub const SCHEMA_VERSION: u32 = 1;

/// After so many days figures are stale.
pub const MOST_DAYS: u64 = 90;

/// What a host's own work costs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Calibration {
    /// When it was measured, in seconds after 1970.
    pub unix_s: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The CPU model.
    pub cpu: String,
    /// How long it was measured.
    pub seconds: u64,
    /// How many VMs ran meanwhile: the figures have their interference.
    pub vms: u32,
    /// From one process to another on one CPU, with the wake-up of it.
    pub context_switch: Option<Cost>,
    /// What a working set takes longer to read once others have used the caches.
    pub cache_reload: Option<Cost>,
    /// That working set: the size of a CPU's own second-level cache.
    pub working_set_kib: Option<u64>,
    /// A thread that moves to another CPU.
    pub migration: Option<Cost>,
    /// From a write to a pipe to the sleeping thread that reads it.
    pub wake_up: Option<Cost>,
    /// From the time that a timer is set for to the thread that sleeps until then.
    pub timer: Option<Cost>,
    /// The longest time in 10 ms that a thread that never waits did not run.
    pub interruption: Option<Cost>,
    /// Receiving one packet for a VM: CPU time of what polls for it and of its vhost workers.
    pub packet: Option<Cost>,
    /// When that was measured, where it is kept from an earlier calibration, in seconds after 1970.
    pub packet_unix_s: Option<u64>,
}

/// What is no calibration, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    schema_version: u32,
    date: String,
    kernel: String,
    cpu: String,
    seconds: u64,
    vms: u32,
    context_switch: Option<Figures>,
    cache_reload: Option<Figures>,
    migration: Option<Figures>,
    wake_up: Option<Figures>,
    timer: Option<Figures>,
    interruption: Option<Figures>,
    packet: Option<Figures>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Figures {
    samples: u64,
    median: Written,
    p99: Written,
    max: Written,
    working_set_kib: Option<u64>,
    date: Option<String>,
}

impl Calibration {
    /// Reads a text that [`Self::text`] wrote.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Version {
            schema_version: u32,
        }
        let wrong = |error: toml::de::Error| Unreadable(error.to_string().trim_end().to_owned());
        // A later version may have keys that this one does not know.
        let Version { schema_version } = toml::from_str(text).map_err(wrong)?;
        if schema_version != SCHEMA_VERSION {
            return Err(Unreadable(format!(
                "its schema_version is {schema_version}, and this program reads {SCHEMA_VERSION}"
            )));
        }
        let text: Text = toml::from_str(text).map_err(wrong)?;
        debug_assert_eq!(text.schema_version, schema_version);
        let unix_s = date_of(&text.date)?;
        let packet_date = text.packet.as_ref().and_then(|it| it.date.as_deref());
        let packet_unix_s = packet_date.map(date_of).transpose()?;
        let working_set_kib = (text.cache_reload.as_ref()).and_then(|it| it.working_set_kib);
        Ok(Self {
            unix_s,
            kernel: text.kernel,
            cpu: text.cpu,
            seconds: text.seconds,
            vms: text.vms,
            context_switch: cost("context_switch", text.context_switch)?,
            cache_reload: cost("cache_reload", text.cache_reload)?,
            working_set_kib,
            migration: cost("migration", text.migration)?,
            wake_up: cost("wake_up", text.wake_up)?,
            timer: cost("timer", text.timer)?,
            interruption: cost("interruption", text.interruption)?,
            packet: cost("packet", text.packet)?,
            packet_unix_s,
        })
    }

    /// Keeps a packet's cost from an earlier calibration that counts, where this one has none: when it was measured. Measuring it
    /// takes a VM that gets packets. One that is older than a calibration may be is not kept.
    pub fn keep_packet(&mut self, earlier: &Self) -> Option<u64> {
        let measured_s = earlier.packet_unix_s.unwrap_or(earlier.unix_s);
        let age_s = self.unix_s.saturating_sub(measured_s);
        if self.packet.is_some() || age_s > MOST_DAYS * 86_400 {
            return None;
        }
        self.packet = earlier.packet;
        self.packet_unix_s = self.packet.map(|_| measured_s);
        self.packet_unix_s
    }

    /// Each cost with its name.
    pub fn costs(&self) -> [(&'static str, Option<&Cost>); 7] {
        [
            ("context_switch", self.context_switch.as_ref()),
            ("cache_reload", self.cache_reload.as_ref()),
            ("migration", self.migration.as_ref()),
            ("wake_up", self.wake_up.as_ref()),
            ("timer", self.timer.as_ref()),
            ("interruption", self.interruption.as_ref()),
            ("packet", self.packet.as_ref()),
        ]
    }

    /// It as text.
    pub fn text(&self) -> String {
        let mut text = format!(
            "# What this host's own work costs, as `steadyvm calibrate` measured it. `plan` and `apply` read it.\n\
             schema_version = {SCHEMA_VERSION}\n\
             date = \"{}\"\n\
             kernel = {}\n\
             cpu = {}\n\
             seconds = {}\n\
             vms = {}\n",
            date(self.unix_s),
            quoted(&self.kernel),
            quoted(&self.cpu),
            self.seconds,
            self.vms
        );
        for (name, cost) in self.costs() {
            let Some(cost) = cost else { continue };
            let time = |ns: u64| written(ns.into());
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "\n[{name}]\nsamples = {}\nmedian = {}\np99 = {}\nmax = {}\n",
                cost.samples,
                time(cost.median_ns),
                time(cost.p99_ns),
                time(cost.max_ns)
            );
            if let (true, Some(kib)) = (name == "cache_reload", self.working_set_kib) {
                let _ = writeln!(text, "working_set_kib = {kib}");
            }
            if let (true, Some(unix_s)) = (name == "packet", self.packet_unix_s) {
                let _ = writeln!(text, "date = \"{}\"", date(unix_s));
            }
        }
        text
    }
}

fn date_of(text: &str) -> Result<u64, Unreadable> {
    let wrong = || {
        let text = text.escape_default();
        Unreadable(format!(
            "its date \"{text}\" is none such as 2026-11-29T12:00:00Z"
        ))
    };
    unix_s(text).ok_or_else(wrong)
}

fn cost(name: &str, figures: Option<Figures>) -> Result<Option<Cost>, Unreadable> {
    let Some(figures) = figures else {
        return Ok(None);
    };
    let time = |Written(ns): Written| {
        let negative = |_| Unreadable(format!("[{name}] has a time below 0"));
        u64::try_from(ns).map_err(negative)
    };
    if figures.working_set_kib.is_some() && name != "cache_reload" {
        return Err(Unreadable(format!(
            "[{name}] has a working_set_kib, which is of cache_reload alone"
        )));
    }
    if figures.date.is_some() && name != "packet" {
        return Err(Unreadable(format!(
            "[{name}] has a date, which is of packet alone"
        )));
    }
    let cost = Cost {
        samples: figures.samples,
        median_ns: time(figures.median)?,
        p99_ns: time(figures.p99)?,
        max_ns: time(figures.max)?,
    };
    match cost.fault() {
        Some(fault) => Err(Unreadable(format!("[{name}]: {fault}"))),
        None => Ok(Some(cost)),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    use crate::cost::LONGEST_NS;

    pub(crate) fn calibration() -> Calibration {
        let cost = |median_ns| {
            Some(Cost {
                samples: 1000,
                median_ns,
                p99_ns: 2 * median_ns,
                max_ns: 9 * median_ns,
            })
        };
        Calibration {
            unix_s: 1_790_000_000,
            kernel: "6.12.9-rt".into(),
            cpu: "A \"CPU\" @ 2.0\tGHz".into(),
            seconds: 10,
            vms: 0,
            context_switch: cost(1_234),
            cache_reload: cost(100_000),
            working_set_kib: Some(1024),
            migration: None,
            wake_up: cost(3_001),
            timer: cost(5_000),
            interruption: cost(20_000),
            packet: cost(4_000),
            packet_unix_s: None,
        }
    }

    fn any_cost() -> impl Strategy<Value = Option<Cost>> {
        let figures = (1..u64::MAX >> 1, proptest::array::uniform3(0..=LONGEST_NS));
        proptest::option::of(figures.prop_map(|(samples, mut times)| {
            times.sort_unstable();
            Cost {
                samples,
                median_ns: times[0],
                p99_ns: times[1],
                max_ns: times[2],
            }
        }))
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            costs in proptest::array::uniform7(any_cost()), kernel in ".*", cpu in ".*", vms in any::<u32>(),
            kib in proptest::option::of(0_u64..1 << 30), unix_s in 0_u64..253_402_300_800,
            of_packet in proptest::option::of(0_u64..253_402_300_800),
        ) {
            let [context_switch, cache_reload, migration, wake_up, timer, interruption, packet] = costs;
            let working_set_kib = kib.filter(|_| cache_reload.is_some());
            let whole = Calibration {
                unix_s, kernel, cpu, vms, seconds: 10, context_switch, cache_reload, working_set_kib, migration,
                wake_up, timer, interruption, packet, packet_unix_s: of_packet.filter(|_| packet.is_some()),
            };
            prop_assert_eq!(Calibration::parse(&whole.text()), Ok(whole));
        }

        #[test]
        fn a_damaged_text_never_panics(at in 0_usize..2000, with in "\\PC{0,3}") {
            let mut text = calibration().text();
            let at = at % text.len();
            if text.is_char_boundary(at) && text.is_char_boundary(at + 1) {
                text.replace_range(at..=at, &with);
            }
            if let Ok(read) = Calibration::parse(&text) {
                prop_assert!(read.costs().into_iter().filter_map(|(_, cost)| cost).all(|cost| cost.fault().is_none()));
            }
        }
    }

    #[test]
    fn a_packets_cost_is_kept_with_its_own_date_until_it_is_too_old() {
        const DAY_S: u64 = 86_400;
        let first = calibration();
        let later = |days: u64| Calibration {
            unix_s: first.unix_s + days * DAY_S,
            packet: None,
            ..calibration()
        };
        let mut second = later(80);
        assert_eq!(second.keep_packet(&first), Some(first.unix_s));
        assert_eq!(second.packet, first.packet);
        assert_eq!(Calibration::parse(&second.text()), Ok(second.clone()));
        // Its date is its own, not that of the file which it was kept in.
        let mut third = later(91);
        assert_eq!(third.keep_packet(&second), None);
        assert_eq!(third.packet, None);
        // What was measured anew stays.
        let mut fourth = Calibration {
            packet: first.timer,
            ..later(1)
        };
        assert_eq!(fourth.keep_packet(&first), None);
        assert_eq!(fourth.packet, first.timer);
    }

    #[test]
    fn a_wrong_text_is_told_with_what_is_wrong() {
        let right = calibration().text();
        for (from, to, said) in [
            ("schema_version = 1", "schema_version = 2", "reads 1"),
            ("date = \"2026", "date = \"1026", "none such as"),
            ("vms = 0", "vms = -1", "vms"),
            ("vms = 0", "vms = 0\nhost = 1", "unknown field"),
            ("\"1.234us\"", "\"-1us\"", "below 0"),
            ("\"1.234us\"", "\"9s\"", "do not rise"),
            ("\"1.234us\"", "\"9 weeks\"", "time such as"),
            ("samples = 1000", "samples = 0", "no samples"),
            ("[timer]", "[timer]\nworking_set_kib = 1", "cache_reload"),
            (
                "[timer]",
                "[timer]\ndate = \"2026-11-29T12:00:00Z\"",
                "of packet alone",
            ),
            ("[packet]", "[packet]\ndate = \"yesterday\"", "none such as"),
        ] {
            let wrong = right.replacen(from, to, 1);
            assert_ne!(wrong, right, "{from}");
            let error = Calibration::parse(&wrong).unwrap_err().to_string();
            assert!(error.contains(said), "{to}: {error}");
        }
    }
}
