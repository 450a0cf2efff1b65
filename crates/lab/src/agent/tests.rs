//! Both ends of a control channel, joined by a socket.

use super::protocol::{Event, VERSION, write_frame};
use super::{Connection, Status, serve};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn with_agent() -> Connection {
    let (here, there) = UnixStream::pair().unwrap();
    let writer = there.try_clone().unwrap();
    thread::spawn(move || serve(there, writer));
    Connection::establish("the test", here.try_clone().unwrap(), here, PATIENCE).unwrap()
}

#[test]
fn a_process_says_what_it_wrote_and_how_it_ended() {
    let connection = with_agent();
    let process = connection
        .spawn(&["sh", "-c", "cat; echo oh >&2; exit 7"])
        .unwrap();
    process.input(b"in and out").unwrap();
    process.end_of_input().unwrap();
    let finished = process.finish(PATIENCE).unwrap();
    assert_eq!(finished.status, Status::Exited(7));
    assert_eq!(finished.output, b"in and out");
    assert_eq!(finished.error, b"oh\n");
}

#[test]
fn a_missing_program_is_refused() {
    let error = with_agent().run(&["no-such-program"]).unwrap_err();
    assert!(error.to_string().contains("no-such-program"), "{error}");
}

#[test]
fn a_process_that_does_not_end_is_given_up() {
    let process = with_agent().spawn(&["sleep", "1000"]).unwrap();
    let error = process.finish(Duration::ZERO).unwrap_err();
    assert!(error.to_string().contains("has not ended"), "{error}");
}

/// Its machine may run on while its agent is stuck.
#[test]
fn an_agent_that_does_not_answer_is_an_error() {
    let (here, mut there) = UnixStream::pair().unwrap();
    write_frame(&mut there, &Event::Ready { version: VERSION }).unwrap();
    let reader = here.try_clone().unwrap();
    let mute = Connection::establish_with("guest x", reader, here, PATIENCE, Duration::ZERO);
    let error = mute.unwrap().spawn(&["true"]).map(drop).unwrap_err();
    assert!(error.to_string().contains("guest x: no word"), "{error}");
}

#[test]
fn a_channel_that_ends_wakes_who_waits() {
    let (here, mut there) = UnixStream::pair().unwrap();
    write_frame(&mut there, &Event::Ready { version: VERSION }).unwrap();
    let connection =
        Connection::establish("guest x", here.try_clone().unwrap(), here, PATIENCE).unwrap();
    let waiting = thread::spawn(move || connection.spawn(&["true"]).map(drop));
    // The request has arrived, so the caller waits.
    there.read_exact(&mut [0; 4]).unwrap();
    drop(there);
    let error = waiting.join().unwrap().unwrap_err();
    assert!(error.to_string().contains("channel ended"), "{error}");
}
