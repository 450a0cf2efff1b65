//! The tracepoints of the receive path, decoded.

use crate::format::{Field, Format};
use crate::name::Name;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;

/// A tracepoint that was passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, in nanoseconds of the monotonic clock.
    pub time_ns: u64,
    /// The thread that ran; 0 is the idle task.
    pub tid: u32,
    /// What happened.
    pub kind: Kind,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A device's hard interrupt begins. Where interrupts are threaded it only wakes its thread.
    InterruptBegin {
        /// The interrupt's number.
        irq: u32,
        /// Who asked for it.
        name: Name,
    },
    /// It ends.
    InterruptEnd,
    /// The local timer's interrupt begins.
    TimerBegin,
    /// It ends.
    TimerEnd,
    /// A thread, or a hard interrupt on its way out, begins to work off a softirq vector.
    SoftirqBegin {
        /// The vector's number.
        vector: u32,
    },
    /// It is done with the vector.
    SoftirqEnd,
    /// A NAPI instance has been polled.
    PollEnd {
        /// The instance's address.
        napi: u64,
        /// Its device; empty for the backlog, which has none.
        device: Name,
        /// Packets that the poll took.
        packets: u32,
    },
    /// A packet leaves its driver for the network stack.
    Packet {
        /// The device it is received on.
        device: Name,
    },
    /// A driver has taken a packet to send.
    Sent {
        /// The device it is sent on.
        device: Name,
    },
    /// A socket, or a tap device's reader, is told that there is data.
    SocketReady,
    /// A sleeping thread is woken.
    Wake {
        /// The thread.
        tid: u32,
        /// Its name.
        comm: Name,
    },
    /// The CPU goes on with another thread.
    Switch {
        /// The thread that stops, which is also the event's.
        from_comm: Name,
        /// The thread that runs from now on.
        to: u32,
        /// Its name.
        to_comm: Name,
        /// Its priority.
        to_priority: Priority,
    },
    /// The thread finds a lock taken and waits.
    ContentionBegin {
        /// The lock's address.
        lock: u64,
    },
    /// It has the lock, or gives up.
    ContentionEnd,
    /// The thread lends its priority to the owner of a lock it waits for, or the owner gives it
    /// back.
    PriorityLent {
        /// The owner.
        tid: u32,
        /// The owner's name.
        owner: Name,
        /// The owner's priority from now on.
        priority: Priority,
    },
}

/// A thread's priority as the scheduler's events show it: below 0 deadline, below 100 real-time (98
/// is FIFO 1, 0 is FIFO 99), above normal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Priority(pub i32);

impl Default for Priority {
    /// That of a normal thread with nice 0.
    fn default() -> Self {
        Self(120)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ..0 => formatter.pad("deadline"),
            kernel @ 0..100 => formatter.pad(&format!("rt {}", 99 - kernel)),
            _ => formatter.pad("normal"),
        }
    }
}

/// The tracepoints that are decoded: system and name, and whether no measurement is possible
/// without. Which fields they have is checked in [`Decoder::add`].
pub const TRACEPOINTS: [(&str, &str, bool); 15] = [
    ("irq", "irq_handler_entry", true),
    ("irq", "irq_handler_exit", true),
    ("irq_vectors", "local_timer_entry", false),
    ("irq_vectors", "local_timer_exit", false),
    ("irq", "softirq_entry", true),
    ("irq", "softirq_exit", true),
    ("napi", "napi_poll", true),
    ("net", "netif_receive_skb", true),
    ("net", "net_dev_xmit", false),
    ("sock", "sk_data_ready", true),
    ("sched", "sched_waking", true),
    ("sched", "sched_switch", true),
    ("lock", "contention_begin", false),
    ("lock", "contention_end", false),
    ("sched", "sched_pi_setprio", false),
];

/// Turns payloads into events.
#[derive(Debug, Default)]
pub struct Decoder {
    layouts: HashMap<u16, Layout>,
}

/// A tracepoint's thread and what else is read of it.
#[derive(Debug)]
struct Layout {
    tid: Field,
    reading: Reading,
}

