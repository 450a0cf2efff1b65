//! A service of a host measured with and without steadyvm, and the host shown live, in the emulated host.

use std::net::UdpSocket;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::support::files::ranks;
use crate::support::profile::{all_hold, inside, shown, undo, write};
use crate::support::shared;
use serde_json::Value;
use steadyvm_experiment::compare::{NAME, Phase, ratio_of, required};
use steadyvm_experiment::engine::results::from_json_of;
use steadyvm_lab::agent::{Process, Status};
use steadyvm_lab::host::{EmulatedHost, RT};
use steadyvm_lab::laboratory::{HostKernel, guest};
use steadyvm_lab::progress::Silent;
use steadyvm_load::netrt::{self, ClientOptions, End};
use steadyvm_trace::receive_path::{Report, WorstStage, render_worst};

const PATIENCE: Duration = Duration::from_secs(120);
/// The guest's address, and that of the client's namespace beside it.
const SERVICE: u8 = 3;
const CLIENT: u8 = 50;

/// What `steadyvm measure` is given for a run that ends by itself, or for a long one.
fn measure(rounds: u32, samples: u32) -> String {
    format!(
        "exec steadyvm measure --service {}:7700 --netns client --rounds {rounds} --samples {samples} \
         --rate 200 --warmup 10 --out /run/measure --markdown /run/measure.md --json",
        RT.address(SERVICE)
    )
}

/// A long run, started, and waited for until the settings are taken back.
fn started(host: &EmulatedHost) -> Process {
    let words = measure(2, 1_000_000);
    let words = format!("{words} > /run/said 2>&1");
    inside(host, "rm -f /run/said");
    let process = host.connection().spawn(&["sh", "-euc", &words]).unwrap();
    inside(
        host,
        "until [ -e /run/said ]; do :; done
         until steadyvm status --json | grep -q '\"state\": \"none\"'; do
           pgrep -f 'steadyvm measur[e]' > /run/runs || { cat /run/said >&2; exit 1; }
         done",
    );
    process
}

fn require_restored(host: &EmulatedHost) {
    inside(host, "steadyvm status --snapshot --compare /run/with.json");
    inside(host, "steadyvm status /run/steadyvm.toml");
    assert!(all_hold(&shown(host)));
}

/// Sends requests from outside, by the card, and counts the answers.
fn send_requests(host: &EmulatedHost, requests: u64) -> u64 {
    let socket = host.outside().enter(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.connect((RT.address(SERVICE), 7700)).unwrap();
        Ok(socket)
    });
    let options = ClientOptions {
        warmup: 0,
        end: End::Requests(requests),
        timeout: PATIENCE,
        ..ClientOptions::default()
    };
    let run = netrt::run(
        &socket.unwrap(),
        &options,
        &AtomicBool::new(false),
        &mut |_| {},
    );
    run.unwrap().counters.answered
}

/// The slowest packets are followed from the card's interrupt into the guest.
fn require_explained(host: &EmulatedHost) {
    send_requests(host, 5);
    let words = "exec steadyvm explain --worst 4 --device rt --seconds 600 --json";
    let mut explain = host.connection().spawn(&["sh", "-c", words]).unwrap();
    explain.wait_for_line("recording", PATIENCE).unwrap();
    assert!(send_requests(host, 60) > 0);
    explain.signal(libc::SIGINT).unwrap();
    let said = explain.finish(PATIENCE).unwrap();
    let report: Report = serde_json::from_str(&said.text()).unwrap();
    assert_eq!(report.worst.len(), 4, "{report:?}");
    let whole: Vec<f64> = report.worst.iter().map(|packet| packet.whole_us).collect();
    assert!(whole.is_sorted_by(|one, other| one >= other), "{whole:?}");
    let stages = || report.worst.iter().flat_map(|packet| &packet.stages);
    for packet in &report.worst {
        let Some(first) = packet.stages.first() else {
            continue;
        };
        assert!(packet.woken.starts_with("vhost-"), "{packet:?}");
        assert_eq!((&*first.kind, &first.thread), ("wait", &packet.woken));
        assert!(
            (first.after_us - packet.total_us).abs() < 1e-6,
            "{packet:?}"
        );
    }
    let is_guest = |stage: &WorstStage| stage.kind == "guest" && stage.vm.as_deref() == Some("rt");
    assert!(stages().any(is_guest), "{report:?}");
    eprintln!("{}", render_worst(&report));
}

/// A plan whose terms are far above what an emulated host takes, and one that allows next to nothing.
const TERMS: &str = "[[service]]\nname = \"netrt\"\nvm = \"rt\"\nc = \"400ms\"\nt = \"4s\"\nlimit = \"3s\"\nwake = \"100ms\"\n\
    receive = { interrupt = \"200ms\", packet = \"100ms\" }\nsend = { guest = \"50ms\", host = \"300ms\", nic = \"5ms\" }\n";
