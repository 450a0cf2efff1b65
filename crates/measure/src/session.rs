//! A run's part in one boot: what is found before anything is changed, the rounds between the guard's start and end, and what
//! is kept.

use std::io;
use std::path::{Path, PathBuf};

use steadyvm_fault::Fault;
use steadyvm_host::{HostControl, HostError};
use steadyvm_progress::Observer;
use steadyvm_site::guard::Guard;
use steadyvm_site::peers::{self, Role};
use steadyvm_site::{Control, bounds};

use crate::client::{Ask, Client, Limits};
use crate::error::Result;
use crate::kernel::Kernel;
use crate::record::{Begun, Meta};
use crate::rounds::Rounds;
use crate::run::{Load, Run, Waiting};
use crate::states;
use crate::stop::Stop;

/// Requests that show, before anything is changed, that the service answers.
const TRIAL: u64 = 10;

/// What a session has of the program that it is in.
pub struct Means<'a> {
    /// The program's file: its verbs are the client and the guard.
    pub program: &'a Path,
    /// Of which revision it is.
    pub revision: &'static str,
    /// Whether it is to end.
    pub stop: &'a Stop,
    /// Is told how far the rounds are.
    pub observer: &'a dyn Observer,
    /// Is told what to know of VMs' names.
    pub warn: &'a dyn Fn(&str),
}

/// A run's part in this boot.
pub struct Session {
    run: Run,
    of_site: Control,
    control: HostControl,
    kernel: Kernel,
    /// The rows that this kernel is to measure.
    here: Vec<usize>,
    /// Those of them that are in force afterwards, too.
    lasting: Vec<usize>,
    /// Where the run is to be kept.
    save: Option<PathBuf>,
    is_kept: bool,
}

impl Session {
    /// The part of the run that the kernel which runs is for. `save` is where the run is kept.
    ///
    /// # Errors
    /// No row is for it; or some are for others, and the run is not kept.
    pub fn new(run: Run, of_site: Control, save: Option<PathBuf>) -> Result<Self> {
        let control = of_site.open();
        let kernel = Kernel::of(control.machine());
        let here = run.rows_for(&kernel)?;
        if save.is_none() {
            refuse_other_kernels(&run, &kernel)?;
        }
        Ok(Self {
            run,
            of_site,
            control,
            kernel,
            here,
            lasting: Vec::new(),
            save,
            is_kept: false,
        })
    }

    /// The run as far as it has come.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Where the run is kept, once it is.
    pub fn kept(&self) -> Option<&Path> {
        self.save.as_deref().filter(|_| self.is_kept)
    }

    /// The rows that wait for another kernel.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.run.left_after(&self.kernel).collect()
    }

    /// Measures all rounds that are left of this kernel's rows. At any end the state that was found is in force again.
    ///
    /// # Errors
    /// What cannot be measured, before anything is changed; what went wrong, and the run has all rounds before; and that the
    /// state that was found is not in force again.
    pub fn measure(&mut self, means: &Means) -> Result<Meta> {
        let (run, control) = (&mut self.run, &self.control);
        let directory = &self.of_site.directory;
        let found = states::in_force(control)?;
        let states = states::of_rows(run, &self.here, found.as_ref(), control, means.warn)?;
        let Load { netns, remote, .. } = &run.load;
        let client = Client::new(means.program, netns.as_deref(), remote.as_deref());
        require_answers(&run.load, &client, means.stop)?;

        for row in &self.here {
            run.rows[*row].release = Some(self.kernel.release.clone());
        }
        // `status` has no word of the others.
        self.lasting = (states.iter())
            .filter(|(_, desired)| desired.is_some() && **desired == found)
            .map(|(row, _)| *row)
            .collect();
        let watch = peers::is_held(directory, Role::Watch);
        let begun = Begun::now(run, control, watch)?;
        let mut guard = Guard::start(means.program, directory, &run.load.service, found)?;
        if let Some(file) = &self.save {
            run.write(file)?;
            self.is_kept = true;
        }
        let measured = Rounds {
            run,
            client: &client,
            control,
            states: &states,
            guard: &mut guard,
            stop: means.stop,
            observer: means.observer,
            patience: self.of_site.patience,
            save: self.save.as_deref(),
            set: None,
        }
        .measure();
        guard.restore()?;
        begun.end(&mut self.run);
        if let Some(file) = &self.save {
            self.run.write(file)?;
        }
        measured?;
        Ok(Meta::of(
            means.revision,
            &self.run,
            &begun,
            &client,
            &self.control,
            &states,
        ))
    }

    /// Has `status` know what was measured in this boot of the bounds of what is in force.
    ///
    /// # Errors
    /// The state directory cannot be written.
    pub fn keep_bounds(&self) -> io::Result<()> {
        let boot = self.run.boots.len().saturating_sub(1);
        let rows = self.lasting.iter().map(|row| &self.run.rows[*row]);
        let measured: Vec<_> = rows.filter_map(|row| row.held_to_bound(boot)).collect();
        bounds::keep(&self.of_site.directory, &measured)
    }
}

/// Refuses rows of other kernels where the run is not kept.
fn refuse_other_kernels(run: &Run, kernel: &Kernel) -> Result<(), HostError> {
    let waiting: Vec<String> = run.left_after(kernel).map(|it| it.words()).collect();
    if waiting.is_empty() {
        return Ok(());
    }
    Err(HostError::BadInput {
        what: format!(
            "this kernel, {} ({}), is not for all rows: {}",
            kernel.release,
            kernel.name(),
            waiting.join(", ")
        ),
        fix: "keep the run with --save FILE to go on after a reboot, or leave them out".into(),
    })
}

fn require_answers(load: &Load, client: &Client, stop: &Stop) -> Result<(), Fault> {
    let ask = Ask {
        warmup: 0,
        ..load.client(load.seed, TRIAL)
    };
    let limits = Limits::of(TRIAL, 0, load.rate);
    let trial = client.run(&ask, limits, stop, &mut |_| {})?;
    if trial.counters.answered > 0 {
        return Ok(());
    }
    let what = format!(
        "{} did not answer the client ({})",
        load.service,
        client.title()
    );
    Err(Fault::machine(what, "").what_to_do(
        "run `steadyvm netrt serve 0.0.0.0:PORT` in the VM, and see that \
         the client reaches it; nothing was changed",
    ))
}
