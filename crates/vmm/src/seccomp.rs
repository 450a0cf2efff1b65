//! Which system calls the monitor's threads may make once the guest runs.
//!
//! A call that is not on a thread's list ends the program: a handler says which it was, gives the
//! terminal back and exits. Lists are by [`Role`], and go down to the arguments that are numbers: an
//! ioctl by its exact request, a socket by family and type, an option by its level, a signal by the
//! process that gets it. No list has a call that opens, starts, maps executable memory, changes
//! handlers of signals, or reaches another process.

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter,
};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use vmm_sys_util::signal::register_signal_handler;

use crate::terminal;
use steadyvm_fault::{At, Result};

/// What any thread needs: memory, locks, its end, messages, events, the clock.
const COMMON: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
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
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    libc::SYS_writev,
];

/// What serving outsourced sockets needs besides; socket(2) and setsockopt(2) are looked at closer.
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
    libc::SYS_listen,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
];

/// `KVM_RUN`.
const KVM_RUN: u64 = 0xae80;
/// `KVM_KVMCLOCK_CTRL`: the guest was stopped.
const KVM_KVMCLOCK_CTRL: u64 = 0xaead;
/// `KVM_GET_IRQCHIP`: which VCPU an interrupt is for.
const KVM_GET_IRQCHIP: u64 = 0xc208_ae62;
/// What a reset or an activation of a card asks vhost-net and its tap device for: `VHOST_SET_FEATURES`,
/// `_SET_MEM_TABLE`, `_SET_VRING_NUM`, `_ADDR`, `_BASE`, `_KICK`, `_CALL`, `VHOST_NET_SET_BACKEND`.
const CARDS: &[u64] = &[
    0x4008_af00,
    0x4008_af03,
    0x4008_af10,
    0x4028_af11,
    0x4008_af12,
    0x4008_af20,
    0x4008_af21,
    0x4008_af30,
    libc::TUNSETOFFLOAD,
];

/// Which list a thread gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It runs the guest, and serves its sockets and registers.
    Vcpu,
    /// It serves the sockets of a guest that another process runs.
    Server,
    /// It serves a disk.
    Disk,
    /// It moves bytes between descriptors that are open: the console, the channel, cards' interrupts.
    Carrier,
    /// It waits for the end, and writes statistics.
    Main,
}

impl Role {
    const ALL: [Self; 5] = [
        Self::Vcpu,
        Self::Server,
        Self::Disk,
        Self::Carrier,
        Self::Main,
    ];

    /// Whether it makes the guest's sockets.
    pub const fn makes_sockets(self) -> bool {
        matches!(self, Self::Vcpu | Self::Server)
    }
}

/// Compiled filters.
pub struct Filters(BTreeMap<Role, BpfProgram>);

impl Filters {
    /// Compiles them for a VM that has outsourced `sockets`, `cards` or neither, and prepares to say
    /// what broke them.
    pub fn new(sockets: bool, cards: bool) -> Result<Self> {
        register_signal_handler(libc::SIGSYS, on_violation).cannot("handle SIGSYS")?;
        let compiled = Role::ALL.into_iter().map(|role| {
            let program = compile(role, sockets, cards);
            Ok((role, program.cannot("compile a system call filter")?))
        });
        Ok(Self(compiled.collect::<Result<_>>()?))
    }

    /// Puts the calling thread under its filter, for ever.
    pub fn apply(&self, role: Role) -> Result<()> {
        let what = "apply a system call filter";
        let program = self.0.get(&role).ok_or("there is none for this role");
        apply_filter(program.cannot(what)?).cannot(what)
    }
}

type Compiled<T> = std::result::Result<T, BackendError>;
type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

