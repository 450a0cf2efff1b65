//! The kernel's word that a thread calls itself a VCPU's, and that a process has begun another program.
//!
//! KVM tells of a VM, not of its VCPUs, which may come much later: QEMU names a thread just before it makes the VCPU. The
//! process connector (`drivers/connector/cn_proc.c`, `include/uapi/linux/cn_proc.h`) tells of every thread that changes its
//! name. A filter in the kernel lets through only names as `CPU 0/KVM` and `vcpu0/NAME`, so that nothing else wakes the
//! reader. A name is a hint to look, and no more: anybody may choose one. A unit of systemd that starts begins a program
//! (`PROC_EVENT_EXEC`); these are let through only where the file names services of the host, or threads of programs. Where it
//! names threads all names are let through, too.

use std::io;
use std::mem::size_of_val;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::libc;
use nix::sys::socket::{MsgFlags, NetlinkAddr, bind, send};

/// `CN_IDX_PROC` and `CN_VAL_PROC`: the connector's address, and its multicast group.
const PROCESSES: u32 = 1;
/// `PROC_CN_MCAST_LISTEN`.
const LISTEN: u32 = 1;
/// `PROC_EVENT_EXEC`: a process has begun another program.
const PROGRAM: u32 = 0x2;
/// `PROC_EVENT_COMM`: a thread has changed its name.
const NAMED: u32 = 0x200;
/// Where in a message `proc_event.what` is, behind nlmsghdr (16 bytes) and `cn_msg` (20 bytes) …
const WHAT: usize = 16 + 20;
/// … the thread and its process, behind what, cpu and `timestamp_ns` …
const THREAD: usize = WHAT + 16;
const PROCESS: usize = THREAD + 4;
/// … and the name.
const NAME: usize = PROCESS + 4;
/// How names of VCPU threads begin: QEMU's, and those of `steadyvm up`.
const BEGINNINGS: [[u8; 4]; 2] = [*b"CPU ", *b"vcpu"];

/// Whether this process is in the kernel's first namespaces (`PROC_PID_INIT_INO`, `PROC_USER_INIT_INO`): the kernel tells nobody
/// outside of them, and says nothing of that.
fn is_in_first_namespaces() -> bool {
    let is = |name: &str, first: &str| {
        std::fs::read_link(format!("/proc/self/ns/{name}")).is_ok_and(|it| it.as_os_str() == first)
    };
    is("pid", "pid:[4026531836]") && is("user", "user:[4026531837]")
}

/// Listens; each message from then on is a thread that calls itself a VCPU's. [`hear`] adds programs.
///
/// # Errors
/// A kernel without the connector, no right to listen (`CAP_NET_ADMIN`), or a container.
pub fn listen() -> io::Result<OwnedFd> {
    if !is_in_first_namespaces() {
        return Err(io::Error::other("the kernel tells no container of it"));
    }
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory is passed.
    let descriptor = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_CONNECTOR) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just opened, and nobody else has it.
    let listener = unsafe { OwnedFd::from_raw_fd(descriptor) };
    // Before anything can come.
    attach(&listener, &filter(Wanted::default()))?;
    bind(listener.as_raw_fd(), &NetlinkAddr::new(0, PROCESSES))?;
    send(listener.as_raw_fd(), &request(), MsgFlags::empty())?;
    Ok(listener)
}

/// What is heard besides names of VCPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Programs that begin.
    pub programs: bool,
    /// All names.
    pub names: bool,
}

/// The (process, thread) that has taken a name that is wanted, as a message says; none if it says something else.
pub fn thread_of(message: &[u8], wanted: Wanted) -> Option<(u32, u32)> {
    let word = |at: usize| message.get(at..at + 4)?.try_into().ok();
    let number = |at: usize| word(at).map(u32::from_ne_bytes);
    let counts = wanted.names || BEGINNINGS.contains(&word(NAME)?);
    let is_named = number(WHAT)? == NAMED && counts;
    is_named.then_some((number(PROCESS)?, number(THREAD)?))
}

/// The process that has begun another program, as a message says; none if it says something else.
pub fn program_of(message: &[u8]) -> Option<u32> {
    let word = |at: usize| message.get(at..at + 4)?.try_into().ok();
    let number = |at: usize| word(at).map(u32::from_ne_bytes);
    if number(WHAT)? == PROGRAM {
        number(PROCESS)
    } else {
        None
    }
}

/// What is heard from here on.
pub fn hear(listener: &OwnedFd, wanted: Wanted) -> io::Result<()> {
    attach(listener, &filter(wanted))
}

/// nlmsghdr, `cn_msg` and the operation.
fn request() -> Vec<u8> {
    let words: [u32; 9] = [
        4 * 10,
        // nlmsg_type NLMSG_DONE, nlmsg_flags 0: both of 16 bits.
        u32::from_ne_bytes({
            let kind = (libc::NLMSG_DONE as u16).to_ne_bytes();
            [kind[0], kind[1], 0, 0]
        }),
        0,
        0,
        PROCESSES,
        PROCESSES,
        0,
        0,
        // len and flags, of 16 bits.
        u32::from_ne_bytes({
            let length = 4_u16.to_ne_bytes();
            [length[0], length[1], 0, 0]
        }),
    ];
    let words = words.into_iter().chain([LISTEN]);
    words.flat_map(u32::to_ne_bytes).collect()
}

