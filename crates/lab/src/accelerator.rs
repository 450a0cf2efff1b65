//! Whether the hardware can run the lab's hosts, with KVM working inside them.
//!
//! A `/dev/kvm` proves nothing: some machines have one that runs only tiny guests. So the vendor
//! module must say that it nests, and then a host must boot with it, in bounded time, and have
//! a `/dev/kvm` of its own.

use crate::Result;
use crate::emulator::Accelerator;
use crate::host::{EmulatedHost, HostSpecification};
use crate::progress::{News, Observer};
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::time::Duration;

/// Real hardware boots the lab's kernel in about a second.
const BOOT_PATIENCE: Duration = Duration::from_secs(15);

/// Chooses how the lab's hosts run; tells the observer why.
///
/// `trial` is the host that is booted if the machine claims that it can.
pub fn choose(trial: &HostSpecification, observer: &dyn Observer) -> Accelerator {
    let (accelerator, why) = match claim(Path::new("/")) {
        Err(missing) => (Accelerator::Tcg, missing),
        Ok(()) => match boots(trial) {
            Ok(true) => (Accelerator::Kvm, "a trial boot worked".to_owned()),
            Ok(false) => (
                Accelerator::Tcg,
                "the trial host has no /dev/kvm".to_owned(),
            ),
            Err(error) => (
                Accelerator::Tcg,
                format!("the trial boot failed: {}", error.why),
            ),
        },
    };
    observer.tell(News::Note(format!("hosts run by {accelerator}: {why}")));
    accelerator
}

/// Whether hosts may run by hardware: without it they are emulated, whatever a trial would show.
pub fn is_claimed() -> bool {
    claim(Path::new("/")).is_ok()
}

/// Whether the machine says that guests of its KVM can have KVM; the error says what is missing.
fn claim(root: &Path) -> std::result::Result<(), String> {
    let device = root.join("dev/kvm");
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(&device)
        .map_err(|error| format!("this machine's /dev/kvm cannot be opened ({error})"))?;
    let nests = |module: &str| {
        let parameter = root.join(format!("sys/module/{module}/parameters/nested"));
        fs::read_to_string(parameter).is_ok_and(|value| ["Y", "1"].contains(&value.trim()))
    };
    if nests("kvm_intel") || nests("kvm_amd") {
        return Ok(());
    }
    Err("neither kvm_intel nor kvm_amd of this machine has nested=Y".to_owned())
}

fn boots(trial: &HostSpecification) -> Result<bool> {
    let trial = HostSpecification {
        name: "trial".to_owned(),
        accelerator: Accelerator::Kvm,
        boot_patience: BOOT_PATIENCE,
        ..trial.clone()
    };
    Ok(EmulatedHost::boot(&trial)?.require_kvm().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(device: bool, nested: Option<(&str, &str)>) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        if device {
            fs::create_dir(root.path().join("dev")).unwrap();
            fs::write(root.path().join("dev/kvm"), "").unwrap();
        }
        if let Some((module, value)) = nested {
            let parameters = root.path().join(format!("sys/module/{module}/parameters"));
            fs::create_dir_all(&parameters).unwrap();
            fs::write(parameters.join("nested"), value).unwrap();
        }
        root
    }

    #[test]
    fn a_device_alone_is_no_claim() {
        assert!(
            claim(machine(true, None).path())
                .unwrap_err()
                .contains("nested")
        );
        assert!(claim(machine(true, Some(("kvm_amd", "0\n"))).path()).is_err());
        assert!(
            claim(machine(false, Some(("kvm_amd", "1\n"))).path())
                .unwrap_err()
                .contains("opened")
        );
    }

    #[test]
    fn a_nesting_module_is_a_claim() {
        assert_eq!(
            claim(machine(true, Some(("kvm_amd", "1\n"))).path()),
            Ok(())
        );
        assert_eq!(
            claim(machine(true, Some(("kvm_intel", "Y\n"))).path()),
            Ok(())
        );
    }
}
