//! libvirtd with real domains in the emulated host: `make libvirt-tests`. As tests/lab.

use crate::support::files::{budgets, ranks};
use crate::support::libvirt::{
    self, LibvirtHost, MIGRATES, PATIENCE, STEADY_CLOCK, Thread, await_guest, define, inside,
    install_hook, monitor, remove_hook, restart_libvirtd, threads, try_inside, write,
};
use crate::support::thread_trace::{self, Trace};
use steadyvm_lab::agent::Process;
use steadyvm_lab::host::EmulatedHost;

const ADDRESS: &str = "10.77.1.3";

/// The second libvirtd of the host: another name and number of a host, and places of its own.
const SECOND: &str = "
echo second > /proc/sys/kernel/hostname
# What QEMU can do is asked once.
mkdir -p /run/second
cp -r /var/cache/libvirt /run/second/cache
for place in lib log cache run; do
  [ $place = run ] && there=/run/libvirt || there=/var/$place/libvirt
  mkdir -p /run/second/$place
  mount --bind /run/second/$place $there
done
cp -r /etc/libvirt /run/second/etc
echo 'host_uuid = \"6695eb01-f6a4-8304-79aa-97f2502e193f\"' >> /run/second/etc/libvirtd.conf
mount --bind /run/second/etc /etc/libvirt
exec libvirtd -d -p /run/second/libvirtd.pid
";
const SECOND_PLACE: &str = "qemu+unix:///system?socket=/run/second/run/libvirt-sock";

/// The host with `text` as its file, in force, and how it was before.
fn host_with(text: &str) -> LibvirtHost {
    let host = libvirt::host();
    inside(
        &host,
        "steadyvm status --snapshot > /run/before.json; rm -f /run/watch.log /run/hook.log",
    );
    put(&host, text);
    host
}

fn put(host: &EmulatedHost, text: &str) {
    write(host, "/etc/steadyvm.toml", text);
    inside(host, "steadyvm apply");
}

/// All is as it was before `host_with`.
fn undo(host: &EmulatedHost) {
    // Of another test's watch it is not to hold.
    inside(
        host,
        "steadyvm undo; rm -f /etc/steadyvm.toml /run/steadyvm/host/undone",
    );
    inside(
        host,
        "steadyvm status --snapshot --compare /run/before.json",
    );
}

/// A watch that runs.
fn watch(host: &EmulatedHost) -> Process {
    let words = "exec steadyvm watch >> /run/watch.log 2>&1";
    let watching = host.connection().spawn(&["sh", "-c", words]).unwrap();
    let look = "until steadyvm status --json | grep -q '\"watch\": *true'; do :; done";
    inside(host, look);
    watching
}

/// A watch that is told to end says so and leaves all in force.
fn end(watching: Process) {
    watching.signal(libc::SIGTERM).unwrap();
    let ended = watching.finish(PATIENCE).unwrap();
    assert_eq!(ended.status.shell_code(), 0);
}

fn await_status(host: &EmulatedHost) {
    inside(host, "until steadyvm status > /run/status; do :; done");
}

/// What is written down of a monitor's threads.
fn written_of(monitor: u32) -> String {
    format!("grep -q '\"pid\":{monitor},' /run/steadyvm/host/journal.jsonl")
}

/// Nothing went wrong: a watch says what it could not do, and so does the hook.
fn require_no_complaints(host: &EmulatedHost) {
    let said = inside(
        host,
        "cat /run/watch.log /run/hook.log 2> /dev/null || true",
    );
    let complaints = |line: &&str| {
        line.contains("cannot") || line.contains("warning") && !line.contains("does not run")
    };
    let complaints: Vec<&str> = said.lines().filter(complaints).collect();
    assert!(complaints.is_empty(), "{said}");
}

/// A budget does not bound a vhost worker, which has no rank then.
fn require_budgets(threads: &[Thread]) {
    require_vcpus(2, threads, "SCHED_OTHER", |vcpu| {
        let parameters = " 4000000/10000000/10000000";
        vcpu.policy.contains("SCHED_DEADLINE") && vcpu.policy.contains(parameters)
    });
}

