//! The reconcile engine: brings a host to a desired state, and back.
//!
//! - [`Engine::plan`]: what reconciling would change. Reads only.
//! - [`Engine::reconcile`]: makes the host what it is to be, all or nothing. Idempotent: what holds
//!   is left, what is missing is set, what is no longer wanted is taken back. Called again and again
//!   it keeps a host up to date for VMs and devices that come later.
//! - [`Engine::reconcile_each`]: the same, but a [`Group`] that fails stops no other.
//! - [`Engine::status`]: each setting as it was wanted and as it is found. Reads only.
//! - [`Engine::undo`]: everything as it was before the first `reconcile`.
//!
//! One [`Journal`] records what may be in force, and one lock of the machine guards it.

mod attempt;
mod desired;
mod failure;
#[cfg(any(test, feature = "fake"))]
pub(crate) mod fake_storage;
mod heirs;
pub(crate) mod journal;
pub(crate) mod lock;
mod reconcile;
mod snapshot;
mod stale;
mod status;
mod storage;
mod undo;

pub use desired::Desired;
pub use failure::Failure;
pub use journal::{DEFAULT_STATE_DIRECTORY, Header, Journal};
pub use reconcile::{Engine, MayChange, Plan, Report};
pub use snapshot::Snapshot;
pub use status::{Setting, State, Status};
pub use storage::{Directory, Storage, StoredFile};
