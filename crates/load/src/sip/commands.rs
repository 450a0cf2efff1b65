//! Command lines of SIPp and tcpdump, and the configuration of Kamailio.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::time::Duration;

/// SIP's UDP port, the server's.
pub const SERVER_PORT: u16 = 5060;
/// The callee's.
pub const CALLEE_PORT: u16 = 5070;
/// The caller's.
pub const CALLER_PORT: u16 = 5080;
/// Where the caller takes commands.
const CONTROL_PORT: u16 = 8888;
/// Where the callee does: nobody sends it any, but it takes the caller's port unless told otherwise.
const CALLEE_CONTROL_PORT: u16 = 8889;
/// More calls than ever are under way at once: SIPp starts none beyond this number.
const AT_ONCE: &str = "10000";

/// Calls at a rate that changes at random.
#[derive(Debug, Clone)]
pub struct Calls {
    /// How many.
    pub calls: u64,
    /// The rates, in calls per [`seconds`](Self::seconds).
    pub rates: RangeInclusive<u32>,
    /// How many seconds the rates are of: more for a slower server.
    pub seconds: u32,
    /// How long each rate holds.
    pub each: Duration,
    /// Seed of the rates.
    pub seed: u64,
}

impl Default for Calls {
    /// 17 to 167 calls per second, as in section 4.3 of Garcia, Shinjo and Pu 2018.
    fn default() -> Self {
        Self {
            calls: 100,
            rates: 17..=167,
            seconds: 1,
            each: Duration::from_millis(100),
            seed: 1,
        }
    }
}

impl Calls {
    /// The rates one after the other in calls per second, without end, uniform over the range.
    pub fn rates_per_s(&self) -> impl Iterator<Item = f64> + use<> {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        let (first, last) = (*self.rates.start(), *self.rates.end());
        let seconds = f64::from(self.seconds);
        let span = u64::from(last.saturating_sub(first)) + 1;
        std::iter::repeat_with(move || {
            // The upper half of a product: the remainder would prefer some.
            let above_first = ((u64::from(random.next_u32()) * span) >> 32) as u32;
            f64::from(first + above_first) / seconds
        })
    }

    /// The mean rate, in calls per second.
    pub fn mean_rate_per_s(&self) -> f64 {
        f64::from(self.rates.start() + self.rates.end()) / 2.0 / f64::from(self.seconds)
    }

    /// The caller's arguments after `sipp`.
    pub fn caller_arguments(&self, own: Ipv4Addr, server: Ipv4Addr) -> Vec<String> {
        let (calls, rate) = (self.calls.to_string(), self.mean_rate_per_s().to_string());
        let (own, server) = (own.to_string(), format!("{server}:{SERVER_PORT}"));
        let (port, control) = (CALLER_PORT.to_string(), CONTROL_PORT.to_string());
        let words = [
            "-sn",
            "uac",
            "-i",
            &own,
            "-p",
            &port,
            "-cp",
            &control,
            "-m",
            &calls,
            "-r",
            &rate,
            "-l",
            AT_ONCE,
            "-timer_resol",
            "1",
            "-nostdin",
            &server,
        ];
        words.map(str::to_owned).into()
    }

    /// The callee's: it answers until it is ended.
    pub fn callee_arguments(own: Ipv4Addr) -> Vec<String> {
        let (own, port) = (own.to_string(), CALLEE_PORT.to_string());
        let control = CALLEE_CONTROL_PORT.to_string();
        let words = [
            "-sn",
            "uas",
            "-i",
            &own,
            "-p",
            &port,
            "-cp",
            &control,
            "-timer_resol",
            "1",
            "-nostdin",
        ];
        words.map(str::to_owned).into()
    }

    /// Where the caller takes [`rate_command`](Self::rate_command).
    pub fn control(own: Ipv4Addr) -> (Ipv4Addr, u16) {
        (own, CONTROL_PORT)
    }

    /// What sets its rate.
    pub fn rate_command(per_s: f64) -> String {
        format!("cset rate {per_s}")
    }
}

/// tcpdump's arguments: what SIP a device sees, each frame written as it comes, until it is interrupted.
pub fn tcpdump_arguments(device: &str) -> Vec<String> {
    let port = SERVER_PORT.to_string();
    let words = [
        "-i",
        device,
        "-n",
        "-U",
        "-w",
        "-",
        "-B",
        "16384",
        "-s",
        "0",
        "--immediate-mode",
        "--time-stamp-precision=nano",
        "udp",
        "port",
        &port,
    ];
    words.map(str::to_owned).into()
}

/// kamailio.cfg: one process relays every request to the callee, and every reply back.
pub fn relay_configuration(callee: Ipv4Addr) -> String {
    format!(
        r#"#!KAMAILIO
debug=0
log_stderror=yes
children=1
disable_tcp=yes
auto_aliases=no
# No name is looked up: there is no name server.
dns=no
rev_dns=no
use_dns_cache=off
listen=udp:0.0.0.0:{SERVER_PORT}
loadmodule "tm.so"
loadmodule "pv.so"
request_route {{
	$du = "sip:{callee}:{CALLEE_PORT}";
	t_relay();
}}
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_whole(calls: &Calls) -> Vec<u32> {
        let rates = calls.rates_per_s().take(15_100);
        rates.map(|rate| (rate * 4.0).round() as u32).collect()
    }

    #[test]
    fn rates_are_uniform_over_their_range_and_the_seeds_own() {
        let calls = Calls {
            seconds: 4,
            ..Calls::default()
        };
        let rates: Vec<u32> = in_whole(&calls);
        assert_eq!(rates, in_whole(&calls));
        for rate in 17..=167 {
            let count = rates.iter().filter(|&&it| it == rate).count();
            assert!((50..=160).contains(&count), "{rate}: {count}");
        }
        assert!(rates.iter().all(|rate| calls.rates.contains(rate)));
        let other = Calls { seed: 2, ..calls };
        assert_ne!(rates, in_whole(&other));
    }

    #[test]
    fn commands_name_both_ends() {
        let (own, server) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let caller = Calls::default().caller_arguments(own, server).join(" ");
        assert!(
            caller.starts_with("-sn uac -i 10.0.0.1 -p 5080"),
            "{caller}"
        );
        assert!(caller.ends_with("10.0.0.2:5060"), "{caller}");
        let relay = relay_configuration(own);
        assert!(relay.contains("listen=udp:0.0.0.0:5060\n"), "{relay}");
        assert!(relay.contains("$du = \"sip:10.0.0.1:5070\""), "{relay}");
        assert_eq!(Calls::rate_command(4.25), "cset rate 4.25");
    }
}
