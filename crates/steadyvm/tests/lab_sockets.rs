//! Outsourced sockets in a Linux guest: `steadyvm up` with `kernel/modules/steadyvm_sockets`, in the
//! emulated host. They need root, gcc and what `steadyvm lab prepare` builds, and take minutes:
//! `make lab-tests` runs them, one at a time.

// A test's helper fails by panicking, as the test itself does.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use steadyvm_lab::agent::Process;
use steadyvm_lab::artifact::{Cache, Initramfs};
use steadyvm_lab::child;
use steadyvm_lab::host::{EmulatedHost, RT};
use steadyvm_lab::laboratory::{HostKernel, Laboratory};
use steadyvm_lab::progress::Silent;
use steadyvm_latency::netrt::{self, ClientOptions, End};

const STEADYVM: &str = env!("CARGO_BIN_EXE_steadyvm");
const MODULE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../kernel/modules/steadyvm_sockets"
);
const PATIENCE: Duration = Duration::from_secs(200);
/// The first word of a guest's script: the guest is up, the module loaded.
const BEGUN: &str = "script begun";

/// An emulated host, the module for its guests, and programs for both.
struct Lab {
    host: EmulatedHost,
    laboratory: Laboratory,
    place: tempfile::TempDir,
    cases: PathBuf,
}

/// The C files of the program that runs every case.
fn case_sources() -> Vec<PathBuf> {
    let files = fs::read_dir(Path::new(MODULE).join("tests")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    files
        .filter(|file| file.extension() == Some("c".as_ref()))
        .collect()
}

impl Lab {
    fn boot(name: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let cache = Cache::of_this_machine().unwrap();
        let kernels = [HostKernel::PreemptRt];
        let laboratory =
            Laboratory::open(&cache, Path::new(STEADYVM), place.path(), &kernels, &Silent).unwrap();
        // An emulated machine may reset itself while it boots, for no fault of its kernel:
        // docs/design/lab.md has the measured rate.
        let specification = laboratory.host(name, HostKernel::PreemptRt).unwrap();
        let boot = || EmulatedHost::boot(&specification);
        let host = boot().or_else(|_| boot()).unwrap();
        let cases = place.path().join("cases");
        let built = Command::new("gcc")
            .args(["-O1", "-static", "-pthread", "-o"])
            .arg(&cases)
            .args(case_sources())
            .status();
        assert!(built.unwrap().success());
        Self {
            host,
            laboratory,
            place,
            cases,
        }
    }

    /// Puts a file into the host.
    fn upload(&self, from: &Path, to: &str) {
        let words = format!("cat > {to} && chmod +x {to}");
        let process = self.host.connection().spawn(&["sh", "-euc", &words]);
        let process = process.unwrap();
        for piece in fs::read(from).unwrap().chunks(1 << 16) {
            process.input(piece).unwrap();
        }
        process.end_of_input().unwrap();
        process.finish(PATIENCE).unwrap();
    }

    /// An initramfs whose guest loads the module and runs `script`.
    fn upload_guest(&self, script: &str) {
        let modules = self.place.path().join("modules");
        fs::create_dir(&modules).unwrap();
        for file in fs::read_dir(&self.laboratory.distribution_kernel.guest_modules).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), modules.join(file.file_name())).unwrap();
        }
        let ours = modules.join("900-steadyvm_sockets.ko");
        fs::copy(&self.laboratory.sockets_module, ours).unwrap();
        let script_file = self.place.path().join("script");
        fs::write(&script_file, format!("echo '{BEGUN}'\n{script}")).unwrap();
        let initramfs = Initramfs {
            program: Path::new(STEADYVM),
            modules: Some(&modules),
            additions: vec![
                ("/script", script_file.as_path()),
                ("/cases", self.cases.as_path()),
            ],
        };
        self.upload(&initramfs.pack().unwrap().path(), "/tmp/initramfs");
    }

    /// Starts the uploaded guest; what it writes to its console is the process's output.
    fn start_guest(&self, vcpus: u32, namespace: &str) -> Process {
        let description = format!(
            "name = \"guest\"\n\
             kernel = \"/boot/guest-kernel\"\n\
             initramfs = \"/tmp/initramfs\"\n\
             cmdline = \"console=ttyS0 pci=off panic=-1 tsc=reliable no_timer_check loglevel=4 -- sh /script\"\n\
             memory_mib = 256\n\
             vcpus = {vcpus}\n\
             [[disk]]\n\
             path = \"/dev/vda\"\n\
             read_only = true\n\
             [sockets]\n\
             namespace = \"{namespace}\"\n"
        );
        let file = self.place.path().join("vm.toml");
        fs::write(&file, description).unwrap();
        self.upload(&file, "/tmp/vm.toml");
        let process = self
            .host
            .connection()
            .spawn(&["steadyvm", "up", "/tmp/vm.toml"])
            .unwrap();
        process.end_of_input().unwrap();
        process
    }

    /// The console of a guest that ran to its end. An emulated processor may fail while a guest
    /// boots (docs/design/lab.md): before the script begins it is started again.
    fn run_guest(&self, vcpus: u32) -> String {
        for _ in 0..3 {
            let done = self.start_guest(vcpus, "new").finish(PATIENCE).unwrap();
            let console = done.text().replace('\r', "");
            let error = String::from_utf8_lossy(&done.error).into_owned();
            if console.contains(BEGUN) {
                return console;
            }
            assert!(error.contains("triple fault"), "{error}\n{console}");
        }
        panic!("the emulated processor failed three times while the guest booted");
    }
}

