//! Whether the tags of VLANs are in the frames that a card's XDP program sees, and who needs them there.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::error::{Error, failed};
use crate::shared::{Frames, Queues, Specification};

// Of include/uapi/linux/ethtool.h.
const GET_FLAGS: u32 = 0x25;
const FLAG_RX_VLAN: u32 = 1 << 8;

/// `struct ethtool_value`
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// `struct ifreq` with the pointer member.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    data: *mut Value,
    padding: [u8; 16],
}

/// Where a device has the tag of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tags {
    /// In the frame, as it came.
    InFrames,
    /// The card takes it off (`ethtool -k`, `rx-vlan-offload`).
    TakenOff,
    /// The device is no hardware: what sent the frame has handed the tag on beside it, or in it.
    OfSender,
}

/// Where a network device has it. `classes` is /sys/class/net.
pub(crate) fn of(classes: &Path, nic: &str) -> io::Result<Tags> {
    if !classes.join(nic).join("device").exists() {
        return Ok(Tags::OfSender);
    }
    let mut value = Value {
        command: GET_FLAGS,
        data: 0,
    };
    control(nic, &mut value)?;
    Ok(match value.data & FLAG_RX_VLAN {
        0 => Tags::InFrames,
        _ => Tags::TakenOff,
    })
}

/// Refuses a NIC whose frames have lost their tags where the program, or the VLANs above it, need them. A frame that goes through
/// a CPU map is its bytes alone: the kernel makes a new skb of them. If the tag is among these, that skb goes to the VLAN that it
/// names (`skb_vlan_untag()`); if the card has taken it off, the frame would be received on the NIC itself.
pub(crate) fn refuse_lost(
    classes: &Path,
    specification: &Specification,
    nic: &str,
    tags: Tags,
) -> Result<(), Error> {
    let (why, instead) = match tags {
        Tags::InFrames => return Ok(()),
        Tags::TakenOff => {
            let instead = format!("ethtool -K {nic} rxvlan off");
            ("takes tags off frames", instead)
        }
        Tags::OfSender => {
            let instead = format!("name a card of hardware in place of {nic}");
            ("is no hardware, and may have tags beside frames", instead)
        }
    };
    if specification.frames.iter().any(Frames::has_tag) {
        return Err(Error {
            action: format!("tell frames of {nic} apart by VLAN or priority"),
            cause: format!(
                "it {why} before a program sees them: {instead}, or name frames by EtherType alone"
            ),
        });
    }
    if !matches!(specification.queues, Queues::Threads { .. }) {
        return Ok(());
    }
    let Some(needs) = needs_tags(classes, nic)? else {
        return Ok(());
    };
    Err(Error {
        action: format!("demultiplex {nic} by threads"),
        cause: format!(
            "{needs}, but it {why}, and these would lose their VLAN: {instead}, use rt_from (a kernel with levels), or leave \
             {nic} out"
        ),
    })
}

/// What above a NIC needs the tags of its frames.
fn needs_tags(classes: &Path, nic: &str) -> Result<Option<String>, Error> {
    let path = classes.join(nic);
    let entries = fs::read_dir(&path).map_err(failed(format!("list {}", path.display())))?;
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(upper) = name.strip_prefix("upper_") else {
            continue;
        };
        let kind = fs::read_to_string(entry.path().join("uevent")).unwrap_or_default();
        if kind.lines().any(|line| line == "DEVTYPE=vlan") {
            return Ok(Some(format!("it has the VLAN device {upper}")));
        }
    }
    // A bridge that tells VLANs apart; none where the NIC is in no bridge.
    let filtering = path.join("brport/bridge/bridge/vlan_filtering");
    let filters = fs::read_to_string(filtering).is_ok_and(|text| text.trim() == "1");
    Ok(filters.then(|| "it is in a bridge that filters VLANs".to_owned()))
}

