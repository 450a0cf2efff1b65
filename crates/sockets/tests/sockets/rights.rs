//! A guest has none of the host's capabilities, whatever its monitor has.

use crate::guest::{Vcpu, alone, enter_namespace};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use steadyvm_sockets::is_forwarded;

/// While it lives, the calling thread has no effective capability.
struct WithoutCapabilities(u64);

/// Gives the calling thread these of its permitted capabilities: those it had in force before.
fn set_effective(wanted: u64) -> u64 {
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Sets {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    // Version 3, the calling thread.
    let header = [0x2008_0522_u32, 0];
    let mut sets = [Sets::default(); 2];
    // SAFETY: version 3 has two sets, for which there is room.
    let got = unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) };
    assert_eq!(got, 0);
    let before = u64::from(sets[1].effective) << 32 | u64::from(sets[0].effective);
    (sets[0].effective, sets[1].effective) = (wanted as u32, (wanted >> 32) as u32);
    // SAFETY: as above; the call reads them.
    let set = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
    assert_eq!(set, 0, "these tests need root");
    before
}

impl WithoutCapabilities {
    fn now() -> Self {
        Self(set_effective(0))
    }
}

impl Drop for WithoutCapabilities {
    fn drop(&mut self) {
        set_effective(self.0);
    }
}

const KINDS: [(i32, i32); 4] = [
    (libc::AF_INET, libc::SOCK_STREAM),
    (libc::AF_INET, libc::SOCK_DGRAM),
    (libc::AF_INET6, libc::SOCK_STREAM),
    (libc::AF_INET6, libc::SOCK_DGRAM),
];

/// Values that tell ranges apart, and names of interfaces and algorithms, some of them not there.
fn values() -> Vec<Vec<u8>> {
    let numbers = [
        i32::MIN,
        -1,
        0,
        1,
        2,
        5,
        6,
        7,
        15,
        16,
        255,
        0x1_0000,
        0x1_0010,
        i32::MAX,
    ];
    let mut all: Vec<Vec<u8>> = numbers.map(|number| number.to_ne_bytes().to_vec()).into();
    let names = [
        "lo",
        "lo\0",
        "eth9",
        "",
        "reno",
        "cubic",
        "bbr",
        "dctcp",
        "lp",
        "nonsuch",
        "reno\0rest",
        "a_name_that_is_longer_than_any",
    ];
    all.extend(names.map(|name| name.as_bytes().to_vec()));
    all
}

/// What an ordinary program gets: of a fresh socket, which is bound to an interface where `bound`.
fn ordinary(
    kind: (i32, i32),
    bound: bool,
    level: i32,
    option: i32,
    value: &[u8],
) -> Result<(), i32> {
    // SAFETY: takes no pointers; the descriptor is new.
    let socket = unsafe { OwnedFd::from_raw_fd(libc::socket(kind.0, kind.1, 0)) };
    let set = |level, option, value: &[u8]| {
        let len = value.len() as libc::socklen_t;
        // SAFETY: `value` is valid for reads of `len` bytes; no option on the list has pointers in it.
        let done = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                level,
                option,
                value.as_ptr().cast(),
                len,
            )
        };
        match done {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap()),
        }
    };
    if bound {
        set(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, b"lo").unwrap();
    }
    set(level, option, value)
}

/// What a guest gets of the device for the same.
fn outsourced(
    vcpu: &mut Vcpu,
    kind: (i32, i32),
    bound: bool,
    level: i32,
    option: i32,
    value: &[u8],
) -> Result<(), i32> {
    let socket = vcpu.socket(kind.0, kind.1, 0).unwrap();
    if bound {
        vcpu.set(socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, b"lo")
            .unwrap();
    }
    let done = vcpu.set(socket, level, option, value).map(drop);
    vcpu.close(socket).unwrap();
    done
}

#[test]
fn every_option_does_what_it_does_for_a_program_without_capabilities() {
    let mut vcpu = alone();
    let levels = [
        libc::SOL_SOCKET,
        libc::IPPROTO_IP,
        libc::IPPROTO_IPV6,
        libc::IPPROTO_TCP,
        libc::IPPROTO_UDP,
    ];
    let mut refused = 0;
    for level in levels {
        for option in (0..=255).filter(|option| is_forwarded(level, *option)) {
            for kind in KINDS {
                for value in values() {
                    for bound in [false, true] {
                        if bound && level != libc::SOL_SOCKET {
                            continue;
                        }
                        let expected = {
                            let _none = WithoutCapabilities::now();
                            ordinary(kind, bound, level, option, &value)
                        };
                        let with = outsourced(&mut vcpu, kind, bound, level, option, &value);
                        let without = {
                            let _none = WithoutCapabilities::now();
                            outsourced(&mut vcpu, kind, bound, level, option, &value)
                        };
                        let place = format!(
                            "level {level} option {option} of {kind:?} = {value:x?}, bound {bound}"
                        );
                        assert_eq!(with, expected, "{place}");
                        assert_eq!(without, expected, "{place}, without capabilities");
                        refused += usize::from(expected == Err(libc::EPERM));
                    }
                }
            }
        }
    }
    assert!(
        refused > 50,
        "the values reach what takes a capability: {refused}"
    );
}

#[test]
fn a_vm_s_own_bound_of_priorities_holds() {
    let limits = steadyvm_sockets::Limits {
        priority: 2,
        ..crate::guest::patient()
    };
    let mut vcpu = crate::guest::Guest::new(limits, 1).vcpu(0);
    let socket = vcpu.datagram();
    for (priority, expected) in [
        (0, Ok(())),
        (2, Ok(())),
        (3, Err(libc::EPERM)),
        (6, Err(libc::EPERM)),
        (15, Err(libc::EPERM)),
    ] {
        let done = vcpu.set_int(socket, libc::SOL_SOCKET, libc::SO_PRIORITY, priority);
        assert_eq!(done.map(drop), expected, "{priority}");
    }
}

#[test]
fn a_guest_sends_from_no_address_but_its_own() {
    enter_namespace();
    let mut vcpu = alone();
    let socket = vcpu.socket(libc::AF_INET6, libc::SOCK_DGRAM, 0).unwrap();
    for (level, option) in [
        (libc::IPPROTO_IP, libc::IP_FREEBIND),
        (libc::IPPROTO_IPV6, 78),
    ] {
        assert_eq!(
            vcpu.set_int(socket, level, option, 1),
            Err(libc::ENOPROTOOPT)
        );
    }
    assert_eq!(
        vcpu.bind(socket, "[2001:db8::bad]:0"),
        Err(libc::EADDRNOTAVAIL)
    );
}
