//! `steadyvm`: consistent latency for network services in virtual machines.
use std::path::PathBuf;
use std::time::Instant;
fn main() {
    if steadyvm_lab::init::is_first_process() {
        steadyvm_lab::init::run();
    }
    let a: Vec<String> = std::env::args().collect();
    match a.get(2).map(String::as_str) {
        Some("agent") => {
            if let Err(e) = steadyvm_lab::init::run_agent() {
                eprintln!("{e}");
            }
        }
        Some("carry") => {
            let m = serde_json::from_str(&a[3]).unwrap();
            if let Err(e) = steadyvm_lab::carry::carry(&m) {
                eprintln!("{e}");
            }
        }
        Some("exp") => exp(&a[3]).unwrap_or_else(|e| eprintln!("ERR {e}")),
        _ => {}
    }
}
fn exp(which: &str) -> steadyvm_lab::Result<()> {
    use steadyvm_lab::emulator::*;
    use steadyvm_lab::host::*;
    let spec = HostSpecification {
        name: which.into(),
        kernel: PathBuf::from(if which == "van" {
            "/var/tmp/vanilla/boot/vmlinuz-6.12.117+deb12-amd64"
        } else {
            "/var/tmp/kexp/linux-source-6.12/arch/x86/boot/bzImage"
        }),
        initramfs: PathBuf::from(format!("/var/tmp/boot/{which}.cpio")),
        image: "/var/tmp/img.sqfs".into(),
        kernel_words: String::new(),
        accelerator: Accelerator::Tcg,
        log_directory: "/var/tmp/boot".into(),
    };
    let t = Instant::now();
    let host = EmulatedHost::boot(&spec)?;
    println!("host up {:?}", t.elapsed());
    let mk = |name: &str, cpus, n| Machine {
        name: name.into(),
        kernel: "/boot/guest.kernel".into(),
        initramfs: "/boot/guest.initrd".into(),
        image: "/dev/vda".into(),
        kernel_words: String::new(),
        accelerator: Accelerator::Kvm,
        cpus,
        memory_mib: 256,
        console: format!("/run/{name}.console"),
        cards: vec![Card {
            tap: format!("tap-{name}"),
            mac: format!("52:54:00:78:01:0{n}"),
        }],
    };
    let t = Instant::now();
    let (rt, bulk) = std::thread::scope(|s| {
        let a = s.spawn(|| host.start_guest(&mk("rtvm", 2, 1), &[RT]));
        let b = s.spawn(|| host.start_guest(&mk("bulkvm", 1, 2), &[BULK]));
        (a.join().unwrap(), b.join().unwrap())
    });
    let show = || {
        for f in [
            "/run/rtvm.console",
            "/run/bulkvm.console",
            "/run/steadyvm/guests/rtvm.log",
        ] {
            println!(
                "{f}: {}",
                host.connection().text(&["cat", f]).unwrap_or_default()
            );
        }
    };
    let (rt, bulk) = match (rt, bulk) {
        (Ok(a), Ok(b)) => (a, b),
        (a, b) => {
            show();
            if let Err(e) = a {
                println!("{e}")
            }
            if let Err(e) = b {
                println!("{e}")
            }
            return Ok(());
        }
    };
    println!("guests up {:?}", t.elapsed());
    rt.set_network_up(RT.address(3))?;
    bulk.set_network_up(BULK.address(3))?;
    println!("{}", rt.connection().text(&["sh", "-c", "dmesg"])?);
    println!("{}", host.connection().text(&["sh", "-c", "cat /proc/interrupts; ip -br a; ps -eLo pid,tid,cls,rtprio,psr,comm | grep -E 'irq/|vhost|KVM|ksoft|qemu' ; cat /proc/$(cat /run/steadyvm/guests/rtvm.pid)/comm"])?);
    let mut s = bulk.connection().spawn(&["iperf3", "-s", "--forceflush"])?;
    println!(
        "{}",
        s.wait_for_line("listening", std::time::Duration::from_secs(20))?
    );
    let mut c = std::process::Command::new("iperf3");
    c.args(["-c", "10.77.2.3", "-t", "5", "-i", "1"]);
    println!("{:?}", host.outside().hold(&mut c)?.status());
    let mut c = std::process::Command::new("ping");
    c.args(["-c", "100", "-i", "0.005", "-q", "10.77.1.3"]);
    println!("{:?}", host.outside().hold(&mut c)?.status());
    Ok(())
}
