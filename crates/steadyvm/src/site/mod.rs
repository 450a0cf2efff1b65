//! This host as one file describes it: planned, put in force, looked at, kept in force.
//!
//! The file is steadyvm.toml. Its plan (`[host]`, tasks, services) is the analysis' part, its receive
//! path (`[[nic]]`, `[class.NAME.net]`) the host's; both read the same text and share VMs and classes.
//! VMs that a cloud starts are described in files beside it (`drop_ins`).

pub mod apply;
mod connector;
pub mod drift;
mod drop_ins;
mod events;
mod pace;
pub mod peers;
mod sched;
pub mod status;
pub mod undo;
pub mod watch;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use steadyvm_analysis::plan::{self, Report};
use steadyvm_host::net::{Profile, file};
use steadyvm_host::{Desired, HostControl, HostError, Plan, Report as Reconciled};

use crate::net::{name_processes, named_process, text_of};

use self::sched::Mechanism;

/// Where the owner of a host keeps the file.
pub const DEFAULT_FILE: &str = "/etc/steadyvm.toml";

/// The file, and what only the caller knows of it.
#[derive(Debug, clap::Args)]
pub struct FileArgs {
    /// The file that describes this host; "-" for standard input.
    #[arg(default_value = DEFAULT_FILE)]
    file: PathBuf,
    /// Refuse a file whose plan this host cannot hold. Without it that is a warning.
    #[arg(long)]
    strict: bool,
    /// The process of a VM's monitor, where its command line does not name it (-name); may
    /// be repeated.
    #[arg(long = "vm", value_name = "NAME=PID", value_parser = named_process)]
    vms: Vec<(String, u32)>,
}

impl FileArgs {
    /// This file alone.
    pub fn of(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            strict: false,
            vms: Vec::new(),
        }
    }
}

/// A file that was read and found good.
pub struct Site {
    name: String,
    profile: Profile,
    plan: Option<Report>,
    /// How what is enforced differs from the plan.
    differences: Vec<String>,
    /// What was said already: a watch says each warning once for as long as it holds.
    said: BTreeSet<String>,
    /// The owner's text and that of the files beside it, which the rest was made of.
    texts: (String, String),
}

/// What bringing the host up to date did.
pub struct Done {
    applied: Reconciled,
    new_warnings: Vec<String>,
}

impl Site {
    /// Reads a file, plans it, and refuses one that is wrong.
    ///
    /// # Errors
    /// What is wrong with the file, with its place; with `--strict` a plan that does not hold.
    pub fn read(args: &FileArgs) -> Result<Self> {
        let name = name_of(&args.file);
        let owners = text_of(&args.file).map_err(|error| HostError::BadInput {
            what: format!("cannot read {name}: {error}"),
            fix: format!(
                "write {DEFAULT_FILE} or name a file (docs/guide/host.md has a first one)"
            ),
        })?;
        let beside = drop_ins::text_beside(&args.file)?;
        Self::of(args, (owners, beside))
    }

    /// Reads the files beside the owner's again. Tells whether they have changed.
    ///
    /// # Errors
    /// As `read`; this one stays as it was.
    pub fn reread_drop_ins(&mut self, args: &FileArgs) -> Result<bool> {
        let beside = drop_ins::text_beside(&args.file)?;
        if beside == self.texts.1 {
            return Ok(false);
        }
        let mut new = Self::of(args, (self.texts.0.clone(), beside))?;
        new.said = std::mem::take(&mut self.said);
        *self = new;
        Ok(true)
    }

    fn of(args: &FileArgs, texts: (String, String)) -> Result<Self> {
        let name = name_of(&args.file);
        let text = format!("{}{}", texts.0, texts.1);
        let tables: toml::Table = text.parse().with_context(|| name.clone())?;
        let plan = plan_of(&name, &text, &tables)?;
        let wanted = sched::Wanted::of(&name, &text)?;
        let wanted = wanted.as_ref();
        let keeps = wanted.is_some_and(|wanted| wanted.mechanism != Mechanism::None);
        let has_budgets = wanted.is_some_and(sched::Wanted::has_vms);
        // A host that keeps budgets may have no VM now: the last one has gone, or the first is to come.
        let mut profile = if keeps && (tables.contains_key("host") || has_budgets) {
            file::parse_any(&name, &text)?
        } else {
            file::parse(&name, &text)?
        };
        profile.bound_fair_server();
        let has_ext = Path::new("/sys/kernel/sched_ext").exists();
        let differences = sched::put_in(&mut profile, plan.as_ref(), wanted, has_ext);
        name_processes(&mut profile, &args.vms)?;
        if args.strict
            && let Some(plan) = &plan
            && !plan.feasible
        {
            return Err(NotFeasible(format!(
                "{name}: this host cannot hold the plan: {}; nothing was changed",
                reasons(plan)
            ))
            .into());
        }
        Ok(Self {
            name,
            profile,
            plan,
            differences,
            said: BTreeSet::new(),
            texts,
        })
    }

