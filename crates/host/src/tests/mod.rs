//! Tests over whole hosts: a fake one for what can go wrong, and real threads.

mod at_work;
mod believed;
mod budgets;
mod crash;
mod devices;
mod discovery;
mod fair_server;
mod groups;
mod host_services;
mod journal;
mod macvtaps;
mod methods;
mod net;
mod net_batch;
mod net_demux;
mod net_file;
mod placement;
mod properties;
mod real;
pub(crate) mod scenario;
mod shared_card;
mod switches;
mod tuned;
mod up_to_date;
mod vcpu_budgets;
mod xdp_card;
