//! Whether a signal asked a measurement to end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use steadyvm_fault::Fault;

/// The last signal that asked for it.
pub struct Stop(Arc<AtomicUsize>);

impl Stop {
    /// From here on signals end nothing by themselves.
    ///
    /// # Errors
    /// The kernel's.
    pub fn on_signals() -> io::Result<Self> {
        let number = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let value = usize::try_from(signal).map_err(io::Error::other)?;
            signal_hook::flag::register_usize(signal, Arc::clone(&number), value)?;
        }
        Ok(Self(number))
    }

    /// Its number.
    pub fn signal(&self) -> Option<i32> {
        let number = self.0.load(Ordering::Relaxed);
        i32::try_from(number).ok().filter(|number| *number > 0)
    }

    /// Fails if there was one.
    ///
    /// # Errors
    /// Which.
    pub fn check(&self) -> Result<(), Fault> {
        match self.signal() {
            None => Ok(()),
            Some(signal) => Err(Fault::machine(format!("ended by signal {signal}"), "")),
        }
    }
}
