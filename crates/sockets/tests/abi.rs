//! The header that the guest's module is compiled with, and what the device is: every constant,
//! offset and size is printed by a C program and compared.

// Helpers of tests unwrap, too.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::mem::{offset_of, size_of};
use std::path::PathBuf;
use std::process::Command;

use steadyvm_sockets::abi::{
    self, Config, Event, EventRing, Request, Response, Shared, State, op, ready, shared,
};

fn header() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../kernel/modules/steadyvm_sockets/steadyvm_sockets.h")
}

/// The constants that the header defines: all `#define`s with a value.
fn constants() -> Vec<String> {
    let text = std::fs::read_to_string(header()).unwrap();
    let named = |line: &str| {
        let mut words = line.strip_prefix("#define ")?.split_whitespace();
        let name = words.next()?;
        words.next().map(|_| name.to_owned())
    };
    text.lines().filter_map(named).collect()
}

/// The structures and fields that the header defines, as `structure.field`.
fn fields() -> Vec<String> {
    let text = std::fs::read_to_string(header()).unwrap();
    let mut inside = None;
    let mut found = Vec::new();
    for line in text.lines() {
        if let Some(name) = line
            .strip_prefix("struct ")
            .and_then(|rest| rest.strip_suffix(" {"))
        {
            inside = Some(name);
        } else if line == "};" {
            inside = None;
        } else if let (Some(name), Some(field)) = (inside, line.split(';').next()) {
            let Some(field) = field.trim().strip_prefix("__le") else {
                continue;
            };
            let field = field.split_whitespace().nth(1).unwrap();
            found.push(format!("{name}.{}", field.split('[').next().unwrap()));
        }
    }
    found
}

/// What the C compiler makes of the header.
fn in_c() -> BTreeMap<String, u64> {
    let mut program = String::from(
        "#include <stdio.h>\n#include <stddef.h>\n#include \"steadyvm_sockets.h\"\nint main(void) {\n",
    );
    for name in constants() {
        writeln!(
            program,
            "printf(\"{name} %llu\\n\", (unsigned long long)({name}));"
        )
        .unwrap();
    }
    for path in fields() {
        let (structure, field) = path.split_once('.').unwrap();
        writeln!(
            program,
            "printf(\"{path} %zu\\n\", offsetof(struct {structure}, {field}));"
        )
        .unwrap();
        writeln!(
            program,
            "printf(\"{structure} %zu\\n\", sizeof(struct {structure}));"
        )
        .unwrap();
    }
    program.push_str("return 0; }\n");
    let folder = tempfile::tempdir().unwrap();
    let (source, binary) = (folder.path().join("abi.c"), folder.path().join("abi"));
    std::fs::write(&source, program).unwrap();
    let built = Command::new("cc")
        .args([
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Wpadded",
            "-Werror",
            "-I",
        ])
        .arg(header().parent().unwrap())
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .output()
        .expect("this test uses a C compiler (cc)");
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let output = Command::new(binary).output().unwrap();
    let line = |line: &str| {
        let (name, value) = line.split_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(line)
        .collect()
}

/// What Rust makes of `abi`.
#[allow(clippy::too_many_lines, reason = "a list")]
fn in_rust() -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    let mut add = |name: &str, value: u64| assert_eq!(found.insert(name.to_owned(), value), None);
    macro_rules! structure {
        ($type:ty, $name:literal, $($field:ident),*) => {
            add($name, size_of::<$type>() as u64);
            $(add(
                concat!($name, ".", stringify!($field)),
                offset_of!($type, $field) as u64,
            );)*
        };
    }
    structure!(
        Config,
        "svs_config",
        version,
        channels,
        max_sockets,
        max_data,
        port
    );
    structure!(
        Request,
        "svs_request",
        op,
        reserved0,
        reserved1,
        handle,
        name_len,
        control_len,
        data_len,
        name_room,
        control_room,
        data_room,
        argument
    );
    structure!(
        Response,
        "svs_response",
        error,
        ready,
        value,
        name_len,
        control_len,
        data_len,
        message_flags
    );
    structure!(State, "svs_state", generation, ready);
    structure!(
        EventRing,
        "svs_event_ring",
        produced,
        reserved0,
        consumed,
        reserved1
    );
    structure!(Event, "svs_event", handle, ready, reserved);
    structure!(
        Shared,
        "svs_shared",
        magic,
        version,
        channels,
        max_sockets,
        max_data,
        first_channel,
        channel_size,
        size,
        reserved0,
        asked,
        reserved1,
        done,
        reserved2
    );
    macro_rules! constants {
        ($module:ident, $prefix:literal, $($name:ident),*) => {
            $(add(concat!($prefix, stringify!($name)), $module::$name.into());)*
        };
    }
    constants!(
        op,
        "SVS_OP_",
        SOCKET,
        BIND,
        CONNECT,
        LISTEN,
        ACCEPT,
        SEND,
        RECEIVE,
        SHUTDOWN,
        CLOSE,
        GETSOCKNAME,
        GETPEERNAME,
        SETSOCKOPT,
        GETSOCKOPT,
        IOCTL,
        POLL,
        STEER,
        STATE_TABLE,
        EVENT_RING,
        HARVEST,
        WAIT,
        WAKE
    );
    constants!(
        shared,
        "SVS_SHARED_",
        MAGIC,
        SERVER,
        QUEUE,
        DESCRIPTORS,
        AVAILABLE,
        USED,
        SERVED,
        DRIVERS
    );
    constants!(ready, "SVS_READY_", IN, PRI, OUT, ERR, HUP, RDHUP);
    add("SVS_VERSION", abi::VERSION.into());
    add("SVS_VIRTIO_ID", abi::VIRTIO_ID.into());
    add("SVS_F_EVENTS", abi::FEATURE_EVENTS.into());
    add("SVS_F_WAIT", abi::FEATURE_WAIT.into());
    add("SVS_WAIT_RECEIVED", abi::WAIT_RECEIVED);
    add("SVS_MAX_NAME", abi::MAX_NAME as u64);
    add("SVS_MAX_CONTROL", abi::MAX_CONTROL as u64);
    add("SVS_MAX_SEGMENTS", abi::MAX_SEGMENTS as u64);
    found
}

#[test]
fn the_header_and_the_device_agree() {
    let (c, rust) = (in_c(), in_rust());
    assert!(c.len() > 60, "the header was read");
    assert_eq!(c, rust);
}

#[test]
fn readiness_has_the_values_of_poll() {
    for (ours, libc) in [
        (ready::IN, libc::POLLIN),
        (ready::PRI, libc::POLLPRI),
        (ready::OUT, libc::POLLOUT),
        (ready::ERR, libc::POLLERR),
        (ready::HUP, libc::POLLHUP),
        (ready::RDHUP, libc::POLLRDHUP),
    ] {
        assert_eq!(ours, libc as u32);
    }
    assert_eq!(abi::MAX_NAME, size_of::<libc::sockaddr_storage>());
}
