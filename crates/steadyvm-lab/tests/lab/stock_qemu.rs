//! Outsourced sockets for a guest of Debian's stock QEMU: `steadyvm sockets serve` in the emulated host, and
//! what a call costs there. As tests/lab.

use crate::support::outsourced::{Guest, Lab, PATIENCE, require_answers, softirqs, stream};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use steadyvm_lab::agent::{Process, Status};
use steadyvm_report::picture::{Bar, Group};
use steadyvm_report::results_page::{self, Details};
use steadyvm_report::{Answer, Finding, Over, Picture};
use steadyvm_stats::Summary;
use steadyvm_stats::bootstrap::{BootstrapOptions, draw_latency, ratio};

const DOOR: &str = "/run/sockets.sock";
const VCPUS: u32 = 2;
/// The first of the figures that are drawn.
const MEAN: usize = 0;
/// Turns of each guest, and calls in each; the first turn warms up.
const TURNS: usize = 11;
const CALLS: usize = 200;

/// The server of a guest's sockets, in the host.
fn serve(lab: &Lab, namespace: &str) -> Process {
    let channels = VCPUS.to_string();
    let words = [
        "sh",
        "-c",
        "exec steadyvm sockets serve --socket \"$0\" --namespace \"$1\" --channels \"$2\" --name qemu \
         --allow-host-network 2>&1",
        DOOR,
        namespace,
        channels.as_str(),
    ];
    let mut server = lab.host.connection().spawn(&words).unwrap();
    server.wait_for_line("is waited for", PATIENCE).unwrap();
    server
}

/// Starts the uploaded guest in the distribution's QEMU; its console is the process's input and output. Its image may be
/// another guest's too: both monitors have QEMU's locks.
fn qemu(lab: &Lab) -> Process {
    let words = format!(
        "exec qemu-system-x86_64 -nodefaults -no-user-config -no-reboot -display none \
         -M q35,accel=kvm,hpet=off -cpu host,migratable=off,+invtsc -smp {VCPUS} -m 256M -serial stdio \
         -kernel /boot/guest-kernel -initrd /tmp/initramfs \
         -append 'console=ttyS0 panic=-1 tsc=reliable no_timer_check loglevel=4 -- sh /script' \
         -drive file=/dev/vda,format=raw,if=virtio,readonly=on \
         -chardev socket,id=sockets,path={DOOR} \
         -device ivshmem-doorbell,chardev=sockets,vectors={}",
        VCPUS + 1
    );
    lab.host.connection().spawn(&["sh", "-c", &words]).unwrap()
}

/// Interrupts of the sockets' device, by /proc/interrupts.
fn interrupts(console: &str) -> u64 {
    let lines = console
        .lines()
        .filter(|line| line.contains("steadyvm_sockets") && line.contains("PCI-MSI"));
    let counts = lines.flat_map(|line| line.split_whitespace().skip(1).take(VCPUS as usize));
    counts.map(|count| count.parse::<u64>().unwrap()).sum()
}

#[test]
#[ignore = "needs the lab: make program-tests"]
fn a_guest_of_stock_qemu_answers_netrt_through_an_outsourced_socket() {
    let place = tempfile::tempdir().unwrap();
    let lab = Lab::boot("qemu-sockets", place.path());
    lab.upload_guest(
        "steadyvm netrt serve 0.0.0.0:7700 & netrt=$!\n\
         iperf3 --forceflush -s -1 -p 5201\n\
         iperf3 --forceflush -s -1 -p 5202\n\
         kill $netrt\n\
         wait $netrt\n\
         cat /proc/softirqs /proc/interrupts\n\
         rmmod steadyvm_sockets && echo unloaded\n",
        &[],
    );
    let server = serve(&lab, "current");
    let mut guest = qemu(&lab);
    guest.wait_for_line("istening", PATIENCE).unwrap();

    require_answers(&lab);
    stream(&lab, "5201", &["-n", "32M"]);
    guest.wait_for_line("istening", PATIENCE).unwrap();
    stream(&lab, "5202", &["-n", "32M", "-R"]);

    let done = guest.finish(PATIENCE).unwrap();
    let console = done.text().replace('\r', "");
    assert_eq!(done.status, Status::Exited(0), "{console}");
    for title in ["NET_RX:", "NET_TX:"] {
        assert_eq!(
            softirqs(&console, title).iter().sum::<u64>(),
            0,
            "{console}"
        );
    }
    assert!(interrupts(&console) > 0, "{console}");
    assert!(console.contains("unloaded"), "{console}");
    assert!(!console.contains("Call Trace"), "{console}");
    let done = server.finish(PATIENCE).unwrap();
    assert_eq!(done.status, Status::Exited(0), "{}", done.text());
    assert!(done.text().contains("the front end, which has gone"));
    // What it cost in bells and interrupts.
    println!("{}", done.text().trim_end());
    let left =
        lab.host
            .connection()
            .text(&["sh", "-c", &format!("ls {DOOR} 2>&1; pgrep -x steadyvm")]);
    assert!(left.is_err() || left.unwrap().contains("No such file"));
}