/// The filter as `thread_of`, and with `programs` as `program_of`. It loads words in network order.
fn filter(wanted: Wanted) -> [libc::sock_filter; 8] {
    let of = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let word = |what: u32| u32::from_be_bytes(what.to_ne_bytes());
    [
        of(load, 0, 0, WHAT as u32),
        // To the end that takes it, or to the one that does not.
        of(equal, if wanted.programs { 4 } else { 5 }, 0, word(PROGRAM)),
        of(equal, if wanted.names { 3 } else { 0 }, 4, word(NAMED)),
        of(load, 0, 0, NAME as u32),
        of(equal, 1, 0, u32::from_be_bytes(BEGINNINGS[0])),
        of(equal, 0, 1, u32::from_be_bytes(BEGINNINGS[1])),
        of(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        of(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ]
}

fn attach(listener: &OwnedFd, filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel copies the program, and the filter that it points to, which both live until it returns; it
    // writes to neither.
    let result = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::thread;

    use nix::errno::Errno;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::sys::socket::recv;
    use proptest::prelude::*;

    use super::*;

    fn message(what: u32, name: &[u8]) -> Vec<u8> {
        let mut message = vec![0; NAME + 16];
        message[WHAT..WHAT + 4].copy_from_slice(&what.to_ne_bytes());
        message[THREAD..THREAD + 4].copy_from_slice(&8_u32.to_ne_bytes());
        message[PROCESS..PROCESS + 4].copy_from_slice(&7_u32.to_ne_bytes());
        message[NAME..NAME + name.len()].copy_from_slice(name);
        message
    }

    /// The kernel's filter and ours, on a pair of sockets.
    #[test]
    fn the_kernel_lets_through_names_of_vcpus_and_programs_that_are_asked_for() {
        let (from, to) = UnixDatagram::pair().unwrap();
        to.set_nonblocking(true).unwrap();
        let to = OwnedFd::from(to);
        let mut buffer = [0; 128];
        let wanted = |programs, names| Wanted { programs, names };
        let (none, programs, both) = (
            wanted(false, false),
            wanted(true, false),
            wanted(true, true),
        );
        for (wanted, what, name, expected) in [
            (none, NAMED, &b"CPU 0/KVM"[..], true),
            (none, NAMED, b"vcpu1/web", true),
            (none, NAMED, b"CPU", false),
            (none, NAMED, b"qemu-system-x86", false),
            (none, 1, b"CPU 0/KVM", false),
            (none, PROGRAM, b"", false),
            (programs, PROGRAM, b"", true),
            (programs, NAMED, b"CPU 0/KVM", true),
            (programs, NAMED, b"CPU", false),
            (programs, 1, b"", false),
            (both, NAMED, b"plc", true),
            (both, NAMED, b"CPU 0/KVM", true),
            (both, PROGRAM, b"", true),
            (both, 1, b"plc", false),
        ] {
            hear(&to, wanted).unwrap();
            let message = message(what, name);
            let is_named = expected && what == NAMED;
            let thread = thread_of(&message, wanted);
            assert_eq!(thread, is_named.then_some((7, 8)), "{name:?}");
            let is_program = what == PROGRAM;
            assert_eq!(program_of(&message), is_program.then_some(7), "{what}");
            // What the filter drops, the sender is not told of.
            from.send(&message).unwrap();
            let got = recv(to.as_raw_fd(), &mut buffer, MsgFlags::empty());
            assert_eq!(got.is_ok(), expected, "{name:?} {got:?}");
        }
    }

    #[test]
    fn a_thread_that_names_itself_so_is_heard_of() {
        let listener = match listen() {
            Ok(listener) => listener,
            Err(error)
                if [io::ErrorKind::PermissionDenied, io::ErrorKind::Other]
                    .contains(&error.kind()) =>
            {
                eprintln!("skipped: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let named = thread::Builder::new().name("CPU 7/KVM".into());
        named.spawn(|| ()).unwrap().join().unwrap();
        let mut sources = [PollFd::new(
            std::os::fd::AsFd::as_fd(&listener),
            PollFlags::POLLIN,
        )];
        let ready = poll(&mut sources, PollTimeout::from(20_000_u16)).unwrap();
        assert_eq!(ready, 1, "nothing within 20 s");
        let mut buffer = [0; 256];
        let count = recv(listener.as_raw_fd(), &mut buffer, MsgFlags::empty()).unwrap();
        let thread = thread_of(&buffer[..count], Wanted::default());
        assert_eq!(thread.unwrap().0, std::process::id());
        let rest = recv(listener.as_raw_fd(), &mut buffer, MsgFlags::empty());
        assert!(matches!(rest, Ok(_) | Err(Errno::EAGAIN)));
    }

    #[test]
    fn a_program_that_begins_is_heard_of_if_it_is_asked_for() {
        let Ok(listener) = listen() else {
            eprintln!("skipped: this process may not listen");
            return;
        };
        let wanted = Wanted {
            programs: true,
            names: false,
        };
        hear(&listener, wanted).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let mut buffer = [0; 256];
        // Every message was there before wait() returned: the kernel sends it as the program begins.
        let mut heard = std::iter::from_fn(|| {
            let count = recv(listener.as_raw_fd(), &mut buffer, MsgFlags::empty()).ok()?;
            Some(program_of(&buffer[..count]))
        });
        assert!(heard.any(|pid| pid == Some(child.id())));
    }

    proptest! {
        #[test]
        fn no_message_panics(bytes in prop::collection::vec(any::<u8>(), 0..96)) {
            for names in [false, true] {
                let _ = thread_of(&bytes, Wanted { programs: true, names });
            }
            let _ = program_of(&bytes);
        }
    }
}
