//! What steadyvm's measurements put on a host, and what each load tells of it.
//!
//! [`netrt`] measures: a UDP request/response service under requests at random intervals, every
//! round trip kept. [`netstream`] describes the bulk traffic beside it (iperf3) and reads what it
//! reports. [`mmpp`], [`flood`], [`stream`] and [`job`] are the loads of the experiment of NISP: bursts
//! of packets or a TCP stream for one process, next to a periodic job of another. [`workload`] runs such jobs, and
//! sporadic ones that take as long as they like or need the caches ([`computation`]). [`end_to_end`] is a job over two
//! machines. [`memcached`] sends a key-value store its requests, [`sip`] a SIP server its calls.
//! [`connections`] are a machine's to itself. [`layer2`] publishes and subscribes a substation's Sampled Values and GOOSE. [`attack`] is what somebody who means harm does.
//!
//! The crate starts no process and knows no namespace: callers hand it sockets and text. It knows no
//! experiment either.
#![forbid(unsafe_code)]

pub mod attack;
pub mod computation;
pub mod connections;
pub mod end_to_end;
pub mod flood;
pub mod job;
pub mod layer2;
pub mod memcached;
pub mod mmpp;
pub mod netrt;
pub mod netstream;
pub mod sip;
pub mod stream;
pub mod workload;
