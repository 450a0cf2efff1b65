//! The first process of the emulated host and of every guest.
//!
//! The kernel starts this program from the initramfs with nothing mounted and, on the
//! distribution's kernel, no driver loaded. It loads the modules that lie there in load order,
//! puts a writable layer over the read-only image, enters it, and keeps the agent running
//! as a child, or what the kernel's words after `--` say; when that ends, the machine powers off.

use crate::agent::{self, PORT};
use crate::{At, Error, Result};
use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::termios::tcdrain;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the initramfs keeps kernel modules, named so that their order is their load order.
pub const MODULES: &str = "/modules";
/// Where hosts keep modules that are loaded later, named the same way.
pub const LATER_MODULES: &str = "/usr/lib/steadyvm/modules";
/// The tree in the initramfs that is laid over the image.
pub const ADDITIONS: &str = "/additions";
/// Where this program stands in the image once it runs.
pub const PROGRAM: &str = "/usr/local/bin/steadyvm-lab";
/// Where the program of hosts stands there.
pub const HOST_PROGRAM: &str = "/usr/local/bin/steadyvm";
/// A word NAME=PROGRAM of the kernel's command line, which the kernel hands on as a variable: the program of the image
/// that becomes the first process when the machine is up, such as systemd.
pub const SUCCESSOR: &str = "steadyvm_successor";
/// The block device that holds the image.
const IMAGE: &str = "/dev/vda";
const SEARCH_PATH: &str = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// True in the process that the kernel started.
pub fn is_first_process() -> bool {
    std::process::id() == 1
}

/// Brings the machine up, serves, powers it off. Never returns.
pub fn run() -> ! {
    if let Err(error) = bring_up().and_then(|()| serve_or_hand_over()) {
        eprintln!("steadyvm-lab init: {error}");
    }
    // The console sends by interrupts what programs wrote last; without power it is lost.
    let _ = tcdrain(io::stdout());
    loop {
        // Fails only without the right to, which the first process has.
        let _ = reboot(RebootMode::RB_POWER_OFF);
    }
}

fn bring_up() -> Result<()> {
    mount_kernel_file_systems("")?;
    load_modules(Path::new(MODULES))?;
    keep_guests_timers()?;
    require_driver_of_image()?;
    wait_for_file(Path::new(IMAGE))?;
    enter_image()?;
    mount_kernel_file_systems("")?;
    mount_at("tmpfs", "/dev/shm", "tmpfs", "")?;
    // As hosts have it: nobody but root makes files there.
    mount_at("tmpfs", "/run", "tmpfs", "mode=755")?;
    mount_at("tmpfs", "/tmp", "tmpfs", "")?;
    mount_at("devpts", "/dev/pts", "devpts", "ptmxmode=0666")?;
    mount_at("cgroup2", "/sys/fs/cgroup", "cgroup2", "")?;
    // A kernel without these has fewer tools, not a broken system.
    let _ = mount_at("bpf", "/sys/fs/bpf", "bpf", "");
    let _ = mount_at("debugfs", "/sys/kernel/debug", "debugfs", "");
    let _ = mount_at("tracefs", "/sys/kernel/tracing", "tracefs", "");
    let _ = mount_at("configfs", "/sys/kernel/config", "configfs", "");
    Ok(())
}

fn mount_kernel_file_systems(root: &str) -> Result<()> {
    mount_at("proc", &format!("{root}/proc"), "proc", "")?;
    mount_at("sysfs", &format!("{root}/sys"), "sysfs", "")?;
    mount_at("devtmpfs", &format!("{root}/dev"), "devtmpfs", "")
}

fn mount_at(source: &str, target: &str, kind: &str, options: &str) -> Result<()> {
    fs::create_dir_all(target).at("create", target)?;
    mount(
        Some(source),
        target,
        Some(kind),
        MsFlags::empty(),
        Some(options),
    )
    .at(&format!("mount {kind} at"), target)
}

/// Loads every module of the directory, in the order of their names.
fn load_modules(directory: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Ok(());
    };
    let mut modules: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    modules.sort();
    for module in modules {
        let file = File::open(&module).at("open", &module)?;
        let result = finit_module(&file, &CString::default(), ModuleInitFlags::empty());
        // EEXIST: built in, or loaded as somebody's dependency. ENODEV: a driver that found
        // nothing to drive, such as kvm_amd in a guest.
        if let Err(error) = result
            && !matches!(
                error,
                nix::Error::EEXIST | nix::Error::ENODEV | nix::Error::EOPNOTSUPP
            )
        {
            return Err(Error::machine(format!("load {}", module.display()), error));
        }
    }
    Ok(())
}

/// Lets guests have timers on a host that misjudged its TSC at first.
///
/// A kernel measures its TSC's rate while it boots, and again seconds later. Where the processor does not promise
/// a constant rate, as in the distribution's QEMU, KVM gives its guests the first figure; where that is off by more
/// than its tolerance (250 ppm), as it is when the emulator did not run for a while in between, it scales their TSC
/// by zero (`kvm_set_tsc_khz()` returns before it sets a scale), and not one of their timers ever expires.
fn keep_guests_timers() -> Result<()> {
    const TOLERANCE: &str = "/sys/module/kvm/parameters/tsc_tolerance_ppm";
    // A kernel takes no second figure that is further than 1 % from the first.
    match fs::write(TOLERANCE, "20000") {
        // A machine without KVM has no guests.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.at("write", TOLERANCE),
    }
}

