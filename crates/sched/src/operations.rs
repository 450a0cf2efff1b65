//! What the scheduler asks of the kernel as it is attached: flags that older kernels refuse.

use crate::error::Error;
use libbpf_rs::OpenObject;
use libbpf_rs::btf::{Btf, types};
use std::ffi::OsStr;

/// Where `flags` is in `struct sched_ext_ops` of `bpf/kernel.h`; an assertion there says the same.
const FLAGS_AT: usize = 128;

/// Threads that may not migrate come to the scheduler as others do. Without it Linux 6.14 and later put them on their CPU by
/// themselves, for 20 ms, whatever budget they have: on `PREEMPT_RT` each holder of a lock is one.
const MIGRATION_DISABLED: &str = "SCX_OPS_ENQ_MIGRATION_DISABLED";

/// Asks for what this kernel can do.
///
/// # Errors
/// The kernel does not tell its types, or the object has no operations.
pub(crate) fn prepare(object: &mut OpenObject) -> Result<(), Error> {
    let kernel = Btf::from_vmlinux().map_err(Error::bpf("read the kernel's types"))?;
    let Some(flag) = flag(&kernel) else {
        return Ok(());
    };
    let mut maps = object.maps_mut();
    let flags = maps
        .find(|map| map.name() == "steadyvm")
        .and_then(|mut map| set(map.initial_value_mut()?, flag));
    flags.ok_or_else(|| Error::State("the scheduler has no operations".into()))
}

fn flag(kernel: &Btf<'_>) -> Option<u64> {
    let name = Some(OsStr::new(MIGRATION_DISABLED));
    let all: types::Enum64<'_> = kernel.type_by_name("scx_ops_flags")?;
    let found = all.iter().find(|member| member.name == name)?;
    u64::try_from(found.value).ok()
}

fn set(operations: &mut [u8], flag: u64) -> Option<()> {
    let place = operations.get_mut(FLAGS_AT..FLAGS_AT + size_of::<u64>())?;
    let before = u64::from_ne_bytes((&*place).try_into().ok()?);
    place.copy_from_slice(&(before | flag).to_ne_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_added_to_those_of_the_object() {
        let mut operations = [0; 300];
        operations[FLAGS_AT] = 2;
        operations[FLAGS_AT + 8] = 7;
        set(&mut operations, 16).unwrap();
        assert_eq!(
            operations[FLAGS_AT..FLAGS_AT + 9],
            [18, 0, 0, 0, 0, 0, 0, 0, 7]
        );
        assert_eq!(set(&mut operations[..FLAGS_AT + 7], 16), None);
    }
}