fn compile(role: Role, sockets: bool, cards: bool) -> Compiled<BpfProgram> {
    let mut rules: Rules = COMMON.iter().map(|call| (*call, Vec::new())).collect();
    let also = |rules: &mut Rules, calls: &[c_long]| {
        rules.extend(calls.iter().map(|call| (*call, Vec::new())));
    };
    // The main thread and the handler of a violation give the terminal, standard input, its mode back:
    // tcsetattr(3) sets it, and asks what came of it.
    let of_terminal = |request| all(&[equal(0, 0)?, equal(1, request)?]);
    let mut requests = vec![of_terminal(libc::TCSETS)?, of_terminal(libc::TCGETS)?];
    // Sockets that are left at the VM's end go with the last thread, and must not linger.
    let linger = || {
        all(&[
            equal(1, libc::SOL_SOCKET as u64)?,
            equal(2, libc::SO_LINGER as u64)?,
        ])
    };
    let mut options = (vec![linger()?], vec![linger()?]);
    match role {
        Role::Vcpu | Role::Server => {
            if role == Role::Vcpu {
                requests.extend(any_of(1, &[KVM_RUN, KVM_KVMCLOCK_CTRL])?);
            }
            if cards && role == Role::Vcpu {
                requests.extend(any_of(1, CARDS)?);
            }
            if sockets {
                also(&mut rules, SOCKETS);
                requests.extend(any_of(1, steadyvm_sockets::IOCTLS)?);
                if role == Role::Vcpu {
                    requests.extend(any_of(1, &[steadyvm_sockets::SET_BUSY_POLL.into()])?);
                }
                rules.insert(libc::SYS_socket, internet_sockets()?);
                options.0 = any_of(
                    1,
                    &steadyvm_sockets::OPTION_LEVELS
                        .map(i32::cast_unsigned)
                        .map(u64::from),
                )?;
                // What is asked of a level that a socket does not have is for the host to say.
                options.1 = Vec::new();
            }
        }
        Role::Disk => {
            also(
                &mut rules,
                &[libc::SYS_fdatasync, libc::SYS_pread64, libc::SYS_pwrite64],
            );
            requests.push(one(equal(1, KVM_GET_IRQCHIP)?)?);
        }
        Role::Carrier => requests.push(one(equal(1, KVM_GET_IRQCHIP)?)?),
        Role::Main => also(
            &mut rules,
            &[
                libc::SYS_alarm,
                libc::SYS_ftruncate,
                libc::SYS_lseek,
                libc::SYS_pread64,
            ],
        ),
    }
    rules.insert(libc::SYS_setsockopt, options.0);
    rules.insert(libc::SYS_getsockopt, options.1);
    rules.insert(libc::SYS_ioctl, requests);
    // The standard library asks whether a descriptor is open, in builds with its checks.
    let is_open = equal(1, libc::F_GETFD as u64)?;
    rules.insert(libc::SYS_fcntl, vec![one(is_open)?]);
    // abort(3), and the main thread's kicks.
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, vec![one(equal(0, own)?)?]);
    // Memory may be had, but none that can be executed.
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let executable = SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64);
        rules.insert(call, vec![one(condition(2, executable, 0)?)?]);
    }
    SeccompFilter::new(
        rules,
        SeccompAction::Trap,
        SeccompAction::Allow,
        TargetArch::x86_64,
    )?
    .try_into()
}

/// socket(2) for TCP and UDP of both families.
fn internet_sockets() -> Compiled<Vec<SeccompRule>> {
    const TYPE: u64 = 0xf;
    let families = [libc::AF_INET, libc::AF_INET6];
    let kinds = [libc::SOCK_STREAM, libc::SOCK_DGRAM];
    let pairs = families
        .into_iter()
        .flat_map(|family| kinds.map(|kind| (family, kind)));
    pairs
        .map(|(family, kind)| {
            let kind = condition(1, SeccompCmpOp::MaskedEq(TYPE), kind as u64)?;
            all(&[equal(0, family as u64)?, kind])
        })
        .collect()
}

