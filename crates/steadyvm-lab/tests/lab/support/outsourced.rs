//! Guests of `steadyvm up` with outsourced sockets, in the emulated host.

use std::fs;
use std::io::Read;
use std::net::UdpSocket;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use steadyvm_lab::Programs;
use steadyvm_lab::agent::{Process, Status, Stream};
use steadyvm_lab::artifact::{Cache, Initramfs, UserSpace};
use steadyvm_lab::child;
use steadyvm_lab::host::{EmulatedHost, RT};
use steadyvm_lab::laboratory::{HostKernel, Laboratory};
use steadyvm_lab::progress::Silent;
use steadyvm_load::netrt::{self, ClientOptions, End};

const LAB: &str = env!("CARGO_BIN_EXE_steadyvm-lab");
pub const PATIENCE: Duration = Duration::from_secs(200);

/// A guest to start.
#[derive(Debug, Clone, Copy)]
pub struct Guest {
    pub vcpus: u32,
    pub memory_mib: u32,
    /// As in vm.toml: "new" or "current".
    pub namespace: &'static str,
}

/// An emulated host, and a place for what its guests are made of.
pub struct Lab {
    pub host: Box<dyn Deref<Target = EmulatedHost> + Send + Sync>,
    pub laboratory: Arc<Laboratory>,
    pub place: PathBuf,
}

impl Lab {
    /// Boots a host whose logs go to `place`.
    pub fn boot(name: &str, place: &Path) -> Self {
        Self::boot_besides(name, place, &[])
    }

    /// Boots a host, with kernels of ours at hand for its guests.
    pub fn boot_besides(name: &str, place: &Path, kernels: &[HostKernel]) -> Self {
        Self::boot_in(name, place, kernels, |laboratory, _| laboratory)
    }

    /// Boots a host that has real programs, as its guests then do.
    pub fn boot_with_programs(name: &str, place: &Path) -> Self {
        Self::boot_in(name, place, &[], |laboratory, cache| {
            laboratory
                .with_user_space(UserSpace::Programs, cache, &Silent)
                .unwrap()
        })
    }

    fn boot_in(
        name: &str,
        place: &Path,
        kernels: &[HostKernel],
        equip: impl FnOnce(Laboratory, &Cache) -> Laboratory,
    ) -> Self {
        let cache = Cache::of_this_machine().unwrap();
        let kernels = [&[HostKernel::V6_12Rt], kernels].concat();
        let laboratory =
            Laboratory::open(&cache, Path::new(LAB), place, &kernels, &Silent).unwrap();
        let laboratory = equip(laboratory, &cache);
        let specification = laboratory.host(name, HostKernel::V6_12Rt).unwrap();
        Self {
            host: Box::new(Box::new(EmulatedHost::boot(&specification).unwrap())),
            laboratory: Arc::new(laboratory),
            place: place.to_owned(),
        }
    }

    /// Puts a file into the host.
    pub fn upload(&self, from: &Path, to: &str) {
        let words = format!("cat > {to} && chmod +x {to}");
        let process = self.host.connection().spawn(&["sh", "-euc", &words]);
        let process = process.unwrap();
        for piece in fs::read(from).unwrap().chunks(1 << 16) {
            process.input(piece).unwrap();
        }
        process.end_of_input().unwrap();
        process.finish(PATIENCE).unwrap();
    }

    /// An initramfs whose guest loads the module and runs `script`, with more files.
    pub fn upload_guest(&self, script: &str, files: &[(&str, &Path)]) {
        let kernel = &self.laboratory.distribution_kernel;
        let module = &self.laboratory.sockets_module;
        self.upload_initramfs(&kernel.guest_modules, module, script, files);
    }

