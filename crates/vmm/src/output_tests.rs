use super::*;
use std::io::Read;

fn event() -> EventFd {
    EventFd::new(libc::EFD_NONBLOCK).unwrap()
}

/// A console that goes to a pipe, with its thread.
fn carried() -> (
    Arc<Pipe>,
    EventFd,
    io::PipeReader,
    std::thread::JoinHandle<()>,
) {
    let (bell, stop) = (event(), event());
    let (reader, writer) = io::pipe().unwrap();
    let console = Pipe::new(&bell).unwrap();
    let messages = Pipe::new(&bell).unwrap();
    let nowhere = File::options().write(true).open("/dev/null").unwrap();
    let outputs = Outputs::new(
        bell,
        (
            Arc::clone(&console),
            Sink::stream(std::os::fd::OwnedFd::from(writer).into()),
        ),
        (messages, Sink::stream(nowhere)),
    );
    let stopped = stop.try_clone().unwrap();
    let thread = std::thread::spawn(move || outputs.carry(&stopped));
    (console, stop, reader, thread)
}

#[test]
fn what_is_written_comes_out_also_after_the_end() {
    let (console, stop, mut reader, thread) = carried();
    let text: Vec<u8> = (0..50_000_u32).map(|byte| byte as u8).collect();
    for piece in text.chunks(7) {
        console.put(piece);
    }
    stop.write(1).unwrap();
    let mut all = Vec::new();
    reader.read_to_end(&mut all).unwrap();
    assert!(all == text);
    thread.join().unwrap();
}

#[test]
fn a_reader_that_does_not_read_holds_nobody_up() {
    let (console, stop, mut reader, thread) = carried();
    // More than the pipe of the host and ours have room for: `put` returns all the same.
    for _ in 0..(2 << 20) / 64 {
        console.put(&[b'x'; 64]);
    }
    stop.write(1).unwrap();
    thread.join().unwrap();
    let mut all = Vec::new();
    reader.read_to_end(&mut all).unwrap();
    assert!(all.len() < 2 << 20, "{}", all.len());
}

#[test]
fn what_is_lost_is_told_once_there_is_room() {
    let pipe = Pipe::new(&event()).unwrap();
    pipe.put(&vec![b'a'; CAPACITY]);
    pipe.put(b"lost");
    let mut all = Vec::new();
    while let piece @ [_, ..] = &pipe.take()[..] {
        all.extend_from_slice(piece);
    }
    let (kept, said) = all.split_at(CAPACITY);
    assert!(kept.iter().all(|byte| *byte == b'a'));
    assert_eq!(said, b"\r\n[4 bytes are lost: nobody read them]\r\n");
}

#[test]
fn a_file_grows_to_its_limit() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut sink = Sink::limited(file.reopen().unwrap(), 10);
    assert_eq!(sink.write(b"1234567").unwrap(), 7);
    assert_eq!(sink.write(b"1234567").unwrap(), 3);
    assert_eq!(sink.write(b"4567").unwrap(), 4, "dropped");
    assert_eq!(std::fs::read(file.path()).unwrap(), b"1234567123");
}

#[test]
fn one_message_a_second_is_let_through() {
    let limiter = Limiter::default();
    let start = Instant::now();
    assert_eq!(limiter.allows(start), Some(0));
    for milliseconds in [0, 1, 999] {
        let at = start + Duration::from_millis(milliseconds);
        assert_eq!(limiter.allows(at), None);
    }
    assert_eq!(limiter.allows(start + Duration::from_secs(1)), Some(3));
}
