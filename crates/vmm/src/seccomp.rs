//! Which system calls the monitor's threads may make once the guest runs.
//!
//! A call that is not on a thread's list ends the program: a handler says which it was, gives the
//! terminal back and exits. Lists are by thread: a VCPU's has what `crates/sockets` needs
//! (docs/design/socket-rpc.md) and KVM; the others serve disks, the console and the end.

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use vmm_sys_util::signal::register_signal_handler;

use crate::error::{Doing, Result};
use crate::terminal;

/// What any thread needs: memory, locks, its end, messages, events, the clock.
const COMMON: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    libc::SYS_write,
    libc::SYS_writev,
];

/// What serving outsourced sockets needs besides.
const SOCKETS: &[c_long] = &[
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_epoll_wait,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socket,
];

/// What disks and reports need besides.
const FILES: &[c_long] = &[
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_lseek,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
];

/// `KVM_RUN`.
const KVM_RUN: u64 = 0xae80;
/// The letters of ioctl requests: terminals and tap devices, sockets, vhost.
const TERMINAL: u64 = 0x54;
const SOCKET: u64 = 0x89;
const VHOST: u64 = 0xaf;

/// Which list a thread gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It runs the guest, and serves its sockets and registers.
    Vcpu,
    /// Everything else.
    Other,
}

/// Compiled filters.
pub struct Filters {
    vcpu: BpfProgram,
    other: BpfProgram,
}

impl Filters {
    /// Compiles them, and prepares to say what broke them.
    pub fn new() -> Result<Self> {
        register_signal_handler(libc::SIGSYS, on_violation).doing("handle SIGSYS")?;
        Ok(Self {
            vcpu: compile(Role::Vcpu).doing("compile a system call filter")?,
            other: compile(Role::Other).doing("compile a system call filter")?,
        })
    }

    /// Puts the calling thread under its filter, for ever.
    pub fn apply(&self, role: Role) -> Result<()> {
        let program = match role {
            Role::Vcpu => &self.vcpu,
            Role::Other => &self.other,
        };
        apply_filter(program).doing("apply a system call filter")
    }
}

fn compile(role: Role) -> std::result::Result<BpfProgram, seccompiler::BackendError> {
    let more = match role {
        Role::Vcpu => SOCKETS,
        Role::Other => FILES,
    };
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> = COMMON
        .iter()
        .chain(more)
        .map(|call| (*call, Vec::new()))
        .collect();
    rules.insert(libc::SYS_ioctl, requests(role)?);
    // Memory may be had, but none that can be executed.
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let executable = libc::PROT_EXEC as u64;
        rules.insert(
            call,
            vec![condition(2, SeccompCmpOp::MaskedEq(executable), 0)?],
        );
    }
    SeccompFilter::new(
        rules,
        SeccompAction::Trap,
        SeccompAction::Allow,
        TargetArch::x86_64,
    )?
    .try_into()
}

/// The ioctl requests of a role.
fn requests(role: Role) -> std::result::Result<Vec<SeccompRule>, seccompiler::BackendError> {
    const LETTER: u64 = 0xff00;
    let letter = |letter: u64| condition(1, SeccompCmpOp::MaskedEq(LETTER), letter << 8);
    match role {
        Role::Vcpu => Ok(vec![
            condition(1, SeccompCmpOp::Eq, KVM_RUN)?,
            letter(TERMINAL)?,
            letter(SOCKET)?,
            letter(VHOST)?,
        ]),
        Role::Other => Ok(vec![letter(TERMINAL)?]),
    }
}

fn condition(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> std::result::Result<SeccompRule, seccompiler::BackendError> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?;
    SeccompRule::new(vec![condition])
}

/// Only what a signal handler may call.
extern "C" fn on_violation(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // `siginfo_t` of SIGSYS: address, then the call's number, behind the three words that all have.
    const CALL: usize = 24 / size_of::<c_int>();
    terminal::restore();
    let mut text = *b"steadyvm up: stopped at system call ...., which is not on its list\n";
    // SAFETY: the kernel gives a handler with SA_SIGINFO a whole siginfo_t, of 128 bytes.
    let mut call = unsafe { info.cast::<c_int>().add(CALL).read() };
    for place in [39, 38, 37, 36] {
        text[place] = b'0' + (call % 10).unsigned_abs() as u8;
        call /= 10;
    }
    // SAFETY: write takes a buffer of that length; _exit takes no pointers.
    unsafe {
        libc::write(2, text.as_ptr().cast(), text.len());
        libc::_exit(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_has_room_for_the_number() {
        let text = b"steadyvm up: stopped at system call ...., which is not on its list\n";
        assert_eq!(&text[36..40], b"....");
    }

    #[test]
    fn both_filters_compile() {
        assert!(compile(Role::Vcpu).is_ok() && compile(Role::Other).is_ok());
    }
}
