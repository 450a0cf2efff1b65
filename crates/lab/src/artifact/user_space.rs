//! The user space of the emulated host and its guests: one read-only image of Debian packages. What
//! only tests run is in an image of its own, so that the one that is measured stays small.

use super::apt::{debian_sources, release, source_of_suite};
use super::cache::{Cache, Inputs};
use super::{SET_UP, output};
use crate::child;
use crate::progress::{Observer, task};
use crate::{At, Error, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const RECIPE: &str = "1";

/// What the host and its guests run. The lab's own program comes with the initramfs.
const PACKAGES: &[&str] = &[
    "bash",
    "dash",
    "coreutils",
    "grep",
    "sed",
    "libc-bin",
    "util-linux",
    "procps",
    "kmod",
    "iproute2",
    "ethtool",
    "iperf3",
    "qemu-system-x86",
    "strace",
];

/// Real services, to be measured, a switch that many hosts have in place of a bridge, the daemon of a host's clock, and a firewall.
const SERVICES: &[&str] = &[
    "memcached",
    "kamailio",
    "base-passwd",
    "openvswitch-switch",
    "linuxptp",
    "nftables",
];

/// Services look up the user that they run as: the files that base-passwd's script would install.
const ADD_USERS: &str = "--extract-hook=for file in passwd group; do \
     cp \"$1/usr/share/base-passwd/$file.master\" \"$1/etc/$file\" || exit 1; done";

/// What network programs of all kinds are, for tests of outsourced sockets.
const PROGRAMS: &[&str] = &[
    "redis-server",
    "redis-tools",
    "memcached",
    "libmemcached-tools",
    "nginx",
    "wrk",
    "curl",
    "openssl",
    "dnsmasq-base",
    "bind9-dnsutils",
    "openssh-server",
    "openssh-client",
    // Written in Go: a server on net/http and a client.
    "caddy",
    "hey",
    "python3",
    "netbase",
    // CPython's own tests, of whatever version the release has.
    "?name(^libpython3[.][0-9]+-testsuite$)",
];

/// libvirt's daemons and virsh, without anything that starts them. `logger` of bsdutils is its hook's.
const LIBVIRT: &[&str] = &[
    "libvirt-daemon",
    "libvirt-daemon-driver-qemu",
    "libvirt-clients",
    "base-passwd",
    "bsdutils",
    "mount",
];

/// The user and groups that libvirt knows by name, with the numbers that Debian's own script gives them.
const ADD_LIBVIRTS_USERS: &str = "--extract-hook=\
     echo 'libvirt-qemu:x:64055:64055::/var/lib/libvirt:/usr/sbin/nologin' >> \"$1/etc/passwd\" && \
     printf 'libvirt-qemu:x:64055:\\nkvm:x:994:\\nlibvirt:x:993:\\n' >> \"$1/etc/group\"";

/// What scripts of packages would make: virsh looks for the daemon's socket in /var/run, which makes it in /run.
const MAKE_LIBVIRTS_PLACES: &str = "--extract-hook=cd \"$1/var\" && \
     { [ -L run ] || { rmdir run && ln -s /run run; }; } && \
     mkdir -p log/libvirt lib/libvirt cache/libvirt ../etc/libvirt/hooks/qemu.d";

/// The daemon that a distribution tunes hosts with. Scripts of its profiles are in awk.
const TUNED: &[&str] = &["tuned", "gawk", "mount", "base-passwd"];

/// What Debian's alternatives would make.
const NAME_AWK: &str = "--extract-hook=ln -sf gawk \"$1/usr/bin/awk\"";

/// What the guides' commands meet on a host: systemd, apt, libvirt and tuned as their packages start them, `AppArmor` with the
/// profiles of these, a collector of metrics, a way to another machine.
const GUIDES: &[&str] = &[
    "systemd",
    "dbus",
    "apt",
    "diffutils",
    "apparmor",
    "libvirt-daemon-system",
    "libvirt-clients",
    // libvirtd does not start without a firewall's program.
    "nftables",
    "tuned",
    "gawk",
    "prometheus-node-exporter",
    "curl",
    "openssh-server",
    "openssh-client",
    "base-passwd",
    "bsdutils",
    "mount",
];
/// Debian 13. It has tuned 2.25, which looks for profiles elsewhere than 2.20 did.
const TRIXIE: &str = "trixie";

/// systemd-sysusers makes the other users as the host boots. Without a number of its own a host is no host to D-Bus.
const ADD_COLLECTORS_USER: &str = "--extract-hook=\
     echo 'prometheus:x:995:995::/var/lib/prometheus:/usr/sbin/nologin' >> \"$1/etc/passwd\" && \
     echo 'prometheus:x:995:' >> \"$1/etc/group\" && \
     mkdir -p \"$1/var/lib/prometheus/node-exporter\" && \
     echo 5e1f0c1f2a6b4c0c9d1e7b7f3a52d6a1 > \"$1/etc/machine-id\"";

/// Python's modules as bytecode: no package script has made it, and an emulated processor takes
/// minutes to. Some files of its tests are no Python, on purpose: the compiler's exit code says so.
const COMPILE_PYTHON: &str =
    "--extract-hook=chroot \"$1\" python3 -m compileall -q /usr/lib/python3*/ >/dev/null || true";

/// What an image is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserSpace {
    /// The lab's own work.
    Lab,
    /// That, and real services to measure.
    Services,
    /// The lab's, and real programs to test outsourced sockets with.
    Programs,
    /// The lab's, and libvirt.
    Libvirt,
    /// The lab's, and tuned.
    Tuned,
    /// The same of Debian 13, whose tuned seeks profiles in another place.
    TunedOfTrixie,
    /// The lab's, and what the guides' commands meet, of Debian 13.
    Guides,
}

