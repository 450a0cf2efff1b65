//! A guest of the emulated host, running.

use crate::agent::{Connection, ProcessInput};
use crate::emulator::Machine;
use crate::emulator::RUN_DIRECTORY;
use crate::init::PROGRAM;
use crate::laboratory::SOCKETS_MODULE;
use crate::{At, Error, Result};
use std::time::Duration;

/// A guest boots in 5 s on an idle machine. Where its host is slow it has as long as that.
pub(crate) const BOOT_PATIENCE: Duration = Duration::from_secs(180);

/// A booted guest. It lives as long as its host.
pub struct Guest {
    connection: Connection,
}

impl Guest {
    /// Starts the guest in the host and waits until its agent speaks, for `patience` at most.
    pub(crate) fn start(host: &Connection, machine: &Machine, patience: Duration) -> Result<Self> {
        let description = serde_json::to_string(machine).doing("describe a guest")?;
        let process = host.spawn(&[PROGRAM, "carry", &description])?;
        let (reader, writer): (_, ProcessInput) = process.into_stream()?;
        let place = format!("guest {}", machine.name);
        let connection = Connection::establish(place, reader, writer, patience)
            .map_err(|error| with_logs(error, host, &machine.name))?;
        Ok(Self { connection })
    }

    /// Where processes in it are started.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Makes the sockets of every program that starts from now on outsourced ones.
    pub fn outsource_sockets(&self) -> Result<()> {
        self.connection.run(&["insmod", SOCKETS_MODULE]).map(drop)
    }

    /// Gives its only card an address.
    pub fn set_network_up(&self, address: std::net::Ipv4Addr) -> Result<()> {
        self.connection.run(&[
            "ip",
            "address",
            "add",
            &format!("{address}/24"),
            "dev",
            "eth0",
        ])?;
        self.connection
            .run(&["ip", "link", "set", "dev", "eth0", "up"])
            .map(drop)
    }
}

/// How long a card may take to find its link.
const LINK_PATIENCE_S: u32 = 60;

impl Guest {
    /// Waits until its only card has a link. The driver of a virtual function looks for one every two
    /// seconds only, and until then everything sent is lost.
    pub fn await_link(&self) -> Result<()> {
        let looks = "until [ \"$(cat /sys/class/net/eth0/carrier)\" = 1 ]; do sleep 0.1; done";
        let patience = LINK_PATIENCE_S.to_string();
        let argv = ["timeout", &patience, "sh", "-c", looks];
        self.connection.run(&argv).map(drop)
    }
}

/// Adds what the guest's monitor and console said to an error of a guest that did not come up.
fn with_logs(mut error: Error, host: &Connection, name: &str) -> Error {
    // A guest that did not start has one of the two only.
    let script = format!("cd {RUN_DIRECTORY}; tail -n 5 {name}.log {name}.console || true");
    // A host that is gone too has told why elsewhere.
    if let Ok(said) = host.text(&["sh", "-c", &script]) {
        error.why = format!("{}\n  {}", error.why, said.trim().replace('\n', "\n    "));
    }
    error
}
