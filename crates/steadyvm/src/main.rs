//! `steadyvm`: consistent latency for network services in virtual machines.
fn main() {
    if steadyvm_lab::init::is_first_process() {
        steadyvm_lab::init::run();
    }
    let a: Vec<String> = std::env::args().collect();
    if a.get(2).map(String::as_str) == Some("agent") {
        if let Err(e) = steadyvm_lab::init::run_agent() { eprintln!("{e}"); }
    }
}