/// VCPU 0 is the guest's housekeeping.
fn require_ranks(threads: &[Thread]) {
    require_vcpus(2, threads, RANKED, |vcpu| match vcpu.name.as_str() {
        "CPU 0/KVM" => vcpu.policy.contains("SCHED_OTHER"),
        _ => vcpu.policy.contains("SCHED_FIFO") && vcpu.policy.contains("priority: 70"),
    });
}

/// What `chrt` says of a vhost worker that has the rank of the class.
const RANKED: &str = "SCHED_FIFO";

/// The domain's VCPUs are as `is_right` says, and its vhost workers have this policy.
fn require_vcpus(
    number: usize,
    threads: &[Thread],
    of_workers: &str,
    is_right: impl Fn(&Thread) -> bool,
) {
    let vcpus: Vec<&Thread> = threads.iter().filter(|it| it.is_vcpu()).collect();
    assert_eq!(vcpus.len(), number, "{threads:#?}");
    assert!(vcpus.into_iter().all(is_right), "{threads:#?}");
    let workers: Vec<&Thread> = threads.iter().filter(|it| it.is_vhost()).collect();
    assert!(!workers.is_empty(), "{threads:#?}");
    let is_as_said = |it: &&Thread| {
        let has_rank = it.policy.contains("priority: 75");
        it.policy.contains(of_workers) && has_rank == (of_workers == RANKED)
    };
    assert!(workers.iter().all(is_as_said), "{threads:#?}");
}

/// Those of the path; a monitor's workers come and go.
fn path(threads: &[Thread]) -> Vec<&Thread> {
    let is_of_path = |it: &&Thread| it.is_vcpu() || it.is_vhost();
    threads.iter().filter(is_of_path).collect()
}

/// Starts the domain; its threads, and what was traced until it ran and `settled` returned.
fn start(host: &EmulatedHost, settled: impl Fn(&EmulatedHost)) -> (Vec<Thread>, Trace) {
    thread_trace::begin(host);
    inside(host, "virsh --quiet start web");
    settled(host);
    let trace = thread_trace::end(host);
    (threads(host, "web"), trace)
}

/// When a domain's VCPUs are as the file says, in ms.
#[derive(Debug)]
struct Delay {
    /// After the first VCPU's thread was made.
    after_thread_ms: f64,
    /// After the guest's first instruction; less than 0: before it.
    after_guest_ms: f64,
}

impl Delay {
    /// Before the guest's first instruction, and within 200 ms of the first VCPU's thread.
    fn is_in_time(&self) -> bool {
        self.after_guest_ms < 0.0 && self.after_thread_ms <= 200.0
    }
}

fn delay(what: &str, threads: &[Thread], trace: &Trace) -> Delay {
    let vcpus = threads.iter().filter(|it| it.is_vcpu());
    let vcpus: Vec<u32> = vcpus.map(|it| it.number).collect();
    let set_s = trace.last_set_s(&vcpus);
    let delay = Delay {
        after_thread_ms: (set_s - trace.first_made_s(&vcpus)) * 1e3,
        after_guest_ms: (set_s - trace.ran_s.unwrap()) * 1e3,
    };
    println!(
        "{what}: {:.0} ms after the first VCPU's thread, {:.0} ms after the guest's first instruction",
        delay.after_thread_ms, delay.after_guest_ms
    );
    for thread in threads.iter().filter(|it| it.is_vcpu() || it.is_vhost()) {
        let made_s = trace.made_s.get(&thread.number);
        let sets = trace.set.get(&thread.number);
        println!(
            "  {} {}: made {made_s:?} s, set {sets:?}",
            thread.number, thread.name
        );
    }
    delay
}

