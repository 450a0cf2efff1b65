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
    if role == Role::Other {
        // Sockets that are left at the VM's end go with the last thread, and must not linger.
        for call in [libc::SYS_getsockopt, libc::SYS_setsockopt] {
            rules.insert(call, vec![linger()?]);
        }
    }
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

/// The option `SO_LINGER` alone.
fn linger() -> std::result::Result<SeccompRule, seccompiler::BackendError> {
    let is = |argument, value: c_int| {
        SeccompCondition::new(
            argument,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::Eq,
            value as u64,
        )
    };
    SeccompRule::new(vec![is(1, libc::SOL_SOCKET)?, is(2, libc::SO_LINGER)?])
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
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::Pid;
    use std::io::Read;
    use std::os::fd::AsRawFd;

    #[test]
    fn the_message_has_room_for_the_number() {
        let text = b"steadyvm up: stopped at system call ...., which is not on its list\n";
        assert_eq!(&text[36..40], b"....");
    }

    /// A child process under a role's filter makes a call: its exit code, and what it said.
    fn under_filter(role: Role, call: c_long, arguments: [c_long; 4]) -> (i32, String) {
        let filters = Filters::new().unwrap();
        let (mut said, tell) = std::io::pipe().unwrap();
        // SAFETY: the child only makes system calls, until it ends itself.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let [one, two, three, four] = arguments;
            // SAFETY: no argument is an address that the kernel could write to.
            unsafe {
                libc::dup2(tell.as_raw_fd(), 2);
                if filters.apply(role).is_err() {
                    libc::_exit(2);
                }
                libc::syscall(call, one, two, three, four);
                libc::_exit(0);
            }
        }
        drop(tell);
        let mut text = String::new();
        said.read_to_string(&mut text).unwrap();
        match waitpid(Pid::from_raw(child), None).unwrap() {
            WaitStatus::Exited(_, code) => (code, text),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_thread_that_makes_a_call_outside_of_its_list_is_stopped() {
        const EXECUTABLE: c_long = (libc::PROT_READ | libc::PROT_EXEC) as c_long;
        let stopped = [
            (Role::Vcpu, libc::SYS_openat, [-1, 0, 0, 0]),
            (Role::Vcpu, libc::SYS_execve, [0; 4]),
            (Role::Vcpu, libc::SYS_clone, [0; 4]),
            (Role::Vcpu, libc::SYS_setns, [-1, 0, 0, 0]),
            (Role::Vcpu, libc::SYS_sendto, [-1, 0, 0, 0]),
            (Role::Vcpu, libc::SYS_pwrite64, [-1, 0, 0, 0]),
            (Role::Vcpu, libc::SYS_mmap, [0, 0, EXECUTABLE, 0]),
            (Role::Vcpu, libc::SYS_mprotect, [0, 0, EXECUTABLE, 0]),
            // KVM_SET_USER_MEMORY_REGION
            (Role::Vcpu, libc::SYS_ioctl, [-1, 0x4020_ae46, 0, 0]),
            (Role::Other, libc::SYS_openat, [-1, 0, 0, 0]),
            (Role::Other, libc::SYS_execve, [0; 4]),
            (Role::Other, libc::SYS_socket, [-1, 0, 0, 0]),
            (Role::Other, libc::SYS_ioctl, [-1, KVM_RUN as c_long, 0, 0]),
            (Role::Other, libc::SYS_setsockopt, [-1, 1, 2, 0]),
        ];
        for (role, call, arguments) in stopped {
            let message = format!(
                "steadyvm up: stopped at system call {call:04}, which is not on its list\n"
            );
            let happened = under_filter(role, call, arguments);
            assert_eq!(happened, (1, message), "{role:?} {call} {arguments:?}");
        }
    }

    #[test]
    fn a_thread_that_keeps_to_its_list_is_not_stopped() {
        let linger = [-1, libc::SOL_SOCKET.into(), libc::SO_LINGER.into(), 0];
        let allowed = [
            (Role::Vcpu, libc::SYS_getpid, [0; 4]),
            (Role::Vcpu, libc::SYS_sendmsg, [-1, 0, 0, 0]),
            (Role::Vcpu, libc::SYS_ioctl, [-1, KVM_RUN as c_long, 0, 0]),
            (Role::Other, libc::SYS_pread64, [-1, 0, 0, 0]),
            // What is left of a VM's sockets is closed by whichever thread is the last.
            (Role::Other, libc::SYS_getsockopt, linger),
            (Role::Other, libc::SYS_setsockopt, linger),
        ];
        for (role, call, arguments) in allowed {
            let happened = under_filter(role, call, arguments);
            assert_eq!(
                happened,
                (0, String::new()),
                "{role:?} {call} {arguments:?}"
            );
        }
    }
}
