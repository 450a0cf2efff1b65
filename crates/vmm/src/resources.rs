//! What a VM needs of the host, opened before anything of the VM is made: what is missing is said
//! at once, and everything after runs without the right to open it.

use kvm_ioctls::Kvm;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;

use crate::boot;
use crate::configuration::{self, Configuration, Console};
use crate::devices::block;
use crate::devices::serial::Output;
use crate::devices::tap::Tap;
use crate::error::{Doing, Error, Result};

/// Whether the files that a description names can be opened.
///
/// # Errors
/// Which cannot.
pub fn check(configuration: &Configuration) -> Result<()> {
    boot::Image::open(configuration)?;
    configuration
        .disk
        .iter()
        .try_for_each(|disk| block::Image::open(disk).map(drop))
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
    /// Where the console's output goes.
    pub console: Output,
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
        let console = open_console(&configuration.console)?;
        let channel = configuration
            .channel
            .as_ref()
            .map(open_channel)
            .transpose()?;
        let kvm = Kvm::new().doing_or(
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
            console,
            channel,
        })
    }
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

fn open_console(place: &Console) -> Result<Output> {
    match place {
        Console::Standard => Ok(Box::new(io::stdout())),
        Console::File(path) => {
            let file = File::create(path).map_err(|error| {
                Error::input(format!("console = \"{}\"", path.display()), error)
            })?;
            Ok(Box::new(file))
        }
    }
}
