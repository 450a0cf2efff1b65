//! A task over two machines: the first computes and sends, the second computes and answers, the first computes again.
//!
//! T1 of section VI-C of RTCA (Xi, Li, Lu and Gill 2012). Jobs are released a period apart whatever is late, and queue
//! up. Of two jobs that are ready on a machine the older one goes first. The datagram is `NetRT`'s.

use crate::computation::work;
use crate::job::Done;
use crate::netrt::wire::{Header, MAXIMUM_PAYLOAD_BYTES, make_reply};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Size of a request and of an answer, in bytes.
const DATAGRAM_BYTES: usize = 64;

/// What the first machine is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// From one release to the next, in microseconds.
    pub period_us: u64,
    /// Length of the first machine's two stages, in [`work`] units.
    pub work: u64,
    /// How many jobs.
    pub jobs: u64,
    /// When all are sent and no answer comes for so long, what is not answered is lost; in microseconds.
    pub timeout_us: u64,
    /// Tells this run's answers from those of runs before.
    pub run: u64,
}

/// What became of the jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// Those that went through all stages, in the order of their answers.
    pub done: Vec<Done>,
    /// How many were not answered.
    pub lost: u64,
}

/// Runs the first and the last stage of a task's jobs; `socket` is connected to who [`answer`]s.
///
/// # Errors
/// The socket's, but for what a later job may not meet: a full queue, a receiver that is not there yet.
pub fn run(socket: &UdpSocket, task: &Task) -> io::Result<Ran> {
    socket.set_nonblocking(true)?;
    let begun = Instant::now();
    let release = |job: u64| Duration::from_micros(task.period_us.saturating_mul(job));
    let mut done: Vec<Option<Done>> = Vec::new();
    let mut order = Vec::new();
    while (order.len() as u64) < task.jobs {
        // An answer is of an older job than the next one.
        if let Some(job) = take_answer(socket, task.run)? {
            if let Some(slot @ None) = done.get_mut(job as usize) {
                work(task.work);
                *slot = Some(Done {
                    released_ns: release(job).as_nanos() as u64,
                    finished_ns: begun.elapsed().as_nanos() as u64,
                });
                order.push(job as usize);
            }
            continue;
        }
        let next = done.len() as u64;
        let is_left = next < task.jobs;
        let wait = release(next).saturating_sub(begun.elapsed());
        if is_left && wait.is_zero() {
            work(task.work);
            send(socket, task.run, next)?;
            done.push(None);
        } else if !is_left && !is_readable(socket, Duration::from_micros(task.timeout_us))? {
            break;
        } else if is_left {
            is_readable(socket, wait)?;
        }
    }
    let done: Vec<Done> = order.into_iter().filter_map(|job| done[job]).collect();
    let lost = task.jobs - done.len() as u64;
    Ok(Ran { done, lost })
}

/// The second machine's stage, for ever: computes for so many units, and sends back what came.
///
/// # Errors
/// The socket's, but for what a later job may not meet.
pub fn answer(socket: &UdpSocket, units: &AtomicU64) -> io::Result<()> {
    let mut datagram = vec![0; MAXIMUM_PAYLOAD_BYTES];
    loop {
        let (length, from) = match socket.recv_from(&mut datagram) {
            Ok(received) => received,
            Err(error) if passes(&error) => continue,
            Err(error) => return Err(error),
        };
        let datagram = &mut datagram[..length];
        if Header::read_request(datagram).is_some() {
            work(units.load(Ordering::Relaxed));
            make_reply(datagram);
            sent(socket.send_to(datagram, from))?;
        }
    }
}

