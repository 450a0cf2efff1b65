//! A file that was read, planned and found good, and what bringing the host up to date with it does.
//!
//! Each file is read once (`steadyvm_config`); all take the same tables. VMs that a cloud starts are described in files
//! beside it (`drop_ins`).
//!
//! Rule: what is wrong with one VM, card or file is told by its name and stops no other, unless the caller asks for all
//! or nothing ([`Source::is_strict`]).

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Instant;

use serde::Serialize;
use steadyvm_analysis::plan::file::HostCpus;
use steadyvm_analysis::plan::{self, InputError, Measured, Report, Request, VmReport};
use steadyvm_calibration::store::Found;
use steadyvm_config::{File, Mechanism};
use steadyvm_fault::At;
use steadyvm_host::profile::{Profile, file};
use steadyvm_host::{
    Desired, Failure, HostControl, HostError, Machine, Plan, Report as Reconciled, printable,
};

use crate::backoff::Backoff;
use crate::bounds::Bound;
use crate::budgets::{self, Budgets};
use crate::calibration;
use crate::checks::Planned;
use crate::cpus::CpusHere;
use crate::drop_ins::{self, DropIn, LeftOut};
use crate::error::{Error, Result};
use crate::ext::Ext;
use crate::source::{Source, name_of, owners_file, text_of};

/// A file that was read and found good.
pub struct Site {
    pub(crate) name: String,
    pub(crate) parsed: Parsed,
    /// Files beside it that are not.
    left_out: Vec<LeftOut>,
    is_strict: bool,
    /// What was said already: a watch says each warning once for as long as it holds.
    said: BTreeSet<String>,
    /// What was said to fail, by its name and the reason.
    said_failed: BTreeSet<NotServed>,
    backoff: Backoff,
    /// Ends of the scheduler by the kernel that no look has told.
    ends: Vec<String>,
    /// The owner's file and those beside it, which the rest was made of.
    files: (File, Vec<DropIn>),
}

/// What a text says.
pub(crate) struct Parsed {
    pub(crate) profile: Profile,
    pub(crate) plan: Option<Report>,
    /// Why the host cannot hold what the text says.
    refusals: Vec<String>,
    /// The CPUs of its host, where it says them.
    hosts: Option<HostCpus>,
    /// What keeps budgets, and what it leaves to VCPUs of each CPU, per cent; none without `enforce`.
    kept: Option<(&'static str, u8)>,
    /// How what is enforced differs from the plan.
    pub(crate) budgets: Budgets,
    /// Why the plan does not count what was measured of this host.
    calibration: Option<String>,
    /// What the budgets were chosen by.
    ext: Ext,
}

/// A VM, a card, a file or another part of the host that is not served, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct NotServed {
    /// Which, for people.
    pub part: String,
    /// Why, and what to do.
    pub error: String,
}

/// What bringing the host up to date did.
pub struct Done {
    applied: Reconciled,
    /// All that is not served.
    faults: Vec<NotServed>,
    /// What of it was not said before.
    new_faults: Vec<NotServed>,
    /// What was said to fail and is served now.
    mended: Vec<String>,
    new_warnings: Vec<String>,
}

impl Site {
    /// Reads a file, plans it, and refuses one that is wrong.
    ///
    /// # Errors
    /// What is wrong with the file, with its place; with `--strict` a plan that does not hold, and what is wrong with a
    /// file beside it.
    pub fn read(source: &Source) -> Result<Self> {
        let owners = owners_file(&source.file)?;
        let here = CpusHere::of(&Machine::real())?;
        let files = (owners, drop_ins::beside(&source.file));
        Self::of(source, files, &here, &calibration::of_this_host())
    }