#[derive(Debug)]
enum Reading {
    Fixed(Kind),
    InterruptBegin {
        irq: Field,
        name: Field,
    },
    SoftirqBegin {
        vector: Field,
    },
    PollEnd {
        napi: Field,
        device: Field,
        packets: Field,
    },
    Packet {
        device: Field,
    },
    Sent {
        device: Field,
        code: Field,
    },
    Wake {
        tid: Field,
        comm: Field,
    },
    Switch {
        from_comm: Field,
        to: Field,
        to_comm: Field,
        to_priority: Field,
    },
    ContentionBegin {
        lock: Field,
    },
    PriorityLent {
        tid: Field,
        owner: Field,
        priority: Field,
    },
}

/// The backlog's NAPI instances have no device; this is what the tracepoint prints for it.
const NO_DEVICE: &str = "(no_device)";

impl Decoder {
    /// Learns a tracepoint of [`TRACEPOINTS`] by its format. Gives the field that is missing, if
    /// one is.
    pub fn add(&mut self, tracepoint: &str, format: &Format) -> Result<(), String> {
        let field = |name: &str| format.field(name).ok_or_else(|| name.to_owned());
        let reading = match tracepoint {
            "irq_handler_entry" => Reading::InterruptBegin {
                irq: field("irq")?,
                name: field("name")?,
            },
            "irq_handler_exit" => Reading::Fixed(Kind::InterruptEnd),
            "local_timer_entry" => Reading::Fixed(Kind::TimerBegin),
            "local_timer_exit" => Reading::Fixed(Kind::TimerEnd),
            "softirq_entry" => Reading::SoftirqBegin {
                vector: field("vec")?,
            },
            "softirq_exit" => Reading::Fixed(Kind::SoftirqEnd),
            "napi_poll" => Reading::PollEnd {
                napi: field("napi")?,
                device: field("dev_name")?,
                packets: field("work")?,
            },
            "netif_receive_skb" => Reading::Packet {
                device: field("name")?,
            },
            "net_dev_xmit" => Reading::Sent {
                device: field("name")?,
                code: field("rc")?,
            },
            "sk_data_ready" => Reading::Fixed(Kind::SocketReady),
            "sched_waking" => Reading::Wake {
                tid: field("pid")?,
                comm: field("comm")?,
            },
            "sched_switch" => Reading::Switch {
                from_comm: field("prev_comm")?,
                to: field("next_pid")?,
                to_comm: field("next_comm")?,
                to_priority: field("next_prio")?,
            },
            "contention_begin" => Reading::ContentionBegin {
                lock: field("lock_addr")?,
            },
            "contention_end" => Reading::Fixed(Kind::ContentionEnd),
            "sched_pi_setprio" => Reading::PriorityLent {
                tid: field("pid")?,
                owner: field("comm")?,
                priority: field("newprio")?,
            },
            other => return Err(format!("{other} is not known here")),
        };
        let tid = field("common_pid")?;
        self.layouts.insert(format.id, Layout { tid, reading });
        Ok(())
    }