/// The job that an answer is of, if one is there.
fn take_answer(socket: &UdpSocket, run: u64) -> io::Result<Option<u64>> {
    let mut datagram = [0; DATAGRAM_BYTES];
    loop {
        match socket.recv(&mut datagram) {
            Ok(length) => match Header::read_reply(&datagram[..length]) {
                Some(header) if header.run == run => return Ok(Some(header.sequence)),
                _ => {}
            },
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) if passes(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

fn send(socket: &UdpSocket, run: u64, sequence: u64) -> io::Result<()> {
    let mut datagram = [0; DATAGRAM_BYTES];
    let header = Header {
        run,
        sequence,
        sent_ns: 0,
    };
    header.write_request(&mut datagram);
    sent(socket.send(&datagram))
}

/// What is not sent for a reason that passes is lost.
fn sent(result: io::Result<usize>) -> io::Result<()> {
    match result {
        Err(error) if !passes(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Waits for a datagram, or for an error that is there to be taken.
fn is_readable(socket: &UdpSocket, wait: Duration) -> io::Result<bool> {
    let mut readable = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    match ppoll(&mut readable, Some(wait.into()), None) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::EINTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Failures that a later job may not meet.
fn passes(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Interrupted
            | ErrorKind::WouldBlock
            | ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
    ) || error.raw_os_error() == Some(nix::libc::ENOBUFS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    /// Two sockets of this machine; the first is connected to the second.
    fn pair() -> (UdpSocket, UdpSocket) {
        let [first, second] = [0; 2].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        first.connect(second.local_addr().unwrap()).unwrap();
        (first, second)
    }

    fn task(jobs: u64) -> Task {
        Task {
            period_us: 1000,
            work: 1,
            jobs,
            timeout_us: 20_000,
            run: 7,
        }
    }

    #[test]
    fn every_job_goes_through_all_stages_and_is_released_a_period_after_the_one_before() {
        let (first, second) = pair();
        let units = Arc::new(AtomicU64::new(1));
        thread::spawn(move || answer(&second, &units));
        let long = Task {
            timeout_us: 60_000_000,
            ..task(20)
        };
        let ran = run(&first, &long).unwrap();
        assert_eq!((ran.done.len(), ran.lost), (20, 0));
        let releases: Vec<u64> = ran.done.iter().map(|it| it.released_ns).collect();
        assert_eq!(
            releases,
            (0..20).map(|it| it * 1_000_000).collect::<Vec<_>>()
        );
        assert!(ran.done.iter().all(|it| it.finished_ns > it.released_ns));
    }

    #[test]
    fn an_older_jobs_answer_goes_before_the_next_release() {
        let (first, second) = pair();
        // All jobs are late from the first one on: only answers order them.
        let late = Task {
            period_us: 0,
            timeout_us: 60_000_000,
            ..task(3)
        };
        for sequence in [0, 2] {
            // Another run's, and of a job that is not sent yet: neither is an answer.
            let header = Header {
                run: if sequence == 0 { 6 } else { 7 },
                sequence,
                sent_ns: 0,
            };
            let mut datagram = [0; DATAGRAM_BYTES];
            header.write_request(&mut datagram);
            make_reply(&mut datagram);
            second
                .send_to(&datagram, first.local_addr().unwrap())
                .unwrap();
        }
        let units = Arc::new(AtomicU64::new(1));
        thread::spawn(move || answer(&second, &units));
        let ran = run(&first, &late).unwrap();
        assert_eq!((ran.done.len(), ran.lost), (3, 0));
        let finished: Vec<u64> = ran.done.iter().map(|it| it.finished_ns).collect();
        assert!(finished.is_sorted(), "{finished:?}");
    }

    #[test]
    fn what_nobody_answers_is_lost() {
        let (first, second) = pair();
        let ran = run(&first, &task(3)).unwrap();
        assert_eq!((ran.done.len(), ran.lost), (0, 3));
        drop(second);
        let ran = run(&first, &task(3)).unwrap();
        assert_eq!((ran.done.len(), ran.lost), (0, 3));
    }

    #[test]
    fn what_is_no_request_is_not_answered() {
        let (first, second) = pair();
        let units = Arc::new(AtomicU64::new(1));
        let address = second.local_addr().unwrap();
        thread::spawn(move || answer(&second, &units));
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        other.send_to(b"nonsense", address).unwrap();
        other.send_to(&[], address).unwrap();
        let long = Task {
            timeout_us: 60_000_000,
            ..task(1)
        };
        assert_eq!(run(&first, &long).unwrap().lost, 0);
        other.set_nonblocking(true).unwrap();
        // It was sent before what was answered.
        assert!(other.recv(&mut [0; 8]).is_err());
    }
}
