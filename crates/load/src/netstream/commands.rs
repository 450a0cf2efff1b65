//! iperf3's command lines.

use std::net::IpAddr;

/// The port iperf3 uses when told nothing.
pub const DEFAULT_PORT: u16 = 5201;

/// An iperf3 server: the end that receives the stream, in the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerCommand {
    /// The TCP port to listen on.
    pub port: u16,
    /// The address to listen on; all if `None`.
    pub bind: Option<IpAddr>,
    /// Serve one client, then exit.
    pub one_off: bool,
}

impl Default for ServerCommand {
    /// A server for any number of clients on iperf3's own port.
    fn default() -> Self {
        Self {
            port: DEFAULT_PORT,
            bind: None,
            one_off: false,
        }
    }
}

impl ServerCommand {
    /// The arguments after `iperf3`. The server prints text; the client's JSON carries the
    /// server's figures too.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["-s".to_owned(), "-p".to_owned(), self.port.to_string()];
        if let Some(address) = self.bind {
            arguments.extend(["-B".to_owned(), address.to_string()]);
        }
        if self.one_off {
            arguments.push("-1".to_owned());
        }
        arguments
    }
}

/// An iperf3 client: the end that sends.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientCommand {
    /// The server's address.
    pub server: IpAddr,
    /// The server's TCP port.
    pub port: u16,
    /// How long to measure, in seconds, after `omit_s`.
    pub duration_s: u32,
    /// How long to send before measuring, in seconds: TCP's slow start.
    pub omit_s: u32,
    /// Parallel TCP streams.
    pub streams: u32,
    /// Rate of all streams together; as fast as possible if `None`.
    pub total_mbit_per_s: Option<f64>,
}

impl ClientCommand {
    /// One stream at full speed for `duration_s` seconds after one second of slow start.
    pub fn to_server(server: IpAddr, duration_s: u32) -> Self {
        Self {
            server,
            port: DEFAULT_PORT,
            duration_s,
            omit_s: 1,
            streams: 1,
            total_mbit_per_s: None,
        }
    }

    /// The arguments after `iperf3`: `-J`, one JSON document on stdout for [`super::parse`].
    ///
    /// A rate that is no positive number is sent as 1 bit/s (iperf3 takes 0 for "unlimited", which
    /// would be the opposite of what was asked).
    pub fn arguments(&self) -> Vec<String> {
        let streams = self.streams.max(1);
        let mut arguments: Vec<String> = [
            "-c",
            &self.server.to_string(),
            "-p",
            &self.port.to_string(),
            "-J",
        ]
        .map(str::to_owned)
        .into();
        for (option, value) in [
            ("-t", self.duration_s.max(1)),
            ("-O", self.omit_s),
            ("-P", streams),
        ] {
            arguments.extend([option.to_owned(), value.to_string()]);
        }
        if let Some(total) = self.total_mbit_per_s {
            // iperf3's -b is the rate of each stream.
            let bit_per_s = (total * 1e6 / f64::from(streams)).round().max(1.0);
            arguments.extend(["-b".to_owned(), (bit_per_s as u64).to_string()]);
        }
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_at_full_speed_and_one_at_a_rate() {
        let mut client = ClientCommand::to_server("10.0.0.2".parse().unwrap(), 5);
        assert_eq!(
            client.arguments().join(" "),
            "-c 10.0.0.2 -p 5201 -J -t 5 -O 1 -P 1"
        );
        client.streams = 2;
        client.total_mbit_per_s = Some(90.5);
        assert_eq!(
            client.arguments().join(" "),
            "-c 10.0.0.2 -p 5201 -J -t 5 -O 1 -P 2 -b 45250000"
        );
    }

    #[test]
    fn an_impossible_rate_never_becomes_an_unlimited_one() {
        let mut client = ClientCommand::to_server("::1".parse().unwrap(), 5);
        for rate in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY, 1e-9] {
            client.total_mbit_per_s = Some(rate);
            assert!(client.arguments().join(" ").ends_with("-b 1"), "{rate}");
        }
    }

    #[test]
    fn a_server_for_one_client() {
        let server = ServerCommand {
            port: 9,
            bind: Some("10.0.0.2".parse().unwrap()),
            one_off: true,
        };
        assert_eq!(server.arguments().join(" "), "-s -p 9 -B 10.0.0.2 -1");
        assert_eq!(ServerCommand::default().arguments().join(" "), "-s -p 5201");
    }
}