    /// Whether this host holds one VM more, of a file beside the owner's that is not written yet.
    ///
    /// # Errors
    /// Why it does not: what is wrong with the owner's file or with this one, or what the plan refuses.
    pub fn admit(file: &Path, more: DropIn) -> Result<Self> {
        let source = Source::of(file);
        let path = more.path().to_owned();
        let mut beside = drop_ins::beside(file);
        beside.push(more);
        let here = CpusHere::of(&Machine::real())?;
        let files = (owners_file(file)?, beside);
        let site = Self::of(&source, files, &here, &calibration::of_this_host())?;
        if let Some(left_out) = site.left_out.iter().find(|it| it.path == path) {
            let error = left_out.error.clone();
            return Err(Error::NotFeasible(error));
        }
        site.must_hold()?;
        Ok(site)
    }

    /// Refuses what this host cannot hold.
    fn must_hold(&self) -> Result<()> {
        let refusals = &self.parsed.refusals;
        if refusals.is_empty() {
            return Ok(());
        }
        Err(Error::NotFeasible(format!(
            "{}: {}; nothing was changed",
            self.name,
            refusals.join("; ")
        )))
    }

    /// The CPUs that real-time VMs may have, what keeps their budgets, and how much of each CPU it leaves to them, per
    /// cent; none where the file says nothing of it.
    pub fn offers(&self) -> Option<(HostCpus, &'static str, u8)> {
        let (mechanism, percent) = self.parsed.kept?;
        Some((self.parsed.hosts.clone()?, mechanism, percent))
    }

    /// The VMs of the plan.
    pub fn planned_vms(&self) -> &[VmReport] {
        self.parsed.plan.as_ref().map_or(&[], |plan| &plan.vms)
    }

    /// The services of the plan, each with its bound; none if it has none.
    pub fn bounds(&self) -> Vec<(&str, Option<Bound>)> {
        let services = self.parsed.plan.iter().flat_map(|plan| &plan.services);
        services.map(|it| (&*it.name, Bound::of(it))).collect()
    }

    /// What the services of the plan may take, by VM.
    pub(crate) fn checked(&self) -> Vec<Planned> {
        let plan = self.parsed.plan.as_ref();
        plan.map_or_else(Vec::new, |plan| Planned::of(&plan.services))
    }

    /// The network cards of the owner's file, name and class.
    pub(crate) fn cards(&self) -> impl Iterator<Item = (&str, &str)> {
        let cards = self.files.0.nic.iter();
        cards.map(|nic| (nic.name.as_str(), nic.class.as_str()))
    }

    /// Reads the files beside the owner's again. Tells whether they have changed.
    ///
    /// # Errors
    /// As `read`; this one stays as it was.
    pub fn reread_drop_ins(&mut self, source: &Source) -> Result<bool> {
        let beside = drop_ins::beside(&source.file);
        if beside == self.files.1 && Ext::now() == self.parsed.ext {
            return Ok(false);
        }
        let here = CpusHere::of(&Machine::real())?;
        let files = (self.files.0.clone(), beside);
        let new = Self::of(source, files, &here, &calibration::of_this_host())?;
        self.replace(new);
        Ok(true)
    }

    /// Takes another's place, of which the same was said.
    pub fn replace(&mut self, new: Self) {
        let old = std::mem::replace(self, new);
        self.said = old.said;
        self.said_failed = old.said_failed;
        self.backoff = old.backoff;
        self.ends = old.ends;
        self.ends
            .extend(self.parsed.ext.ended_since(&old.parsed.ext));
    }

    fn of(
        source: &Source,
        files: (File, Vec<DropIn>),
        here: &CpusHere,
        calibration: &Found,
    ) -> Result<Self> {
        let name = name_of(&source.file);
        let parse = |name: &str, file: &File| Parsed::of(name, file, here, calibration);
        let (mut parsed, left_out) = drop_ins::combine(&name, &files.0, &files.1, parse)?;
        if source.is_strict
            && let Some(file) = left_out.first()
        {
            let what = file.error.clone();
            let fix = "nothing was changed; without --strict the other files count".into();
            return Err(HostError::BadInput { what, fix }.into());
        }
        source.name_processes(&mut parsed.profile)?;
        let site = Self {
            name,
            parsed,
            left_out,
            is_strict: source.is_strict,
            said: BTreeSet::new(),
            said_failed: BTreeSet::new(),
            backoff: Backoff::default(),
            ends: Vec::new(),
            files,
        };
        if source.is_strict {
            site.must_hold()?;
        }
        Ok(site)
    }

