//! `[[service]]` and `[[flow]]`.

use std::fmt;

use serde::de::{self, IntoDeserializer};
use serde::{Deserialize, Deserializer};

use crate::duration::TIME;
use crate::{Count, Written};

table! {
    section "`[[service]]`";
    #[serde(expecting = "an object that describes a service")]
    pub struct Service {
        /// for messages
        name: Option<String> = "its number",
        /// its VM; with `c` and `t` one of that name is made if there is none
        vm: String = "needed",
        /// the task of the VM that answers
        task: Option<String> = "none",
        /// instead of `task`, the task itself: execution of one request
        c: Option<Written> = "none",
        /// the same: its deadline
        d: Option<Written> = "`t`",
        /// the same: least time between two requests
        t: Option<Written> = "none",
        /// longest latency; a longer bound makes the plan infeasible
        limit: Option<Written> = "none",
        /// the way in
        #[serde(default)]
        receive: Receive = "all 0",
        /// from the guest's wake-up to its task: work of the VCPU before all tasks
        wake: Option<Written> = "0",
        /// the way back
        send: Option<Send> = "0",
    }
}

table! {
    section "`receive`";
    #[serde(default)]
    pub struct Receive {
        /// the hard interrupt
        interrupt: Option<Written> = "calibrated, or 0",
        /// one packet
        packet: Option<Written> = "0",
        /// less urgent packets in service
        batch: Count = "1",
        /// packets in front; with `on` it is computed, and giving it is refused
        ahead: Count = "0",
        /// shortest time to the guest
        least: Written = "0",
        /// the path that it shares with other streams
        on: Option<String> = "none",
        /// its level on that path; higher is more urgent
        level: Count = "0",
    }
}

table! {
    section "`send`";
    #[serde(default, expecting = "an object of a way back")]
    pub struct SendParts {
        /// the guest's transmit path: work of the task
        guest: Option<Written> = "0",
        /// vhost, or the outsourced send
        host: Option<Written> = "0",
        /// the card and its wire
        nic: Option<Written> = "0",
        /// as of `receive`
        on: Option<String> = "none",
        /// as of `receive`
        level: Count = "0",
        /// as of `receive`
        packet: Written = "0",
        /// as of `receive`
        batch: Count = "1",
        /// as of `receive`
        interrupt: Written = "0",
    }
}

table! {
    section "`[[flow]]`";
    #[serde(expecting = "an object that describes a flow")]
    pub struct Flow {
        /// for messages
        name: Option<String> = "its number",
        /// the path
        on: String = "needed",
        /// its level there
        #[serde(default = "no_level")]
        level: Count = "0",
        /// cost of one packet
        packet: Written = "needed",
        /// a packet every `t`
        t: Written = "needed",
        /// up to this much late; n at once are a jitter of n - 1 times `t`
        #[serde(default)]
        jitter: Written = "0",
    }
}

const fn no_level() -> Count {
    Count(0)
}

/// The way back: one time, or its parts.
#[derive(Debug, Clone)]
pub enum Send {
    /// The time.
    Time(Written),
    /// Its parts.
    Parts(Box<SendParts>),
}

impl Default for Receive {
    fn default() -> Self {
        Self {
            interrupt: None,
            packet: None,
            batch: Count(1),
            ahead: Count(0),
            least: Written(0),
            on: None,
            level: Count(0),
        }
    }
}

impl Default for SendParts {
    fn default() -> Self {
        let none = Written(0);
        Self {
            guest: None,
            host: None,
            nic: None,
            on: None,
            level: Count(0),
            packet: none,
            batch: Count(1),
            interrupt: none,
        }
    }
}

impl<'de> Deserialize<'de> for Send {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Send;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a time such as \"10us\", or { guest = .., host = .., nic = .., on = .., .. }",
                )
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                deserializer: D,
            ) -> Result<Send, D::Error> {
                deserializer.deserialize_any(self)
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Send, E> {
                Ok(Send::Time(Written(value)))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Send, E> {
                Written::deserialize(value.into_deserializer()).map(Send::Time)
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Send, E> {
                Written::deserialize(value.into_deserializer()).map(Send::Time)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Send, A::Error> {
                let deserializer = de::value::MapAccessDeserializer::new(map);
                SendParts::deserialize(deserializer).map(|parts| Send::Parts(Box::new(parts)))
            }
        }

        deserializer.deserialize_newtype_struct(TIME, Visitor)
    }
}
