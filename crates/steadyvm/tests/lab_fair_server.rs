//! The fair server of a real kernel in the emulated host: the pieces in which it gives normal
//! threads their share, before and after steadyvm bounds them, and how they come back. As
//! tests/lab.rs.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

use std::path::Path;

use steadyvm_lab::artifact::Cache;
use steadyvm_lab::host::EmulatedHost;
use steadyvm_lab::laboratory::{HostKernel, Laboratory};
use steadyvm_lab::progress::Silent;

/// How normal threads got the CPU of a FIFO thread that never leaves it.
#[derive(Debug)]
struct Pieces {
    mean_ms: f64,
    /// Of the time that passed.
    share: f64,
}

/// Lets a FIFO thread and a normal one compute on CPU 1 for some seconds: that is what is measured. How long the FIFO thread waited
/// for the CPU, and how often it came back to it, are the kernel's own counts: but for the kernel's
/// migration thread nobody stands above it, so whoever else had the CPU had it from the server.
fn pieces(host: &EmulatedHost) -> Pieces {
    let script = "
        taskset -cp 0 $$ > /dev/null
        taskset -c 1 chrt -f 60 sh -c 'while :; do :; done' & fifo=$!
        taskset -c 1 sh -c 'while :; do :; done' & normal=$!
        until [ \"$(chrt -p $fifo 2> /dev/null | grep -c SCHED_FIFO)\" = 1 ]; do :; done
        read before _ < /proc/uptime; read _ waited_before count_before < /proc/$fifo/schedstat
        sleep 6
        read _ waited count < /proc/$fifo/schedstat; read after _ < /proc/uptime
        kill -9 $normal $fifo
        echo $before $after $waited_before $waited $count_before $count";
    let text = inside(host, script);
    let words = text.split_whitespace();
    let numbers: Vec<f64> = words.map(|word| word.parse().unwrap()).collect();
    let [before, after, waited_before, waited, count_before, count] = numbers[..] else {
        panic!("{text}");
    };
    let waited_ms = (waited - waited_before) / 1e6;
    Pieces {
        mean_ms: waited_ms / (count - count_before),
        share: waited_ms / 1e3 / (after - before),
    }
}

fn inside(host: &EmulatedHost, words: &str) -> String {
    let done = host.connection().text(&["sh", "-euc", words]);
    done.unwrap_or_else(|error| panic!("{words}: {error}"))
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn normal_threads_get_their_share_in_short_pieces_and_undo_gives_the_long_ones_back() {
    let logs = tempfile::tempdir().unwrap();
    let cache = Cache::of_this_machine().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_steadyvm"));
    let kernels = [HostKernel::PreemptRt];
    let laboratory = Laboratory::open(&cache, program, logs.path(), &kernels, &Silent).unwrap();
    let host =
        EmulatedHost::boot(&laboratory.host("fair", HostKernel::PreemptRt).unwrap()).unwrap();
    let service = "sleep 600 < /dev/null > /dev/null 2>&1 & echo $! > /run/service";
    inside(&host, service);
    let apply =
        "steadyvm host apply --method preempt-rt --rt-nic rt --rt-process $(cat /run/service)";
    inside(&host, "steadyvm host snapshot > /run/before.json");

    inside(&host, &format!("{apply} --keep-fair-server"));
    let long = pieces(&host);
    inside(&host, "steadyvm host undo");
    inside(&host, apply);
    let short = pieces(&host);
    eprintln!("kept: {long:?}; bounded: {short:?}");
    // The kernel's 50 ms in 1 s; 1 ms in 20 ms, which it ends at a tick.
    assert!(long.mean_ms > 20.0, "{long:?}");
    assert!(short.mean_ms < 5.0, "{short:?}");
    // Normal threads are not worse off.
    assert!(short.share > 0.8 * long.share, "{long:?} {short:?}");
    assert!((0.02..0.2).contains(&short.share), "{short:?}");
    inside(&host, "steadyvm host undo");
    inside(&host, "steadyvm host snapshot --compare /run/before.json");

    // Killed between the first two of the writes that lead there, of one CPU and of the other.
    for cpu in [0, 1] {
        let directory = format!("/sys/kernel/debug/sched/fair_server/cpu{cpu}");
        let inject = format!(
            "strace -f -o /dev/null -P {directory}/runtime -e inject=write:signal=KILL:when=1"
        );
        let killed = inside(&host, &format!("{inject} {apply} || echo code $?"));
        assert!(killed.contains("code 137"), "{killed}");
        let halfway = inside(
            &host,
            &format!("cat {directory}/runtime {directory}/period"),
        );
        assert_eq!(halfway, "50000000\n500000000\n");
        inside(&host, "steadyvm host undo");
        inside(&host, "steadyvm host snapshot --compare /run/before.json");
    }
    // The kernel has nothing to say about it.
    let complaints = inside(&host, "dmesg | grep -iE 'WARNING|BUG:|stall' || true");
    assert_eq!(complaints, "");
}
