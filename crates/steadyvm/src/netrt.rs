//! `steadyvm netrt`: the two ends of the measured service, for use by hand and by the lab.

use anyhow::{Context, Result};
use clap::Subcommand;
use std::net::{SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use steadyvm_latency::netrt;

/// Serve NetRT, the measured request/response service.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Answer requests on this address until killed; prints "ready" when it listens.
    Serve {
        /// Address and UDP port, such as 0.0.0.0:7700.
        address: SocketAddr,
    },
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let Verb::Serve { address } = args.verb;
    let socket = UdpSocket::bind(address)
        .with_context(|| format!("cannot listen on {address}; choose a free address and port"))?;
    println!("ready on {}", socket.local_addr()?);
    netrt::serve(&socket, &AtomicBool::new(false))?;
    Ok(ExitCode::SUCCESS)
}