/// Fails where waiting for the image's device would never end: kernels of users may lack its driver.
fn require_driver_of_image() -> Result<()> {
    const DRIVER: &str = "/sys/bus/virtio/drivers/virtio_blk";
    if Path::new(DRIVER).exists() {
        return Ok(());
    }
    let what = format!("find the driver of {IMAGE}");
    let advice = "build it in, or give the kernel's modules with --modules";
    Err(Error::lack(what, "this kernel has no virtio_blk").what_to_do(advice))
}

/// Returns when the file exists. Block devices appear some time after their driver.
fn wait_for_file(path: &Path) -> Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let inotify = Inotify::init(InitFlags::empty()).at("watch", directory)?;
    inotify
        .add_watch(directory, AddWatchFlags::IN_CREATE)
        .at("watch", directory)?;
    while !path.exists() {
        inotify.read_events().at("watch", directory)?;
    }
    Ok(())
}

/// Makes the image, with a layer in memory over it for changes, the root of the file system.
fn enter_image() -> Result<()> {
    fs::create_dir_all("/image").at("create", "/image")?;
    mount(
        Some(IMAGE),
        "/image",
        Some("squashfs"),
        MsFlags::MS_RDONLY,
        None::<&str>,
    )
    .at("mount", IMAGE)?;
    mount_at("tmpfs", "/changes", "tmpfs", "")?;
    for directory in ["/changes/upper", "/changes/work"] {
        fs::create_dir_all(directory).at("create", directory)?;
    }
    mount_at(
        "overlay",
        "/root",
        "overlay",
        "lowerdir=/image,upperdir=/changes/upper,workdir=/changes/work",
    )?;
    move_tree(Path::new(ADDITIONS), Path::new("/root"))?;
    let program = PathBuf::from(format!("/root{PROGRAM}"));
    copy_file(Path::new("/init"), &program)?;
    std::env::set_current_dir("/root").at("enter", "/root")?;
    mount(Some("."), "/", None::<&str>, MsFlags::MS_MOVE, None::<&str>).at("move", "/root")?;
    nix::unistd::chroot(".").at("change the root to", "/root")?;
    std::env::set_current_dir("/").at("enter", "/")
}

fn move_tree(from: &Path, to: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir(from) else {
        return Ok(());
    };
    for entry in entries {
        let entry = entry.at("read", from)?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            move_tree(&source, &target)?;
        } else {
            copy_file(&source, &target)?;
            // The initramfs stays in memory: one copy is enough.
            fs::remove_file(&source).at("remove", &source)?;
        }
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path) -> Result<()> {
    if let Some(directory) = to.parent() {
        fs::create_dir_all(directory).at("create", directory)?;
    }
    fs::copy(from, to)
        .map(drop)
        .at(&format!("copy {} to", from.display()), to)
}

/// What the machine is for: the kernel's words after `--`, run on the console, else the agent.
fn command() -> Vec<String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.is_empty() {
        [PROGRAM, "agent"].map(str::to_owned).to_vec()
    } else {
        words
    }
}

/// Runs the command until it ends; or starts it and lets the image's own first process, where the kernel's words name
/// one, take this one's place. That one collects orphans, the command among them.
fn serve_or_hand_over() -> Result<()> {
    let child = start(&command())?;
    match std::env::var_os(SUCCESSOR) {
        None => await_end_of(child),
        Some(successor) => {
            let error = Command::new(&successor)
                .env_clear()
                .env("PATH", SEARCH_PATH)
                .exec();
            Err(Error::machine(
                format!("run {}", successor.display()),
                error,
            ))
        }
    }
}

fn start(command: &[String]) -> Result<Pid> {
    let child = Command::new(&command[0])
        .args(&command[1..])
        .env_remove(SUCCESSOR)
        .env("PATH", SEARCH_PATH)
        .env("HOME", "/root")
        .env("TERM", "xterm")
        .process_group(0)
        .spawn()
        .at("run", &command[0])?;
    Ok(Pid::from_raw(child.id() as i32))
}

fn await_end_of(child: Pid) -> Result<()> {
    // The first process inherits every orphan and must collect them all.
    loop {
        match waitpid(None::<Pid>, None) {
            Ok(status) if status.pid() == Some(child) => return Ok(()),
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(Error::machine("wait for it to end", error)),
        }
    }
}

/// What `steadyvm-lab agent` does: serves the control channel on the virtio-serial port.
pub fn run_agent() -> Result<()> {
    let port = agent::port_named(PORT).doing(format!("find the control channel {PORT}"))?;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&port)
        .at("open", &port)?;
    let writer = file.try_clone().at("open", &port)?;
    agent::serve(file, writer).at("serve on", &port)
}
