//! Where the journal of this host's settings is, and how long others are waited for.

use std::path::PathBuf;
use std::time::Duration;

use steadyvm_host::{HostControl, Machine};

use crate::peers::{self, Actor};

/// What every change of host state needs to know.
#[derive(Debug, Clone)]
pub struct Control {
    /// Where the journal of changes is kept.
    pub directory: PathBuf,
    /// How long to wait for another steadyvm that is changing this host.
    pub patience: Duration,
}

impl Control {
    /// The control of this host's state.
    pub fn open(&self) -> HostControl {
        HostControl::new(Machine::real(), &self.directory).waiting(self.patience)
    }

    /// The same, for what changes it: that keeps off where others act ([`peers`]).
    pub fn open_as(&self, actor: Actor) -> HostControl {
        let may_change = peers::may_change(&self.directory, actor);
        self.open().only_if(may_change)
    }
}
