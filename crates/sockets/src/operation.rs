//! The operations on sockets. Each is one system call that does not block, on arguments that were
//! copied and checked before.

use crate::abi::{Response, op};
use crate::chain::{Control, Exchange};
use crate::device::Device;
use crate::handle::Handle;
use crate::memory::Memory;
use crate::socket::{Kind, Socket};
use crate::system::{self, Name};
use crate::{control, ioctl, option};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// What an operation gives, or the host's error number.
pub type Outcome = Result<Response, Errno>;

const SEND_FLAGS: i32 = libc::MSG_OOB
    | libc::MSG_DONTROUTE
    | libc::MSG_DONTWAIT
    | libc::MSG_EOR
    | libc::MSG_CONFIRM
    | libc::MSG_NOSIGNAL
    | libc::MSG_MORE
    | libc::MSG_FASTOPEN;
const RECEIVE_FLAGS: i32 = libc::MSG_OOB
    | libc::MSG_PEEK
    | libc::MSG_TRUNC
    | libc::MSG_DONTWAIT
    | libc::MSG_WAITALL
    | libc::MSG_NOSIGNAL
    | libc::MSG_ERRQUEUE
    | libc::MSG_CMSG_CLOEXEC;

/// SOCKET: only what this device is for; all else is the guest's own.
pub fn open(device: &Device, channel: u16, exchange: &Exchange, memory: &Memory) -> Outcome {
    let (family, kind, protocol) = (exchange.int(0)?, exchange.int(1)?, exchange.int(2)?);
    if !matches!(family, libc::AF_INET | libc::AF_INET6) {
        return Err(Errno::AFNOSUPPORT);
    }
    let outsourced = match (kind, protocol) {
        (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => Kind::Stream,
        (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => Kind::Datagram,
        (libc::SOCK_STREAM | libc::SOCK_DGRAM, _) => return Err(Errno::PROTONOSUPPORT),
        _ => return Err(Errno::SOCKTNOSUPPORT),
    };
    let make = || Ok((system::socket(family, kind, protocol)?, ()));
    let (handle, ()) = device.add(outsourced, channel, None, memory, make)?;
    Ok(value(handle.to_guest()))
}

/// CLOSE.
pub fn close(device: &Device, exchange: &Exchange, memory: &Memory) -> Outcome {
    device.close(handle_of(exchange), memory)?;
    Ok(Response::default())
}

/// The handle in a request.
pub fn handle_of(exchange: &Exchange) -> Handle {
    Handle::from_guest(exchange.request.handle.get())
}

/// An operation on a socket that exists.
pub fn carry_out(
    device: &Device,
    socket: &Socket,
    exchange: &Exchange,
    memory: &Memory,
) -> Outcome {
    let fd = socket.as_fd();
    match exchange.request.op.get() {
        op::BIND => {
            // What has been closed may still have the address.
            device.end_closed();
            system::bind(fd, &exchange.name()?).map(nothing)
        }
        op::CONNECT => system::connect(fd, &exchange.name()?).map(nothing),
        op::LISTEN => rustix::net::listen(fd, exchange.int(0)?).map(nothing),
        op::ACCEPT => accept(device, socket, exchange, memory),
        op::SEND => send(socket, exchange),
        op::RECEIVE => receive_alone(socket, exchange),
        op::SHUTDOWN => shutdown(socket, exchange),
        op::GETSOCKNAME => Ok(named(exchange, &system::getsockname(fd)?)),
        op::GETPEERNAME => Ok(named(exchange, &system::getpeername(fd)?)),
        op::SETSOCKOPT => set_option(device, socket, exchange),
        op::GETSOCKOPT => get_option(socket, exchange),
        op::IOCTL => input_output_control(socket, exchange),
        op::POLL => Ok(Response::default()),
        op::STEER => device.steer(socket, exchange.argument(0)).map(nothing),
        _ => Err(Errno::OPNOTSUPP),
    }
}

fn nothing((): ()) -> Response {
    Response::default()
}

/// A response with a value.
pub fn value(value: u64) -> Response {
    Response {
        value: value.into(),
        ..Response::default()
    }
}

fn named(exchange: &Exchange, name: &Name) -> Response {
    exchange.name_room.write(name.bytes());
    Response {
        name_len: name.len().into(),
        ..Response::default()
    }
}

fn accept(device: &Device, listener: &Socket, exchange: &Exchange, memory: &Memory) -> Outcome {
    let make = || system::accept(listener.as_fd());
    let buffers = Some(listener.buffers());
    let (handle, name) = device.add(Kind::Stream, listener.channel(), buffers, memory, make)?;
    Ok(Response {
        value: handle.to_guest().into(),
        ..named(exchange, &name)
    })
}

fn send(socket: &Socket, exchange: &Exchange) -> Outcome {
    let flags = exchange.int(0)?;
    if flags & !SEND_FLAGS != 0 {
        return Err(Errno::INVAL);
    }
    let name = exchange.optional_name()?;
    let mut messages = exchange.control();
    control::check(&messages)?;
    let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let fd = socket.as_fd();
    let sent = system::send(fd, name.as_ref(), &mut messages, &exchange.data, flags)?;
    Ok(value(sent as u64))
}

/// Receives for who blocks, where that is possible without cutting anything off: what does not fit
/// is left to a request that has the caller's own buffer. None: there is nothing, or somebody else
/// receives at this moment.
pub fn receive_whole(socket: &Socket, exchange: &Exchange) -> Option<Outcome> {
    let whole = exchange.int(1).and_then(|flags| {
        // What is next stays so under this lock.
        let _alone = socket.try_to_receive_alone().ok_or(Errno::AGAIN)?;
        if socket.next_length()? > exchange.data_room.len() as u64 {
            return Err(Errno::AGAIN);
        }
        receive(socket, exchange, flags)
    });
    match whole {
        Err(Errno::AGAIN) => None,
        outcome => Some(outcome),
    }
}

fn receive_alone(socket: &Socket, exchange: &Exchange) -> Outcome {
    let flags = exchange.int(0)?;
    let _alone = socket.receive_alone();
    receive(socket, exchange, flags)
}

fn receive(socket: &Socket, exchange: &Exchange, flags: i32) -> Outcome {
    if flags & !RECEIVE_FLAGS != 0 {
        return Err(Errno::INVAL);
    }
    let mut messages = Control::from_elem(0, exchange.control_room.len());
    let flags = flags | libc::MSG_DONTWAIT;
    let room = &exchange.data_room;
    let received = system::receive(socket.as_fd(), &mut messages, room, flags)?;
    let (kept, left_out) = control::filter(&messages[..received.control_len]);
    let cut = if left_out { libc::MSG_CTRUNC } else { 0 };
    // That the host's descriptor does not outlive exec is no news for the guest.
    let message_flags = (received.flags | cut) & !libc::MSG_CMSG_CLOEXEC;
    Ok(Response {
        value: (received.value as u64).into(),
        control_len: (exchange.control_room.write(&kept) as u32).into(),
        data_len: (received.value.min(room.len()) as u32).into(),
        message_flags: (message_flags as u32).into(),
        ..named(exchange, &received.name)
    })
}

fn shutdown(socket: &Socket, exchange: &Exchange) -> Outcome {
    let how = match exchange.int(0)? {
        libc::SHUT_RD => rustix::net::Shutdown::Read,
        libc::SHUT_WR => rustix::net::Shutdown::Write,
        libc::SHUT_RDWR => rustix::net::Shutdown::Both,
        _ => return Err(Errno::INVAL),
    };
    rustix::net::shutdown(socket, how).map(nothing)
}

fn set_option(device: &Device, socket: &Socket, exchange: &Exchange) -> Outcome {
    let (level, name) = (exchange.int(0)?, exchange.int(1)?);
    if !option::is_forwarded(level, name) {
        return Err(Errno::NOPROTOOPT);
    }
    let value = exchange.small_data(option::MAX_VALUE)?;
    let done = if let (libc::SOL_SOCKET, libc::SO_SNDBUF | libc::SO_RCVBUF | libc::SO_RCVLOWAT) =
        (level, name)
    {
        socket.resize_buffer(name, &value)
    } else {
        let priority = device.limits().priority;
        option::set(
            socket.as_fd(),
            level,
            name,
            &value,
            priority,
            device.algorithms(),
        )
    };
    done.map(nothing)
}

fn get_option(socket: &Socket, exchange: &Exchange) -> Outcome {
    let (level, name) = (exchange.int(0)?, exchange.int(1)?);
    if !option::is_forwarded(level, name) {
        return Err(unknown_option(socket, level));
    }
    let room = &exchange.data_room;
    let mut bytes = Control::from_elem(0, room.len().min(option::MAX_VALUE));
    let len = system::get_option(socket.as_fd(), level, name, &mut bytes)?;
    Ok(with_data(exchange, &bytes[..len]))
}

/// What the host says of an option of this level that does not exist: levels that a socket does not
/// have are EOPNOTSUPP in `AF_INET`. (setsockopt(2) is ENOPROTOOPT everywhere.)
fn unknown_option(socket: &Socket, level: i32) -> Errno {
    match system::get_option(socket.as_fd(), level, i32::MAX, &mut [0; 4]) {
        Err(error) => error,
        Ok(_) => Errno::NOPROTOOPT,
    }
}

fn input_output_control(socket: &Socket, exchange: &Exchange) -> Outcome {
    let request = u32::try_from(exchange.argument(0)).map_err(|_| Errno::NOTTY)?;
    let argument = exchange.small_data(ioctl::MAX_ARGUMENT)?;
    let (bytes, len) = ioctl::carry_out(socket.as_fd(), request, &argument)?;
    Ok(with_data(exchange, &bytes[..len]))
}

fn with_data(exchange: &Exchange, bytes: &[u8]) -> Response {
    let written = exchange.data_room.write(bytes);
    Response {
        value: (bytes.len() as u64).into(),
        data_len: (written as u32).into(),
        ..Response::default()
    }
}
