//! Real processes that look like a VM's monitor, or like something that wants to be taken for one.
//!
//! A process is this test binary, started again to run [`process`] alone. What stands after `--` on
//! its command line means nothing to it, and so can be any monitor's.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::thread;

const SETTINGS: &str = "STEADYVM_TEST_PROCESS";
const READY: &str = "the process is ready";

/// What a process is made of.
#[derive(Default)]
pub struct Looks<'a> {
    /// Holds a KVM VM with this many VCPUs.
    pub vcpus: u32,
    /// Threads by name, besides the main one.
    pub threads: &'a [&'a str],
    /// The VM has this many workers that the kernel started as it starts vhost's.
    pub kernel_workers: &'a [&'a str],
    /// Files it has open.
    pub files: &'a [&'a str],
    /// Runs as nobody.
    pub is_nobody: bool,
    /// A tap that it makes.
    pub tap: &'a str,
    /// A program to be started by, with its arguments (`timeout 600`).
    pub wrapper: &'a [&'a str],
}

/// A process; it ends with this value.
pub struct Process {
    child: Child,
    _input: ChildStdin,
    /// Its number: of the process itself, not of its wrapper.
    pub pid: u32,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a process with `words` on its command line and waits until it is what it shall be.
pub fn start(looks: &Looks<'_>, words: &[&str]) -> Process {
    let own = std::env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    let test = "processes::process";
    let run = [own, "--exact", test, "--ignored", "--nocapture", "--"];
    let line: Vec<&str> = [looks.wrapper, &run, words].concat();
    let settings = format!(
        "{}|{}|{}|{}|{}|{}",
        looks.vcpus,
        looks.threads.join(","),
        looks.kernel_workers.join(","),
        looks.files.join(","),
        looks.is_nobody,
        looks.tap
    );
    let mut child = Command::new(line[0])
        .args(&line[1..])
        .env(SETTINGS, settings)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let pid = output
        .find_map(|line| line.unwrap().split_once(READY)?.1.trim().parse().ok())
        .expect("the process says why on stderr");
    Process {
        child,
        _input: input,
        pid,
    }
}

/// Whether this machine lets a test make a KVM VM; says so if not.
pub fn has_kvm() -> bool {
    let opened = File::options().read(true).write(true).open("/dev/kvm");
    if let Err(error) = &opened {
        eprintln!("skipped: /dev/kvm does not open: {error}");
    }
    opened.is_ok()
}

#[test]
#[ignore = "no test: what the processes of other tests run"]
fn process() {
    let settings = std::env::var(SETTINGS).unwrap();
    let parts: Vec<&str> = settings.split('|').collect();
    let list = |part: usize| parts[part].split(',').filter(|word| !word.is_empty());
    let mut taps = list(5).map(make_tap);
    let tap = taps.next();
    let files: Vec<File> = list(3).map(|path| File::open(path).unwrap()).collect();
    let vcpus: u32 = parts[0].parse().unwrap();
    let vm = (vcpus > 0).then(|| make_vm(vcpus));
    for name in list(2) {
        let (vm, _) = vm.as_ref().unwrap();
        make_worker(vm, name);
    }
    let (stop, wait) = mpsc::channel::<()>();
    let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
    let (ready, is_ready) = mpsc::channel();
    for name in list(1) {
        let (wait, ready) = (wait.clone(), ready.clone());
        let body = move || {
            ready.send(()).unwrap();
            let _ = wait.lock().map(|wait| wait.recv());
        };
        thread::Builder::new()
            .name(name.into())
            .spawn(body)
            .unwrap();
        is_ready.recv().unwrap();
    }
    if parts[4] == "true" {
        // SAFETY: takes no pointers. The C library gives it to all threads.
        assert_eq!(unsafe { libc::setresuid(65534, 65534, 65534) }, 0);
    }
    println!("{READY} {}", std::process::id());
    // Until the test closes its end.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    drop((stop, files, vm, tap));
}

/// `_IO(KVMIO, ...)` of `include/uapi/linux/kvm.h`.
const KVM_CREATE_VM: libc::Ioctl = 0xae01;
const KVM_CREATE_VCPU: libc::Ioctl = 0xae41;
const KVM_RUN: libc::Ioctl = 0xae80;

fn make_vm(vcpus: u32) -> (Vec<OwnedFd>, OwnedFd) {
    let kvm = File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .unwrap();
    let vm = create(&kvm, KVM_CREATE_VM, 0);
    let vcpus = (0..vcpus).map(|number| create(&vm, KVM_CREATE_VCPU, number));
    (vcpus.collect(), vm)
}

fn create(of: &impl AsRawFd, request: libc::Ioctl, argument: u32) -> OwnedFd {
    // SAFETY: the request takes a number and gives a new descriptor, which is nobody else's.
    unsafe {
        let descriptor = libc::ioctl(of.as_raw_fd(), request, libc::c_ulong::from(argument));
        assert!(descriptor >= 0, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(descriptor)
    }
}

/// Makes a tap, which is gone with the descriptor.
pub fn make_tap(name: &str) -> File {
    let tun = File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .unwrap();
    // A `struct ifreq`: the name, and the flags.
    let mut request = [0_u8; 40];
    request[..name.len()].copy_from_slice(name.as_bytes());
    let flags = (libc::IFF_TAP | libc::IFF_NO_PI) as u16;
    request[16..18].copy_from_slice(&flags.to_ne_bytes());
    // SAFETY: `request` is as large as a `struct ifreq`, all that the call touches, and outlives it.
    let result = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF, request.as_mut_ptr()) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    tun
}

/// When a VM first runs, KVM starts a thread for it (`kvm-nx-lpage-recovery`) by the very call by
/// which vhost starts its workers, `vhost_task_create()`. It gets the name of one.
fn make_worker(vcpus: &[OwnedFd], name: &str) {
    // SAFETY: takes no pointers. The VCPU has no memory: it comes back at once, with an error.
    unsafe { libc::ioctl(vcpus[0].as_raw_fd(), KVM_RUN, 0) };
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let mut names = threads.map(|thread| thread.unwrap().path().join("comm"));
    let worker = names.find(|comm| {
        let text = std::fs::read_to_string(comm).unwrap_or_default();
        text.starts_with("kvm-nx-lpage-re")
    });
    std::fs::write(worker.expect("KVM's worker"), name).unwrap();
}
