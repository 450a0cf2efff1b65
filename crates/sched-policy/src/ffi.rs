//! The C side: types of `policy/types.h` and `policy/event.h`, functions of `exports.c`.
//!
//! The types are written here again; the test `layout_is_that_of_c` compares sizes, alignments and offsets with
//! what the C compiler laid out.

#[cfg(test)]
use crate::Event;
use crate::{Host, Parameters, Server};

unsafe extern "C" {
    #[cfg(test)]
    pub(crate) static steadyvm_policy_layout: [u64; 18];

    // Each reads or writes only what its pointers point to, and keeps no pointer.
    pub(crate) fn steadyvm_policy_validate(parameters: *const Parameters) -> u32;
    pub(crate) fn steadyvm_policy_init(
        server: *mut Server,
        parameters: *const Parameters,
        cpus: *const u64,
        now: u64,
    ) -> u32;
    pub(crate) fn steadyvm_policy_set_parameters(
        server: *mut Server,
        parameters: *const Parameters,
        now: u64,
    ) -> u32;
    pub(crate) fn steadyvm_policy_wake(server: *mut Server, now: u64, least_virtual_runtime: u64);
    pub(crate) fn steadyvm_policy_block(server: *mut Server, now: u64);
    pub(crate) fn steadyvm_policy_advance(server: *mut Server, now: u64);
    pub(crate) fn steadyvm_policy_account(server: *mut Server, ran: u64, now: u64);
    pub(crate) fn steadyvm_policy_account_lent(holder: *mut Server, ran: u64, now: u64);
    pub(crate) fn steadyvm_policy_account_borrowed(
        holder_kind: u32,
        borrower: *mut Server,
        ran: u64,
        now: u64,
    );
    pub(crate) fn steadyvm_policy_remaining(server: *const Server, now: u64) -> u64;
    pub(crate) fn steadyvm_policy_runnable(server: *const Server, now: u64) -> u32;
    pub(crate) fn steadyvm_policy_claims(server: *const Server, now: u64) -> u32;
    pub(crate) fn steadyvm_policy_may_borrow(
        holder_kind: u32,
        borrower: *const Server,
        now: u64,
    ) -> u32;
    pub(crate) fn steadyvm_policy_key(server: *const Server, host: *const Host) -> u64;
    pub(crate) fn steadyvm_policy_next_event(server: *const Server, now: u64, holds: u32) -> u64;
    pub(crate) fn steadyvm_policy_at_quantum(time: u64, quantum: u64) -> u64;
    pub(crate) fn steadyvm_policy_preempts(key: u64, holder_key: u64) -> u32;
    pub(crate) fn steadyvm_policy_home(server: *const Server) -> u32;
    pub(crate) fn steadyvm_policy_check(server: *const Server) -> u32;
}

/// What `exports.c` lists, as Rust lays it out.
#[cfg(test)]
pub(crate) fn layout() -> Vec<u64> {
    use crate::Replenishment;
    use std::mem::{align_of, offset_of, size_of};
    [
        size_of::<Parameters>(),
        align_of::<Parameters>(),
        size_of::<Host>(),
        align_of::<Host>(),
        size_of::<Replenishment>(),
        align_of::<Replenishment>(),
        size_of::<Server>(),
        align_of::<Server>(),
        size_of::<Event>(),
        align_of::<Event>(),
        offset_of!(Server, remaining_ns),
        offset_of!(Server, virtual_runtime_ns),
        offset_of!(Server, cpus),
        offset_of!(Server, ready),
        offset_of!(Server, queue),
        offset_of!(Event, amount_ns),
        offset_of!(Event, parameters),
        offset_of!(Event, cpus),
    ]
    .map(|bytes| bytes as u64)
    .to_vec()
}
