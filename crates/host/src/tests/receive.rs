//! Who does a VM's receive work, and what of it the kernel has counted.

use std::time::{Duration, Instant};

use super::net::profile;
use super::scenario::{control, directory};
use super::shared_card::{FILE, both, host};
use super::xdp_card::host_with_xdp;
use crate::address::parse_address;
use crate::discover::ReceiveKind::{Irq, Napi, Sockets, Vhost};
use crate::discover::{self, Processes};
use crate::fake::FakeHost;
use crate::parse::PF_KTHREAD;
use crate::profile::Profile;
use crate::settings::threads::{RESET_ON_FORK, Scheduling, calling_thread};
use crate::settings::{Received, links};
use crate::{HostControl, Machine, PacketAccount, ReceiveEntity, ReceiveWork, receive_work};

fn work(host: &FakeHost, control: &HostControl, profile: &Profile) -> Vec<ReceiveWork> {
    let ways = control.show().unwrap().packet_ways;
    receive_work(&host.machine(), Some(profile), &ways).unwrap()
}

/// Thread numbers and CPU times.
fn times(work: &ReceiveWork) -> Vec<(u32, u64)> {
    let threads = work.threads.iter();
    threads.map(|thread| (thread.tid, thread.cpu_ns)).collect()
}

fn counts(host: &FakeHost, pid: u32, tid: u32, ns: u64) {
    let path = format!("/proc/{pid}/task/{tid}/schedstat");
    host.file(&path, &format!("{ns} 5 6\n"));
}

#[test]
fn the_threads_of_a_vms_function_are_its_own_and_those_of_a_shared_card_nobodys() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    let vms = profile(&format!(
        "{FILE}\n[[vm]]\nname = \"bulk\"\nclass = \"rt\"\n"
    ));
    control.apply_profile(&vms).unwrap();
    // Named as another's: the kernel says whose it is (napi-get).
    host.thread(70, 70, "napi/other-1", PF_KTHREAD);
    let napi = links::Napi {
        id: 8200,
        irq: Some(2340),
        thread: Some(70),
        deferral: None,
        threaded: None,
    };
    host.edit(|state| state.napis.insert("bulk0v0".into(), vec![napi]));
    for (tid, ns) in [(2340, 100), (70, 2000)] {
        counts(&host, tid, tid, ns);
    }
    counts(&host, 100, 109, 30_000);
    counts(&host, 200, 209, 7);
    // The card itself and a VCPU, which are not receive work of one VM.
    counts(&host, 44, 44, 1 << 40);
    counts(&host, 100, 101, 1 << 40);
    let found = work(&host, &control, &vms);
    assert_eq!(times(&found[0]), [(2340, 100), (70, 2000), (109, 30_000)]);
    assert_eq!(found[0].cpu_ns, 32_100);
    let kinds = [(Irq, 100), (Napi, 2000), (Vhost, 30_000)];
    assert_eq!(found[0].by_kind(), kinds.into());
    assert_eq!(found[0].shared_cards, [""; 0]);
    assert_eq!((times(&found[1]), found[1].cpu_ns), (vec![(209, 7)], 7));
    assert_eq!(found[1].shared_cards, ["bulk0"]);
    // A worker that ended is no longer there, nor is what it used.
    host.edit(|state| state.threads.remove(&109));
    let found = work(&host, &control, &vms);
    assert_eq!(found[0].cpu_ns, 2100);
}

