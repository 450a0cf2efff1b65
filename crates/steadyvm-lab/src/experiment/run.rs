//! A run in the lab, whatever it measures: the laboratory at its beginning, its files and its figures at its end.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use steadyvm_experiment::engine::results::{Record, Settings};
use steadyvm_experiment::engine::{Disturbance, Meta, RunRecord, Shown, write_run};
use steadyvm_experiment::registry;
use steadyvm_lab::artifact::{Cache, UserSpace};
use steadyvm_lab::laboratory::{HostKernel, Laboratory, require_root};
use steadyvm_report::ReportMeta;
use steadyvm_report::results_page::fenced;

use crate::beginning::Beginning;
use crate::this_program;
use steadyvm_cli::markdown::MarkdownArgs;
use steadyvm_cli::{directory, output};
use steadyvm_lab::progress::Display;

/// Where a run's files go, and what it prints.
#[derive(Debug, Clone, Copy)]
pub struct Output<'a> {
    /// The directory of its files.
    pub out: &'a Path,
    /// Whether it prints results.json instead of the tables.
    pub json: bool,
    /// Its page.
    pub markdown: &'a MarkdownArgs,
}

/// A run under way.
pub struct Run<'a> {
    /// Its laboratory.
    pub laboratory: Laboratory,
    /// Who is told of its progress.
    pub display: Display,
    cache: Cache,
    beginning: Beginning,
    output: Output<'a>,
}

/// What was measured, and how it is shown.
pub struct Measured<'a> {
    /// The command in the report's title.
    pub command: &'a str,
    /// The figures, with what is to be said of them alone.
    pub record: Record,
    /// The hosts' and guests' kernels, by what was measured.
    pub kernels: BTreeMap<String, String>,
    /// What else was set, for meta.json.
    pub set: Settings,
    /// More facts of the run, for the report.
    pub facts: Vec<(String, String)>,
    /// Files of samples, by name.
    pub tables: Vec<(String, String)>,
    /// The rounds that were dropped because a machine died, a sentence each.
    pub dropped_rounds: Vec<String>,
    /// What else the machine did during the rounds.
    pub disturbance: Disturbance,
}

impl<'a> Run<'a> {
    /// Opens the laboratory with these kernels, one of which may stand in for all of them.
    ///
    /// # Errors
    /// The directory is not for this run, this user is not root, or the laboratory cannot be made.
    pub fn open(
        output: Output<'a>,
        kernels: &[HostKernel],
        instead: Option<HostKernel>,
    ) -> Result<Self> {
        directory::prepare(output.out)?;
        require_root()?;
        let display = crate::display();
        let beginning = Beginning::now();
        let (cache, program) = (Cache::of_this_machine()?, this_program());
        let logs = output.out.join("logs");
        let mut laboratory = Laboratory::open(&cache, &program, &logs, kernels, &display)?;
        laboratory.kernel_instead = instead;
        Ok(Self {
            laboratory,
            display,
            cache,
            beginning,
            output,
        })
    }

    /// The same with more programs in hosts and guests.
    ///
    /// # Errors
    /// They cannot be had.
    pub fn with_user_space(mut self, user_space: UserSpace) -> Result<Self> {
        let laboratory = self.laboratory;
        self.laboratory = laboratory.with_user_space(user_space, &self.cache, &self.display)?;
        Ok(self)
    }

    /// A kernel in words.
    pub fn kernel_title(&self, kernel: HostKernel) -> String {
        self.laboratory.kernel_title(kernel)
    }

    /// Notes what a reader must know of the run, writes its files and its page, and prints the figures.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn finish(
        self,
        measured: Measured,
        show: impl FnOnce(&Record, &ReportMeta) -> Shown,
    ) -> Result<()> {
        let Measured {
            mut record,
            dropped_rounds,
            disturbance,
            ..
        } = measured;
        record.notes.extend(self.laboratory.note());
        record.notes.extend(dropped_rounds.iter().cloned());
        record.notes.extend(disturbance.notes());
        let laboratory = &self.laboratory;
        let run = self
            .beginning
            .record(laboratory, measured.kernels, disturbance, dropped_rounds);
        let command = measured.command.to_owned();
        let (compared, answer) = registry::answer(&record)
            .with_context(|| format!("no experiment is called \"{}\"", record.experiment))?;
        let mut about = run.report_meta(command, compared);
        about.facts.extend(measured.facts);
        let shown = show(&record, &about);
        let meta = Meta {
            run,
            set: measured.set,
        };
        let Output {
            out,
            json,
            markdown,
        } = self.output;
        write_run(out, &record, &meta, &shown, &measured.tables)?;
        markdown.write_page(
            &answer,
            &RunRecord::emulated(compared),
            meta.run.facts(),
            &fenced(&shown.text),
        )?;
        if json {
            return output::json(&record);
        }
        output::print(&shown.text)?;
        let report = out.join("report.html");
        output::line(&format!("\nreport: {}", report.display()))
    }
}
