//! Files of a host, /etc/steadyvm.toml, that more than one test puts in force.

/// The six lines of the guide, for the lab's real-time card and a VM.
pub fn ranks(vm: &str) -> String {
    format!("[[nic]]\nname = \"rt\"\nclass = \"rt\"\n[[vm]]\nname = \"{vm}\"\nclass = \"rt\"\n")
}

/// The same, and a budget: two VCPUs of 4 ms in every 10 ms each, kept by `SCHED_DEADLINE`.
pub fn budgets(vm: &str) -> String {
    format!(
        "[host]\npcpus = 2\nscheduler = \"gedf\"\nenforce = \"deadline\"\n\n{}\
         interface = \"mpr\"\nperiod = \"10ms\"\nbudget = \"8ms\"\nvcpus = 2\n",
        ranks(vm)
    )
}
