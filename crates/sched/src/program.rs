//! A program of the scheduler that runs when it is asked to.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libbpf_rs::Object;

use crate::error::Error;

/// A system-call program.
#[derive(Debug)]
pub(crate) struct Program {
    name: &'static str,
    descriptor: OwnedFd,
}

impl Program {
    pub fn of(object: &Object, name: &'static str) -> Result<Self, Error> {
        let program = object
            .progs()
            .find(|program| program.name() == name)
            .ok_or_else(|| Error::State(format!("the scheduler has no program {name}")))?;
        let descriptor = program
            .as_fd()
            .try_clone_to_owned()
            .map_err(Error::io("copy a descriptor"))?;
        Ok(Self { name, descriptor })
    }

    /// Runs it with its argument, which it may change.
    pub fn run(&self, argument: &mut [u8]) -> Result<(), Error> {
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as u64,
            // The kernel writes the argument back to where it came from, and refuses another place
            // (bpf_prog_test_run_syscall).
            ctx_in: argument.as_mut_ptr().cast(),
            ctx_size_in: argument.len() as u32,
            ..Default::default()
        };
        // SAFETY: a program's descriptor, and options that point to `argument`, which lives through the call.
        let done = unsafe {
            libbpf_sys::bpf_prog_test_run_opts(self.descriptor.as_raw_fd(), &raw mut options)
        };
        let failed = if done < 0 {
            done
        } else {
            options.retval as i32
        };
        if failed < 0 {
            return Err(Error::Refused {
                what: format!("run the scheduler's program {}", self.name),
                why: io::Error::from_raw_os_error(-failed).to_string(),
            });
        }
        Ok(())
    }
}