#[test]
#[ignore = "needs the lab: make libvirt-tests"]
fn a_watch_gives_domains_what_the_file_says_and_loses_nothing_when_daemons_end() {
    let host = host_with(&budgets("web"));
    define(&host, "web", ADDRESS, STEADY_CLOCK);
    let watching = watch(&host);
    let (first, trace) = start(&host, await_status);
    require_budgets(&first);
    let delayed = delay("watch, budgets", &first, &trace);
    assert!(delayed.is_in_time(), "{delayed:?}");
    await_guest(&host, "web");
    println!("{}", inside(&host, "virsh list; steadyvm status"));

    // libvirtd ends and finds its domain again.
    restart_libvirtd(&host);
    assert_eq!(inside(&host, "virsh domstate web").trim(), "running");
    assert_eq!(path(&threads(&host, "web")), path(&first));
    inside(&host, "steadyvm status");

    // So does a watch that was killed.
    watching.signal(libc::SIGKILL).unwrap();
    watching.finish(PATIENCE).unwrap();
    assert_eq!(path(&threads(&host, "web")), path(&first));
    let watching = watch(&host);
    inside(&host, "steadyvm status");
    assert_eq!(path(&threads(&host, "web")), path(&first));

    // Of a domain that has ended nothing stays, and the next start is as the first one.
    let old = monitor(&host, "web");
    inside(&host, "virsh --quiet destroy web");
    inside(&host, &format!("while {}; do :; done", written_of(old)));
    end(watching);
    put(&host, &ranks("web"));
    let watching = watch(&host);
    let (second, trace) = start(&host, await_status);
    let delayed = delay("watch, ranks", &second, &trace);
    require_ranks(&second);
    assert!(delayed.is_in_time(), "{delayed:?}");
    await_guest(&host, "web");

    // The guest powers off by itself.
    let old = monitor(&host, "web");
    inside(&host, &format!("iperf3 -c {ADDRESS} -n 4M"));
    let until_off = "until [ \"$(virsh domstate web)\" = 'shut off' ]; do :; done";
    inside(&host, until_off);
    inside(&host, &format!("while {}; do :; done", written_of(old)));
    inside(&host, "steadyvm status");
    end(watching);
    require_no_complaints(&host);
    inside(&host, "virsh --quiet undefine web");
    undo(&host);
}

#[test]
#[ignore = "needs the lab: make libvirt-tests"]
fn the_hook_alone_does_the_same_and_does_not_fight_with_a_watch() {
    let host = host_with(&budgets("web"));
    define(&host, "web", ADDRESS, STEADY_CLOCK);
    install_hook(&host);
    let (alone, trace) = start(&host, |_| ());
    require_budgets(&alone);
    delay("hook alone, budgets", &alone, &trace);
    println!("{}", inside(&host, "steadyvm status"));
    let old = monitor(&host, "web");
    inside(&host, "virsh --quiet destroy web");
    inside(&host, &format!("! {}", written_of(old)));

    let watching = watch(&host);
    let (both, trace) = start(&host, await_status);
    require_budgets(&both);
    let delayed = delay("hook and watch, budgets", &both, &trace);
    assert!(delayed.is_in_time(), "{delayed:?}");
    for thread in both.iter().filter(|it| it.is_vcpu()) {
        assert_eq!(trace.set[&thread.number].len(), 1, "{thread:?}: {trace:?}");
    }
    let old = monitor(&host, "web");
    inside(&host, "virsh --quiet destroy web");
    inside(&host, &format!("while {}; do :; done", written_of(old)));
    inside(&host, "steadyvm status");
    end(watching);
    require_no_complaints(&host);
    inside(&host, "virsh --quiet undefine web");
    remove_hook(&host);
    undo(&host);
}

/// A second VCPU for the domain whose threads are `before`; it is as the file says because the watch heard of it, not at the
/// watch's next look, which may be 30 s away.
fn plug_in(host: &EmulatedHost, before: &[Thread]) {
    thread_trace::begin(host);
    inside(host, "virsh --quiet setvcpus web 2 --live");
    await_status(host);
    let trace = thread_trace::end(host);
    let is_new = |it: &Thread| it.is_vcpu() && before.iter().all(|old| old.number != it.number);
    let now = threads(host, "web");
    let new: Vec<u32> = now
        .iter()
        .filter(|it| is_new(it))
        .map(|it| it.number)
        .collect();
    assert_eq!(new.len(), 1, "{now:#?}");
    let after_ms = (trace.last_set_s(&new) - trace.first_made_s(&new)) * 1e3;
    println!("plugged in: as the file says {after_ms:.0} ms after its thread was made");
    assert!(after_ms <= 1000.0, "{after_ms} ms");
}