#[test]
fn a_card_is_a_vms_own_if_no_other_vm_is_in_its_bridge() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    let vms = profile(
        "[[nic]]\nname = \"bulk0\"\nclass = \"rt\"\n[[vm]]\nname = \"rt\"\nclass = \"rt\"\n",
    );
    control.apply_profile(&vms).unwrap();
    let ports = |names: &[&str]| {
        for name in names {
            host.file(&format!("/sys/class/net/br0/brif/{name}"), "");
        }
    };
    counts(&host, 44, 44, 40);
    counts(&host, 100, 109, 2);
    ports(&["bulk0", "tap-rt"]);
    let found = work(&host, &control, &vms);
    assert_eq!((found[0].cpu_ns, &found[0].shared_cards[..]), (42, &[][..]));
    ports(&["tap-bulk"]);
    let found = work(&host, &control, &vms);
    assert_eq!(found[0].cpu_ns, 2);
    assert_eq!(found[0].shared_cards, ["bulk0"]);
}

/// Process 300 serves the sockets of VM 100. A stranger, 400, calls itself so, and makes such memory: it shares none with the VM.
fn serve_sockets(host: &FakeHost) {
    let memory = "/memfd:steadyvm-sockets (deleted)";
    for (pid, inode) in [(300, 41), (400, 42), (100, 41)] {
        host.open(pid, 40, memory, None);
        host.file(
            &format!("/proc/{pid}/fdinfo/40"),
            &format!("pos:\t0\nmnt_id:\t1\nino:\t{inode}\n"),
        );
    }
    for pid in [300, 400] {
        host.thread(pid, pid, "steadyvm", 0);
        host.thread(pid, pid + 1, "output/rt", 0);
        host.thread(pid, pid + 2, "sockets0/rt", 0);
    }
}

#[test]
fn a_server_of_sockets_has_the_rank_of_its_vms_class_if_root_or_the_monitors_user_runs_it() {
    let file = "[[vm]]\nname = \"rt\"\nclass = \"rt\"\n[[vm]]\nname = \"bulk\"\nclass = \"rt\"\n";
    let scheduling = |host: &FakeHost, tid: u32| host.state().threads[&tid].scheduling;
    for (server, monitor, is_ranked) in [
        ("0\t0\t0\t0", "0\t0\t0\t0", true),
        ("1000\t1000\t1000\t1000", "0\t0\t0\t0", false),
        ("1000\t0\t0\t0", "0\t0\t0\t0", false),
    ] {
        let (host, directory) = (host(), directory());
        let control = control(&host, &directory);
        serve_sockets(&host);
        for (pid, users) in [(300, server), (400, server), (100, monitor)] {
            host.file(
                &format!("/proc/{pid}/status"),
                &format!("Name:\tx\nUid:\t{users}\n"),
            );
        }
        control.apply_profile(&profile(file)).unwrap();
        let expected = if is_ranked {
            Scheduling::fifo(75, 0)
        } else {
            Scheduling::normal()
        };
        assert_eq!(scheduling(&host, 302), expected, "{server}");
        for tid in [300, 301, 402] {
            assert_eq!(scheduling(&host, tid), Scheduling::normal(), "{tid}");
        }
        control.undo().unwrap();
        assert_eq!(scheduling(&host, 302), Scheduling::normal());
    }
}

#[test]
fn servers_of_sockets_share_the_budget_of_the_vms_workers() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    serve_sockets(&host);
    for pid in [100, 300] {
        host.file(
            &format!("/proc/{pid}/status"),
            "Name:\tx\nUid:\t0\t0\t0\t0\n",
        );
    }
    let file = "[[vm]]\nname = \"rt\"\nreceive = { vhost_budget = \"4ms\", workers = 2 }\n";
    control.apply_profile(&profile(file)).unwrap();
    let share = Scheduling::deadline(2_000_000, 10_000_000, 10_000_000, RESET_ON_FORK);
    let scheduling = |tid: u32| host.state().threads[&tid].scheduling;
    assert_eq!([109, 302].map(scheduling), [share; 2]);
    assert_eq!(scheduling(402), Scheduling::normal());
    control.undo().unwrap();
    assert_eq!([109, 302].map(scheduling), [Scheduling::normal(); 2]);
}