fn control(nic: &str, value: &mut Value) -> io::Result<()> {
    let mut request = InterfaceRequest {
        name: [0; 16],
        data: value,
        padding: [0; 16],
    };
    if nic.len() >= request.name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    request.name[..nic.len()].copy_from_slice(nic.as_bytes());
    let (family, flags) = (AddressFamily::Inet, SockFlag::SOCK_CLOEXEC);
    let socket = socket(family, SockType::Datagram, flags, None)?;
    // SAFETY: `request` is a live `struct ifreq` with a terminated name. Its data points to a live `struct ethtool_value` that
    // nobody else borrows, which is what the commands for flags read and write.
    let result = unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCETHTOOL as libc::Ioctl,
            &raw mut request,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::install::tests::{BY_THREADS, naming};

    const SET_FLAGS: u32 = 0x26;
    const FLAG_TX_VLAN: u32 = 1 << 7;

    /// Lets a device of a test write tags into frames, as a wire has them.
    pub(crate) fn into_frames(device: &str) {
        let mut value = Value {
            command: GET_FLAGS,
            data: 0,
        };
        control(device, &mut value).unwrap();
        value.command = SET_FLAGS;
        value.data &= !FLAG_TX_VLAN;
        control(device, &mut value).unwrap();
    }

    #[test]
    fn a_device_without_hardware_says_nothing_of_tags() {
        let classes = Path::new("/sys/class/net");
        assert_eq!(of(classes, "lo").unwrap(), Tags::OfSender);
        let mut value = Value {
            command: GET_FLAGS,
            data: u32::MAX,
        };
        control("lo", &mut value).unwrap();
        assert_ne!(value.data, u32::MAX);
        for absent in ["no-such-nic", "no-such-nic-with-a-long-name"] {
            let error = control(absent, &mut value).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{absent}");
        }
    }

    #[test]
    fn a_nic_with_vlans_is_refused_only_where_frames_lose_their_tags() {
        let tree = tempfile::tempdir().unwrap();
        let nic = tree.path().join("nic");
        let refuse = |specification: &Specification, tags| {
            refuse_lost(tree.path(), specification, "nic", tags)
        };
        let threads = naming(Vec::new(), BY_THREADS);
        fs::create_dir_all(nic.join("upper_bond")).unwrap();
        fs::write(nic.join("upper_bond/uevent"), "DEVTYPE=bond\n").unwrap();
        refuse(&threads, Tags::TakenOff).unwrap();
        fs::create_dir_all(nic.join("brport/bridge/bridge")).unwrap();
        fs::write(nic.join("brport/bridge/bridge/vlan_filtering"), "0\n").unwrap();
        refuse(&threads, Tags::TakenOff).unwrap();
        fs::write(nic.join("brport/bridge/bridge/vlan_filtering"), "1\n").unwrap();
        let error = refuse(&threads, Tags::TakenOff).unwrap_err().to_string();
        assert!(error.contains("filters VLANs"), "{error}");
        fs::remove_dir_all(nic.join("brport")).unwrap();
        fs::create_dir_all(nic.join("upper_nic.5")).unwrap();
        fs::write(
            nic.join("upper_nic.5/uevent"),
            "DEVTYPE=vlan\nINTERFACE=nic.5\n",
        )
        .unwrap();
        for (tags, instead) in [
            (Tags::TakenOff, "ethtool -K nic rxvlan off"),
            (Tags::OfSender, "card of hardware"),
        ] {
            let error = refuse(&threads, tags).unwrap_err().to_string();
            let says = |what| error.contains(what);
            assert!(says("VLAN device nic.5") && says(instead), "{error}");
        }
        refuse(&threads, Tags::InFrames).unwrap();
        refuse(&naming(Vec::new(), Queues::Kernel), Tags::TakenOff).unwrap();
        // Frames that are named by VLAN need tags, whatever is above the card.
        let by_tag = Frames {
            pcp: Some(4),
            ..Frames::default()
        };
        for queues in [BY_THREADS, Queues::Kernel] {
            let named = naming(vec![by_tag], queues);
            let error = refuse(&named, Tags::TakenOff).unwrap_err().to_string();
            assert!(error.contains("by EtherType alone"), "{error}");
            refuse(&named, Tags::InFrames).unwrap();
        }
        fs::remove_dir_all(&nic).unwrap();
        refuse(&threads, Tags::TakenOff).unwrap_err();
    }
}
