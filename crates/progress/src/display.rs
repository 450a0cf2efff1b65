//! Draws the progress of long work on standard error: a bar a task on a terminal, lines elsewhere.

use crate::{News, Observer};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// Off a terminal, a task says how far it is this often.
const LINE_INTERVAL: Duration = Duration::from_secs(60);

/// Where progress goes.
pub struct Display {
    on_terminal: bool,
    /// Whether nothing is of interest any more.
    is_over: fn() -> bool,
    /// Whether this thread's task ends because another one's failure has stopped it.
    is_stopped: fn() -> bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The tasks that run; of each thread's, the innermost last.
    tasks: Vec<Task>,
    /// The tasks' bars, below what is said meanwhile.
    bars: MultiProgress,
}

struct Task {
    /// Who began it: tasks that run side by side are told apart by it.
    of: ThreadId,
    name: String,
    begun: Instant,
    told: Instant,
    bar: ProgressBar,
}

impl Display {
    /// A display on standard error.
    pub fn on_standard_error() -> Self {
        Self::until(|| false, || false)
    }

    /// The same; news that come once `is_over` says so are not shown, and a task that ends while `is_stopped` says so is
    /// not done.
    pub fn until(is_over: fn() -> bool, is_stopped: fn() -> bool) -> Self {
        Self {
            on_terminal: std::io::stderr().is_terminal(),
            is_over,
            is_stopped,
            state: Mutex::default(),
        }
    }
}

impl Observer for Display {
    fn tell(&self, news: News) {
        if (self.is_over)() {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match news {
            News::Begin(name) => state.begin(name, self.on_terminal),
            News::Advance { done, of, detail } => state.advance(done, of, detail, self.on_terminal),
            News::End => state.end((self.is_stopped)()),
            News::Note(note) => state.say(&format!("note: {note}")),
            News::Table(table) => state.say(&table),
        }
    }
}

impl State {
    fn begin(&mut self, name: String, on_terminal: bool) {
        let bar = if on_terminal {
            self.bars.add(ProgressBar::no_length())
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
            self.say(&format!("{name} ..."));
        }
        let now = Instant::now();
        self.tasks.push(Task {
            of: thread::current().id(),
            name,
            begun: now,
            told: now,
            bar,
        });
    }

    fn advance(&mut self, done: u64, of: u64, detail: String, on_terminal: bool) {
        let Some(index) = self.current() else {
            return;
        };
        let task = &mut self.tasks[index];
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

    fn end(&mut self, is_stopped: bool) {
        let Some(index) = self.current() else { return };
        let Task {
            name, begun, bar, ..
        } = self.tasks.remove(index);
        bar.finish_and_clear();
        self.bars.remove(&bar);
        // A step that was ended by another one's failure is not done.
        let how = if is_stopped {
            "stopped after"
        } else {
            "done in"
        };
        self.say(&format!("{name}: {how} {} s", begun.elapsed().as_secs()));
    }

    /// The task that this thread's news are of; those of a helper's thread are of the latest one.
    fn current(&self) -> Option<usize> {
        let this = thread::current().id();
        let own = self.tasks.iter().rposition(|task| task.of == this);
        own.or(self.tasks.len().checked_sub(1))
    }

    fn say(&self, text: &str) {
        self.bars.suspend(|| eprintln!("{text}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_side_by_side_are_told_apart_by_their_threads() {
        let state = Mutex::new(State::default());
        let begin = |name: &str| state.lock().unwrap().begin(name.to_owned(), false);
        let left = || {
            let state = state.lock().unwrap();
            let names = state.tasks.iter().map(|task| task.name.clone());
            names.collect::<Vec<_>>()
        };
        begin("outer");
        begin("inner");
        thread::scope(|scope| {
            let other = || {
                // A thread without a task of its own helps with the latest.
                assert_eq!(state.lock().unwrap().current(), Some(1));
                begin("other");
                assert_eq!(state.lock().unwrap().current(), Some(2));
            };
            scope.spawn(other).join().unwrap();
        });
        assert_eq!(left(), ["outer", "inner", "other"]);
        state.lock().unwrap().end(false);
        assert_eq!(left(), ["outer", "other"]);
        state.lock().unwrap().end(false);
        assert_eq!(left(), ["other"]);
    }
}
