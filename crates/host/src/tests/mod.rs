//! Tests over whole hosts: a fake one for what can go wrong, and real threads.

mod crash;
mod methods;
mod properties;
mod real;
pub(crate) mod scenario;
