//! Draws the progress of long work on standard error: a bar on a terminal, lines elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use steadyvm_lab::child;
use steadyvm_lab::progress::{News, Observer};

/// Off a terminal, a task says how far it is this often.
const LINE_INTERVAL: Duration = Duration::from_secs(60);

/// Where progress goes.
pub struct Display {
    on_terminal: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The tasks that run, the innermost last.
    tasks: Vec<Task>,
}

struct Task {
    name: String,
    begun: Instant,
    told: Instant,
    bar: ProgressBar,
}

impl Display {
    /// A display on standard error.
    pub fn on_standard_error() -> Self {
        Self {
            on_terminal: std::io::stderr().is_terminal(),
            state: Mutex::default(),
        }
    }
}

impl Observer for Display {
    fn tell(&self, news: News) {
        // A signal ends this program: what the work makes of its machines' end is of no interest.
        if child::all_are_killed() {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match news {
            News::Begin(name) => state.begin(name, self.on_terminal),
            News::Advance { done, of, detail } => state.advance(done, of, detail, self.on_terminal),
            News::End => state.end(),
            News::Note(note) => state.say(&format!("note: {note}")),
            News::Table(table) => state.say(&table),
        }
    }
}

impl State {
    fn begin(&mut self, name: String, on_terminal: bool) {
        let bar = if on_terminal {
            ProgressBar::new(0)
        } else {
            ProgressBar::hidden()
        };
        // A template that does not parse would leave the default look.
        if let Ok(style) = ProgressStyle::with_template(
            "{prefix} [{bar:30}] {percent:>3}% {elapsed} gone, {eta} left  {wide_msg}",
        ) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(name.clone());
        bar.enable_steady_tick(Duration::from_secs(1));
        if !on_terminal {
            eprintln!("{name} ...");
        }
        let now = Instant::now();
        self.tasks.push(Task {
            name,
            begun: now,
            told: now,
            bar,
        });
    }

    fn advance(&mut self, done: u64, of: u64, detail: String, on_terminal: bool) {
        let Some(task) = self.tasks.last_mut() else {
            return;
        };
        task.bar.set_length(of);
        task.bar.set_position(done);
        if !on_terminal && task.told.elapsed() >= LINE_INTERVAL {
            let percent = 100 * done / of.max(1);
            let gone = task.begun.elapsed().as_secs();
            eprintln!("{}: {percent} % after {gone} s: {detail}", task.name);
            task.told = Instant::now();
        }
        task.bar.set_message(detail);
    }

    fn end(&mut self) {
        let Some(task) = self.tasks.pop() else { return };
        task.bar.finish_and_clear();
        eprintln!(
            "{}: done in {} s",
            task.name,
            task.begun.elapsed().as_secs()
        );
    }

    fn say(&self, text: &str) {
        match self.tasks.last() {
            Some(task) => task.bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }
}
