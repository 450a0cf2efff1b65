//! When a group that the kernel refused is tried again. Pure: time is handed in.
//!
//! Rule: trying costs the group its settings for a moment and the host a look, so each failure in a row doubles the pause.
//! A group that asks for another setting than the one that failed, as a VM that was started anew, is tried at once: the
//! engine compares. What could not even be planned costs nothing and is planned at every look.

use std::time::{Duration, Instant};

use steadyvm_host::Failure;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// The groups that the kernel refused.
#[derive(Debug, Default)]
pub struct Backoff {
    refused: Vec<Refused>,
}

#[derive(Debug)]
struct Refused {
    failure: Failure,
    pause: Duration,
    again: Instant,
}

impl Backoff {
    /// What is too early to be tried.
    pub fn held_off(&self, now: Instant) -> Vec<Failure> {
        let early = self.refused.iter().filter(|refused| refused.again > now);
        early.map(|refused| refused.failure.clone()).collect()
    }

    /// When the next one is due.
    pub fn next(&self) -> Option<Instant> {
        self.refused.iter().map(|refused| refused.again).min()
    }

    /// Takes note of what failed in a look that began then.
    pub fn note(&mut self, failed: &[Failure], began: Instant) {
        let before = std::mem::take(&mut self.refused);
        for failure in failed.iter().filter(|failure| failure.subject.is_some()) {
            let same = before.iter().find(|refused| {
                refused.failure.group == failure.group && refused.failure.subject == failure.subject
            });
            let (pause, again) = match same {
                Some(refused) if refused.again > began => (refused.pause, refused.again),
                Some(refused) => {
                    let pause = (refused.pause * 2).min(LONGEST);
                    (pause, began + pause)
                }
                None => (FIRST, began + FIRST),
            };
            self.refused.push(Refused {
                failure: failure.clone(),
                pause,
                again,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use steadyvm_host::Group;

    use super::*;

    fn failure(thread: u32) -> Failure {
        Failure {
            group: Group::Vm("web".into()),
            error: "EPERM".into(),
            subject: Some(format!("policy of thread {thread}")),
        }
    }

    #[test]
    fn pauses_double_to_a_minute_and_a_look_meanwhile_changes_nothing() {
        let start = Instant::now();
        let mut backoff = Backoff::default();
        let mut now = start;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            backoff.note(&[failure(7)], now);
            let next = backoff.next().unwrap();
            // A look because of another VM: it is held off, and reported all the same.
            let meanwhile = now + (next - now) / 2;
            assert_eq!(backoff.held_off(meanwhile), [failure(7)]);
            backoff.note(&[failure(7)], meanwhile);
            assert_eq!(backoff.next(), Some(next));
            assert_eq!(backoff.held_off(next), []);
            pauses.push((next - now).as_secs());
            now = next;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn another_setting_begins_anew_and_what_is_served_is_forgotten() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        backoff.note(&[failure(7)], now);
        let later = now + Duration::from_secs(5);
        backoff.note(&[failure(7)], later);
        backoff.note(&[failure(8)], later);
        assert_eq!(backoff.next(), Some(later + FIRST));
        backoff.note(&[], later);
        assert_eq!(backoff.next(), None);
        // A card that is not there yet is looked for by every plan.
        let absent = Failure {
            subject: None,
            ..failure(7)
        };
        backoff.note(&[absent], later);
        assert_eq!(backoff.next(), None);
    }
}
