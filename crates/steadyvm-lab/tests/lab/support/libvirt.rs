//! An emulated host with libvirtd and our package's hook, and domains in it.

use std::ops::Deref;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use steadyvm_lab::agent::Process;
use steadyvm_lab::artifact::{Cache, UserSpace};
use steadyvm_lab::host::EmulatedHost;
use steadyvm_lab::laboratory::{HostKernel, Laboratory};
use steadyvm_lab::progress::Silent;

/// libvirt asks QEMU eight hundred questions before a domain runs.
pub const PATIENCE: Duration = Duration::from_secs(400);

/// Nothing here keeps guests apart: no security module, no users, no control groups, no namespaces. What writes a
/// guest's console is QEMU itself.
const QEMU_CONF: &str = "security_driver = \"none\"\nuser = \"root\"\ngroup = \"root\"\ndynamic_ownership = 0\n\
                         remember_owner = 0\ncgroup_controllers = [ ]\nnamespaces = [ ]\nstdio_handler = \"file\"\n";
/// There is no polkit to ask.
const LIBVIRTD_CONF: &str = "auth_unix_rw = \"none\"\n";
/// Our package's hook, and where the package puts it.
const HOOK: &str = include_str!("../../../../../packaging/libvirt-hook");
const HOOK_FILE: &str = "/etc/libvirt/hooks/qemu.d/steadyvm";

static KEPT: Mutex<Option<EmulatedHost>> = Mutex::new(None);

/// The host that all tests share: libvirt asks QEMU for a minute what it can do, once a host.
pub struct LibvirtHost(Option<EmulatedHost>);

impl Deref for LibvirtHost {
    type Target = EmulatedHost;

    fn deref(&self) -> &EmulatedHost {
        // It is there until this is dropped.
        self.0.as_ref().unwrap()
    }
}

impl Drop for LibvirtHost {
    /// That of a test that failed is not used again.
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", logs(self));
            return;
        }
        *KEPT.lock().unwrap_or_else(PoisonError::into_inner) = self.0.take();
    }
}

/// A host that has libvirt's programs, with libvirtd.
pub fn host() -> LibvirtHost {
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner).take();
    LibvirtHost(Some(kept.unwrap_or_else(boot)))
}

fn boot() -> EmulatedHost {
    let logs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libvirt-host");
    let cache = Cache::of_this_machine().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_steadyvm-lab"));
    let kernels = [HostKernel::V6_12Rt];
    let laboratory = Laboratory::open(&cache, program, &logs, &kernels, &Silent).unwrap();
    let laboratory = laboratory
        .with_user_space(UserSpace::Libvirt, &cache, &Silent)
        .unwrap();
    let host = laboratory.host("libvirt", HostKernel::V6_12Rt).unwrap();
    let host = EmulatedHost::boot(&host).unwrap();
    write(&host, "/etc/libvirt/qemu.conf", QEMU_CONF);
    write(&host, "/etc/libvirt/libvirtd.conf", LIBVIRTD_CONF);
    // Where the package has it.
    inside(&host, "ln -sf /usr/local/bin/steadyvm /usr/bin/steadyvm");
    start_libvirtd(&host);
    inside(&host, "virsh --quiet version > /dev/null");
    host
}

/// Runs words of a shell in the host; their output.
pub fn inside(host: &EmulatedHost, words: &str) -> String {
    let (code, said) = try_inside(host, words);
    assert_eq!(code, 0, "{words}: {said}");
    said
}

/// The same with their exit code; errors are part of the output.
pub fn try_inside(host: &EmulatedHost, words: &str) -> (i32, String) {
    let words = format!("exec 2>&1; {words}");
    let process = host.connection().spawn(&["sh", "-euc", &words]).unwrap();
    process.end_of_input().unwrap();
    let done = process.finish(PATIENCE);
    let done = done.unwrap_or_else(|error| panic!("{words}: {error}\n{}", logs(host)));
    (done.status.shell_code(), done.text())
}

/// What libvirt has written.
fn logs(host: &EmulatedHost) -> String {
    let words = "tail -n 20 /var/log/libvirt/libvirtd.log /var/log/libvirt/qemu/*.log";
    let said = host.connection().text(&["sh", "-c", words]);
    said.unwrap_or_default()
}

pub fn write(host: &EmulatedHost, path: &str, text: &str) {
    inside(host, &format!("cat > {path} <<'END'\n{text}\nEND"));
}

/// It goes into the background when it answers.
pub fn start_libvirtd(host: &EmulatedHost) {
    inside(host, "libvirtd -d");
}

/// Ends libvirtd, which leaves its domains running, and waits until it is gone.
pub fn end_libvirtd(host: &EmulatedHost) {
    inside(
        host,
        "pid=$(cat /run/libvirtd.pid); kill $pid; while kill -0 $pid 2> /dev/null; do :; done",
    );
}

/// libvirtd looks for hooks when it starts.
pub fn restart_libvirtd(host: &EmulatedHost) {
    end_libvirtd(host);
    start_libvirtd(host);
}

