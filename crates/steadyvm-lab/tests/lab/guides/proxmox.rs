//! docs/guide/proxmox.md. Debian has no Proxmox VE: a script stands for its program, and VMs are real.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::guides::reader::{Reader, keep_state, require_budgets, require_restored};
use crate::support::debian::{self, DebianHost, carry};
use crate::support::guide;
use crate::support::libvirt::{inside, threads_of, try_inside, write};

/// What stands for Proxmox VE's program: what it does is in its head.
const QM: &str = include_str!("../../programs/qm.sh");

/// What makes Debian's QEMU take the number of a VM as Proxmox VE's does: `programs/qemu_id.c`.
fn qemu_id() -> PathBuf {
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("qemu-id.so");
    let built = Command::new("gcc")
        .args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(guide::root().join("crates/steadyvm-lab/tests/programs/qemu_id.c"))
        .status()
        .unwrap();
    assert!(built.success());
    library
}

/// The number of a VM's process.
fn monitor_of(host: &DebianHost, vm: u32) -> u32 {
    inside(host, &format!("cat /run/qemu-server/{vm}.pid"))
        .trim()
        .parse()
        .unwrap()
}

/// VMs of Proxmox, all of them called web: their names need not differ.
fn create(host: &DebianHost, vm: u32) {
    let words = format!(
        "-machine q35 -cpu host,migratable=off,+invtsc -kernel /boot/guest-kernel -initrd /boot/guest-initramfs \
         -drive file=/dev/vda,if=virtio,format=raw,readonly=on -serial file:/run/qemu-{vm}.console \
         -append \"console=ttyS0 panic=-1 quiet loglevel=4 tsc=reliable no_timer_check -- iperf3 --forceflush -s\""
    );
    inside(
        host,
        &format!("qm create {vm} --name web --cores 2 --memory 256 --args '{words}'"),
    );
}

/// The phases of a VM's life as Proxmox's hookscripts meet them, with the notes of the guide.
fn live_and_die(host: &DebianHost) {
    let budgets = |vm| require_budgets(&threads_of(host, monitor_of(host, vm)));
    for vm in [101, 102] {
        create(host, vm);
        inside(
            host,
            &format!(
                "qm set {vm} --description \"$(printf 'a note\\nrt:budget=8ms\\nrt:period=10ms')\" --hookscript local:snippets/steadyvm"
            ),
        );
    }
    for vm in [100, 101] {
        inside(host, &format!("qm start {vm}"));
        budgets(vm);
    }
    inside(host, "steadyvm status");
    // The third is one too many, which costs the others nothing.
    let (code, said) = try_inside(host, "qm start 102");
    println!("{said}");
    assert_eq!(code, 255, "{said}");
    assert!(
        said.contains("start failed: hookscript error for 102 on pre-start"),
        "{said}"
    );
    inside(host, "[ ! -e /run/qemu-server/102.pid ]");
    budgets(100);
    // One leaves for another node, which takes the configuration along, and no phase is called; what Proxmox calls late
    // has no configuration.
    inside(host, "qm migrate 101 other --online");
    inside(host, "/var/lib/vz/snippets/steadyvm 101 post-stop");
    inside(host, "qm start 102");
    budgets(102);
    budgets(100);
    // One dies, and nobody cleans up before it starts again.
    let died = monitor_of(host, 100);
    inside(
        host,
        &format!("kill -9 {died}; tail --pid={died} --follow /dev/null; qm start 100"),
    );
    budgets(100);
    for vm in [100, 102] {
        inside(host, &format!("qm stop {vm}"));
    }
    inside(host, "! ls /run/steadyvm.d/*.toml 2> /dev/null");
}

#[test]
#[ignore = "needs the lab: make guide-tests"]
fn a_vm_of_proxmox_has_its_budget_as_the_guide_says() {
    const PAGE: &str = "docs/guide/proxmox.md";
    let host = debian::host();
    keep_state(&host);
    write(&host, "/usr/sbin/qm", QM);
    inside(&host, "chmod 755 /usr/sbin/qm");
    carry(&host, &qemu_id(), "/usr/lib");
    create(&host, 100);
    let mut reader = Reader::new(&host);
    reader.follow(
        PAGE,
        "proxmox.rs::a_vm_of_proxmox_has_its_budget_as_the_guide_says",
        |words| {
            if words.contains("--delete hookscript") {
                live_and_die(&host);
            }
            false
        },
    );
    reader.require_no_difference();
    inside(
        &host,
        "steadyvm undo; qm destroy 100; qm destroy 102; rm -r /etc/pve /usr/sbin/qm /usr/lib/qemu-id.so",
    );
    require_restored(&host);
}
