//! Figure 8 of Garcia, Shinjo and Pu 2018: how long Kamailio in a VM takes to forward the messages of
//! calls, beside bulk traffic for another VM. The README in this folder says what differs from the paper.

mod calls;

use crate::engine::answer::Asked;
use crate::engine::latency::{Latencies, Words};
use crate::experiment::{Experiment, Options, Outcome, Rows};
use crate::service::{self, Beside, Load, Receivers, Sample, Server, Service};
use crate::testbed::ComparedMethod;
use steadyvm_lab::Result;
use steadyvm_lab::artifact::UserSpace;
use steadyvm_lab::host::{EmulatedHost, RT};
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_lab::progress::Observer;
use steadyvm_load::sip::{Calls, Delay, MESSAGES, Message, Run, relay_configuration};

const NAME: &str = "kamailio";
const CONFIGURATION: &str = "/run/kamailio.cfg";

const ASKED: Asked = Asked {
    question: "Does a real SIP server in a VM gain beside bulk traffic?",
    figure: "p99",
    words: "p99 of forwarding a message",
    cells: &[
        ("all six messages, no NetStream", "without a stream"),
        (
            "all six messages, beside NetStream at full speed",
            "beside a full stream",
        ),
    ],
};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    words: Words {
        name: NAME,
        introduction: "Calls over Kamailio in a VM, from SIPp to SIPp at 17 to 167 calls per 10 seconds, at random: \
             how long it takes to forward each of a call's six messages.",
        reading: &[
            "A forward delay is from a message's arrival on the wire until the server has sent it on, by a \
             capture outside of the host. n is the number of forwarded messages; lost: not forwarded in 2 s.",
            "Percentiles are nearest-rank, of every counted message of all rounds. /first: over the first \
             method's under the same condition, with a 95 % interval.",
        ],
        // Section 4.3, of figure 8.
        paper: Some(|| service::paper([41, 32])),
    },
    about: "Figure 8 of the outsourcing paper: Kamailio in a VM beside a TCP stream",
    answer: |record| ASKED.of_times(record),
    rows: Rows::Methods,
    user_space: UserSpace::Services,
    check: |options| service::check(NAME, options),
    run,
};

struct Kamailio;

impl Service for Kamailio {
    type Run = Run;

    /// Debian's, with one process for UDP. `-DD -E`: it stays in the foreground and logs there.
    fn server(&self) -> Server {
        let words = format!("kamailio -f {CONFIGURATION} -DD -E -m 16 -M 4 -Y /run");
        Server {
            words: words.split(' ').map(str::to_owned).collect(),
            ready: None,
            file: Some((CONFIGURATION, relay_configuration(RT.outside()))),
        }
    }

    /// A few calls: repeated messages make up for a server that does not listen yet.
    fn prepare(&self, host: &EmulatedHost, receivers: &Receivers) -> Result<()> {
        calls::require_programs()?;
        host.outside().ip("link set lo up")?;
        let few = calls::calls(Load {
            seed: 0,
            samples: MESSAGES.len() as u64,
        });
        calls::make(host.outside(), receivers.netrt.address, &few).map(drop)
    }

    fn longest_s(&self, load: Load) -> f64 {
        calls::longest_s(&calls::calls(load))
    }

    fn put_load(&self, host: &EmulatedHost, receivers: &Receivers, load: Load) -> Result<Run> {
        let calls: Calls = calls::calls(load);
        calls::make(host.outside(), receivers.netrt.address, &calls)
    }
}

fn run(laboratory: &Laboratory, options: &Options, observer: &dyn Observer) -> Result<Outcome> {
    calls::require_programs()?;
    service::outcome(laboratory, options, &Kamailio, observer, latencies_of)
}

/// Delays of all messages, and beside the stream of each message by itself.
fn latencies_of(
    method: ComparedMethod,
    beside: Beside,
    samples: &[&Sample<Run>],
) -> Vec<Latencies> {
    let of = |cell: String, message: Option<Message>| {
        let counts = |it: Message| message.is_none_or(|wanted| wanted == it);
        let delays = |sample: &&Sample<Run>| -> Vec<u64> {
            let delays = sample.run.delays.iter();
            let delays = delays.filter(|Delay { message, .. }| counts(*message));
            delays.map(|it| it.delay_ns).collect()
        };
        let lost = samples.iter().flat_map(|it| &it.run.lost);
        Latencies {
            row: method.to_string(),
            cell,
            rounds: samples.iter().map(delays).collect(),
            lost: lost.filter(|&&it| counts(it)).count() as u64,
            counts: Vec::new(),
            deadline_ns: None,
        }
    };
    let mut found = vec![of(format!("all six messages, {beside}"), None)];
    if beside == Beside::NetStream {
        let each = MESSAGES.into_iter();
        found.extend(each.map(|it| of(format!("{it}, {beside}"), Some(it))));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_shown_together_and_beside_the_stream_one_by_one() {
        let delay = |message, delay_ns| Delay {
            message,
            call: 0,
            delay_ns,
        };
        let round = Sample {
            run: Run {
                delays: vec![delay(Message::Invite, 5), delay(Message::Bye, 7)],
                lost: vec![Message::Bye],
                calls: 2,
            },
            mbit_per_s: None,
            cpu_busy_fraction: 0.0,
        };
        let method = "preempt-rt".parse().unwrap();
        let alone = latencies_of(method, Beside::Nothing, &[&round]);
        assert_eq!((alone.len(), &alone[0].rounds), (1, &vec![vec![5, 7]]));
        assert_eq!(alone[0].lost, 1);
        let beside = latencies_of(method, Beside::NetStream, &[&round, &round]);
        assert_eq!(beside.len(), 1 + MESSAGES.len());
        let bye = beside.iter().find(|it| it.cell.starts_with("BYE")).unwrap();
        assert_eq!((&bye.rounds, bye.lost), (&vec![vec![7], vec![7]], 2));
        let ack = beside.iter().find(|it| it.cell.starts_with("ACK")).unwrap();
        assert_eq!((&ack.rounds, ack.lost), (&vec![vec![], vec![]], 0));
    }
}