#[test]
fn a_server_of_sockets_is_that_of_the_vm_that_it_shares_memory_with() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    serve_sockets(&host);
    for pid in [300, 400] {
        counts(&host, pid, pid + 2, 50);
        counts(&host, pid, pid, 1000);
    }
    counts(&host, 100, 109, 1);
    let found = work(&host, &control, &both());
    assert_eq!(times(&found[0]), [(109, 1), (302, 50)]);
    assert_eq!(found[0].by_kind(), [(Vhost, 1), (Sockets, 50)].into());
    assert_eq!(times(&found[1]), [(209, 0)]);
}

#[test]
fn polls_of_a_card_that_sorts_are_split_by_packets() {
    let (host, directory) = (host_with_xdp(), directory());
    let control = control(&host, &directory);
    control.apply_profile(&both()).unwrap();
    let address = |last| parse_address(&format!("52:54:00:00:00:{last:02x}")).unwrap();
    let received = |last, packets, discarded| {
        let bytes = packets * 64;
        let all = Received {
            packets,
            bytes,
            discarded,
        };
        host.edit(|state| state.received.insert(address(last), all));
    };
    let polls = |ns: u64| {
        for tid in [44, 45] {
            counts(&host, tid, tid, ns / 2);
        }
    };
    let ways = control.show().unwrap().packet_ways;
    let machine = host.machine();
    let threads = machine.all_threads().unwrap();
    let processes = Processes::of(&threads);
    let sorted = |pid, number: usize| {
        let vm = discover::vm(&machine, &threads, pid).unwrap();
        let entity = ReceiveEntity::of(&machine, &processes, &vm, Some(&ways[number]));
        assert_eq!(entity.shared_cards, ["bulk0"]);
        entity.sorted.unwrap()
    };
    let cards = [sorted(100, 0), sorted(200, 1)];
    let look = || cards.each_ref().map(|card| card.counts(&machine).unwrap());
    received(1, 100, 0);
    received(2, 1_000_000, 0);
    polls(1 << 40);
    let before = look();
    // 1,000 packets since: 300 of the first, 500 of the second VM, most of them dropped, and 200 of others.
    received(1, 400, 0);
    received(2, 1_000_500, 499);
    host.edit(|state| state.passed = 200);
    polls((1 << 40) + 2_000_000);
    let after = look();
    let shares = [0, 1].map(|vm| after[vm].polls_since_ns(&before[vm]));
    assert_eq!(shares, [Some(600_000), Some(1_000_000)]);
    assert_eq!(after[1].packets().discarded, 499);
    // Without a packet nobody is charged, and a thread that began anew takes nothing back.
    assert_eq!(after[0].polls_since_ns(&after[0]), None);
    polls(10);
    received(1, 401, 0);
    assert_eq!(look()[0].polls_since_ns(&after[0]), Some(0));
    let found = work(&host, &control, &both());
    let card = found[1].card_packets.as_ref().unwrap();
    assert_eq!(
        (card.card.as_str(), card.received.packets),
        ("bulk0", 1_000_500)
    );
}

