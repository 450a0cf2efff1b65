//! The NetRT client against its own server over loopback: the noise floor of this machine.
//!
//! `cargo run --release -p steadyvm-load --example netrt_loopback`
//! The figures of docs/design/netrt.md come from here.

use std::error::Error;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use steadyvm_load::netrt::{ClientOptions, run, serve};
use steadyvm_stats::Summary;

fn main() -> Result<(), Box<dyn Error>> {
    let server = UdpSocket::bind("127.0.0.1:0")?;
    let client = UdpSocket::bind("127.0.0.1:0")?;
    client.connect(server.local_addr()?)?;
    let stop = AtomicBool::new(false);
    let measured = thread::scope(|scope| {
        scope.spawn(|| serve(&server, &stop));
        let measured = run(&client, &ClientOptions::default(), &stop, &mut |_| {});
        stop.store(true, Ordering::Relaxed);
        measured
    })?;
    let round_trips: Vec<u64> = measured
        .samples
        .iter()
        .map(|sample| sample.rtt_ns)
        .collect();
    println!("{:#?}\n{:#?}", Summary::of(&round_trips), measured.counters);
    Ok(())
}