/// One guest of each monitor at once, which take turns; no time is asserted.
#[test]
#[ignore = "needs the lab: make program-tests"]
fn the_cost_of_a_call_by_a_thread_of_the_host_is_told() {
    let place = tempfile::tempdir().unwrap();
    let lab = Lab::boot("qemu-calls", place.path());
    let program = build(&lab);
    lab.upload_guest(
        &format!("/calls {CALLS} < /dev/ttyS0\n"),
        &[("/calls", &program)],
    );
    let server = serve(&lab, "new");
    let mut guests = [
        lab.start_guest_with_input(Guest {
            vcpus: VCPUS,
            memory_mib: 256,
            namespace: "new",
        }),
        qemu(&lab),
    ];
    for guest in &mut guests {
        guest.wait_for_line("calls are ready", PATIENCE).unwrap();
    }
    let mut turns: [Vec<Vec<u64>>; 2] = Default::default();
    for turn in 0..TURNS {
        for (guest, turns) in guests.iter_mut().zip(&mut turns) {
            guest.input(b"go\n").unwrap();
            let line = guest.wait_for_line("calls in ns:", PATIENCE).unwrap();
            let (_, samples) = line.trim_end().split_once("ns: ").unwrap();
            let samples: Vec<u64> = samples.split(' ').map(|ns| ns.parse().unwrap()).collect();
            assert_eq!(samples.len(), CALLS);
            if turn > 0 {
                turns.push(samples);
            }
        }
    }
    for guest in guests {
        guest.input(b"end\n").unwrap();
        assert_eq!(guest.finish(PATIENCE).unwrap().status, Status::Exited(0));
    }
    assert_eq!(server.finish(PATIENCE).unwrap().status, Status::Exited(0));
    let (answer, details) = page(&turns);
    println!("{}\n{}", answer.in_short(), details.tables);
    if let Some(file) = std::env::var_os("STEADYVM_PAGE") {
        results_page::write(Path::new(&file), &answer, &details).unwrap();
    }
}

/// The results page.
fn page(turns: &[Vec<Vec<u64>>; 2]) -> (Answer, Details) {
    let command = "STEADYVM_PAGE=$PWD/docs/results/sockets-serve.md cargo test -p steadyvm-lab-program --test lab -- --ignored \
         --nocapture the_cost";
    let warning = "getsockname(2) of an outsourced socket, from the guest's system call to its return, in µs: the least that the host \
         can be asked for. A guest \
         of `steadyvm up` (the VCPU's own thread serves it) and one of Debian's QEMU with `steadyvm sockets serve` (a \
         thread of the host serves it) run in one emulated host and take turns; nothing has a real-time priority. \
         Compare the two, and never take these microseconds for hardware's.";
    let mut page = String::from(
        "| served by | n | mean | SD | p50 | p99 | max |\n|---|---|---|---|---|---|---|\n",
    );
    let mut means = Vec::new();
    for (name, turns) in ["the VCPU's thread", "the server's thread"]
        .iter()
        .zip(turns)
    {
        let all = Summary::of(&turns.concat()).unwrap();
        let us = |ns: f64| ns / 1e3;
        means.push(Bar::new(name, Some(us(all.mean_ns)), |us| {
            format!("{us:.1} µs")
        }));
        let sd = all.sd_ns.unwrap_or_default();
        writeln!(
            page,
            "| {name} | {} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} |",
            all.n,
            us(all.mean_ns),
            us(sd),
            us(all.p50_ns as f64),
            us(all.p99_ns as f64),
            us(all.max_ns as f64),
        )
        .unwrap();
    }
    let draws = [0, 1].map(|way| {
        let turns: Vec<&[u64]> = turns[way].iter().map(Vec::as_slice).collect();
        draw_latency(&turns, BootstrapOptions::default(), way as u64)
    });
    let ratio = ratio(&draws[1], &draws[0], MEAN).unwrap();
    writeln!(
        page,
        "\nThe server's thread over the VCPU's, mean: {:.2} {:.2?} (95 %, {} turns each).",
        ratio.estimate,
        ratio.interval().unwrap(),
        TURNS - 1,
    )
    .unwrap();
    let answer = Answer {
        question: "What does an outsourced call cost with QEMU instead of `steadyvm up`?"
            .to_owned(),
        findings: vec![Finding::Ratio {
            of: "a call that a thread of the host serves".to_owned(),
            over: "the mean of one that the VCPU's own thread serves".to_owned(),
            ratio: Some(Over::estimate(&ratio)),
        }],
        picture: Picture {
            title: "Mean time of a call; shorter is better".to_owned(),
            groups: vec![Group {
                name: "getsockname(2) of an outsourced socket".to_owned(),
                bars: means,
            }],
        },
    };
    let details = Details {
        command: command.to_owned(),
        warning: warning.to_owned(),
        tables: page,
        facts: Vec::new(),
    };
    (answer, details)
}

fn build(lab: &Lab) -> PathBuf {
    let program = lab.place.join("calls");
    let source = "tests/programs/calls.c";
    let built = Command::new("gcc")
        .args(["-O2", "-Wall", "-Werror", "-static", source, "-o"])
        .arg(&program)
        .status();
    assert!(built.unwrap().success());
    program
}