/// The CPU time of its function's threads and its workers over the packets that its guest got.
#[test]
fn a_packets_cost_is_that_of_the_threads_that_received_it() {
    let (host, directory) = (host(), directory());
    let control = control(&host, &directory);
    let vms = profile(&format!(
        "{FILE}\n[[vm]]\nname = \"bulk\"\nclass = \"rt\"\n"
    ));
    control.apply_profile(&vms).unwrap();
    let napi = links::Napi {
        id: 8200,
        irq: Some(2340),
        thread: Some(70),
        deferral: None,
        threaded: None,
    };
    host.thread(70, 70, "napi/other-1", PF_KTHREAD);
    host.edit(|state| state.napis.insert("bulk0v0".into(), vec![napi]));
    let ways = control.show().unwrap().packet_ways;
    let machine = host.machine();
    let account = |vm: &str| PacketAccount::of(&machine, vm, Some(&vms), &ways);
    let now = |napi_ns: u64, vhost_ns: u64, packets: u64| {
        counts(&host, 2340, 2340, 0);
        counts(&host, 70, 70, napi_ns);
        counts(&host, 100, 109, vhost_ns);
        let path = "/sys/class/net/tap-rt/statistics/tx_packets";
        host.file(path, &format!("{packets}\n"));
        account("rt").unwrap().look(&machine)
    };
    let before = now(1_000, 2_000, 500).unwrap();
    let after = now(1_000 + 30_000, 2_000 + 90_001, 500 + 40).unwrap();
    assert_eq!(after.cost_since_ns(&before), Some(3_001));
    // Too few to tell, and counts that began anew.
    let few = now(40_000, 100_000, 500 + 40 + 19).unwrap();
    assert_eq!(few.cost_since_ns(&after), None);
    assert_eq!(before.cost_since_ns(&after), None);
    // The card of the other is everybody's, and no VM has the third name.
    let error = account("bulk").unwrap_err().to_string();
    assert!(error.contains("no way of its own"), "{error}");
    let error = account("none").unwrap_err().to_string();
    assert!(error.contains("does not run"), "{error}");
    // A thread that went takes the account with it.
    let account = account("rt").unwrap();
    host.edit(|state| state.threads.remove(&70));
    assert_eq!(account.look(&machine), None);
}

/// A later thread with the number of one that ended has a count of its own.
#[test]
fn a_count_is_of_this_very_thread_and_in_ticks_where_the_kernel_has_no_better() {
    let host = host();
    let machine = host.machine();
    let vhost = machine.thread(100, 109).unwrap().id;
    counts(&host, 100, 109, 1234);
    assert_eq!(machine.cpu_time_ns(&vhost), Some(1234));
    counts(&host, 100, 109, 0);
    host.file("/proc/100/task/109/schedstat", "0 0 0\n");
    assert_eq!(machine.cpu_time_ns(&vhost), Some(0));
    let stat = "109 (vhost-100) S 1 0 0 0 -1 0 0 0 0 0 3 4 0 0 20 0 1 0 327 0 0\n";
    host.file("/proc/100/task/109/stat", stat);
    assert_eq!(machine.cpu_time_ns(&vhost), Some(70_000_000));
    host.edit(|state| state.threads.get_mut(&109).unwrap().start_time += 1);
    host.file("/proc/100/task/109/stat", &stat.replace("327", "328"));
    assert_eq!(machine.cpu_time_ns(&vhost), None);
}

/// Of threads of this test: what one used, and nothing of the other's.
#[test]
fn the_running_kernel_counts_what_a_thread_used() {
    let machine = Machine::real();
    let own = || {
        machine
            .thread(std::process::id(), calling_thread())
            .unwrap()
            .id
    };
    let computed = Duration::from_millis(60);
    let (busy, counted, used) = std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let (thread, begin) = (own(), Instant::now());
            let mut rounds = 0_u64;
            let cpu_time = || nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID);
            let used = || Duration::from(cpu_time().unwrap());
            while used() < computed && begin.elapsed() < Duration::from_secs(20) {
                rounds = std::hint::black_box(rounds + 1);
            }
            let counted = machine.cpu_time_ns(&thread).unwrap();
            (thread, counted, used())
        });
        busy.join().unwrap()
    });
    let counted = Duration::from_nanos(counted);
    // The figure of procfs is from the thread's last tick or switch, the other from now.
    assert!(counted <= used, "{counted:?} {used:?}");
    assert!(
        counted + Duration::from_millis(20) >= computed,
        "{counted:?}"
    );
    // It has ended.
    assert_eq!(machine.cpu_time_ns(&busy), None);
    let idle = std::thread::scope(|scope| {
        let idle = scope.spawn(|| machine.cpu_time_ns(&own()).unwrap());
        idle.join().unwrap()
    });
    assert!(Duration::from_nanos(idle) < computed, "{idle}");
}