    /// What the host is to have.
    pub fn desired(&self) -> Desired {
        Desired::of_file(self.parsed.profile.clone())
    }

    /// What bringing the host up to date would change, and what would not be served. Reads only.
    pub fn plan(&self, control: &HostControl) -> Result<(Plan, Vec<NotServed>)> {
        let profile = &self.parsed.profile;
        let mut plan = if self.is_strict {
            control.plan_profile(profile)?
        } else {
            control.plan_profile_each(profile)?
        };
        plan.warnings.splice(0..0, self.doubts());
        let faults = self.faults(&plan.failed);
        Ok((plan, faults))
    }

    /// Brings the host up to date: all that can be, or with `--strict` all or nothing.
    pub fn reconcile(&mut self, control: &HostControl) -> Result<Done> {
        let began = Instant::now();
        let profile = &self.parsed.profile;
        let applied = if self.is_strict {
            control.apply_profile(profile)?
        } else {
            control.apply_profile_each(profile, &self.backoff.held_off(began))?
        };
        self.backoff.note(&applied.failed, began);
        let warnings: BTreeSet<String> = self
            .doubts()
            .chain(applied.warnings.iter().cloned())
            .collect();
        let mut new_warnings: Vec<String> = warnings.difference(&self.said).cloned().collect();
        new_warnings.append(&mut self.ends);
        self.said = warnings;
        let faults = self.faults(&applied.failed);
        let failed: BTreeSet<NotServed> = faults.iter().cloned().collect();
        let new_faults = failed.difference(&self.said_failed).cloned().collect();
        let fails = |part: &String| faults.iter().any(|fault| fault.part == *part);
        let parts = self.said_failed.iter().map(|fault| fault.part.clone());
        let mended = parts.filter(|part| !fails(part)).collect();
        self.said_failed = failed;
        Ok(Done {
            applied,
            faults,
            new_faults,
            mended,
            new_warnings,
        })
    }

    /// When a group that failed is due to be tried again; none if none failed.
    pub fn next_try(&self) -> Option<Instant> {
        self.backoff.next()
    }

    fn faults(&self, failed: &[Failure]) -> Vec<NotServed> {
        let of_file = |file: &LeftOut| NotServed {
            part: format!("file {}", printable(&file.path.display().to_string())),
            error: file.error.clone(),
        };
        let files = self.left_out.iter().map(of_file);
        files
            .chain(failed.iter().map(NotServed::of_group))
            .collect()
    }

    /// Why bounds of the plan may be missed.
    fn doubts(&self) -> impl Iterator<Item = String> {
        let may_be_missed = |why| format!("{}: {why}: bounds may be missed", self.name);
        let refusals = self.parsed.refusals.iter().map(may_be_missed);
        let budgets = &self.parsed.budgets;
        let budgets = budgets.held_off.iter().chain(&budgets.differences);
        let calibration = self.parsed.calibration.iter();
        refusals.chain(budgets.chain(calibration).cloned())
    }
}