fn results(text: &str) -> Vec<&str> {
    text.lines()
        .filter(|line| line.starts_with("case "))
        .collect()
}

/// The lines of /proc/softirqs that begin so, without their title: one count a CPU.
fn softirqs(console: &str, title: &str) -> Vec<u64> {
    let line = console
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(title));
    line.unwrap_or_else(|| panic!("no {title} in {console}"))
        .split_whitespace()
        .map(|count| count.parse().unwrap())
        .collect()
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn programs_see_what_they_see_on_the_host() {
    let lab = Lab::boot("sockets");
    lab.upload(&lab.cases, "/tmp/cases");
    let ordinary = lab
        .host
        .connection()
        .text(&[
            "unshare",
            "-n",
            "sh",
            "-euc",
            "ip link set lo up; /tmp/cases",
        ])
        .unwrap();
    let expected = results(&ordinary);
    assert!(expected.len() > 50, "{ordinary}");
    assert!(!ordinary.contains("KILLED"), "{ordinary}");
    // What the guest's own stack would have counted is nothing; the module leaves when asked to.
    lab.upload_guest(
        "/cases\ncat /proc/softirqs\nsleep 1\nrmmod steadyvm_sockets && echo unloaded",
    );
    for vcpus in [1, 2] {
        let console = lab.run_guest(vcpus);
        assert_eq!(results(&console), expected, "{vcpus} VCPUs: {console}");
        assert_eq!(softirqs(&console, "NET_RX:").iter().sum::<u64>(), 0);
        assert!(console.contains("unloaded"), "{console}");
        assert!(!console.contains("Call Trace"), "{console}");
    }
}

#[test]
#[ignore = "needs the lab: make lab-tests"]
fn a_service_runs_without_network_interrupts() {
    let lab = Lab::boot("service");
    lab.upload_guest(
        "steadyvm netrt serve 0.0.0.0:7700 &\n\
         iperf3 --forceflush -s -1 -p 5201\n\
         iperf3 --forceflush -s -1 -p 5202\n\
         cat /proc/softirqs\n\
         device=$(grep -l 0xffff /sys/bus/virtio/devices/*/device | cut -d / -f 6)\n\
         echo interrupts: $(grep -w $device$ /proc/interrupts)\n",
    );
    let mut guest = lab.start_guest(2, "current");
    guest.wait_for_line("istening", PATIENCE).unwrap();

    let options = ClientOptions {
        seed: 1,
        warmup: 20,
        end: End::Requests(200),
        timeout: Duration::from_secs(5),
        ..ClientOptions::default()
    };
    let run = lab
        .host
        .outside()
        .enter(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect((RT.host(), 7700)).unwrap();
            let never = AtomicBool::new(false);
            Ok(netrt::run(&socket, &options, &never, &mut |_| {}).unwrap())
        })
        .unwrap();
    assert_eq!((run.samples.len(), run.counters.lost), (200, 0));

    let stream = |port: &str, options: &[&str]| {
        let mut command = Command::new("iperf3");
        command
            .args(["-c", &RT.host().to_string(), "-p", port, "-t", "2"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit());
        lab.host.outside().hold(&mut command).unwrap();
        assert!(child::spawn(command).unwrap().wait().unwrap().success());
    };
    stream("5201", &[]);
    guest.wait_for_line("istening", PATIENCE).unwrap();
    stream("5202", &["-R"]);

    let done = guest.finish(PATIENCE).unwrap();
    let console = done.text().replace('\r', "");
    for title in ["NET_RX:", "NET_TX:"] {
        assert_eq!(
            softirqs(&console, title).iter().sum::<u64>(),
            0,
            "{console}"
        );
    }
    // Answers and events come without the device's interrupt: "16: 0 0 IO-APIC 16-edge virtio1".
    let line = console
        .lines()
        .find_map(|line| line.strip_prefix("interrupts: "))
        .unwrap_or_else(|| panic!("{console}"));
    let counts: Vec<&str> = line.split_whitespace().skip(1).take(2).collect();
    assert_eq!(counts, ["0", "0"], "{line}");
}
