//! Steps that give normal threads their share of each CPU in short pieces.

use super::step::Step;
use crate::error::HostError;
use crate::parse;
use crate::settings::fair_server::{file, read};
use crate::settings::lockdown::advice_on_debugfs;
use crate::settings::{ChangeOf, FairServer, Machine};

/// Steps that let the fair servers of all CPUs give their shares in pieces of at most `piece_ns`:
/// also those that hold already. A warning instead where they cannot be reached.
pub(crate) fn steps(
    machine: &Machine,
    piece_ns: u64,
    warnings: &mut Vec<String>,
) -> Result<Vec<Step>, HostError> {
    let release = machine.kernel_release().unwrap_or_default();
    if parse::kernel_version(&release).is_none_or(|version| version < (6, 12)) {
        return Ok(Vec::new());
    }
    let mut steps = Vec::new();
    for cpu in machine.online()?.iter() {
        let old = match read(machine, cpu) {
            Ok(old) => old,
            Err(error) => {
                warnings.push(format!(
                    "{}: {error}: the fair server cannot be bounded, so normal threads may run \
                     before the RT path for 50 ms in a second; {}",
                    file(cpu, "runtime"),
                    advice_on_debugfs(machine, &error)
                ));
                return Ok(Vec::new());
            }
        };
        let new = old.in_pieces_of(piece_ns);
        let why = "so that normal threads get their share in pieces that RT ones can wait for";
        let setting = FairServer { cpu };
        steps.push(Step::required(ChangeOf { setting, old, new }, why));
    }
    Ok(steps)
}
