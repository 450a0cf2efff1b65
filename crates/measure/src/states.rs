//! What the host is to have for each row. Looks, and changes nothing.

use std::collections::BTreeMap;

use steadyvm_host::{Desired, HostControl, HostError, State, Target};
use steadyvm_site::{Site, Source};

use crate::bound::Planned;
use crate::error::Result;
use crate::rows::{Row, Sets};
use crate::run::Run;

/// What the host is to have for each row of this boot, by the row's place; none: nothing.
pub type States = BTreeMap<usize, Option<Desired>>;

/// What is in force now.
///
/// # Errors
/// An apply or undo was interrupted.
pub fn in_force(control: &HostControl) -> Result<Option<Desired>, HostError> {
    if control.show()?.state == State::Incomplete {
        return Err(HostError::BadInput {
            what: "an apply or undo was interrupted: there is no state to measure and to restore"
                .into(),
            fix: "run `steadyvm undo` first".into(),
        });
    }
    control.desired_in_force()
}

/// What the host is to have for each of the rows `here`. What it cannot have is found before anything is taken back.
/// `warn` is told what to know of VMs' names.
///
/// # Errors
/// What the host cannot have, or nobody has asked for.
pub fn of_rows(
    run: &mut Run,
    here: &[usize],
    found: Option<&Desired>,
    control: &HostControl,
    warn: impl Fn(&str),
) -> Result<States> {
    let is_method = |row: &Row| matches!(row.sets, Sets::Method(_));
    let target = if here.iter().any(|&row| is_method(&run.rows[row])) {
        run.target.find(&run.vms, warn)?
    } else {
        Target::default()
    };
    let mut states = States::new();
    let named = run.bound.clone();
    for &place in here {
        let row = &mut run.rows[place];
        let desired = match &row.sets {
            Sets::Nothing => None,
            Sets::Method(method) => Some(control.desired_of(&target, *method)?),
            Sets::File { path, .. } => {
                let site = Site::read(&Source::of(path))?;
                row.planned = Planned::of(path, &site, named.as_deref());
                Some(site.desired())
            }
            Sets::Found => {
                let found = found.ok_or_else(nothing_is_in_force)?;
                row.planned = Planned::of_found(found, named.as_deref());
                Some(found.clone())
            }
        };
        if let Some(desired) = &desired
            && found.is_none()
        {
            control.plan_desired(desired)?;
        }
        states.insert(place, desired);
    }
    match named {
        Some(name)
            if here.len() == run.rows.len() && run.rows.iter().all(|it| it.planned.is_none()) =>
        {
            Err(HostError::BadInput {
                what: format!("--bound {name}: no row's plan has a service of that name"),
                fix: "name a file with a [[service]] by --file or --files".into(),
            }
            .into())
        }
        _ => Ok(states),
    }
}

fn nothing_is_in_force() -> HostError {
    HostError::BadInput {
        what: "nothing is in force on this host, so there is nothing to measure".into(),
        fix: "run `steadyvm apply` first, or name a file with --file, or methods with --methods"
            .into(),
    }
}