pub fn install_hook(host: &EmulatedHost) {
    // There is no system's log.
    let logged = HOOK.replace("\"$@\"", "\"$@\" 2>> /run/hook.log");
    write(host, HOOK_FILE, &logged);
    inside(host, &format!("chmod 755 {HOOK_FILE}"));
    restart_libvirtd(host);
}

pub fn remove_hook(host: &EmulatedHost) {
    inside(host, &format!("rm {HOOK_FILE}"));
    restart_libvirtd(host);
}

/// The processor of a guest that a PREEMPT_RT host's KVM keeps time for.
pub const STEADY_CLOCK: &str = "<cpu mode='host-passthrough' migratable='off' check='none'>\
                                <feature policy='require' name='invtsc'/></cpu>";
/// One that may migrate.
pub const MIGRATES: &str = "<cpu mode='host-passthrough' migratable='on' check='none'/>";

/// A domain of two VCPUs with a card on the RT network's bridge, which vhost serves; `more` is XML besides. The guest
/// says on its console when it is up, and powers off after one run of iperf3.
pub fn define(host: &EmulatedHost, name: &str, address: &str, more: &str) {
    define_with(host, name, address, more, "iperf3 --forceflush -s -1");
}

/// The same with another command in the guest, which powers off after it.
pub fn define_with(host: &EmulatedHost, name: &str, address: &str, more: &str, command: &str) {
    let file = format!("/run/{name}.xml");
    let script = format!("ip address add {address}/24 dev eth0; ip link set eth0 up; {command}");
    write(host, &file, &domain(name, &script, more, ""));
    inside(host, &format!("virsh --quiet define {file}"));
}

/// The same with another device, and a card without an address.
pub fn define_with_device(
    host: &EmulatedHost,
    name: &str,
    more: &str,
    device: &str,
    command: &str,
) {
    let file = format!("/run/{name}.xml");
    write(host, &file, &domain(name, command, more, device));
    inside(host, &format!("virsh --quiet define {file}"));
}

fn domain(name: &str, script: &str, more: &str, device: &str) -> String {
    format!(
        "<domain type='kvm'>
  <name>{name}</name>
  <memory unit='MiB'>256</memory>
  <vcpu>2</vcpu>
  {more}
  <clock><timer name='hpet' present='no'/></clock>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    <kernel>/boot/guest-kernel</kernel>
    <initrd>/boot/guest-initramfs</initrd>
    <cmdline>console=ttyS0 panic=-1 quiet loglevel=4 tsc=reliable no_timer_check -- sh -c \"{script}\"</cmdline>
  </os>
  <features><acpi/></features>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='block' device='disk'>
      <source dev='/dev/vda'/><target dev='vda' bus='virtio'/><readonly/>
    </disk>
    <interface type='bridge'>
      <source bridge='br-rt'/><model type='virtio'/><driver name='vhost'/>
    </interface>
    <serial type='file'><source path='/run/{name}.console'/></serial>
    <memballoon model='none'/>
    {device}
  </devices>
</domain>"
    )
}

/// Waits until the guest says that it is up.
pub fn await_guest(host: &EmulatedHost, name: &str) {
    await_line(host, name, "istening");
}

/// Waits until the guest's console has a line with `mark`.
pub fn await_line(host: &EmulatedHost, name: &str, mark: &str) {
    let words = format!("tail -n +1 -F /run/{name}.console 2> /dev/null");
    let mut console: Process = host.connection().spawn(&["sh", "-c", &words]).unwrap();
    console.wait_for_line(mark, PATIENCE).unwrap();
}

/// A thread of a domain's monitor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    pub number: u32,
    pub name: String,
    /// As chrt tells it.
    pub policy: String,
}

impl Thread {
    pub fn is_vcpu(&self) -> bool {
        self.name.starts_with("CPU ")
    }

    pub fn is_vhost(&self) -> bool {
        self.name.starts_with("vhost-")
    }
}

/// The process of a domain's monitor.
pub fn monitor(host: &EmulatedHost, name: &str) -> u32 {
    // The shell's own line does not have the word.
    let text = inside(host, &format!("pgrep -f '[g]uest={name},'"));
    text.trim().parse().unwrap()
}

pub fn threads(host: &EmulatedHost, name: &str) -> Vec<Thread> {
    threads_of(host, monitor(host, name))
}

/// The threads of a process that is a VM's monitor.
pub fn threads_of(host: &EmulatedHost, monitor: u32) -> Vec<Thread> {
    let listing = format!(
        "for task in /proc/{monitor}/task/*; do number=${{task##*/}}; read -r name < $task/comm; \
         echo \"$number|$name|$(chrt -p $number | tr '\\n' ' ')\"; done"
    );
    let listed = inside(host, &listing);
    let thread = |line: &str| {
        let [number, name, policy] = line.splitn(3, '|').collect::<Vec<_>>()[..] else {
            panic!("{listed}");
        };
        Thread {
            number: number.parse().unwrap(),
            name: name.to_owned(),
            policy: policy.to_owned(),
        }
    };
    listed.lines().map(thread).collect()
}