const TIGHT: &str = "[[service]]\nname = \"netrt\"\nvm = \"rt\"\nc = \"1us\"\nt = \"10ms\"\nlimit = \"5ms\"\n\
    receive = { interrupt = \"1us\", packet = \"1us\" }\nsend = { guest = \"1us\", host = \"1us\", nic = \"1us\" }\n";

/// Each term of a plan's bound that the host sees has figures of real packets, both ways; the others say why not.
fn require_terms(host: &EmulatedHost) {
    write(host, "/run/terms.toml", TERMS);
    write(host, "/run/tight.toml", TIGHT);
    let words = "exec steadyvm explain --plan /run/terms.toml --device rt --record /run/recording.json \
                 --seconds 600 --json";
    let mut explain = host.connection().spawn(&["sh", "-c", words]).unwrap();
    explain.wait_for_line("recording", PATIENCE).unwrap();
    assert!(send_requests(host, 12) > 0);
    explain.signal(libc::SIGINT).unwrap();
    let said = explain.finish(PATIENCE).unwrap();
    assert_eq!(said.status, Status::Exited(0), "{}", said.text());
    let terms = json(&said.text())["plan"]["terms"].clone();
    for term in terms.as_array().unwrap() {
        let is_seen = term["measured"]["n"].as_u64().is_some_and(|n| n > 0);
        let has_reason = !term["not_seen"].as_str().unwrap().is_empty();
        assert!(is_seen != has_reason, "{term}");
    }
    // The same recording, later: a plan that allows too little is found out.
    let words = "exec steadyvm explain --plan /run/tight.toml --from /run/recording.json";
    let tight = host.connection().spawn(&["sh", "-c", words]).unwrap();
    let tight = tight.finish(PATIENCE).unwrap();
    assert_eq!(tight.status, Status::Exited(1), "{}", tight.text());
    assert!(tight.text().contains("OVER"), "{}", tight.text());
    eprintln!("{}", tight.text());
    if let Ok(file) = std::env::var("STEADYVM_RECORDING") {
        std::fs::write(file, inside(host, "cat /run/recording.json")).unwrap();
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// With `STEADYVM_RECORDING=FILE` it keeps the recording: how crates/steadyvm/tests/recordings/ was made.
#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_plans_terms_are_measured_both_ways() {
    let host = shared::host(HostKernel::V6_12Rt);
    let rt = host
        .start_guest(&guest("rt", 1, 2), &[RT], &Silent)
        .unwrap();
    rt.set_network_up(RT.address(SERVICE)).unwrap();
    // The service runs on the VCPU that the card interrupts, and on the other one.
    for vcpu in 0..2 {
        let serve = format!("exec taskset -c {vcpu} steadyvm netrt serve 0.0.0.0:7700");
        let mut service = rt.connection().spawn(&["sh", "-c", &serve]).unwrap();
        service.wait_for_line("ready", PATIENCE).unwrap();
        send_requests(&host, 5);
        require_terms(&host);
        service.signal(libc::SIGTERM).unwrap();
        service.finish(PATIENCE).unwrap();
    }
}

/// What a watch has counted of the requests of its file, by the term.
fn counted(host: &EmulatedHost) -> Vec<(u64, u64)> {
    let status = json(&inside(
        host,
        "steadyvm status /run/watched.toml --json || [ $? = 1 ]",
    ));
    let terms = status["checks"]["vms"][0]["terms"].as_array().cloned();
    let number = |term: &Value, key: &str| term[key].as_u64().unwrap_or(0);
    let terms = terms.unwrap_or_default();
    terms
        .iter()
        .map(|it| (number(it, "n"), number(it, "over")))
        .collect()
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_watch_follows_each_request_and_tells_which_term_is_broken() {
    let host = shared::host(HostKernel::V6_12Rt);
    // One VCPU: the card interrupts the one that answers.
    let rt = host
        .start_guest(&guest("rt", 1, 1), &[RT], &Silent)
        .unwrap();
    rt.set_network_up(RT.address(SERVICE)).unwrap();
    let serve = ["steadyvm", "netrt", "serve", "0.0.0.0:7700"];
    let mut service = rt.connection().spawn(&serve).unwrap();
    service.wait_for_line("ready", PATIENCE).unwrap();
    send_requests(&host, 5);
    let ranked = "[host]\nenforce = \"none\"\n[[nic]]\nname = \"rt\"\nclass = \"rt\"\n\
                  [[vm]]\nname = \"rt\"\nclass = \"rt\"\n";
    for (plan, is_broken) in [(TERMS, false), (TIGHT, true)] {
        write(&host, "/run/watched.toml", &format!("{ranked}{plan}"));
        let words = "exec steadyvm watch /run/watched.toml --undo-at-stop 2> /run/watch.log";
        let watch = host.connection().spawn(&["sh", "-c", words]).unwrap();
        inside(
            &host,
            "timeout 100 sh -c 'until steadyvm status /run/watched.toml --json | grep -q \"checks.: {\"; do :; done' \
             || { cat /run/watch.log; exit 1; }",
        );
        let until = std::time::Instant::now() + PATIENCE;
        let mut terms = counted(&host);
        while terms.len() < 5 || terms.iter().any(|(n, _)| *n < 10) {
            assert!(std::time::Instant::now() < until, "{terms:?}");
            assert!(send_requests(&host, 5) > 0);
            terms = counted(&host);
        }
        eprintln!(
            "{}",
            inside(&host, "steadyvm status /run/watched.toml || [ $? = 1 ]")
        );
        let over: u64 = terms.iter().map(|(_, over)| over).sum();
        assert_eq!(over > 0, is_broken, "{terms:?}");
        watch.signal(libc::SIGTERM).unwrap();
        assert_eq!(watch.finish(PATIENCE).unwrap().status, Status::Exited(0));
        let log = inside(&host, "cat /run/watch.log");
        assert_eq!(
            log.contains("the bound of netrt in VM rt is broken"),
            is_broken,
            "{log}"
        );
    }
    service.signal(libc::SIGTERM).unwrap();
    service.finish(PATIENCE).unwrap();
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_service_is_measured_and_what_was_in_force_is_again_at_every_end() {
    let host = shared::host(HostKernel::V6_12Rt);
    host.make_namespace("client", RT, RT.address(CLIENT))
        .unwrap();
    write(&host, "/run/steadyvm.toml", &ranks("rt"));
    inside(&host, "steadyvm status --snapshot > /run/before.json");
    let rt = host
        .start_guest(&guest("rt", 1, 2), &[RT], &Silent)
        .unwrap();
    rt.set_network_up(RT.address(SERVICE)).unwrap();
    let refused = host.connection().spawn(&["sh", "-c", &measure(2, 4)]);
    let refused = refused.unwrap().finish(PATIENCE).unwrap();
    assert_eq!(refused.status, Status::Exited(2), "nothing is in force");
    inside(&host, "steadyvm apply /run/steadyvm.toml");
    inside(&host, "steadyvm status --snapshot > /run/with.json");

    // Nobody answers yet: that is found before anything is changed.
    let silent = host.connection().spawn(&["sh", "-c", &measure(2, 4)]);
    let silent = silent.unwrap().finish(PATIENCE).unwrap();
    assert_eq!(silent.status, Status::Exited(3));
    let serve = ["steadyvm", "netrt", "serve", "0.0.0.0:7700"];
    let mut service = rt.connection().spawn(&serve).unwrap();
    service.wait_for_line("ready", PATIENCE).unwrap();

    require_explained(&host);

    let results = from_json_of(&inside(&host, &measure(3, 90)), NAME, required).unwrap();
    assert_eq!(results.rows, ["without", "with"]);
    for name in &results.rows {
        let idle = results.at(name, "idle");
        assert_eq!(
            (idle.count("n"), idle.rounds("n").len()),
            (90, 3),
            "{idle:?}"
        );
        let full = results.at(name, "full").count("n");
        assert_eq!(full, 0, "there is no such phase");
    }
    let median = ratio_of(&results, ("with", "without"), Phase::Idle, "p50").unwrap();
    assert!(median.low <= Some(median.median), "{median:?}");
    let ratios = results.figures.iter().filter(|it| it.over.is_some());
    let foreign: Vec<_> = ratios.filter(|it| it.cell != "idle").collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    for (file, said) in [
        ("report.html", "with / without"),
        ("results.json", "schema_version"),
        ("samples.csv", "without,3,netrt_idle"),
        ("meta.json", "ip netns exec client"),
        ("with.hgrm", "Percentile"),
    ] {
        inside(&host, &format!("grep -q '{said}' /run/measure/{file}"));
    }
    inside(&host, "grep -q 'round trips' /run/measure.md");
    require_restored(&host);

    // Ctrl-C, and death itself, in the middle of a round without.
    let interrupted = started(&host);
    interrupted.signal(libc::SIGINT).unwrap();
    let ended = interrupted.finish(PATIENCE).unwrap();
    assert_eq!(ended.status, Status::Exited(130), "{}", ended.text());
    require_restored(&host);
    let killed = started(&host);
    killed.signal(libc::SIGKILL).unwrap();
    killed.finish(PATIENCE).unwrap();
    // Whoever restores it holds this lock until then.
    inside(&host, "flock /run/steadyvm/host/measure.lock true");
    require_restored(&host);
    // No client and no guard is left.
    inside(
        &host,
        "while pgrep -f '[n]etrt client|[r]estore-at-end'; do :; done",
    );

    undo(&host);
    inside(
        &host,
        "steadyvm status --snapshot --compare /run/before.json",
    );
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_host_is_shown_live_and_what_a_watch_mended_is_told() {
    let host = shared::host(HostKernel::V6_12Rt);
    write(&host, "/run/steadyvm.toml", &ranks("rt"));
    let rt = host
        .start_guest(&guest("rt", 1, 2), &[RT], &Silent)
        .unwrap();
    // Without a profile: every VM of the host.
    let frame = json(&inside(&host, "steadyvm top --once --json"));
    assert_eq!(frame["vms"][0]["name"], "rt", "{frame}");
    assert_eq!(frame["in_force"]["state"], "none");

    let watch = ["sh", "-c", "exec steadyvm watch /run/steadyvm.toml 2>&1"];
    let mut watching = host.connection().spawn(&watch).unwrap();
    watching.wait_for_line("CPU 1/KVM", PATIENCE).unwrap();
    // Something to wake up for.
    let busy = ["sh", "-c", "while :; do sleep 0.01; done"];
    let _busy = rt.connection().spawn(&busy).unwrap();
    let frame = json(&inside(&host, "steadyvm top --once --json --interval 2"));
    assert_eq!(frame["wake_ups_from"], "bpf", "{frame}");
    assert_eq!(frame["in_force"]["watch"], true, "{frame}");
    assert_eq!(frame["in_force"]["drifted"], 0, "{frame}");
    let stages = frame["vms"][0]["stages"].as_array().unwrap();
    let of = |stage: &str| {
        let mut all = stages.iter().filter(move |it| it["stage"] == stage);
        all.next_back()
            .unwrap_or_else(|| panic!("no {stage}: {frame}"))
    };
    let rank = |stage: &str| of(stage)["rank"].as_str().unwrap().to_owned();
    assert!(rank("vhost").starts_with("FIFO "), "{frame}");
    assert!(rank("vcpu").starts_with("FIFO "), "{frame}");
    let wakes: u64 = stages
        .iter()
        .filter_map(|it| it["wake_up"]["n"].as_u64())
        .sum();
    assert!(wakes > 0, "{frame}");
    assert_eq!(frame["nics"][0]["stages"][0]["stage"], "irq", "{frame}");
    let metrics = inside(
        &host,
        // Everybody may write to the lab's /run, and so root writes no file there for a collector.
        "mkdir -m 755 /run/metrics; cd /run/metrics; steadyvm top --once --format openmetrics --out ./steadyvm.prom; \
         cat steadyvm.prom; rm -r /run/metrics",
    );
    assert!(
        metrics.contains("steadyvm_thread_wake_ups{vm=\"rt\""),
        "{metrics}"
    );
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");

    // What it costs, of one CPU of the emulated host.
    let frames = inside(&host, "steadyvm top --count 20 --json");
    let costs = frames
        .lines()
        .map(|line| json(line)["own_cpu_percent"].as_f64());
    let mut costs: Vec<f64> = costs.map(Option::unwrap).collect();
    costs.sort_by(f64::total_cmp);
    let mean = costs.iter().sum::<f64>() / costs.len() as f64;
    eprintln!(
        "top: own CPU mean {mean:.2} %, {:.2} to {:.2} %, n = {} frames of 1 s",
        costs[0],
        costs[costs.len() - 1],
        costs.len()
    );
    assert_eq!(costs.len(), 20);

    // Somebody changes a rank; the watch mends it at its next look, and says so.
    let thread = inside(
        &host,
        "ps -eLo lwp=,comm= | sed -n 's|^ *\\([0-9]*\\) CPU 1/KVM.*|\\1|p'",
    );
    let thread = thread.trim();
    inside(&host, &format!("chrt -o -p 0 {thread}"));
    inside(&host, "pkill -HUP -f 'steadyvm watc[h]'");
    watching
        .wait_for_line(&format!("thread {thread} "), PATIENCE)
        .unwrap();
    inside(
        &host,
        "until grep -q 'CPU 1/KVM' /run/steadyvm/host/drift.json; do :; done",
    );
    let status = json(&inside(&host, "steadyvm status --json /run/steadyvm.toml"));
    assert_eq!(status["watch"], true, "{status}");
    let mended = status["mended"].as_array().unwrap().last().unwrap();
    let subject = mended["subject"].as_str().unwrap();
    assert!(subject.contains("CPU 1/KVM"), "{status}");
    assert!(mended["seen_unix_s"].as_u64() >= status["applied_unix_s"].as_u64());
    watching.signal(libc::SIGTERM).unwrap();
    watching.finish(PATIENCE).unwrap();
    inside(&host, "steadyvm undo; rm -f /run/steadyvm/host/undone");
}
