//! Guests of `steadyvm up` in the lab, and the methods of the comparison that have them.

use crate::support::comparison::{require_figures, short_comparison};
use crate::support::shared;
use std::time::Duration;
use steadyvm_experiment::compare::{Phase, ratio_of};
use steadyvm_lab::Guest;
use steadyvm_lab::agent::Status;
use steadyvm_lab::emulator::{Machine, Monitor, Sockets};
use steadyvm_lab::host::{BULK, EmulatedHost, Network, RT};
use steadyvm_lab::laboratory::{HostKernel, guest};
use steadyvm_lab::progress::Silent;

const PATIENCE: Duration = Duration::from_secs(60);

/// The channel carries more than any buffer on its way holds, in both directions.
fn require_channel(guest: &Guest) {
    let lines: Vec<String> = (0..100_000).map(|line: u32| line.to_string()).collect();
    let lines = lines.join("\n");
    let echo = guest.connection().spawn(&["cat"]).unwrap();
    echo.input(lines.as_bytes()).unwrap();
    echo.end_of_input().unwrap();
    let done = echo.finish(PATIENCE).unwrap();
    assert_eq!(done.status, Status::Exited(0));
    assert!(
        done.text() == lines,
        "{} bytes came back",
        done.output.len()
    );
}

/// The guest reaches the host over the network.
fn send_to_host(host: &EmulatedHost, guest: &Guest, network: Network) {
    let mut server = host
        .connection()
        .spawn(&["iperf3", "--forceflush", "-s", "-1"])
        .unwrap();
    server.wait_for_line("listening", PATIENCE).unwrap();
    let address = network.host().to_string();
    let send = ["iperf3", "-c", &address, "-n", "1M"];
    guest.connection().run(&send).unwrap();
    assert_eq!(server.finish(PATIENCE).unwrap().status, Status::Exited(0));
}

/// The method's priorities are put in force, and taken back, by `steadyvm apply --method` and `undo` alone.
#[test]
#[ignore = "needs the lab: make lab-tests"]
fn guests_of_our_monitor_are_reached_and_ranked_as_qemus_are() {
    let host = shared::host(HostKernel::V6_12Rt);
    let inside = |words: &str| host.connection().text(&["sh", "-euc", words]).unwrap();

    host.make_namespace("vm-rt", RT, RT.address(3)).unwrap();
    let with_sockets = Machine {
        monitor: Monitor::Steadyvm,
        sockets: Some(Sockets {
            namespace: "vm-rt".to_owned(),
            poll_us: 0,
        }),
        cards: Vec::new(),
        ..guest("rt", 1, 2)
    };
    let rt = host.start_guest(&with_sockets, &[RT], &Silent).unwrap();
    rt.outsource_sockets().unwrap();
    require_channel(&rt);
    let with_card = Machine {
        monitor: Monitor::Steadyvm,
        ..guest("bulk", 2, 1)
    };
    let bulk = host.start_guest(&with_card, &[BULK], &Silent).unwrap();
    bulk.set_network_up(BULK.address(3)).unwrap();
    require_channel(&bulk);
    for (guest, network) in [(&rt, RT), (&bulk, BULK)] {
        send_to_host(&host, guest, network);
    }

    inside("steadyvm status --snapshot > /run/before.json");
    for (name, nic, vcpu, threads) in [
        ("rt", "rt", 1, &[("70", "vcpu1/rt")][..]),
        ("bulk", "bulk", 0, &[("70", "vcpu0/bulk"), ("75", "vhost-")]),
    ] {
        let vm = format!("{}:{vcpu}", host.guest_pid(name).unwrap());
        let apply = "steadyvm apply --method preempt-rt";
        let warned = inside(&format!("{apply} --nic {nic} --vm {vm} 2>&1 >/dev/null"));
        assert_eq!(warned, "");
        let ranked = inside("ps -eLo cls=,rtprio=,comm= | grep -E 'vcpu|vhost-|irq/.*-rx'");
        let has = |priority: &str, name: &str| {
            let ranked = ranked
                .lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>());
            ranked
                .filter(|words| words[..2] == ["FF", priority] && words[2].contains(name))
                .count()
        };
        assert_eq!(has("80", &format!("{nic}-rx")), 1, "{ranked}");
        for (priority, thread) in threads {
            assert_eq!(has(priority, thread), 1, "{ranked}");
        }
        // Of the monitors' threads no other is a real-time one.
        assert_eq!(has("70", "") + has("75", ""), threads.len(), "{ranked}");
        inside("steadyvm undo");
        inside("steadyvm status --snapshot --compare /run/before.json");
    }
}