#[test]
#[ignore = "needs the lab: make libvirt-tests"]
fn a_vcpu_that_is_plugged_in_gets_its_share_and_leaves_nothing_with_its_domain() {
    let host = host_with(&ranks("web"));
    define(&host, "web", ADDRESS, STEADY_CLOCK);
    inside(&host, "virsh --quiet setvcpus web 1 --config");
    let watching = watch(&host);
    inside(&host, "virsh --quiet start web");
    await_guest(&host, "web");
    await_status(&host);
    let alone = threads(&host, "web");
    // The only VCPU is ranked, although the guest's housekeeping runs on it.
    require_vcpus(1, &alone, RANKED, |vcpu| {
        vcpu.policy.contains("priority: 70")
    });

    plug_in(&host, &alone);
    require_ranks(&threads(&host, "web"));
    inside(&host, &format!("iperf3 -c {ADDRESS} -n 4M"));

    inside(
        &host,
        "until [ \"$(virsh domstate web)\" = 'shut off' ]; do :; done",
    );
    end(watching);
    put(&host, &budgets("web"));
    let watching = watch(&host);
    inside(&host, "virsh --quiet start web");
    await_guest(&host, "web");
    await_status(&host);
    plug_in(&host, &threads(&host, "web"));
    require_budgets(&threads(&host, "web"));
    let old = monitor(&host, "web");
    inside(&host, "virsh --quiet destroy web");
    inside(&host, &format!("while {}; do :; done", written_of(old)));
    end(watching);
    let said = inside(&host, "cat /run/watch.log");
    // What it lacked before the second VCPU came.
    assert!(said.contains("has one VCPU: its housekeeping"), "{said}");
    assert!(
        said.contains("is planned with VCPU 1 and runs without it"),
        "{said}"
    );
    assert!(!said.contains("cannot"), "{said}");
    inside(&host, "virsh --quiet undefine web");
    undo(&host);
}

/// What docs/guide/libvirt.md warns of: no thread that may not run on all CPUs gets a budget, and libvirt cannot pin
/// one that has it.
#[test]
#[ignore = "needs the lab: make libvirt-tests"]
fn a_domain_with_vcpupin_has_no_budget_and_does_not_start_under_a_watch() {
    let host = host_with(&budgets("web"));
    let pin = "<cputune><vcpupin vcpu='0' cpuset='0'/></cputune>";
    define(&host, "web", ADDRESS, &format!("{STEADY_CLOCK}{pin}"));
    install_hook(&host);
    inside(&host, "virsh --quiet start web");
    let said = inside(&host, "cat /run/hook.log");
    assert!(said.contains("remove <vcpupin>"), "{said}");
    for vcpu in threads(&host, "web").iter().filter(|it| it.is_vcpu()) {
        assert!(vcpu.policy.contains("SCHED_OTHER"), "{vcpu:?}");
    }
    inside(&host, "virsh --quiet destroy web");
    remove_hook(&host);

    let watching = watch(&host);
    let (code, said) = try_inside(&host, "virsh --quiet start web");
    println!("{said}");
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("cannot set CPU affinity on process"),
        "{said}"
    );
    await_status(&host);
    end(watching);
    inside(&host, "virsh --quiet undefine web");
    undo(&host);
}

