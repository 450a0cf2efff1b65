//! The QEMU that hosts run in by emulation: the machine's own version, mended (`crates/lab/emulator`).
//! The distribution's loses interrupts and page tables of nested guests: docs/design/lab.md.

use super::apt::{download_source, installed_source_version};
use super::cache::{Cache, Inputs};
use super::output;
use super::source::{apply_patch, build_with, run, unpack};
use crate::child;
use crate::progress::{News, Observer, task};
use crate::qemu;
use crate::{At, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

mod inputs {
    include!(concat!(env!("OUT_DIR"), "/emulator_inputs.rs"));
}

/// The package of the distribution's, and the one that its source is in.
const PACKAGE: &str = "qemu-system-x86";
const SOURCE_PACKAGE: &str = "qemu";
/// The lines that a build prints; counted on 10.0.2. It only scales the progress bar.
const BUILD_LINES: u64 = 1316;
/// What QEMU's build needs of Python, in the versions that QEMU 10 asks for.
const BUILD_TOOLS: [&str; 2] = ["meson==1.5.0", "pycotap==1.3.1"];
/// Only what an emulated host needs. Firmware is that of Debian's packages.
const CONFIGURATION: &[&str] = &[
    "--target-list=x86_64-softmmu",
    "--without-default-features",
    "--without-default-devices",
    "--with-devices-x86_64=steadyvm",
    "--enable-tcg",
    // What is missing is named, and not fetched from somewhere.
    "--disable-download",
    "--disable-docs",
    "--disable-tools",
    "--disable-werror",
    "--disable-install-blobs",
    "--with-pkgversion=Debian's source with steadyvm's patches",
    // What is under the prefix would be looked for beside the program.
    "--prefix=/opt/steadyvm",
    "--firmwarepath=/usr/share/qemu:/usr/share/seabios",
];
/// Changes when this file builds differently from the same inputs.
const RECIPE: &str = "1";

/// The program from the cache, built if need be: three minutes on two cores. Where that fails, such as
/// where no source is to be had, the distribution's, and the observer is told.
pub fn emulator(cache: &Cache, observer: &dyn Observer) -> PathBuf {
    built(cache, observer).unwrap_or_else(|error| {
        // Whoever pressed Ctrl-C is told so, and nothing else; so is who is told of another step's failure.
        if child::none_can_be_started() {
            return PathBuf::from(qemu::PROGRAM);
        }
        let consequence = "hosts run in the distribution's QEMU: now and then one will fail";
        observer.tell(News::Note(format!("{error}\n  {consequence}")));
        PathBuf::from(qemu::PROGRAM)
    })
}

fn built(cache: &Cache, observer: &dyn Observer) -> Result<PathBuf> {
    let version = installed_source_version(PACKAGE)?;
    let compiler = output(Command::new("gcc").arg("--version"))?;
    let mut inputs = Inputs::default()
        .with("recipe", RECIPE)
        .with("source", format!("{SOURCE_PACKAGE} {version}"))
        .with("configuration", CONFIGURATION.join(" "))
        .with("devices", inputs::DEVICES)
        .with("compiler", compiler.lines().next().unwrap_or_default());
    for (name, text) in inputs::EMULATOR_PATCHES {
        inputs = inputs.with(&format!("patch {name}"), *text);
    }
    let entry = cache.entry("emulator", &inputs, observer, |directory| {
        let title = format!("build QEMU {version} (once, up to 4 minutes)");
        task(observer, title, || build(directory, &version, observer))
    })?;
    Ok(entry.join(qemu::PROGRAM))
}

fn build(directory: &Path, version: &str, observer: &dyn Observer) -> Result<()> {
    let work = directory.join("work");
    let (tree, objects) = (work.join("source"), work.join("objects"));
    fs::create_dir_all(&objects).at("create", &objects)?;
    let archive = download_source(SOURCE_PACKAGE, version, &work, observer)?;
    unpack(&archive, &tree)?;
    for (name, text) in inputs::EMULATOR_PATCHES {
        apply_patch(&tree, name, text)?;
    }
    let devices = tree.join("configs/devices/x86_64-softmmu/steadyvm.mak");
    fs::write(&devices, inputs::DEVICES).at("write", &devices)?;
    let python = build_tools(&work.join("python"))?;
    let mut configure = Command::new(tree.join("configure"));
    configure
        .arg(format!("--python={}", python.display()))
        .args(CONFIGURATION)
        .current_dir(&objects);
    run(&configure)?;
    let mut ninja = Command::new("ninja");
    ninja.arg(qemu::PROGRAM).current_dir(&objects);
    build_with(&ninja, BUILD_LINES, observer)?;
    let mut strip = Command::new("strip");
    strip
        .arg("-o")
        .arg(directory.join(qemu::PROGRAM))
        .arg(objects.join(qemu::PROGRAM));
    output(&mut strip)?;
    fs::remove_dir_all(&work).at("remove", &work)
}

/// A Python of its own with what QEMU's build needs.
fn build_tools(place: &Path) -> Result<PathBuf> {
    output(Command::new("python3").args(["-m", "venv"]).arg(place))?;
    let python = place.join("bin/python3");
    let mut install = Command::new(&python);
    install.args([
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "install",
    ]);
    install.args(BUILD_TOOLS);
    run(&install)?;
    Ok(python)
}

#[cfg(test)]
mod tests {
    use super::inputs;
    use crate::emulator::{Accelerator, Card, Machine, Monitor};

    /// The devices that a host's command line names and those that it implies.
    #[test]
    fn a_host_has_all_its_devices() {
        let host = Machine {
            name: "host".to_owned(),
            monitor: Monitor::Qemu,
            sockets: None,
            kernel: String::new(),
            initramfs: String::new(),
            image: String::new(),
            kernel_words: String::new(),
            accelerator: Accelerator::Tcg,
            lock_spin_us: None,
            cpus: 2,
            memory_mib: 1,
            real_time: false,
            iommu: true,
            scratch: true,
            console: String::new(),
            cards: vec![Card {
                tap: "t".to_owned(),
                mac: "m".to_owned(),
                send_buffer_bytes: None,
                function: None,
                macvtap: false,
            }],
        };
        let arguments = host.host_arguments();
        let devices = arguments.windows(2).filter(|pair| pair[0] == "-device");
        let names: Vec<&str> = devices
            .map(|pair| pair[1].split(',').next().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "intel-iommu",
                "virtio-serial-pci",
                "virtserialport",
                "pcie-root-port",
                "igb"
            ]
        );
        for option in [
            "Q35",
            "VIRTIO_SERIAL",
            "VIRTIO_PCI",
            "VIRTIO_BLK",
            "PCIE_PORT",
            "IGB_PCI_EXPRESS",
            "VTD",
        ] {
            let line = format!("CONFIG_{option}=y");
            assert!(inputs::DEVICES.lines().any(|have| have == line), "{line}");
        }
    }
}
