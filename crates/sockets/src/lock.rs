//! Locks between threads of unequal priority.
//!
//! A virtual CPU with a real-time priority shares locks with threads that have none. While it waits, the
//! kernel lends its priority to whoever holds the lock (futex(2), `FUTEX_LOCK_PI`; `kernel/futex/pi.c`).
//! Without that a holder which other threads keep from its CPU would make the real-time one wait for all
//! of these.
//!
//! What keeps threads apart is a lock of the standard library, in which nobody ever waits: the word
//! before it is where threads wait. So a kernel that refused to lend priorities would cost time only.

#![allow(clippy::disallowed_types)] // what it is made of

use rustix::io::Errno;
use rustix::thread::{futex, gettid};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

thread_local! {
    /// The kernel's number of this thread, which it expects in the word of a lock that is held.
    static OWN: u32 = gettid().as_raw_nonzero().get().unsigned_abs();
}

/// Data that one thread at a time uses. Whoever waits lends its priority to who holds it.
#[derive(Default)]
pub struct Lock<T> {
    /// 0, or the number of the holder, with a bit of the kernel's while somebody waits.
    word: AtomicU32,
    data: Mutex<T>,
}

impl<T> Lock<T> {
    /// Not held.
    pub const fn new(data: T) -> Self {
        Self {
            word: AtomicU32::new(0),
            data: Mutex::new(data),
        }
    }

    /// Waits for the data, whatever happened to others: every update under these locks is complete at
    /// once.
    pub fn lock(&self) -> Held<'_, T> {
        let turn = Turn::wait(&self.word);
        let data = self.data.lock().unwrap_or_else(PoisonError::into_inner);
        Held { data, _turn: turn }
    }

    /// The same; `None` where somebody else holds it.
    pub fn try_lock(&self) -> Option<Held<'_, T>> {
        let turn = Turn::take(&self.word)?;
        let data = match self.data.try_lock() {
            Ok(data) => data,
            Err(TryLockError::Poisoned(data)) => data.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Held { data, _turn: turn })
    }
}

/// The data of a [`Lock`], until it is dropped: the data first, then the turn.
pub struct Held<'l, T> {
    data: MutexGuard<'l, T>,
    _turn: Turn<'l>,
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.data
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.data
    }
}

/// That this thread's number is in the word.
struct Turn<'l>(&'l AtomicU32);

impl<'l> Turn<'l> {
    fn take(word: &'l AtomicU32) -> Option<Self> {
        let own = OWN.with(|own| *own);
        let taken = word.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then_some(Self(word))
    }

    fn wait(word: &'l AtomicU32) -> Self {
        Self::take(word).unwrap_or_else(|| {
            while let Err(Errno::INTR | Errno::AGAIN) =
                futex::lock_pi(word, futex::Flags::PRIVATE, None)
            {}
            Self(word)
        })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let own = OWN.with(|own| *own);
        let left = (self.0).compare_exchange(own, 0, Ordering::Release, Ordering::Relaxed);
        if left.is_err() {
            // Somebody waits: the kernel gives the word to who has the highest priority.
            let _ = futex::unlock_pi(self.0, futex::Flags::PRIVATE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::mpsc::channel;
    use std::thread;

    const FIFO: i32 = 10;

    /// State and priority of a thread, as /proc/PID/stat has them: 20 for a normal one that is not
    /// nice, -1 less its rank for a real-time one.
    fn state_and_priority(thread: u32) -> (char, i32) {
        let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .unwrap()
            .1
            .split_whitespace()
            .collect();
        (fields[0].parse().unwrap(), fields[15].parse().unwrap())
    }

    fn become_real_time() {
        let parameters = libc::sched_param {
            sched_priority: FIFO,
        };
        // SAFETY: the call reads one sched_param; 0 is the calling thread.
        let done = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
        assert_eq!(done, 0, "as root");
    }

    #[test]
    fn a_real_time_thread_that_waits_lends_its_priority() {
        let (lock, waiter) = (&Lock::new(0), &AtomicU32::new(0));
        let (tell_holder, holder) = channel();
        let (release, released) = channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                let own = OWN.with(|own| *own);
                let (_, usual) = state_and_priority(own);
                let mut held = lock.lock();
                tell_holder.send(own).unwrap();
                released.recv().unwrap();
                *held += 1;
                drop(held);
                // What was lent is given back with the lock.
                assert_eq!(state_and_priority(own).1, usual);
            });
            let holder = holder.recv().unwrap();
            scope.spawn(move || {
                become_real_time();
                // From here on nothing but the lock makes it sleep.
                waiter.store(OWN.with(|own| *own), Ordering::SeqCst);
                assert_eq!(*lock.lock(), 1);
            });
            let sleeps = || match waiter.load(Ordering::SeqCst) {
                0 => false,
                waiter => state_and_priority(waiter).0 == 'S',
            };
            while !sleeps() {
                thread::yield_now();
            }
            let lent = state_and_priority(holder).1;
            release.send(()).unwrap();
            assert_eq!(lent, -1 - FIFO);
        });
    }

    #[test]
    fn one_thread_at_a_time_has_the_data() {
        const THREADS: usize = 4;
        const TURNS: usize = 20_000;
        let lock = Lock::new((0_usize, false));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let mut done = 0;
                    while done < TURNS {
                        let tried = (done % 3 == 0).then(|| lock.try_lock());
                        let Some(mut held) = tried.unwrap_or_else(|| Some(lock.lock())) else {
                            thread::yield_now();
                            continue;
                        };
                        assert!(!std::mem::replace(&mut held.1, true), "somebody has it");
                        held.0 += 1;
                        held.1 = false;
                        done += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), (THREADS * TURNS, false));
        assert_eq!(lock.word.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_panic_leaves_the_lock_to_others() {
        let lock = Lock::new(0);
        thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let held = lock.lock();
                assert_eq!(*held, 1, "on purpose");
            });
            panics.join().unwrap_err();
        });
        assert_eq!(*lock.try_lock().unwrap(), 0);
    }
}