impl Parsed {
    fn of(name: &str, site: &File, here: &CpusHere, calibration: &Found) -> Result<Self> {
        let measured = calibration::measured(calibration);
        // One cost for the plan and for what is enforced.
        let with_cost = measured.packet.map(|packet| site.with_packet_cost(packet));
        let site = with_cost.as_ref().unwrap_or(site);
        let wanted = budgets::Wanted::of(site)?;
        let wanted = wanted.as_ref();
        let ext = Ext::now();
        let keeps = wanted.is_some_and(|wanted| wanted.mechanism != Mechanism::None);
        let has_budgets = wanted.is_some_and(budgets::Wanted::has_vms);
        // A host that keeps budgets may have no VM now: the last one has gone, or the first is to come.
        let mut profile = if keeps && (site.host.is_some() || has_budgets) {
            file::of(site)?
        } else {
            file::asking(name, site)?
        };
        profile.bound_fair_server();
        let fair_server = here.fair_server(profile.fair_server_us);
        let plan = plan_of(name, site, here, &measured, |request| {
            budgets::kept(request, wanted, &ext, fair_server)
        })?;
        let calibration = plan.as_ref().and_then(|_| calibration.refused());
        let budgets = budgets::put_in(&mut profile, plan.as_ref(), wanted, &ext);
        let hosts = host_cpus_of(name, site, here)?;
        let mut refusals: Vec<String> = (plan.iter())
            .filter(|plan| !plan.feasible)
            .map(|plan| format!("this host cannot hold the plan: {}", reasons(plan)))
            .collect();
        refusals.extend(hosts.as_ref().and_then(|hosts| here.lacks(hosts)));
        let beyond = |plan| budgets::beyond_the_kernel(plan, wanted, &ext);
        refusals.extend(plan.as_ref().and_then(beyond));
        Ok(Self {
            profile,
            plan,
            refusals,
            kept: wanted.map(|wanted| budgets::usable(wanted.in_force(&ext).0)),
            hosts,
            budgets,
            calibration,
            ext,
        })
    }
}

impl NotServed {
    pub(crate) fn of_group(failure: &Failure) -> Self {
        Self {
            part: failure.group.to_string(),
            error: failure.error.clone(),
        }
    }

    /// What is not served, and why.
    pub fn sentence(&self) -> String {
        format!("{} is not served: {}", self.part, self.error)
    }
}

impl Done {
    /// The settings that were made.
    pub fn made(&self) -> BTreeSet<String> {
        let steps = self.applied.steps.iter();
        steps.map(|step| step.change.subject()).collect()
    }

    /// What is not served.
    pub fn faults(&self) -> &[NotServed] {
        &self.faults
    }

    /// What the caller should know.
    pub fn warnings(&self) -> &[String] {
        &self.new_warnings
    }

    /// What the engine did.
    pub fn applied(&self) -> &Reconciled {
        &self.applied
    }

    /// What changed, a sentence each; what was told before is left out.
    pub fn news(&self) -> Vec<String> {
        let warnings = self.new_warnings.iter();
        let mut news: Vec<String> = warnings.map(|it| format!("warning: {it}")).collect();
        news.extend(self.new_faults.iter().map(NotServed::sentence));
        let parts = self.mended.iter();
        news.extend(parts.map(|part| format!("{part} is served again")));
        news.extend(self.applied.steps.iter().map(ToString::to_string));
        let back = &self.applied.taken_back;
        if back.restored > 0 {
            news.push(back.summary());
        }
        news
    }
}

fn reasons(plan: &Report) -> String {
    let texts: Vec<&str> = plan
        .explanations
        .iter()
        .map(|reason| reason.text.as_str())
        .collect();
    texts.join("; ")
}

/// The plan of a file; none without `[host]`, without a VM, and where no plan is made. `kept` makes the request one for what
/// keeps its budgets.
fn plan_of(
    name: &str,
    file: &File,
    here: &CpusHere,
    measured: &Measured,
    kept: impl FnOnce(Request) -> Request,
) -> Result<Option<Report>> {
    let is_planned = (file.host.as_ref()).is_some_and(|host| host.why_no_plan().is_none());
    if !is_planned || (file.vm.is_empty() && file.service.is_empty()) {
        return Ok(None);
    }
    let request = plan::file::of_measured(file, Some(&here.numbers()), measured)
        .map_err(|error| bad(name, &error))?;
    let report = plan::run(&kept(request)).map_err(|error| bad(name, &error))?;
    Ok(Some(report))
}

