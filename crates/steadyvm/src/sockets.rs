//! `steadyvm sockets`: outsourced sockets for the guests of other monitors.

use anyhow::Result;
use clap::Subcommand;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use steadyvm_vmm::configuration::Sockets;
use steadyvm_vmm::shared::{self, Service};
use steadyvm_vmm::{End, Error};

/// Serve outsourced sockets to guests that QEMU runs.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: SocketsVerb,
}

#[derive(Debug, Subcommand)]
enum SocketsVerb {
    Serve(Box<ServeArgs>),
}

/// Serve the sockets of one VM until its monitor ends.
///
/// The monitor is a stock QEMU, by hand or by libvirt. It connects to --socket when it starts:
///
///   -chardev socket,id=sockets,path=PATH
///   -device ivshmem-doorbell,chardev=sockets,vectors=CHANNELS+1
///
/// In a libvirt domain of two VCPUs:
///
///   <shmem name="sockets">
///     <model type="ivshmem-doorbell"/>
///     <server path="PATH"/>
///     <msi vectors="3" ioeventfd="on"/>
///   </shmem>
///
/// The guest needs PCI and the module `steadyvm_sockets`. It shares only the memory that this process makes, none of its
/// own.
///
/// Once the monitor has connected, this process leaves the host's file system and namespaces and gives up
/// its rights, as `steadyvm up` does. SIGTERM, SIGINT, SIGHUP and SIGQUIT end it within two seconds; a
/// second signal ends it at once.
///
/// Exit codes: 0 the monitor has gone, or a signal came; 1 it was stopped at a system call it may not make;
/// 2 wrong options; 3 this machine lacks something.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
#[allow(clippy::doc_markdown)] // options and XML for a terminal
struct ServeArgs {
    /// Where the monitor connects: a Unix socket, which is made. Its file goes when one has. Root's process makes it
    /// only in a directory that nobody else can write to or exchange, such as /run/steadyvm-sockets with mode 0711.
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// The network namespace of the guest's sockets: new, current, a name of `ip netns`, or a path with
    /// a '/'.
    #[arg(long, value_name = "NAMESPACE")]
    namespace: String,
    /// The VM's name, in the names of threads.
    #[arg(long, default_value = "vm")]
    name: String,
    /// Channels: as many as the guest has VCPUs, 1 to 64.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    channels: u16,
    /// Let this user connect, by number: the one that the monitor runs as. Others are sent away.
    #[arg(long, value_name = "NUMBER")]
    client_user: Option<u32>,
    /// Let the namespace be the host's own, with its loopback and all its addresses.
    #[arg(long)]
    allow_host_network: bool,
    /// The most sockets at a time.
    #[arg(long, value_name = "COUNT", default_value_t = Sockets::default().max_sockets)]
    max_sockets: u32,
    /// MiB that all their buffers may hold.
    #[arg(long, value_name = "MIB", default_value_t = Sockets::default().buffer_mib)]
    buffer_mib: u64,
    /// KiB of data in one request, 4 to 64.
    #[arg(long, value_name = "KIB", default_value_t = shared::MOST_DATA >> 10)]
    request_kib: u32,
    /// The highest SO_PRIORITY that the guest may set, 0 to 6.
    #[arg(long, value_name = "PRIORITY", default_value_t = Sockets::default().max_priority)]
    max_priority: u8,
    /// SCHED_FIFO priority of the threads that serve, 1 to 98. It must be above that of the VCPUs, which
    /// wait for them without giving up their CPU.
    #[arg(long, value_name = "PRIORITY")]
    rt_priority: Option<i32>,
    /// Microseconds that a thread looks for the next request before it sleeps, 0 to 1000. It looks while the guest
    /// asks that often; 0 always sleeps.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 100)]
    poll_us: u32,
    /// Do not lock this process in memory.
    #[arg(long)]
    no_lock_memory: bool,
    /// The user that root's process becomes, by number.
    #[arg(long, value_name = "NUMBER")]
    user: Option<u32>,
    /// The group, by number; without it the user's number.
    #[arg(long, value_name = "NUMBER")]
    group: Option<u32>,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let SocketsVerb::Serve(args) = &args.verb;
    let most = shared::MOST_DATA >> 10;
    if args.request_kib > most {
        let why = format!("{} is not 4 to {most}", args.request_kib);
        return Err(Error::input("--request-kib", why).into());
    }
    let end = shared::serve(&Service {
        name: args.name.clone(),
        socket: args.socket.clone(),
        client_user: args.client_user,
        channels: args.channels,
        sockets: Sockets {
            namespace: args.namespace.clone().into(),
            max_sockets: args.max_sockets,
            buffer_mib: args.buffer_mib,
            request_kib: args.request_kib,
            max_priority: args.max_priority,
            // Its threads wait for guest and sockets at once, and poll the guest's memory.
            poll_us: 0,
            allow_host_network: args.allow_host_network,
        },
        rt_priority: args.rt_priority,
        poll: Duration::from_micros(args.poll_us.into()),
        lock_memory: !args.no_lock_memory,
        user: args.user,
        group: args.group,
    })?;
    if let End::Asked(by) = &end {
        eprintln!("steadyvm sockets: ended by {by}");
    }
    Ok(ExitCode::from(end.exit_code()))
}
