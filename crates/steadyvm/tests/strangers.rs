//! What concerns only others costs a watch no look: links of containers, threads that call themselves VCPUs, VMs that no file names.
//! Real ones, on this machine. Needs root, /dev/kvm and the kernel's first namespaces.
//!
//! A look takes the lock of the machine. So opening its file is counted, by inotify, in a /run of the test's own. Opening the directory's
//! other files comes in between: inotify makes one event of two that are alike.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

#[path = "support/kvm.rs"]
mod kvm;

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use kvm::Vm;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PATIENCE: Duration = Duration::from_secs(60);
const SETTING: &str = "/proc/sys/net/core/netdev_budget";

fn write_site(packets: u32) {
    let vm = "[class.rt]\nvcpu = 65\n[[vm]]\nname = \"strangers-no-such-vm\"\nclass = \"rt\"\n";
    let text = format!("[net]\nbudget_packets = {packets}\n{vm}");
    fs::write("/run/site.toml", text).unwrap();
}

fn await_setting(packets: u32) {
    let until = Instant::now() + PATIENCE;
    while fs::read_to_string(SETTING).unwrap().trim() != packets.to_string() {
        assert!(Instant::now() < until, "not {packets} within {PATIENCE:?}");
        thread::yield_now();
    }
}

/// Has the watch look once: it has read all events of before by then. Returns how often it has looked until that look's end.
fn looks_until_reload(watch: &Child, locks: &Inotify, packets: u32) -> usize {
    write_site(packets);
    kill(Pid::from_raw(watch.id().cast_signed()), Signal::SIGHUP).unwrap();
    await_setting(packets);
    let mut count = 0;
    while let Ok(events) = locks.read_events() {
        let names = events.iter().map(|event| event.name.as_deref());
        count += names.filter(|name| *name == Some("lock".as_ref())).count();
    }
    count
}

fn run(words: &[&str]) {
    assert!(
        Command::new(words[0])
            .args(&words[1..])
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn what_strangers_do_costs_no_look() {
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap();
    if namespace.as_os_str() != "pid:[4026531836]" || File::open("/dev/kvm").is_err() {
        eprintln!("skipped: in a container, or without a usable /dev/kvm");
        return;
    }
    // Mounts are the thread's own from here on, and those of what it starts.
    let place = thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let none: Option<&str> = None;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(none, "/", none, private, none).unwrap();
        mount(
            Some("none"),
            "/run",
            Some("tmpfs"),
            MsFlags::empty(),
            Some("mode=755"),
        )
        .unwrap();
        fs::write("/run/budget", "300\n").unwrap();
        mount(Some("/run/budget"), SETTING, none, MsFlags::MS_BIND, none).unwrap();
        fs::create_dir("/run/steadyvm").unwrap();
        let locks = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
        locks
            .add_watch("/run/steadyvm", AddWatchFlags::IN_OPEN)
            .unwrap();
        write_site(64);
        let mut watch = Command::new(env!("CARGO_BIN_EXE_steadyvm"))
            // Ranks of kernel threads are not of its mounts: they are the machine's.
            .args(["watch", "--undo-at-stop", "/run/site.toml"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        await_setting(64);
        // The looks of the start.
        looks_until_reload(&watch, &locks, 65);

        let begun = Instant::now();
        for number in 0..20 {
            let link = format!("stranger{number}");
            run(&[
                "ip",
                "link",
                "add",
                &link,
                "type",
                "veth",
                "peer",
                "name",
                "stranger-peer",
            ]);
            run(&["ip", "link", "set", &link, "up"]);
            run(&["ip", "link", "delete", &link]);
            let named = thread::Builder::new().name(format!("CPU {number}/KVM"));
            named.spawn(|| ()).unwrap().join().unwrap();
            drop(Vm::create());
        }
        let count = looks_until_reload(&watch, &locks, 66);
        // That of the reload, and one whenever nothing happens for 30 s.
        let most = 1 + begun.elapsed().as_secs() as usize / 30;
        assert!((1..=most).contains(&count), "{count} looks");

        kill(Pid::from_raw(watch.id().cast_signed()), Signal::SIGTERM).unwrap();
        assert!(watch.wait().unwrap().success());
    });
    place.join().unwrap();
}
