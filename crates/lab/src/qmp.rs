//! The few words of QEMU's machine protocol (QMP) that the lab uses: JSON, a line a message.

use crate::{At, Error, Result};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// QEMU answers within milliseconds once its monitor runs; a silent one is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection to QEMU's monitor.
pub struct Monitor {
    reader: BufReader<UnixStream>,
}

impl Monitor {
    /// Takes over the monitor's stream and waits until QEMU takes commands.
    pub fn establish(stream: UnixStream) -> Result<Self> {
        stream
            .set_read_timeout(Some(PATIENCE))
            .doing("talk to QEMU")?;
        let mut monitor = Self {
            reader: BufReader::new(stream),
        };
        monitor.receive("QEMU's greeting")?;
        monitor.execute("qmp_capabilities")?;
        Ok(monitor)
    }

    /// Starts or resumes the machine.
    pub fn resume(&mut self) -> Result<()> {
        self.execute("cont").map(drop)
    }

    /// Stops the machine's processors and its clock.
    pub fn pause(&mut self) -> Result<()> {
        self.execute("stop").map(drop)
    }

    /// The threads that run the machine's processors, in their order.
    pub fn processor_threads(&mut self) -> Result<Vec<i32>> {
        let answer = self.execute("query-cpus-fast")?;
        let threads = answer.as_array().into_iter().flatten();
        Ok(threads
            .filter_map(|cpu| Some(cpu.get("thread-id")?.as_i64()? as i32))
            .collect())
    }

    /// The answer to a command for people, such as `info registers -a`.
    pub fn ask_for_people(&mut self, command: &str) -> Result<String> {
        let request = json!({
            "execute": "human-monitor-command",
            "arguments": { "command-line": command },
        });
        let answer = self.send(command, &request)?;
        Ok(answer.as_str().unwrap_or_default().replace('\r', ""))
    }

    fn execute(&mut self, command: &str) -> Result<Value> {
        self.send(command, &json!({ "execute": command }))
    }

    fn send(&mut self, command: &str, request: &Value) -> Result<Value> {
        let mut line = request.to_string();
        line.push('\n');
        self.reader
            .get_mut()
            .write_all(line.as_bytes())
            .doing(format!("ask QEMU to {command}"))?;
        loop {
            let mut answer = self.receive(command)?;
            // Events come in between; only an answer ends the wait.
            if let Some(result) = answer.get_mut("return") {
                return Ok(result.take());
            }
            if let Some(error) = answer.get("error") {
                return Err(Error::machine(format!("ask QEMU to {command}"), error));
            }
        }
    }

    fn receive(&mut self, what: &str) -> Result<Value> {
        let what = || format!("wait for {what} from QEMU");
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => Err(Error::machine(what(), "it has ended")),
            Ok(_) => serde_json::from_str(&line).doing(what()),
            Err(error) => Err(Error::machine(what(), error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn events_between_command_and_answer_are_passed_over() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let qemu = thread::spawn(move || {
            let mut reader = BufReader::new(theirs.try_clone().unwrap());
            let mut writer = theirs;
            let mut line = String::new();
            writer.write_all(b"{\"QMP\": {}}\n").unwrap();
            reader.read_line(&mut line).unwrap();
            writer.write_all(b"{\"return\": {}}\n").unwrap();
            reader.read_line(&mut line).unwrap();
            writer.write_all(b"{\"event\": \"RESUME\"}\n").unwrap();
            writer
                .write_all(b"{\"return\": [{\"thread-id\": 7}, {\"thread-id\": 9}]}\n")
                .unwrap();
            line
        });
        let mut monitor = Monitor::establish(ours).unwrap();
        assert_eq!(monitor.processor_threads().unwrap(), [7, 9]);
        assert!(qemu.join().unwrap().contains("query-cpus-fast"));
    }

    #[test]
    fn a_qemu_that_ends_is_an_error() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(Monitor::establish(ours).is_err_and(|error| error.why.contains("ended")));
    }
}
