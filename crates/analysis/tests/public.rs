//! Tests by the crate's public interface, in one program: each program of its own is linked with all of the crate.
//! Those of soundness are apart, since they take the longest.

mod chains;
mod chains_simulated;
mod equal_deadlines;
mod exhaustive;
mod explanations;
// Its modules lie beside it.
#[path = "fuzz.rs"]
mod fuzz;
mod global_fair_servers;
mod guest_wakeups;
mod isolate;
mod measured_costs;
mod newcomer;
mod one_cpu;
mod oracles;
mod plan;
mod receive;
mod review;
mod supply;
mod sweep;
