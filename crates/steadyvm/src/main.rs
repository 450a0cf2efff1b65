//! `steadyvm`: consistent latency for network services in virtual machines.
fn main() {}
