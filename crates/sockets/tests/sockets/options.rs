//! Options and ioctls: the host's values and errors, and nothing that only pretends.

use crate::guest::alone;

const SOCKET: i32 = libc::SOL_SOCKET;

#[test]
fn options_are_those_of_the_host() {
    let mut vcpu = alone();
    let (stream, datagram) = (vcpu.stream(), vcpu.datagram());
    let int = libc::IPPROTO_TCP;
    for (socket, level, option, value) in [
        (stream, int, libc::TCP_NODELAY, 1),
        (stream, int, libc::TCP_KEEPIDLE, 77),
        (stream, int, libc::TCP_USER_TIMEOUT, 5000),
        (stream, SOCKET, libc::SO_KEEPALIVE, 1),
        (stream, SOCKET, libc::SO_OOBINLINE, 1),
        (stream, SOCKET, libc::SO_RCVLOWAT, 3),
        (datagram, SOCKET, libc::SO_PRIORITY, 5),
        (datagram, SOCKET, libc::SO_PEEK_OFF, 4),
        (datagram, libc::IPPROTO_IP, libc::IP_TTL, 12),
        (datagram, libc::IPPROTO_IP, libc::IP_TOS, 0x10),
        (datagram, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, 2),
    ] {
        vcpu.set_int(socket, level, option, value).unwrap();
        assert_eq!(
            vcpu.get_int(socket, level, option),
            Ok(value),
            "{level} {option}"
        );
    }
    assert_eq!(
        vcpu.get_int(stream, SOCKET, libc::SO_TYPE),
        Ok(libc::SOCK_STREAM)
    );
    assert_eq!(
        vcpu.get_int(stream, SOCKET, libc::SO_PROTOCOL),
        Ok(libc::IPPROTO_TCP)
    );
    assert_eq!(
        vcpu.get_int(datagram, SOCKET, libc::SO_DOMAIN),
        Ok(libc::AF_INET)
    );
    assert_eq!(vcpu.get_int(stream, SOCKET, libc::SO_ACCEPTCONN), Ok(0));
    vcpu.listen(stream, 1).unwrap();
    assert_eq!(vcpu.get_int(stream, SOCKET, libc::SO_ACCEPTCONN), Ok(1));
    // Linux doubles it.
    vcpu.set_int(datagram, SOCKET, libc::SO_RCVBUF, 10_000)
        .unwrap();
    assert_eq!(vcpu.get_int(datagram, SOCKET, libc::SO_RCVBUF), Ok(20_000));
    let information = vcpu.get(stream, int, libc::TCP_INFO, 500).unwrap();
    assert_eq!(information[0], 10, "TCP_LISTEN");
    let algorithm = vcpu.get(stream, int, libc::TCP_CONGESTION, 16).unwrap();
    vcpu.set(stream, int, libc::TCP_CONGESTION, &algorithm)
        .unwrap();
    assert_eq!(
        vcpu.get(stream, SOCKET, libc::SO_TYPE, 2).unwrap().len(),
        2,
        "as much as has room"
    );
}

#[test]
fn errors_are_those_of_the_host() {
    let mut vcpu = alone();
    let (stream, datagram) = (vcpu.stream(), vcpu.datagram());
    assert_eq!(
        vcpu.set_int(datagram, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1),
        Err(libc::ENOPROTOOPT)
    );
    assert_eq!(
        vcpu.set(stream, SOCKET, libc::SO_REUSEADDR, &[1]),
        Err(libc::EINVAL)
    );
    assert_eq!(
        vcpu.set_int(stream, SOCKET, libc::SO_TYPE, 1),
        Err(libc::ENOPROTOOPT)
    );
    assert_eq!(
        vcpu.set_int(datagram, libc::IPPROTO_IP, libc::IP_TTL, 256),
        Err(libc::EINVAL)
    );
    assert_eq!(
        vcpu.set(stream, libc::IPPROTO_TCP, libc::TCP_CONGESTION, b"none"),
        Err(libc::ENOENT)
    );
    assert_eq!(vcpu.listen(datagram, 1), Err(libc::EOPNOTSUPP));
    assert_eq!(vcpu.accept(stream), Err(libc::EINVAL));
    assert_eq!(vcpu.bind(stream, "192.0.2.1:0"), Err(libc::EADDRNOTAVAIL));
    assert_eq!(vcpu.send(stream, b"x", 0), Err(libc::EPIPE));
    assert_eq!(vcpu.receive(stream, 1, 0), Err(libc::ENOTCONN));
    assert_eq!(vcpu.shutdown(stream, libc::SHUT_WR), Err(libc::ENOTCONN));
}