    /// What the host is to have.
    pub fn desired(&self) -> Desired {
        Desired::of_file(self.profile.clone())
    }

    /// What bringing the host up to date would change. Reads only.
    pub fn plan(&self, control: &HostControl) -> Result<Plan> {
        let mut plan = control.plan_profile(&self.profile)?;
        plan.warnings.splice(0..0, self.doubts());
        Ok(plan)
    }

    /// Brings the host up to date: all of it or nothing.
    pub fn reconcile(&mut self, control: &HostControl) -> Result<Done> {
        let applied = control.apply_profile(&self.profile)?;
        let warnings: BTreeSet<String> = self
            .doubts()
            .chain(applied.warnings.iter().cloned())
            .collect();
        let new_warnings = warnings.difference(&self.said).cloned().collect();
        self.said = warnings;
        Ok(Done {
            applied,
            new_warnings,
        })
    }

    /// Why bounds of the plan may be missed.
    fn doubts(&self) -> impl Iterator<Item = String> {
        let plan = self.plan.iter().filter(|plan| !plan.feasible);
        let infeasible = plan.map(|plan| {
            format!(
                "{}: this host cannot hold the plan, so bounds may be missed: {}",
                self.name,
                reasons(plan)
            )
        });
        infeasible.chain(self.differences.iter().cloned())
    }
}

impl Done {
    /// The settings that were made.
    pub fn made(&self) -> BTreeSet<String> {
        let steps = self.applied.steps.iter();
        steps.map(|step| step.change.subject()).collect()
    }

    /// Says on stderr what changed.
    pub fn log(&self) {
        for warning in &self.new_warnings {
            watch::log(&format!("warning: {warning}"));
        }
        for step in &self.applied.steps {
            watch::log(&step.to_string());
        }
        let back = &self.applied.taken_back;
        if back.restored > 0 {
            watch::log(&back.summary());
        }
    }
}

/// A plan that the host cannot hold, where that is an error: exit code 1.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotFeasible(String);

fn reasons(plan: &Report) -> String {
    let texts: Vec<&str> = plan
        .explanations
        .iter()
        .map(|reason| reason.text.as_str())
        .collect();
    texts.join("; ")
}

fn name_of(path: &Path) -> String {
    if path == Path::new("-") {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    }
}

/// The plan of a file; none where it says nothing of the host's CPUs, or of no VM.
fn plan_of(name: &str, text: &str, tables: &toml::Table) -> Result<Option<Report>> {
    let has_any = |table: &str| {
        let listed = tables.get(table).and_then(toml::Value::as_array);
        listed.is_some_and(|list| !list.is_empty())
    };
    if !tables.contains_key("host") || !(has_any("vm") || has_any("service")) {
        return Ok(None);
    }
    let request = plan::file::parse(text).map_err(|error| bad(name, &error.to_string()))?;
    let report = plan::run(&request).map_err(|error| bad(name, &error.to_string()))?;
    Ok(Some(report))
}

fn bad(name: &str, error: &str) -> HostError {
    HostError::BadInput {
        what: format!("{name} {error}"),
        fix: "see docs/design/plan-file.md".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(text: &str) -> Result<Site> {
        let args = FileArgs {
            file: "steadyvm.toml".into(),
            vms: Vec::new(),
            strict: false,
        };
        Site::of(&args, (text.to_owned(), String::new()))
    }

    /// The last VM of a host goes, and its budget with it.
    #[test]
    fn a_host_that_keeps_budgets_may_have_no_vm_now() {
        const HOST: &str = "[host]\npcpus = 2\nscheduler = \"gedf\"\n";
        let empty = site(&format!("{HOST}[sched]\n")).unwrap();
        assert!(empty.plan.is_none() && empty.differences.is_empty());
        let vm = "[[vm]]\nname = \"a\"\nclass = \"rt\"\nperiod = \"10ms\"\nbudget = \"4ms\"\n";
        let one = site(&format!("{HOST}[sched]\n{vm}")).unwrap();
        assert_eq!(one.profile.vms[0].budgets.len(), 1);
        // Nothing to keep is a slip.
        for text in [
            "",
            HOST,
            "[sched]\n",
            &format!("{HOST}[sched]\nmechanism = \"none\"\n"),
        ] {
            let Err(error) = site(text) else {
                panic!("{text}");
            };
            assert!(error.to_string().contains("nothing in it"), "{error}");
        }
    }
}