impl UserSpace {
    fn name(self) -> &'static str {
        match self {
            Self::Lab => "user-space",
            Self::Services => "user-space-services",
            Self::Programs => "user-space-programs",
            Self::Libvirt => "user-space-libvirt",
            Self::Tuned => "user-space-tuned",
            Self::TunedOfTrixie => "user-space-tuned-trixie",
            Self::Guides => "user-space-guides",
        }
    }

    fn packages(self) -> Vec<&'static str> {
        match self {
            Self::Lab => PACKAGES.to_vec(),
            Self::Services => [PACKAGES, SERVICES].concat(),
            Self::Programs => [PACKAGES, PROGRAMS].concat(),
            Self::Libvirt => [PACKAGES, LIBVIRT].concat(),
            Self::Tuned | Self::TunedOfTrixie => [PACKAGES, TUNED].concat(),
            Self::Guides => [PACKAGES, GUIDES].concat(),
        }
    }

    fn hooks(self) -> &'static [&'static str] {
        match self {
            Self::Lab => &[],
            Self::Services => &[ADD_USERS],
            Self::Programs => &[COMPILE_PYTHON],
            Self::Libvirt => &[ADD_USERS, ADD_LIBVIRTS_USERS, MAKE_LIBVIRTS_PLACES],
            Self::Tuned | Self::TunedOfTrixie => &[ADD_USERS, NAME_AWK, COMPILE_PYTHON],
            Self::Guides => &[
                ADD_USERS,
                ADD_LIBVIRTS_USERS,
                MAKE_LIBVIRTS_PLACES,
                ADD_COLLECTORS_USER,
                NAME_AWK,
                COMPILE_PYTHON,
            ],
        }
    }

    /// The release whose packages it has, and where they are.
    fn origin(self) -> Result<(String, String)> {
        match self {
            Self::TunedOfTrixie | Self::Guides => Ok((TRIXIE.to_owned(), source_of_suite(TRIXIE)?)),
            _ => Ok((release()?, debian_sources()?)),
        }
    }
}

/// The image from the cache, built if need be.
pub fn user_space_image(
    cache: &Cache,
    user_space: UserSpace,
    observer: &dyn Observer,
) -> Result<PathBuf> {
    let (release, sources) = user_space.origin()?;
    let mut inputs = Inputs::default()
        .with("recipe", RECIPE)
        .with("release", release.as_str())
        .with("sources", sources.as_str())
        .with("packages", user_space.packages().join(" "));
    for hook in user_space.hooks() {
        inputs = inputs.with("hook", *hook);
    }
    let entry = cache.entry(user_space.name(), &inputs, observer, |directory| {
        let title = format!(
            "build the {} of host and guests from Debian packages (once)",
            user_space.name().replace('-', " ")
        );
        task(observer, title, || {
            build(directory, user_space, &release, &sources)
        })
    })?;
    Ok(entry.join("image.squashfs"))
}

/// Unpacks the packages without running their scripts, and packs the tree uncompressed:
/// an emulated processor is slow at decompression and the disk is not the bottleneck.
fn build(directory: &Path, user_space: UserSpace, release: &str, sources: &str) -> Result<()> {
    let list = directory.join("sources.list");
    fs::write(&list, sources).at("write", &list)?;
    let archive = directory.join("image.tar");
    let log = directory.join("mmdebstrap.log");
    let mut command = Command::new("unshare");
    command
        .args([
            "--pid",
            "--fork",
            "--kill-child",
            "mmdebstrap",
            "--mode=root",
        ])
        .args(["--variant=extract", "--format=tar"])
        .arg("--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr")
        .arg("--aptopt=APT::Install-Recommends \"false\"")
        .arg("--dpkgopt=path-exclude=/usr/share/doc/*")
        .arg("--dpkgopt=path-exclude=/usr/share/man/*")
        .arg("--dpkgopt=path-exclude=/usr/share/locale/*")
        .args(user_space.hooks())
        .arg(format!("--include={}", user_space.packages().join(",")))
        .args([Path::new(release), &archive, &list])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log).at("create", &log)?);
    let mut bootstrap = child::spawn(command).map_err(|error| error.what_to_do(SET_UP))?;
    if !bootstrap.wait()?.success() {
        let said = fs::read_to_string(&log).unwrap_or_default();
        let why = said
            .lines()
            .rev()
            .find(|line| line.starts_with("E:"))
            .unwrap_or("no reason given");
        return Err(
            Error::machine("build the user space with mmdebstrap", why).what_to_do(
                "run as root; check that this machine reaches its package sources (apt-get update)",
            ),
        );
    }
    let tree = File::open(&archive).at("open", &archive)?;
    let mut pack = Command::new("sqfstar");
    pack.args([
        "-comp",
        "zstd",
        "-noI",
        "-noD",
        "-noF",
        "-noX",
        "-quiet",
        "-no-progress",
    ]);
    output(pack.arg(directory.join("image.squashfs")).stdin(tree))?;
    for file in [archive, list, log] {
        fs::remove_file(&file).at("remove", &file)?;
    }
    Ok(())
}