/// What a file says of its host's CPUs; none if it says nothing, or is not there.
///
/// # Errors
/// A file that is wrong.
pub fn host_cpus(file: &Path, machine: &Machine) -> Result<Option<HostCpus>> {
    let name = name_of(file);
    match text_of(file) {
        Ok(text) => {
            let file = File::parse(&name, &text).map_err(HostError::from)?;
            Ok(host_cpus_of(&name, &file, &CpusHere::of(machine)?)?)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Ok(Err(error).cannot(format!("read {name}"))?),
    }
}

fn host_cpus_of(name: &str, file: &File, here: &CpusHere) -> Result<Option<HostCpus>, HostError> {
    plan::file::host_cpus(file, &here.numbers()).map_err(|error| bad(name, &error))
}

/// What no plan can be made of. A place with a line has the file that it is in.
fn bad(name: &str, error: &InputError) -> HostError {
    let what = if error.place.contains(" line ") {
        error.to_string()
    } else {
        format!("{name} {error}")
    };
    HostError::BadInput {
        what,
        fix: "steadyvm.toml(5) has all keys".into(),
    }
}

#[cfg(test)]
mod tests {
    use steadyvm_calibration::store::State;
    use steadyvm_calibration::{Calibration, Cost, Stale};

    use super::*;

    fn site(text: &str) -> Result<Site> {
        let source = Source::of(Path::new("steadyvm.toml"));
        let file = File::parse("steadyvm.toml", text).map_err(HostError::from)?;
        Site::of(&source, (file, Vec::new()), &CpusHere::first(4), &none())
    }

    /// Nothing was measured.
    fn none() -> Found {
        Found {
            file: "calibration.toml".into(),
            state: State::Missing,
        }
    }

    /// The last VM of a host goes, and its budget with it.
    #[test]
    fn a_host_that_keeps_budgets_may_have_no_vm_now() {
        const HOST: &str = "[host]\npcpus = 2\nscheduler = \"gedf\"\n";
        let empty = site(&format!("{HOST}enforce = \"auto\"\n")).unwrap();
        assert!(empty.parsed.plan.is_none() && empty.parsed.budgets.differences.is_empty());
        let vm = "[[vm]]\nname = \"a\"\nclass = \"rt\"\nperiod = \"10ms\"\nbudget = \"4ms\"\n";
        let one = site(&format!("{HOST}enforce = \"auto\"\n{vm}")).unwrap();
        assert_eq!(one.parsed.profile.vms[0].budgets.len(), 1);
        // Nothing to keep is a slip.
        for text in ["", HOST, "[host]\n", &format!("{HOST}enforce = \"none\"\n")] {
            let Err(error) = site(text) else {
                panic!("{text}");
            };
            let error = error.to_string();
            assert!(
                error.starts_with("steadyvm.toml line 1 column 1: nothing in it"),
                "{error}"
            );
        }
    }

    /// A site of an owner's file and one beside it, which is left out: why.
    fn left_out(owners: &str, beside: &str) -> String {
        let source = Source::of(Path::new("/etc/steadyvm.toml"));
        let owners = File::parse("/etc/steadyvm.toml", owners).unwrap();
        let beside = DropIn::to_come("/etc/steadyvm.d/web.toml".into(), beside);
        let files = (owners, vec![beside]);
        let site = Site::of(&source, files, &CpusHere::first(4), &none()).unwrap();
        assert_eq!(site.left_out.len(), 1);
        site.left_out[0].error.clone()
    }

    #[test]
    fn a_fault_of_a_file_beside_the_owners_is_at_a_line_of_that_file() {
        const OWNERS: &str =
            "[host]\npcpus = 2\nscheduler = \"pedf\"\nenforce = \"auto\"\n\n[class.own]\n";
        let vm = "# web\n[[vm]]\nname = \"web\"\n";
        for (more, place, what) in [
            ("class = \"nope\"\n", "line 2 column 1", "no class \"nope\""),
            ("class = 7\n", "line 4 column 9", "expected a string"),
            ("cpuz = [1]\n", "line 4 column 1", "unknown field `cpuz`"),
            ("unit = \"a/b\"\n", "line 4 column 8", "no systemd unit"),
            (
                "tasks = [{ c = \"9ms\", t = \"5ms\" }]\n",
                "line 4 column 10",
                "task 0",
            ),
            (
                "cpus = [7]\nbudget = \"1ms\"\nperiod = \"9ms\"\n",
                "line 2 column 1",
                "CPU 7",
            ),
            ("period = \"9ms\"\n", "line 2 column 1", "no tasks"),
        ] {
            let said = left_out(OWNERS, &format!("{vm}{more}"));
            let place = format!("/etc/steadyvm.d/web.toml {place}: ");
            assert!(
                said.contains(&place) && said.contains(what),
                "{more}: {said}"
            );
            assert!(!said.contains("/etc/steadyvm.toml"), "{said}");
        }
    }

    #[test]
    fn budgets_in_force_have_the_measured_costs_and_a_stale_calibration_is_told() {
        const FILE: &str = "[host]\npcpus = 2\nscheduler = \"pedf\"\nenforce = \"auto\"\n[[vm]]\nname = \"a\"\n\
                            class = \"rt\"\nperiod = \"10ms\"\nbudget = \"4ms\"\n";
        let cost = Cost {
            samples: 9,
            median_ns: 1_000,
            p99_ns: 7_000,
            max_ns: 900_000,
        };
        let calibration = Box::new(Calibration {
            unix_s: 0,
            kernel: "6.12".into(),
            cpu: "A CPU".into(),
            seconds: 10,
            vms: 0,
            context_switch: Some(cost),
            cache_reload: Some(cost),
            working_set_kib: None,
            migration: Some(cost),
            wake_up: None,
            timer: None,
            interruption: None,
            packet: Some(cost),
            packet_unix_s: None,
        });
        let with = |text: &str, state| {
            let source = Source::of(Path::new("steadyvm.toml"));
            let file = File::parse("steadyvm.toml", text).unwrap();
            let found = Found { state, ..none() };
            Site::of(&source, (file, Vec::new()), &CpusHere::first(4), &found).unwrap()
        };
        let runtime = |site: &Site| site.parsed.profile.vms[0].budgets[&0].runtime_ns;
        let costs = "[host.overheads]\ncontext_switch = \"0ns\"\ncache_reload = \"0ns\"\n";
        let valid = || State::Valid(calibration.clone());
        // One start in a period; no VCPU moves under pedf.
        let site = with(FILE, valid());
        assert_eq!(runtime(&site), 4_014_000);
        assert_eq!(site.doubts().count(), 0);
        let said = &site.parsed.plan.as_ref().unwrap().notes;
        let said = said.iter().find(|note| note.contains("calibrate")).unwrap();
        assert!(said.contains("host.overheads.cache_reload 7 us"), "{said}");
        // What is typed wins.
        let typed = FILE.replacen("[[vm]]", &format!("{costs}[[vm]]"), 1);
        assert_eq!(runtime(&with(&typed, valid())), 4_000_000);
        let stale = State::Stale(calibration.clone(), Stale::Date { days: 91 });
        let site = with(FILE, stale);
        assert_eq!(runtime(&site), 4_000_000);
        let doubts: Vec<String> = site.doubts().collect();
        assert!(
            doubts.len() == 1 && doubts[0].contains("91 days old, "),
            "{doubts:?}"
        );
        assert_eq!(runtime(&with(FILE, State::Missing)), 4_000_000);
        // 10,000 packets per second are 100 in 10 ms, at 7 us each; nothing measured: at 5 us.
        let rate = FILE.replace("class", "nic = \"eth0\"\nreceive = { rate = 10000 }\nclass");
        let polls = |site: &Site| site.parsed.profile.vms[0].poll_budgets[0].runtime_ns;
        let site = with(&rate, valid());
        let counted = &site.parsed.plan.as_ref().unwrap().vms[0].receive[0];
        assert_eq!((polls(&site), counted.budget), (700_000, 700_000));
        assert_eq!(polls(&with(&rate, State::Missing)), 500_000);
        let typed = rate.replace("10000", "10000, packet = \"2us\"");
        assert_eq!(polls(&with(&typed, valid())), 200_000);
    }

    /// The file of README.md and the guide: whatever `[host]` says, it stays valid.
    #[test]
    fn the_six_lines_are_valid_whatever_the_host_says() {
        const SIX: &str =
            "[[nic]]\nname = \"eth1\"\nclass = \"rt\"\n[[vm]]\nname = \"web\"\nclass = \"rt\"\n";
        for host in [
            "",
            "[host]\n",
            "[host]\nenforce = \"auto\"\n",
            "[host]\npcpus = 2\nscheduler = \"gedf\"\nserver = \"cbs\"\nquantum = \"1ms\"\nenforce = \"deadline\"\n",
            "[host]\nscheduler = \"pdm\"\nenforce = \"ext\"\n",
            "[host]\nscheduler = \"grm\"\nenforce = \"none\"\n",
            "[host]\n[kernel]\nfair_server = \"1ms\"\n[net]\nbudget_packets = 64\n",
        ] {
            for text in [format!("{SIX}{host}"), format!("{host}{SIX}")] {
                let parsed = site(&text)
                    .unwrap_or_else(|error| panic!("{text}: {error}"))
                    .parsed;
                assert_eq!(parsed.profile.nics[0].name, "eth1");
                let web = &parsed.profile.vms[0];
                assert_eq!((web.name.as_str(), web.budgets.len()), ("web", 0), "{text}");
                assert!(parsed.refusals.is_empty(), "{:?}", parsed.refusals);
                let plan = parsed.plan.as_ref();
                let notes = plan.map_or(&[][..], |plan| &plan.notes);
                let is_said = notes
                    .iter()
                    .any(|note| note.contains("\"web\" has no tasks"));
                assert_eq!(is_said, plan.is_some(), "{notes:?}");
                assert_eq!(
                    plan.is_some(),
                    host.contains("[host]") && !host.contains("grm")
                );
                assert_eq!(parsed.budgets.differences, Vec::<String>::new());
            }
        }
    }

    #[test]
    fn an_unknown_key_is_an_error_without_a_host_too() {
        const NET: &str = "[net]\nbudget_packets = 300\n";
        for (text, line) in [
            ("[[vm]]\nname = \"a\"\ncpuz = [1]\n", 5),
            ("[class.a]\nextend = \"rt\"\n", 4),
            ("[[service]]\nvm = \"a\"\nlimits = \"1ms\"\n", 5),
            ("[[vm]]\nname = \"a\"\nperiod = \"1 month\"\n", 5),
            ("[simulate]\nseed = 1\n", 3),
            ("[kernel]\nrcuc = 1\n", 4),
        ] {
            let error = site(&format!("{NET}{text}"))
                .map(drop)
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with(&format!("steadyvm.toml line {line} column ")),
                "{error}"
            );
        }
    }

    /// What the hook writes for two VCPUs of 4 ms in 10 ms each (crates/hook/src/description.rs).
    #[test]
    fn the_vm_that_a_clouds_hook_describes_gets_the_budget_of_its_flavor() {
        let vm = include_str!("../../../nova/tests/data/drop-in.toml");
        let text =
            format!("[host]\ncpus = \"2-3\"\nscheduler = \"pedf\"\nenforce = \"auto\"\n{vm}");
        let Parsed {
            profile,
            plan,
            budgets: found,
            refusals,
            ..
        } = site(&text).unwrap().parsed;
        assert!(refusals.is_empty(), "{refusals:?}");
        assert!(plan.unwrap().feasible);
        assert!(found.differences.is_empty(), "{found:?}");
        assert_eq!(profile.vms[0].name, "instance-00000001");
        let budgets: Vec<_> = profile.vms[0].budgets.values().collect();
        assert_eq!(budgets.len(), 2);
        for budget in budgets {
            let times = (budget.runtime_ns, budget.period_ns);
            assert_eq!(times, (4_000_000, 10_000_000));
            // By the number that the machine has.
            assert!(matches!(budget.cpu, Some(2 | 3)), "{budget:?}");
        }
    }
}
