//! An emulated host as Debian 13 boots it: systemd, `AppArmor` in force, libvirtd and the others as their packages start
//! them, and our package, which the guide's own command installs.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use steadyvm_lab::artifact::{Cache, UserSpace};
use steadyvm_lab::host::EmulatedHost;
use steadyvm_lab::init::SUCCESSOR;
use steadyvm_lab::laboratory::{HostKernel, Laboratory};
use steadyvm_lab::progress::Silent;

use crate::support::guide;
use crate::support::libvirt::{inside, write};

/// Where package and wheels lie for `apt install ./…`, as a reader has downloaded them.
pub const HOME: &str = "/root";
/// The command of the page that installs the package.
const INSTALL: &str = "apt install ./";
/// Guests are root's, as the lab's bridge is, and write their console themselves: what confines them is `AppArmor`.
const QEMU_CONF: &str = "security_driver = \"apparmor\"\nuser = \"root\"\ngroup = \"root\"\ndynamic_ownership = 0\n\
                         remember_owner = 0\nstdio_handler = \"file\"\n";
/// There is no polkit to ask.
const LIBVIRTD_CONF: &str = "auth_unix_rw = \"none\"\n";
/// libvirt's own, and what they include.
const PROFILES: &str =
    "/etc/apparmor.d/usr.sbin.libvirtd /etc/apparmor.d/usr.lib.libvirt.virt-aa-helper";

static KEPT: Mutex<Option<EmulatedHost>> = Mutex::new(None);

/// The host that the guides' tests share.
pub struct DebianHost(Option<EmulatedHost>);

impl Deref for DebianHost {
    type Target = EmulatedHost;

    fn deref(&self) -> &EmulatedHost {
        // It is there until this is dropped.
        self.0.as_ref().unwrap()
    }
}

impl Drop for DebianHost {
    /// That of a test that failed is not used again.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let words = "journalctl --no-pager --lines 80; tail -n 20 /var/log/libvirt/qemu/*.log";
            let said = self.connection().text(&["sh", "-c", words]);
            println!("{}", said.unwrap_or_default());
            return;
        }
        *KEPT.lock().unwrap_or_else(PoisonError::into_inner) = self.0.take();
    }
}

/// A host whose cards are eth1, for the VM that matters, and eth0.
pub fn host() -> DebianHost {
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner).take();
    match kept {
        Some(host) => DebianHost(Some(host)),
        None => boot(),
    }
}

fn boot() -> DebianHost {
    let logs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debian-host");
    let cache = Cache::of_this_machine().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_steadyvm-lab"));
    let kernels = [HostKernel::V6_12Rt];
    let laboratory = Laboratory::open(&cache, program, &logs, &kernels, &Silent).unwrap();
    let laboratory = laboratory
        .with_user_space(UserSpace::Guides, &cache, &Silent)
        .unwrap();
    let mut host = laboratory.host("debian", HostKernel::V6_12Rt).unwrap();
    // Consoles are the lab's, and nothing answers for devices: there is no udev.
    let words = format!(" {SUCCESSOR}=/usr/lib/systemd/systemd systemd.unit=basic.target");
    host.kernel_words.push_str(&words);
    // From here on a step that fails shows the journal.
    let host = DebianHost(Some(EmulatedHost::boot(&host).unwrap()));
    inside(&host, "systemctl is-system-running --wait || true");
    // Everybody is root here.
    write(&host, "/usr/local/bin/sudo", "#!/bin/sh\nexec \"$@\"");
    inside(&host, "chmod 755 /usr/local/bin/sudo");
    for (card, name) in [("rt", "eth1"), ("bulk", "eth0")] {
        inside(
            &host,
            &format!(
                "ip link set {card} down; ip link set {card} name {name}; ip link set {name} up"
            ),
        );
    }
    write(&host, "/etc/libvirt/qemu.conf", QEMU_CONF);
    write(&host, "/etc/libvirt/libvirtd.conf", LIBVIRTD_CONF);
    inside(&host, &format!("apparmor_parser --replace {PROFILES}"));
    install_package(&host);
    inside(&host, "systemctl start libvirtd.service");
    inside(&host, "virsh --quiet version > /dev/null");
    host
}

/// Our package, by the words of the guide; the program that the lab brought is out of the way then.
fn install_package(host: &EmulatedHost) {
    carry(host, &package(), HOME);
    inside(
        host,
        "rm /usr/local/bin/steadyvm; hash -r; : > /var/lib/dpkg/status",
    );
    let blocks = guide::blocks(&guide::page("docs/guide/host.md"));
    let commands = blocks.iter().filter_map(|it| match &it.content {
        guide::Content::Commands(commands) => commands.first(),
        _ => None,
    });
    let install = commands
        .map(|it| &it.words)
        .find(|it| it.starts_with(INSTALL));
    inside(host, &format!("cd {HOME}; {}", install.unwrap()));
}

/// The Debian package of the program under test.
fn package() -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
    let built = Command::new(guide::root().join("tools/packages"))
        .arg(&place)
        .arg(
            crate::support::host_program::host_program()
                .parent()
                .unwrap(),
        )
        .output()
        .unwrap();
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    place.join(format!("steadyvm_{}_amd64.deb", env!("CARGO_PKG_VERSION")))
}

/// Copies a file into a directory of the host.
pub fn carry(host: &EmulatedHost, file: &Path, directory: &str) {
    let name = file.file_name().unwrap().display();
    let words = format!("mkdir -p {directory} && exec cat > {directory}/{name}");
    let process = host.connection().spawn(&["sh", "-euc", &words]).unwrap();
    process.input(&std::fs::read(file).unwrap()).unwrap();
    process.end_of_input().unwrap();
    let done = process.finish(crate::support::libvirt::PATIENCE).unwrap();
    assert_eq!(done.status.shell_code(), 0, "{}", done.text());
}

/// The `AppArmor` profile that a process runs under, with its mode.
pub fn confinement(host: &EmulatedHost, process: u32) -> String {
    inside(host, &format!("cat /proc/{process}/attr/apparmor/current"))
        .trim()
        .to_owned()
}