/// Debian's QEMU with `steadyvm sockets serve`: the threads that serve have the rank of vhost workers, which the VM has none of.
#[test]
#[ignore = "needs the lab: make lab-tests"]
fn the_servers_of_a_qemu_guests_sockets_are_ranked_and_given_back() {
    let host = shared::host(HostKernel::V6_12Rt);
    let inside = |words: &str| host.connection().text(&["sh", "-euc", words]).unwrap();
    host.make_namespace("vm-served", RT, RT.address(9)).unwrap();
    let machine = Machine {
        monitor: Monitor::Qemu,
        sockets: Some(Sockets {
            namespace: "vm-served".to_owned(),
            poll_us: 0,
        }),
        cards: Vec::new(),
        ..guest("served", 4, 2)
    };
    let served = host.start_guest(&machine, &[RT], &Silent).unwrap();
    served.outsource_sockets().unwrap();
    send_to_host(&host, &served, RT);

    inside("steadyvm status --snapshot > /run/before.json");
    let vm = host.guest_pid("served").unwrap();
    inside(&format!(
        "steadyvm apply --method preempt-rt --nic rt --vm {vm}:1"
    ));
    let servers = || inside("ps -eLo cls=,rtprio=,comm= | grep -E ' sockets[0-9]+/served'");
    let shown = servers();
    let ranked: Vec<Vec<&str>> = shown
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(ranked.len(), 2, "{shown}");
    assert!(
        ranked.iter().all(|words| words[..2] == ["FF", "75"]),
        "{shown}"
    );
    send_to_host(&host, &served, RT);
    inside("steadyvm undo");
    inside("steadyvm status --snapshot --compare /run/before.json");
    assert!(!servers().contains("FF"));
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn outsourced_sockets_are_compared_with_preempt_rt() {
    let out = tempfile::tempdir().unwrap();
    let asked = "preempt-rt,rt-sockets,profile-sockets,levels-sockets,qemu-sockets,rt-process";
    let options = ["--rounds", "1", "--methods", asked];
    let (results, meta) = short_comparison(&options, out.path());
    let names: Vec<&str> = results.rows.iter().map(String::as_str).collect();
    assert_eq!(names.join(","), asked);
    for name in &names {
        require_figures(&results, name);
    }
    let kernels = &meta["kernels"];
    for name in &names {
        let is_stock = *name != "levels-sockets";
        assert_eq!(kernels[name] == kernels[names[0]], is_stock, "{name}");
    }
    let [with_stack, without_stack @ .., process] = &names[..] else {
        panic!("six methods");
    };
    for phase in Phase::ALL {
        let at = |name| results.at(name, phase.cell());
        let requests = at(process).figure("guest.requests");
        assert!(requests.is_none(), "it has no guest");
        let network = |name| {
            ["network_interrupts", "network_softirqs"]
                .map(|counted| at(name).count(&format!("guest.{counted}")))
        };
        for name in without_stack {
            let requests = at(name).count("guest.requests");
            assert_eq!(requests, 350, "with those that warm up: {name}");
            // QEMU's device tells events by interrupts.
            if *name != "qemu-sockets" {
                assert_eq!(network(name), [0, 0], "{name}");
            }
            assert!(at(name).value("guest.exits") >= Some(1.0), "{name}");
        }
        // The same counters count elsewhere.
        let counted = network(with_stack);
        assert!(counted.iter().all(|&count| count > 100), "{counted:?}");
    }
    // Of the paper's table, by the same names.
    let pair = ("rt-sockets", "preempt-rt");
    assert!(ratio_of(&results, pair, Phase::Full, "mean").is_some());
    let mut consoles = names.iter().map(|name| format!("logs/{name}.console"));
    assert!(consoles.all(|console| out.path().join(console).exists()));
}
