//! Long steps that do not depend on each other, at once.

use crate::child::Crew;
use crate::{Error, Result};
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};

/// Steps in threads of their own. Where one fails, the children of the others are killed, which ends these.
#[derive(Default)]
pub struct Steps {
    crew: Crew,
    /// Why the first one failed; what the others say after that is a consequence.
    failed: Mutex<Option<Error>>,
}

/// A step's result, which is there unless one of the steps failed.
pub type Step<'s, T> = ScopedJoinHandle<'s, Option<T>>;

impl Steps {
    /// Begins a step.
    pub fn begin<'s, T: Send + 's>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        work: impl FnOnce() -> Result<T> + Send + 's,
    ) -> Step<'s, T> {
        scope.spawn(move || match self.crew.run(work) {
            Ok(result) => Some(result),
            Err(error) => {
                let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
                failed.get_or_insert(error);
                self.crew.kill();
                None
            }
        })
    }

    /// What was made of the steps' results.
    ///
    /// # Errors
    /// That of the step that failed first.
    pub fn outcome<T>(self, results: Option<T>) -> Result<T> {
        let failed = self.failed.into_inner();
        match (failed.unwrap_or_else(PoisonError::into_inner), results) {
            (None, Some(results)) => Ok(results),
            (Some(error), _) => Err(error),
            (None, None) => Err(Error::machine("work side by side", "a step has no result")),
        }
    }
}

/// Waits for a step.
pub fn result<T>(step: Step<T>) -> Option<T> {
    step.join().unwrap_or_else(|panic| resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child;
    use std::process::Command;
    use std::sync::mpsc::channel;
    use std::thread::scope;
    use std::time::{Duration, Instant};

    fn sleeper() -> Result<child::Child> {
        let mut command = Command::new("sleep");
        command.arg("1000");
        child::spawn(command)
    }

    #[test]
    fn steps_run_at_once_and_give_their_results() {
        let steps = Steps::default();
        let (sender, receiver) = channel();
        let results = scope(|scope| {
            // The first step ends only because the second one runs meanwhile.
            let first = steps.begin(scope, move || Ok(receiver.recv().unwrap()));
            let second = steps.begin(scope, move || Ok(sender.send(1).is_ok()));
            Some((result(first)?, result(second)?))
        });
        assert_eq!(steps.outcome(results).unwrap(), (1, true));
    }

    #[test]
    fn a_step_that_fails_ends_the_others_and_its_error_is_given() {
        let steps = Steps::default();
        let (sender, receiver) = channel();
        let bystander = sleeper().unwrap();
        let began = Instant::now();
        let results = scope(|scope| {
            let long = steps.begin(scope, move || {
                let mut child = sleeper()?;
                sender.send(()).unwrap();
                assert!(!child.wait()?.success());
                assert!(child::none_can_be_started() && !child::all_are_killed());
                // The next command of that step.
                sleeper().map(drop)
            });
            let failing = steps.begin(scope, move || {
                receiver.recv().unwrap();
                Err::<(), _>(Error::machine("download", "no network"))
            });
            Some((result(long)?, result(failing)?))
        });
        let error = steps.outcome(results).unwrap_err();
        assert_eq!(error.why, "no network");
        assert!(began.elapsed() < Duration::from_secs(100));
        // Nobody else's children end, and nobody else is kept from starting some.
        let its_directory = format!("/proc/{}", bystander.pid());
        assert!(std::path::Path::new(&its_directory).exists());
        assert!(sleeper().is_ok());
    }
}
