//! What steadyvm does for a service of a host: its round trips with and without, or under any methods and files, in turn.
//!
//! - [`rows`]: what is compared: methods and files, on which kernel; `kernel` is the one that runs, in the words of rows
//! - [`Run`]: a run as far as it has come: what is kept over a reboot, and what is left
//! - [`Session`]: its part in one boot
//! - `states`: what the host is to have for each row
//! - [`order`]: what is measured when; pure
//! - `rounds`: makes the host what each row says, and measures
//! - [`client`]: the client, here or elsewhere
//! - `bound`: a plan's bound beside what is measured
//! - [`record`]: what the run says about itself
//! - `stop`: signals
//!
//! Nothing is printed here: figures and facts are structures, and how far it is goes to an
//! [`Observer`](steadyvm_progress::Observer). Only [`steadyvm_host`] changes the host; what was found is restored by
//! [`steadyvm_site::guard`], a process of its own, at any end.

#![forbid(unsafe_code)]

mod bound;
pub mod client;
mod error;
mod kernel;
pub mod order;
pub mod record;
mod rounds;
pub mod rows;
mod run;
mod session;
mod states;
mod stop;

pub use error::{Error, Result};
pub use kernel::Kernel;
pub use record::Meta;
pub use run::{Boot, Host, Load, Run, Waiting};
pub use session::{Means, Session};
pub use stop::Stop;