    /// The same with modules of a kernel that is not the laboratory's.
    pub fn upload_initramfs(
        &self,
        modules: &Path,
        sockets_module: &Path,
        script: &str,
        files: &[(&str, &Path)],
    ) {
        let tree = tempfile::tempdir_in(&self.place).unwrap();
        for file in fs::read_dir(modules).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), tree.path().join(file.file_name())).unwrap();
        }
        let ours = tree.path().join("900-steadyvm_sockets.ko");
        fs::copy(sockets_module, ours).unwrap();
        let script_file = self.write("script", script);
        let mut additions = vec![("/script", script_file.as_path())];
        additions.extend(files);
        let initramfs = Initramfs {
            programs: &Programs::beside(Path::new(LAB)).unwrap(),
            modules: Some(tree.path()),
            additions,
        };
        self.upload(&initramfs.pack().unwrap().path(), "/tmp/initramfs");
    }

    /// A file with this text, on this machine.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.place.join(name);
        fs::write(&file, text).unwrap();
        file
    }

    /// Starts the uploaded guest; what it writes to its console is the process's output.
    pub fn start_guest(&self, guest: Guest) -> Process {
        self.start_guest_on("/boot/guest-kernel", guest)
    }

    /// Starts the uploaded guest and waits for a line of its console.
    pub fn start_guest_until(&self, guest: Guest, line: &str) -> Process {
        let mut process = self.start_guest(guest);
        let Err(why) = process.wait_for_line(line, PATIENCE) else {
            return process;
        };
        // It may have ended by itself, which `why` then says.
        let _ = process.signal(libc::SIGKILL);
        let done = process.finish(PATIENCE).unwrap_or_else(|_| panic!("{why}"));
        let error = String::from_utf8_lossy(&done.error);
        panic!("{why}: {error}\n{}", done.text());
    }

    /// The same, and the process's input is the console's.
    pub fn start_guest_with_input(&self, guest: Guest) -> Process {
        self.spawn_guest_on("/boot/guest-kernel", guest)
    }

    fn start_guest_on(&self, kernel: &str, guest: Guest) -> Process {
        let process = self.spawn_guest_on(kernel, guest);
        process.end_of_input().unwrap();
        process
    }

    fn spawn_guest_on(&self, kernel: &str, guest: Guest) -> Process {
        let Guest {
            vcpus,
            memory_mib,
            namespace,
        } = guest;
        let description = format!(
            "name = \"guest\"\n\
             kernel = \"{kernel}\"\n\
             initramfs = \"/tmp/initramfs\"\n\
             cmdline = \"console=ttyS0 pci=off panic=-1 tsc=reliable no_timer_check loglevel=4 -- sh /script\"\n\
             memory_mib = {memory_mib}\n\
             vcpus = {vcpus}\n\
             [[disk]]\n\
             path = \"/dev/vda\"\n\
             read_only = true\n\
             [sockets]\n\
             namespace = \"{namespace}\"\n\
             allow_host_network = true\n"
        );
        self.upload(&self.write("vm.toml", &description), "/tmp/vm.toml");
        self.host
            .connection()
            .spawn(&["steadyvm", "up", "/tmp/vm.toml"])
            .unwrap()
    }

    /// The console of a guest that powered off.
    pub fn run_guest(&self, kernel: &str, guest: Guest, patience: Duration) -> String {
        self.run_guest_to(0, kernel, guest, patience)
    }

    /// The console of a guest that ran to its end, for which the monitor has this exit code.
    pub fn run_guest_to(
        &self,
        code: i32,
        kernel: &str,
        guest: Guest,
        patience: Duration,
    ) -> String {
        let (mut console, mut error) = (Vec::new(), Vec::new());
        let process = self.start_guest_on(kernel, guest);
        let ended = process.follow_within(patience, |stream, data| match stream {
            Stream::Output => console.extend_from_slice(data),
            Stream::Error => error.extend_from_slice(data),
        });
        let console = String::from_utf8_lossy(&console).replace('\r', "");
        let error = String::from_utf8_lossy(&error);
        let status = ended.unwrap_or_else(|why| panic!("{why}\n{error}\n{console}"));
        assert_eq!(status, Status::Exited(code), "{error}\n{console}");
        console
    }

    /// What a command prints that runs outside of the host, on the network of the load generators.
    pub fn outside(&self, command: &mut Command) -> String {
        let mut bounded = Command::new("timeout");
        bounded
            .arg(PATIENCE.as_secs().to_string())
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        if let Some(directory) = command.get_current_dir() {
            bounded.current_dir(directory);
        }
        self.host.outside().hold(&mut bounded).unwrap();
        let mut child = child::spawn(bounded).unwrap();
        let mut said = String::new();
        let mut output = child.streams().stdout.take().unwrap();
        output.read_to_string(&mut said).unwrap();
        assert!(child.wait().unwrap().success(), "{said}");
        said
    }
}

impl Drop for Lab {
    /// A test that fails shows what the host's kernel said.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let console = self.place.join(format!("{}.console", self.host.name()));
            let said = fs::read(console).unwrap_or_default();
            println!("the host's console:\n{}", String::from_utf8_lossy(&said));
        }
    }
}

/// The lines of /proc/softirqs that begin so, without their title: one count a CPU.
pub fn softirqs(console: &str, title: &str) -> Vec<u64> {
    let line = console
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(title));
    line.unwrap_or_else(|| panic!("no {title} in {console}"))
        .split_whitespace()
        .map(|count| count.parse().unwrap())
        .collect()
}

/// Asks the guest's service for 200 answers from outside of the host, and gets each.
pub fn require_answers(lab: &Lab) {
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
}

/// A stream of iperf3 from outside of the host to the guest's server at this port, or what the options make of it.
pub fn stream(lab: &Lab, port: &str, options: &[&str]) {
    let mut command = Command::new("iperf3");
    command
        .args(["-c", &RT.host().to_string(), "-p", port])
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit());
    lab.host.outside().hold(&mut command).unwrap();
    assert!(child::spawn(command).unwrap().wait().unwrap().success());
}