fn any_of(argument: u8, values: &[u64]) -> Compiled<Vec<SeccompRule>> {
    values
        .iter()
        .map(|value| one(equal(argument, *value)?))
        .collect()
}

fn one(condition: SeccompCondition) -> Compiled<SeccompRule> {
    all(&[condition])
}

fn all(conditions: &[SeccompCondition]) -> Compiled<SeccompRule> {
    SeccompRule::new(conditions.to_vec())
}

fn equal(argument: u8, value: u64) -> Compiled<SeccompCondition> {
    condition(argument, SeccompCmpOp::Eq, value)
}

/// Arguments are compared in the 32 bits that the kernel takes of them.
fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> Compiled<SeccompCondition> {
    SeccompCondition::new(
        argument,
        SeccompCmpArgLen::Dword,
        operator,
        value & 0xffff_ffff,
    )
}

/// Only what a signal handler may call.
extern "C" fn on_violation(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // `siginfo_t` of SIGSYS: address, then the call's number, behind the three words that all have.
    const CALL: usize = 24 / size_of::<c_int>();
    terminal::restore();
    let mut text = *b"steadyvm: stopped at system call ...., which is not on its list\n";
    // SAFETY: the kernel gives a handler with SA_SIGINFO a whole siginfo_t, of 128 bytes.
    let mut call = unsafe { info.cast::<c_int>().add(CALL).read() };
    for place in [36, 35, 34, 33] {
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
        let text = b"steadyvm: stopped at system call ...., which is not on its list\n";
        assert_eq!(&text[33..37], b"....");
    }

    /// A child process under a role's filter makes a call: its exit code, and what it said.
    fn under_filter(role: Role, call: c_long, arguments: [c_long; 4]) -> (i32, String) {
        let filters = Filters::new(true, true).unwrap();
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

    /// Calls by role that must trap: those that the review of 2026-11-25 found to pass, too.
    fn stopped() -> Vec<(Role, c_long, [c_long; 4])> {
        const EXECUTABLE: c_long = (libc::PROT_READ | libc::PROT_EXEC) as c_long;
        let every_role = [
            (libc::SYS_openat, [-1, 0, 0, 0]),
            (libc::SYS_execve, [0; 4]),
            (libc::SYS_clone, [0; 4]),
            (libc::SYS_clone3, [0; 4]),
            (libc::SYS_setns, [-1, 0, 0, 0]),
            (libc::SYS_unshare, [0; 4]),
            (libc::SYS_ptrace, [0; 4]),
            (libc::SYS_process_vm_writev, [0; 4]),
            // F_SETFL, F_DUPFD, F_SETOWN
            (libc::SYS_fcntl, [0, 4, 0, 0]),
            (libc::SYS_fcntl, [0, 0, 0, 0]),
            (libc::SYS_fcntl, [0, 8, 0, 0]),
            (libc::SYS_kill, [1, 0, 0, 0]),
            // Signal 0 to the first process of the machine.
            (libc::SYS_tgkill, [1, 1, 0, 0]),
            (libc::SYS_tkill, [1, 0, 0, 0]),
            (libc::SYS_rt_sigaction, [0; 4]),
            (libc::SYS_sched_setscheduler, [0; 4]),
            (libc::SYS_setuid, [0; 4]),
            (libc::SYS_sendto, [-1, 0, 0, 0]),
            (libc::SYS_mmap, [0, 0, EXECUTABLE, 0]),
            (libc::SYS_mprotect, [0, 0, EXECUTABLE, 0]),
            (libc::SYS_socket, [libc::AF_UNIX.into(), 1, 0, 0]),
            (libc::SYS_socket, [libc::AF_NETLINK.into(), 3, 0, 0]),
            (libc::SYS_socket, [libc::AF_PACKET.into(), 2, 0, 0]),
            (libc::SYS_socket, [libc::AF_ALG.into(), 5, 0, 0]),
            (libc::SYS_socket, [libc::AF_INET.into(), 3, 0, 0]),
            // TIOCSTI, TIOCLINUX, TUNSETPERSIST, TUNSETIFF
            (libc::SYS_ioctl, [-1, 0x5412, 0, 0]),
            (libc::SYS_ioctl, [-1, 0x541c, 0, 0]),
            (libc::SYS_ioctl, [-1, 0x4004_54cb, 0, 0]),
            (libc::SYS_ioctl, [-1, 0x4004_54ca, 0, 0]),
            // SIOCSIFADDR, SIOCADDRT, SIOCSIFFLAGS
            (libc::SYS_ioctl, [-1, 0x8916, 0, 0]),
            (libc::SYS_ioctl, [-1, 0x890b, 0, 0]),
            (libc::SYS_ioctl, [-1, 0x8914, 0, 0]),
            // KVM_SET_USER_MEMORY_REGION, VHOST_SET_OWNER
            (libc::SYS_ioctl, [-1, 0x4020_ae46, 0, 0]),
            (libc::SYS_ioctl, [-1, 0xaf01, 0, 0]),
            // SOL_NETLINK, and a filter's table of iptables is of a level that passes, so of SOL_RAW
            (libc::SYS_setsockopt, [-1, 270, 1, 0]),
            (libc::SYS_setsockopt, [-1, 255, 1, 0]),
        ];
        let everywhere = Role::ALL
            .into_iter()
            .flat_map(|role| every_role.map(|(call, arguments)| (role, call, arguments)));
        let inet = [libc::AF_INET.into(), libc::SOCK_STREAM.into(), 0, 0];
        let option = [-1, 1, 2, 0];
        everywhere
            .chain([
                (Role::Vcpu, libc::SYS_pwrite64, [-1, 0, 0, 0]),
                (Role::Vcpu, libc::SYS_ftruncate, [-1, 0, 0, 0]),
                (Role::Server, libc::SYS_ioctl, [-1, KVM_RUN as c_long, 0, 0]),
                (
                    Role::Server,
                    libc::SYS_ioctl,
                    [-1, steadyvm_sockets::SET_BUSY_POLL.into(), 0, 0],
                ),
                (Role::Server, libc::SYS_ioctl, [-1, 0x4028_af11, 0, 0]),
                (Role::Server, libc::SYS_pwrite64, [-1, 0, 0, 0]),
                (Role::Server, libc::SYS_ftruncate, [-1, 0, 0, 0]),
                (Role::Disk, libc::SYS_socket, inet),
                (Role::Disk, libc::SYS_ioctl, [-1, KVM_RUN as c_long, 0, 0]),
                (Role::Disk, libc::SYS_ftruncate, [-1, 0, 0, 0]),
                (Role::Disk, libc::SYS_setsockopt, option),
                // KVM_SET_IRQCHIP
                (Role::Carrier, libc::SYS_ioctl, [-1, 0x8208_ae63, 0, 0]),
                (Role::Carrier, libc::SYS_socket, inet),
                (Role::Carrier, libc::SYS_pwrite64, [-1, 0, 0, 0]),
                (Role::Carrier, libc::SYS_setsockopt, option),
                (Role::Main, libc::SYS_socket, inet),
                (Role::Main, libc::SYS_pwrite64, [-1, 0, 0, 0]),
                (Role::Main, libc::SYS_setsockopt, option),
            ])
            .collect()
    }

    #[test]
    fn a_thread_that_makes_a_call_outside_of_its_list_is_stopped() {
        for (role, call, arguments) in stopped() {
            let message =
                format!("steadyvm: stopped at system call {call:04}, which is not on its list\n");
            let happened = under_filter(role, call, arguments);
            assert_eq!(happened, (1, message), "{role:?} {call} {arguments:x?}");
        }
    }

    #[test]
    fn a_thread_that_keeps_to_its_list_is_not_stopped() {
        let linger = [-1, libc::SOL_SOCKET.into(), libc::SO_LINGER.into(), 0];
        let kinds = c_long::from(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        let mut allowed = vec![
            (Role::Vcpu, libc::SYS_sendmsg, [-1, 0, 0, 0]),
            (Role::Vcpu, libc::SYS_ioctl, [-1, KVM_RUN as c_long, 0, 0]),
            (
                Role::Vcpu,
                libc::SYS_ioctl,
                [-1, KVM_KVMCLOCK_CTRL as c_long, 0, 0],
            ),
            (
                Role::Vcpu,
                libc::SYS_ioctl,
                [-1, libc::FIONREAD as c_long, 0, 0],
            ),
            (Role::Vcpu, libc::SYS_ioctl, [-1, 0x4028_af11, 0, 0]),
            (
                Role::Vcpu,
                libc::SYS_ioctl,
                [-1, steadyvm_sockets::SET_BUSY_POLL.into(), 0, 0],
            ),
            (Role::Vcpu, libc::SYS_setsockopt, [-1, 6, 1, 0]),
            (Role::Server, libc::SYS_sendmsg, [-1, 0, 0, 0]),
            (Role::Server, libc::SYS_epoll_pwait, [-1, 0, 0, 0]),
            (Role::Server, libc::SYS_setsockopt, [-1, 6, 1, 0]),
            (Role::Vcpu, libc::SYS_getsockopt, [-1, 255, 1, 0]),
            (Role::Disk, libc::SYS_pread64, [-1, 0, 0, 0]),
            (
                Role::Disk,
                libc::SYS_ioctl,
                [-1, KVM_GET_IRQCHIP as c_long, 0, 0],
            ),
            (
                Role::Carrier,
                libc::SYS_ioctl,
                [-1, KVM_GET_IRQCHIP as c_long, 0, 0],
            ),
            (Role::Main, libc::SYS_ftruncate, [-1, 0, 0, 0]),
        ];
        for family in [libc::AF_INET, libc::AF_INET6] {
            for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM] {
                let arguments = [family.into(), c_long::from(kind) | kinds, 0, 0];
                allowed.push((Role::Vcpu, libc::SYS_socket, arguments));
            }
        }
        for role in Role::ALL {
            allowed.extend([
                (role, libc::SYS_getpid, [0; 4]),
                // What is left of a VM's sockets is closed by whichever thread is the last.
                (role, libc::SYS_getsockopt, linger),
                (role, libc::SYS_setsockopt, linger),
                // By the handler of a violation.
                (role, libc::SYS_ioctl, [0, libc::TCSETS as c_long, 0, 0]),
                (role, libc::SYS_ioctl, [0, libc::TCGETS as c_long, 0, 0]),
            ]);
        }
        for (role, call, arguments) in allowed {
            let happened = under_filter(role, call, arguments);
            assert_eq!(
                happened,
                (0, String::new()),
                "{role:?} {call} {arguments:x?}"
            );
        }
    }

    /// glibc's allocator opens a file the first time that it trims an arena other than the first: so in a process
    /// of its own.
    #[test]
    fn a_confined_thread_frees_what_it_allocated() {
        let program = std::env::current_exe().unwrap();
        let words = [
            "--ignored",
            "--exact",
            "seccomp::tests::allocating",
            "--nocapture",
        ];
        let done = std::process::Command::new(program)
            .args(words)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(
            done.status.success() && said.contains("1 passed"),
            "{done:?}"
        );
    }

    #[test]
    #[ignore = "no test: what the process of another runs"]
    fn allocating() {
        crate::allocator::prepare();
        let filters = Filters::new(true, true).unwrap();
        let worker = std::thread::spawn(move || {
            filters.apply(Role::Vcpu).unwrap();
            for _ in 0..2 {
                let pieces: Vec<Vec<u8>> = (0..4096).map(|_| vec![1; 4096]).collect();
                std::hint::black_box(&pieces);
            }
        });
        worker.join().unwrap();
    }
}
