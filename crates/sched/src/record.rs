//! The recorder: what the scheduler tells the policy, into a file of `policy/event.h`.

use crate::error::Error;
use crate::timer;
use libbpf_rs::{MapHandle, RingBufferBuilder};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::OwnedFd;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::rc::Rc;
use std::thread::{self, JoinHandle};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use steadyvm_sched_policy::{EVENT_VERSION, Host};

/// How often records are fetched, in milliseconds: they wake nobody.
const INTERVAL_MS: u16 = 20;
/// Of its thread: below all other FIFO threads.
const FIFO_PRIORITY: i32 = 1;

/// Starts to write `path`. Ends when `stop` can be read, after what is there then.
pub(crate) fn start(
    events: MapHandle,
    host: Host,
    cpus: u32,
    path: &Path,
    stop: OwnedFd,
) -> Result<JoinHandle<Result<(), Error>>, Error> {
    let what = format!("write {}", path.display());
    let mut file = steadyvm_files::create(path).map_err(Error::io(&what))?;
    write_header(&mut file, host, cpus).map_err(Error::io(&what))?;
    thread::Builder::new()
        .name("sched-record".into())
        .spawn(move || {
            // Before those that are recorded: they may take all CPUs for longer than the ring holds.
            timer::become_fifo(FIFO_PRIORITY)
                .map_err(Error::system("give the recorder SCHED_FIFO"))?;
            run(&events, file, &stop, &what)
        })
        .map_err(Error::io("start the recorder's thread"))
}

fn write_header(file: &mut File, host: Host, cpus: u32) -> io::Result<()> {
    file.write_all(b"SVMSCHED")?;
    file.write_all(&EVENT_VERSION.to_ne_bytes())?;
    file.write_all(&cpus.to_ne_bytes())?;
    file.write_all(&(host.order() as u32).to_ne_bytes())?;
    file.write_all(&u32::from(host.is_partitioned()).to_ne_bytes())?;
    file.write_all(&host.quantum_ns.to_ne_bytes())
}

fn run(events: &MapHandle, file: File, stop: &OwnedFd, what: &str) -> Result<(), Error> {
    let writer = Rc::new(RefCell::new(BufWriter::new(file)));
    let sink = Rc::clone(&writer);
    let mut builder = RingBufferBuilder::new();
    builder
        .add(events, move |bytes| {
            // A full disk shows at the end: what is written then is checked again.
            i32::from(sink.borrow_mut().write_all(bytes).is_err()) * -libc::EIO
        })
        .map_err(Error::bpf("read the events"))?;
    let ring = builder.build().map_err(Error::bpf("read the events"))?;
    // SAFETY: the ring buffer lives to the end of this function, and its descriptor with it.
    let _descriptor = unsafe { BorrowedFd::borrow_raw(ring.epoll_fd()) };
    loop {
        let mut descriptors = [PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
        match poll(&mut descriptors, PollTimeout::from(INTERVAL_MS)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(Error::system("wait")(error)),
        }
        let ends = descriptors[0].any().unwrap_or(false);
        ring.consume().map_err(Error::bpf(what))?;
        if ends {
            return writer.borrow_mut().flush().map_err(Error::io(what));
        }
    }
}
