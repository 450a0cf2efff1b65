//! What a VM needs of the host, opened before anything of the VM is made: what is missing is said
//! at once, and everything after runs without the right to open it.

use kvm_ioctls::Kvm;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::boot;
use crate::configuration::{self, Configuration, Console, Namespace, Sockets};
use crate::devices::block;
use crate::devices::tap::Tap;
use crate::output::Sink;
use steadyvm_fault::{At, Fault as Error, Result};
use steadyvm_files::{Directory, FileType, Others};

/// Whether a VM can be made of what a description names, without making it: kernel and initramfs are
/// loaded into memory that is thrown away, all else is looked at.
///
/// # Errors
/// What cannot be used.
pub fn check(configuration: &Configuration) -> Result<()> {
    boot::Image::open(configuration)?.check(configuration)?;
    for disk in &configuration.disk {
        block::Image::open(disk)?;
    }
    for net in &configuration.net {
        Tap::check(&net.tap)?;
    }
    if let Some(channel) = &configuration.channel {
        let place = || format!("channel.socket = \"{}\"", channel.socket.display());
        let kind = fs::metadata(&channel.socket).map_err(|error| Error::input(place(), error))?;
        if !kind.file_type().is_socket() {
            return Err(Error::input(place(), "it is no socket"));
        }
    }
    if let Console::File(path) = &configuration.console {
        let place = || format!("console = \"{}\"", path.display());
        let directory = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        let kind = fs::metadata(directory).map_err(|error| Error::input(place(), error))?;
        if !kind.is_dir() || path.is_dir() || path.is_symlink() {
            return Err(Error::input(place(), "it is no place for a file"));
        }
    }
    if let Some(Sockets {
        namespace: Namespace::Existing(path),
        ..
    }) = &configuration.sockets
    {
        let place = format!("sockets.namespace = \"{}\"", path.display());
        fs::metadata(path).map_err(|error| {
            Error::input(place, format!("{error}; make it with: ip netns add NAME"))
        })?;
    }
    Ok(())
}

/// Open files of the host.
pub struct Resources {
    /// /dev/kvm.
    pub kvm: Kvm,
    /// Kernel and initramfs.
    pub image: boot::Image,
    /// Disks, in the configuration's order.
    pub disks: Vec<block::Image>,
    /// Tap devices, in the configuration's order, from the namespace of the caller.
    pub taps: Vec<Tap>,
    /// Where the console's output goes, until it is taken.
    console: Option<Sink>,
    /// The most bytes of a file that the console may write.
    console_bytes: u64,
    /// The other end of the channel into the guest.
    pub channel: Option<UnixStream>,
}

impl Resources {
    /// Opens them.
    ///
    /// # Errors
    /// What is missing, and how to get it.
    pub fn open(configuration: &Configuration) -> Result<Self> {
        let image = boot::Image::open(configuration)?;
        let disks = configuration.disk.iter().map(block::Image::open);
        let disks = disks.collect::<Result<_>>()?;
        let console = open_console(configuration)?;
        let channel = configuration
            .channel
            .as_ref()
            .map(open_channel)
            .transpose()?;
        let kvm = Kvm::new().cannot_or(
            "open /dev/kvm",
            "load kvm_intel or kvm_amd, and give this user the device: usermod -aG kvm USER; \
             `steadyvm doctor` says what this host has",
        )?;
        let taps = configuration.net.iter().map(|net| Tap::open(&net.tap));
        Ok(Self {
            kvm,
            image,
            disks,
            taps: taps.collect::<Result<_>>()?,
            console: Some(console),
            console_bytes: configuration.console_max_mib << 20,
            channel,
        })
    }

    /// Takes the console's sink.
    ///
    /// # Errors
    /// The second time.
    pub fn console(&mut self) -> Result<Sink> {
        let sink = self.console.take().ok_or("it is taken");
        sink.cannot("write the console")
    }

    /// The size to which the largest file may grow that the VM writes to.
    ///
    /// # Errors
    /// Where standard output and error cannot be looked at.
    pub fn largest_file(&self) -> Result<u64> {
        /// More than a report, and than the messages that a guest can cause in years.
        const OTHERS: u64 = 64 << 20;
        let what = "look at standard output and error";
        let size = |fd: BorrowedFd| {
            let file = File::from(fd.try_clone_to_owned()?);
            Ok::<_, io::Error>(file.metadata()?.len())
        };
        let output = size(io::stdout().as_fd()).cannot(what)?;
        let errors = size(io::stderr().as_fd()).cannot(what)?;
        let streams = (output + self.console_bytes).max(errors) + OTHERS;
        let disks = self.disks.iter().map(block::Image::bytes);
        Ok(disks.fold(streams, u64::max))
    }
}

/// Says what the VM is called to whoever looks at this process's descriptors, since Linux cuts the names of threads: a file of
/// memory of that name, which stays empty.
///
/// # Errors
/// The kernel's.
pub fn name_of(configuration: &Configuration) -> Result<File> {
    let what = "say what the VM is called";
    let name = CString::new(format!("steadyvm-up:{}", configuration.name)).cannot(what)?;
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = File::from(memfd_create(name.as_c_str(), flags).cannot(what)?);
    let seals = SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).cannot(what)?;
    Ok(file)
}

fn open_channel(channel: &configuration::Channel) -> Result<UnixStream> {
    UnixStream::connect(&channel.socket).map_err(|error| {
        let place = format!("channel.socket = \"{}\"", channel.socket.display());
        Error::input(
            place,
            format!("{error}; who controls the guest must listen there before it starts"),
        )
    })
}

/// The guest decides what a file gets, and how much of it: so the file is not one that a link leads
/// to, and it has a limit.
fn open_console(configuration: &Configuration) -> Result<Sink> {
    let most = configuration.console_max_mib << 20;
    match &configuration.console {
        Console::Standard => {
            let output = io::stdout().as_fd().try_clone_to_owned();
            let file = File::from(output.cannot("share the standard output")?);
            let is_file = file
                .metadata()
                .cannot("look at the standard output")?
                .is_file();
            Ok(if is_file {
                Sink::limited(file, most)
            } else {
                Sink::stream(file)
            })
        }
        Console::File(path) => {
            let open = || {
                let (directory, name) = Directory::of(path, Others::Allowed)?;
                match directory.kind(&name)? {
                    // A terminal or a pipe that is there.
                    Some(FileType::CharacterDevice | FileType::Fifo) => OpenOptions::new()
                        .write(true)
                        .custom_flags(libc::O_NOFOLLOW)
                        .open(directory.reach(&name)),
                    _ => directory.create_anew(&name, steadyvm_files::READABLE),
                }
            };
            let file = open().map_err(|error| {
                Error::input(format!("console = \"{}\"", path.display()), error)
            })?;
            Ok(Sink::limited(file, most))
        }
    }
}
