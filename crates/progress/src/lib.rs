//! What long work tells whoever watches: engines report, a command line draws.
#![forbid(unsafe_code)]

mod display;

pub use display::Display;

/// A piece of news from long work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// A task begins: "build the PREEMPT_RT kernel".
    Begin(String),
    /// The task has come this far.
    Advance {
        /// Steps done.
        done: u64,
        /// Steps in all, as far as is known.
        of: u64,
        /// What is being done right now.
        detail: String,
    },
    /// The task is finished.
    End,
    /// Something worth knowing that is no error.
    Note(String),
    /// Figures before the end, as lines.
    Table(String),
}

/// Receives news. Called from several threads.
pub trait Observer: Sync {
    /// Takes one piece of news.
    fn tell(&self, news: News);
}

/// Runs a task between its [`News::Begin`] and its [`News::End`].
pub fn task<T>(observer: &dyn Observer, name: impl Into<String>, work: impl FnOnce() -> T) -> T {
    observer.tell(News::Begin(name.into()));
    let result = work();
    observer.tell(News::End);
    result
}

/// An observer that does not care.
pub struct Silent;

impl Observer for Silent {
    fn tell(&self, _news: News) {}
}
