//! What the way through the device costs besides the socket calls themselves: a datagram of 64 bytes
//! sent to oneself and received, by two requests and by two system calls. As root: it makes a
//! network namespace. `cargo bench -p steadyvm-sockets`

// Set-up as in the tests.
#![allow(clippy::unwrap_used, missing_docs)]

use std::net::UdpSocket;

use criterion::{Criterion, criterion_group, criterion_main};

#[path = "../tests/guest/mod.rs"]
mod guest;

fn round_trip(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("64 bytes to oneself");
    let bytes = [7; 64];

    let mut vcpu = guest::alone();
    let socket = vcpu.datagram();
    vcpu.bind(socket, "127.0.0.1:0").unwrap();
    let address = vcpu.local(socket).unwrap().to_string();
    vcpu.connect(socket, &address).unwrap();
    group.bench_function("two requests", |bencher| {
        bencher.iter(|| {
            vcpu.send(socket, &bytes, 0).unwrap();
            vcpu.receive(socket, 64, 0).unwrap();
            vcpu.events();
        });
    });

    let direct = UdpSocket::bind("127.0.0.1:0").unwrap();
    direct.connect(direct.local_addr().unwrap()).unwrap();
    group.bench_function("two system calls", |bencher| {
        bencher.iter(|| {
            direct.send(&bytes).unwrap();
            direct.recv(&mut [0; 64]).unwrap();
        });
    });
    group.bench_function("one request that asks for readiness", |bencher| {
        bencher.iter(|| vcpu.poll(socket));
    });
}

criterion_group!(benches, round_trip);
criterion_main!(benches);