#[test]
fn what_is_not_on_the_list_does_not_exist() {
    let mut vcpu = alone();
    let stream = vcpu.stream();
    for (level, option) in [
        (SOCKET, libc::SO_RCVTIMEO),
        (SOCKET, libc::SO_ATTACH_FILTER),
        (SOCKET, libc::SO_RCVBUFFORCE),
        (SOCKET, libc::SO_MARK),
        (SOCKET, 9999),
        (libc::IPPROTO_TCP, libc::TCP_ULP),
        (libc::IPPROTO_TCP, libc::TCP_REPAIR),
    ] {
        assert_eq!(
            vcpu.set(stream, level, option, &[0; 16]),
            Err(libc::ENOPROTOOPT)
        );
        assert_eq!(vcpu.get(stream, level, option, 16), Err(libc::ENOPROTOOPT));
    }
    // Levels that it does not have: IPv4's getsockopt(2) has an error of its own for them.
    for (level, option) in [(libc::SOL_PACKET, 1), (libc::IPPROTO_UDP, 1), (-1, -1)] {
        assert_eq!(
            vcpu.set(stream, level, option, &[0; 16]),
            Err(libc::ENOPROTOOPT)
        );
        assert_eq!(vcpu.get(stream, level, option, 16), Err(libc::EOPNOTSUPP));
    }
    for request in [0x8912, 0x8914, 0x89f0, 0x5421, 0x4004_5436, u64::MAX] {
        assert_eq!(
            vcpu.ioctl(stream, request, &[0; 40]),
            Err(libc::ENOTTY),
            "{request:#x}"
        );
    }
    assert_eq!(vcpu.ioctl(stream, libc::FIONREAD, &[]), Err(libc::EFAULT));
    for (family, kind, protocol, error) in [
        (libc::AF_UNIX, libc::SOCK_STREAM, 0, libc::EAFNOSUPPORT),
        (libc::AF_NETLINK, libc::SOCK_RAW, 0, libc::EAFNOSUPPORT),
        (libc::AF_PACKET, libc::SOCK_DGRAM, 0, libc::EAFNOSUPPORT),
        (
            libc::AF_INET,
            libc::SOCK_RAW,
            libc::IPPROTO_ICMP,
            libc::ESOCKTNOSUPPORT,
        ),
        (
            libc::AF_INET,
            libc::SOCK_SEQPACKET,
            0,
            libc::ESOCKTNOSUPPORT,
        ),
        (
            libc::AF_INET,
            libc::SOCK_DGRAM,
            libc::IPPROTO_ICMP,
            libc::EPROTONOSUPPORT,
        ),
        (
            libc::AF_INET,
            libc::SOCK_STREAM,
            libc::IPPROTO_UDP,
            libc::EPROTONOSUPPORT,
        ),
        (
            libc::AF_INET,
            libc::SOCK_STREAM | libc::SOCK_NONBLOCK,
            0,
            libc::ESOCKTNOSUPPORT,
        ),
    ] {
        assert_eq!(vcpu.socket(family, kind, protocol), Err(error));
    }
    let flags = [libc::MSG_ERRQUEUE, 1 << 26, i32::MIN];
    for flag in flags {
        assert_eq!(vcpu.send(stream, b"x", flag), Err(libc::EINVAL));
    }
    assert_eq!(
        vcpu.receive(stream, 1, libc::MSG_CONFIRM),
        Err(libc::EINVAL)
    );
}

#[test]
fn interfaces_are_those_of_the_namespace() {
    let mut vcpu = alone();
    let socket = vcpu.datagram();
    let mut request = [0; 40];
    request[..2].copy_from_slice(b"lo");
    let answer = vcpu.ioctl(socket, libc::SIOCGIFINDEX, &request).unwrap();
    assert_eq!(answer[16..20], 1_i32.to_ne_bytes());
    let answer = vcpu.ioctl(socket, libc::SIOCGIFADDR, &request).unwrap();
    assert_eq!(answer[20..24], [127, 0, 0, 1]);
    request[..4].copy_from_slice(b"eth0");
    assert_eq!(
        vcpu.ioctl(socket, libc::SIOCGIFINDEX, &request),
        Err(libc::ENODEV)
    );
    vcpu.set(socket, SOCKET, libc::SO_BINDTODEVICE, b"lo")
        .unwrap();
}

#[test]
fn the_time_of_the_last_datagram_is_told() {
    let mut vcpu = alone();
    let (stream, datagram) = (vcpu.stream(), vcpu.datagram());
    // SIOCGSTAMP, SIOCGSTAMPNS, and their newer numbers.
    for request in [0x8906, 0x8907, 0x8010_8906, 0x8010_8907_u64] {
        for socket in [stream, datagram] {
            let none = vcpu.ioctl(socket, request, &[0; 16]);
            assert_eq!(none, Err(libc::ENOENT), "{request:x}");
        }
    }
    vcpu.bind(datagram, "127.0.0.1:0").unwrap();
    let to = vcpu.local(datagram).unwrap();
    vcpu.send_to(datagram, b"x", &to.to_string()).unwrap();
    vcpu.receive(datagram, 1, 0).unwrap();
    let stamp = vcpu.ioctl(datagram, 0x8906, &[0; 16]).unwrap();
    let seconds = i64::from_ne_bytes(stamp[..8].try_into().unwrap());
    let now = std::time::SystemTime::now();
    let now = now.duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(now.as_secs().abs_diff(seconds as u64) < 3600, "{seconds}");
}