/// The whole way of a budget that a domain asks for itself: docs/guide/libvirt.md.
#[test]
#[ignore = "needs the lab: make libvirt-tests"]
fn a_domain_that_is_pinned_gets_the_budget_that_it_asks_for_and_one_too_many_does_not_start() {
    let host = host_with("[host]\npcpus = 2\nscheduler = \"pedf\"\nenforce = \"auto\"\n");
    let asks = |budget: &str| {
        format!(
            "<metadata><s:interface xmlns:s='urn:steadyvm:rt' budget='{budget}' period='10ms'/></metadata><cputune>\
             <vcpupin vcpu='0' cpuset='1'/><vcpupin vcpu='1' cpuset='1'/></cputune>"
        )
    };
    define(
        &host,
        "web",
        ADDRESS,
        &format!("{STEADY_CLOCK}{}", asks("4ms")),
    );
    define(
        &host,
        "late",
        "10.77.1.4",
        &format!("{STEADY_CLOCK}{}", asks("6ms")),
    );
    install_hook(&host);
    inside(&host, "virsh --quiet start web");
    for vcpu in threads(&host, "web").iter().filter(|it| it.is_vcpu()) {
        assert!(
            vcpu.policy.contains(" 2000000/10000000/10000000"),
            "{vcpu:?}"
        );
        let cpus = inside(
            &host,
            &format!(
                "sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/{}/status",
                vcpu.number
            ),
        );
        assert_eq!(cpus.trim(), "1", "{vcpu:?}");
    }
    inside(
        &host,
        "ls /run/steadyvm.d/libvirt-*.toml > /run/described; [ $(wc -l < /run/described) = 1 ]",
    );
    let (code, said) = try_inside(&host, "virsh --quiet start late");
    // This hook's words are in a file; libvirt's message has them otherwise.
    let reason = inside(&host, "cat /run/hook.log");
    assert!(
        code == 1
            && said.contains("Hook script execution failed")
            && reason.contains("cannot hold VM 'late'"),
        "{said}\n{reason}"
    );
    // A libvirtd that is started anew finds it as it was.
    restart_libvirtd(&host);
    // This waits until libvirtd has its monitor again: what is destroyed before that ends as lost.
    inside(
        &host,
        "virsh --quiet qemu-monitor-command web --hmp 'info status' | grep -q running",
    );
    inside(
        &host,
        "virsh --quiet destroy web; [ -z \"$(ls /run/steadyvm.d)\" ]",
    );
    inside(
        &host,
        "virsh --quiet start late; virsh --quiet destroy late",
    );
    remove_hook(&host);
    inside(
        &host,
        "virsh --quiet undefine web; virsh --quiet undefine late",
    );
    undo(&host);
}

#[test]
#[ignore = "needs the lab: make libvirt-tests"]
fn a_domain_that_migrates_is_ranked_where_it_goes_and_forgotten_where_it_was() {
    let host = host_with(&format!(
        "{}[[vm]]\nname = \"moved\"\nclass = \"rt\"\n",
        ranks("web")
    ));
    write(&host, "/run/second.sh", SECOND);
    inside(&host, "unshare --mount --uts sh -eu /run/second.sh");
    define(&host, "web", ADDRESS, MIGRATES);
    let watching = watch(&host);
    let (before, trace) = start(&host, await_status);
    delay("watch, ranks", &before, &trace);
    // A look may come between two VCPUs that are made: the first is then taken for the only one.
    await_guest(&host, "web");
    await_status(&host);
    require_ranks(&threads(&host, "web"));
    let old = monitor(&host, "web");
    thread_trace::begin(&host);
    inside(
        &host,
        &format!(
            "virsh --quiet migrate --live --unsafe --dname moved web '{SECOND_PLACE}' \
             --migrateuri unix:///run/second/migration"
        ),
    );
    let list = format!("virsh list --all; virsh --connect '{SECOND_PLACE}' list --all");
    println!("{}", inside(&host, &list));
    await_status(&host);
    let trace = thread_trace::end(&host);
    let moved = threads(&host, "moved");
    require_ranks(&moved);
    let delayed = delay("watch, migration", &moved, &trace);
    assert!(delayed.is_in_time(), "{delayed:?}");
    inside(&host, &format!("while {}; do :; done", written_of(old)));
    // The guest goes on, and its last packet ends it.
    let old = monitor(&host, "moved");
    inside(&host, &format!("iperf3 -c {ADDRESS} -n 4M"));
    inside(&host, &format!("while {}; do :; done", written_of(old)));
    end(watching);
    require_no_complaints(&host);
    inside(&host, "virsh --quiet undefine web");
    inside(&host, "kill $(cat /run/second/libvirtd.pid)");
    undo(&host);
}
