//! Where a hook's words go: to standard error, which libvirt and Proxmox show where they heed a failure, and to the
//! system's log, since they drop them where they do not.

use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::process;

use steadyvm_hook::Urgency;

/// Where the system's log listens (`syslog(3)`).
const SYSTEM_LOG: &str = "/dev/log";
/// `LOG_DAEMON`
const DAEMON: u32 = 3 << 3;

/// Says something, to whom listens.
pub fn say(urgency: Urgency, text: &str) {
    // A closed standard error is no reason to fail a VM.
    let _ = writeln!(io::stderr(), "steadyvm-hook: {text}");
    let priority = DAEMON | urgency as u32;
    let message = format!("<{priority}>steadyvm-hook[{}]: {text}", process::id());
    if let Ok(socket) = UnixDatagram::unbound() {
        let _ = socket.set_nonblocking(true);
        let _ = socket.send_to(message.as_bytes(), SYSTEM_LOG);
    }
}