    /// Decodes one payload; `None` if it is cut, of an unknown tracepoint, or says that nothing happened.
    pub fn decode(&self, time_ns: u64, payload: &[u8]) -> Option<Event> {
        let id = u16::from_le_bytes(payload.get(..2)?.try_into().ok()?);
        let layout = self.layouts.get(&id)?;
        let number = |field: &Field| field.number(payload).map(|number| number as u32);
        let name = |field: &Field| field.bytes(payload).map(Name::from_bytes);
        let kind = match &layout.reading {
            Reading::Fixed(kind) => *kind,
            Reading::InterruptBegin { irq, name: by } => Kind::InterruptBegin {
                irq: number(irq)?,
                name: name(by)?,
            },
            Reading::SoftirqBegin { vector } => Kind::SoftirqBegin {
                vector: number(vector)?,
            },
            Reading::PollEnd {
                napi,
                device,
                packets,
            } => Kind::PollEnd {
                napi: napi.number(payload)?,
                device: Some(name(device)?)
                    .filter(|device| *device != NO_DEVICE.into())
                    .unwrap_or_default(),
                packets: number(packets)?,
            },
            Reading::Packet { device } => Kind::Packet {
                device: name(device)?,
            },
            // A driver that is busy gets the packet once more (`NETDEV_TX_OK` is 0).
            Reading::Sent { code, .. } if number(code)? != 0 => return None,
            Reading::Sent { device, .. } => Kind::Sent {
                device: name(device)?,
            },
            Reading::Wake { tid, comm } => Kind::Wake {
                tid: number(tid)?,
                comm: name(comm)?,
            },
            Reading::Switch {
                from_comm,
                to,
                to_comm,
                to_priority,
            } => Kind::Switch {
                from_comm: name(from_comm)?,
                to: number(to)?,
                to_comm: name(to_comm)?,
                to_priority: Priority(number(to_priority)? as i32),
            },
            Reading::ContentionBegin { lock } => Kind::ContentionBegin {
                lock: lock.number(payload)?,
            },
            Reading::PriorityLent {
                tid,
                owner,
                priority,
            } => Kind::PriorityLent {
                tid: number(tid)?,
                owner: name(owner)?,
                priority: Priority(number(priority)? as i32),
            },
        };
        Some(Event {
            time_ns,
            tid: number(&layout.tid)?,
            kind,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n";

    fn format(id: u16, fields: &str) -> Format {
        Format::parse(&format!("ID: {id}\nformat:\n{COMMON}{fields}")).unwrap()
    }

    fn decoder() -> Decoder {
        let mut decoder = Decoder::default();
        let poll = format(
            9,
            "\tfield:struct napi_struct * napi;\toffset:8;\tsize:8;\tsigned:0;\n\
             \tfield:__data_loc char[] dev_name;\toffset:16;\tsize:4;\tsigned:0;\n\
             \tfield:int work;\toffset:20;\tsize:4;\tsigned:1;\n",
        );
        decoder.add("napi_poll", &poll).unwrap();
        decoder.add("softirq_exit", &format(10, "")).unwrap();
        let sent = format(
            11,
            "\tfield:int rc;\toffset:8;\tsize:4;\tsigned:1;\n\
             \tfield:__data_loc char[] name;\toffset:12;\tsize:4;\tsigned:0;\n",
        );
        decoder.add("net_dev_xmit", &sent).unwrap();
        decoder
    }

    #[test]
    fn a_poll_has_device_and_packets_and_the_backlog_no_device() {
        let payload = |device: &[u8]| {
            let mut bytes = vec![9, 0, 0, 0, 42, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0];
            bytes.extend([24, 0, device.len() as u8, 0, 3, 0, 0, 0]);
            bytes.extend(device);
            bytes
        };
        for (written, device) in [(&b"bulk\0"[..], "bulk"), (b"(no_device)\0", "")] {
            assert_eq!(
                decoder().decode(5, &payload(written)),
                Some(Event {
                    time_ns: 5,
                    tid: 42,
                    kind: Kind::PollEnd {
                        napi: 77,
                        device: device.into(),
                        packets: 3
                    }
                })
            );
        }
    }

    #[test]
    fn a_packet_that_a_busy_driver_gives_back_is_not_sent() {
        let payload = |code: u8| {
            let mut bytes = vec![11, 0, 0, 0, 42, 0, 0, 0, code, 0, 0, 0, 16, 0, 5, 0];
            bytes.extend(b"eth1\0");
            decoder().decode(5, &bytes).map(|event| event.kind)
        };
        let device = "eth1".into();
        assert_eq!(payload(0), Some(Kind::Sent { device }));
        assert_eq!(payload(16), None);
    }

    #[test]
    fn a_missing_field_is_named() {
        let missing = Decoder::default().add("napi_poll", &format(9, ""));
        assert_eq!(missing, Err("napi".to_owned()));
    }

    proptest! {
        #[test]
        fn no_payload_panics(mut payload in prop::collection::vec(any::<u8>(), 0..40), id in 8_u8..13) {
            if let Some(first) = payload.first_mut() {
                *first = id;
            }
            let _ = decoder().decode(1, &payload);
        }
    }
}
