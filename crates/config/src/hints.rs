//! Errors of the readers of TOML and JSON in a newcomer's words: what they say, and what to write.

/// The reader's message, and what to do.
pub fn words(message: &str) -> String {
    let message = message
        .trim_end()
        .replace("expected a sequence", "expected a list");
    let lists = |field: &str| message.contains(&format!("`{field}`"));
    let hint = if message.contains("map, expected a list") {
        "there may be several of these: write it in double brackets, [[service]], [[vm]] or [[flow]] (JSON: a list)"
    } else if message.starts_with("unknown field `j`") || message.starts_with("unknown field `s`") {
        "the whole words are jitter and suspension"
    } else if message.starts_with("unknown field") && lists("limit") {
        "c is the execution of one request, t the time between two, d its deadline (t if left out), limit the longest \
         latency, vm a name of your choice"
    } else if message.starts_with("unknown field") && lists("c") && lists("t") {
        "c is the execution of one job, t the time between two, d its deadline (t if left out)"
    } else if message.starts_with("unknown field") && lists("pcpus") {
        "pcpus is the number of CPUs for VMs, cpus their numbers"
    } else if message.starts_with("unknown field") && lists("vcpus") && lists("tasks") {
        "a VM says what it executes (tasks), or what it gets (budget and period); vcpus and cpus are counts and numbers \
         of CPUs, no shares"
    } else if message == "missing field `vm`" {
        "a service names its VM; any name will do, and a VM of that name is made if there is none"
    } else if message.starts_with("unknown field `quantum`") && lists("cache_reload") {
        "quantum is a key of the host itself"
    } else if message.starts_with("unknown field `scheduler`") && lists("cache_reload") {
        "what a decision of the scheduler costs is called decision"
    } else if message.starts_with("unknown field `order`") && lists("adversary") {
        "scheduler = \"gdm\" and its like say the order, too"
    } else {
        return message;
    };
    format!("{message}; {hint}")
}
