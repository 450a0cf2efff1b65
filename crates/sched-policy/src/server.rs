//! One server.

use crate::{Host, Kind, MAX_CPUS, MAX_REPLENISHMENTS, Parameters, ParametersError};

unsafe extern "C" {
    // Each reads or writes only what its pointers point to, and keeps no pointer.
    fn steadyvm_policy_init(
        server: *mut Server,
        parameters: *const Parameters,
        cpus: *const u64,
        now: u64,
    ) -> u32;
    fn steadyvm_policy_set_parameters(
        server: *mut Server,
        parameters: *const Parameters,
        now: u64,
    ) -> u32;
    fn steadyvm_policy_wake(server: *mut Server, now: u64, least_virtual_runtime: u64);
    fn steadyvm_policy_block(server: *mut Server, now: u64);
    fn steadyvm_policy_advance(server: *mut Server, now: u64);
    fn steadyvm_policy_account(server: *mut Server, ran: u64, now: u64);
    fn steadyvm_policy_account_lent(holder: *mut Server, ran: u64, now: u64);
    fn steadyvm_policy_account_borrowed(
        holder_kind: u32,
        borrower: *mut Server,
        ran: u64,
        now: u64,
    );
    fn steadyvm_policy_remaining(server: *const Server, now: u64) -> u64;
    fn steadyvm_policy_runnable(server: *const Server, now: u64) -> u32;
    fn steadyvm_policy_claims(server: *const Server, now: u64) -> u32;
    fn steadyvm_policy_may_borrow(holder_kind: u32, borrower: *const Server, now: u64) -> u32;
    fn steadyvm_policy_key(server: *const Server, host: *const Host) -> u64;
    fn steadyvm_policy_next_event(server: *const Server, now: u64, holds: u32) -> u64;
    fn steadyvm_policy_home(server: *const Server) -> u32;
    fn steadyvm_policy_check(server: *const Server) -> u32;
}

const WORDS: usize = (MAX_CPUS / 64) as usize;
/// A set of CPUs below [`MAX_CPUS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct CpuSet([u64; WORDS]);

impl CpuSet {
    /// CPUs 0 to `count` - 1.
    pub fn first(count: u32) -> Self {
        (0..count.min(MAX_CPUS)).collect()
    }

    /// Whether `cpu` is in the set.
    pub fn contains(&self, cpu: u32) -> bool {
        cpu < MAX_CPUS && self.0[cpu as usize / 64] >> (cpu % 64) & 1 == 1
    }

    /// Whether no CPU is.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }
}

impl FromIterator<u32> for CpuSet {
    /// CPUs from [`MAX_CPUS`] on are left out.
    fn from_iter<T: IntoIterator<Item = u32>>(cpus: T) -> Self {
        let mut set = Self::default();
        for cpu in cpus.into_iter().filter(|&cpu| cpu < MAX_CPUS) {
            set.0[cpu as usize / 64] |= 1 << (cpu % 64);
        }
        set
    }
}

/// `struct policy_replenishment`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(C)]
pub(crate) struct Replenishment {
    time_ns: u64,
    amount_ns: u64,
}

/// `struct policy_server`: a VCPU's parameters and state.
///
/// What happens to it is told in order of time. `now` of an earlier time than before is wrong use: the answers are then
/// of no meaning, but nothing else happens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Server {
    parameters: Parameters,
    pub(crate) remaining_ns: i64,
    release_ns: u64,
    deadline_ns: u64,
    pub(crate) virtual_runtime_ns: u64,
    supplied_ns: u64,
    pub(crate) cpus: CpuSet,
    pub(crate) ready: u32,
    head: u32,
    count: u32,
    begun: u32,
    pub(crate) queue: [Replenishment; MAX_REPLENISHMENTS],
}

// SAFETY of every call below: the pointers come from references to live values of the C types (layout test), are not
// kept, and the C functions stay inside them: array positions are masked or below a constant bound.
impl Server {
    /// A server without work, with its whole budget, on `cpus`.
    ///
    /// # Errors
    /// None for [`Parameters`] made by its functions.
    pub fn new(parameters: &Parameters, cpus: &CpuSet, now: u64) -> Result<Self, ParametersError> {
        let mut server = Self {
            parameters: *parameters,
            remaining_ns: 0,
            release_ns: 0,
            deadline_ns: 0,
            virtual_runtime_ns: 0,
            supplied_ns: 0,
            cpus: *cpus,
            ready: 0,
            head: 0,
            count: 0,
            begun: 0,
            queue: [Replenishment::default(); MAX_REPLENISHMENTS],
        };
        // SAFETY: see above.
        let code =
            unsafe { steadyvm_policy_init(&raw mut server, parameters, cpus.0.as_ptr(), now) };
        ParametersError::check(code).map(|()| server)
    }

    /// New parameters; what is used stays used.
    ///
    /// # Errors
    /// None for [`Parameters`] made by its functions.
    pub fn set_parameters(
        &mut self,
        parameters: &Parameters,
        now: u64,
    ) -> Result<(), ParametersError> {
        // SAFETY: see above.
        ParametersError::check(unsafe { steadyvm_policy_set_parameters(self, parameters, now) })
    }

    /// The VCPU has work.
    pub fn wake(&mut self, now: u64, least_virtual_runtime_ns: u64) {
        // SAFETY: see above.
        unsafe { steadyvm_policy_wake(self, now, least_virtual_runtime_ns) }
    }

    /// The VCPU has no more work.
    pub fn block(&mut self, now: u64) {
        // SAFETY: see above.
        unsafe { steadyvm_policy_block(self, now) }
    }

    /// Replenishments due by `now` are applied.
    pub fn advance(&mut self, now: u64) {
        // SAFETY: see above.
        unsafe { steadyvm_policy_advance(self, now) }
    }

    /// It ran for `ran_ns` up to `now`, on its own account.
    pub fn account(&mut self, ran_ns: u64, now: u64) {
        // SAFETY: see above.
        unsafe { steadyvm_policy_account(self, ran_ns, now) }
    }

    /// Without work, it held a CPU for `ran_ns` up to `now`.
    pub fn account_lent(&mut self, ran_ns: u64, now: u64) {
        // SAFETY: see above.
        unsafe { steadyvm_policy_account_lent(self, ran_ns, now) }
    }

    /// It ran for `ran_ns` up to `now` on the CPU of an idle server of `holder` kind.
    pub fn account_borrowed(&mut self, holder: Kind, ran_ns: u64, now: u64) {
        // SAFETY: see above.
        unsafe { steadyvm_policy_account_borrowed(holder as u32, self, ran_ns, now) }
    }

    /// What is left to use, ns.
    pub fn remaining_ns(&self, now: u64) -> u64 {
        // SAFETY: see above.
        unsafe { steadyvm_policy_remaining(self, now) }
    }

    /// It has work, and budget or needs none.
    pub fn is_runnable(&self, now: u64) -> bool {
        // SAFETY: see above.
        unsafe { steadyvm_policy_runnable(self, now) != 0 }
    }

    /// It takes part in the choice of who holds a CPU.
    pub fn claims(&self, now: u64) -> bool {
        // SAFETY: see above.
        unsafe { steadyvm_policy_claims(self, now) != 0 }
    }

    /// Whether it may run while a server of kind `holder` idles its budget away.
    pub fn may_borrow_from(&self, holder: Kind, now: u64) -> bool {
        // SAFETY: `self` is a live value of the C type (layout test), which the function only reads.
        unsafe { steadyvm_policy_may_borrow(holder as u32, self, now) != 0 }
    }

    /// The queue key: less is first.
    pub fn key(&self, host: &Host) -> u64 {
        // SAFETY: see above.
        unsafe { steadyvm_policy_key(self, host) }
    }

    /// When it next changes by itself, exactly; [`crate::NEVER`] if it does not.
    pub fn next_event(&self, now: u64, holds: bool) -> u64 {
        // SAFETY: see above.
        unsafe { steadyvm_policy_next_event(self, now, holds.into()) }
    }

    /// The first CPU it may run on; [`MAX_CPUS`] if none.
    pub fn home(&self) -> u32 {
        // SAFETY: see above.
        unsafe { steadyvm_policy_home(self) }
    }

    /// Whether its budget is conserved (the invariant of `struct policy_server`).
    pub fn is_consistent(&self) -> bool {
        // SAFETY: see above.
        unsafe { steadyvm_policy_check(self) != 0 }
    }

    /// The same server at `now` on a clock that is `by` behind, with what makes no difference any more made alike: for who
    /// looks through all states. All that is due by `now` is applied first.
    #[must_use]
    pub fn rebased(mut self, now: u64, by: u64) -> Self {
        self.advance(now);
        let kind = self.parameters.kind();
        let (asleep, last) = (self.ready == 0, self.count as usize);
        self.queue
            .rotate_left(self.head as usize % MAX_REPLENISHMENTS);
        self.head = 0;
        self.supplied_ns = 0;
        self.virtual_runtime_ns = 0;
        match kind {
            Kind::Sporadic => {
                (self.release_ns, self.deadline_ns) = (0, 0);
                for piece in &mut self.queue[..last] {
                    // Whatever is due as it wakes counts from then.
                    if asleep {
                        piece.time_ns = piece.time_ns.max(now);
                    }
                    piece.time_ns -= by;
                }
                self.queue[last..].fill(Replenishment::default());
            }
            Kind::ConstantBandwidth => {
                // It begins anew as it wakes.
                if asleep && self.remaining_ns > 0 && self.deadline_ns <= now {
                    self.remaining_ns = self.parameters.budget_ns() as i64;
                    self.deadline_ns = now;
                }
                self.release_ns = 0;
                self.deadline_ns -= by;
                self.queue.fill(Replenishment::default());
            }
            _ => {
                self.release_ns -= by;
                self.deadline_ns -= by;
                self.queue.fill(Replenishment::default());
            }
        }
        self
    }

    /// The same server on a clock that is `by` behind; of one whose periods come by the clock.
    #[must_use]
    pub fn rebased_as_it_is(mut self, by: u64) -> Self {
        self.release_ns -= by;
        self.deadline_ns -= by;
        self.supplied_ns = 0;
        self.queue.fill(Replenishment::default());
        self
    }

    /// Its parameters.
    pub const fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Whether it has work.
    pub const fn is_ready(&self) -> bool {
        self.ready != 0
    }

    /// All time it ran, ns.
    pub const fn supplied_ns(&self) -> u64 {
        self.supplied_ns
    }

    /// Time run as non-RT divided by its weight in shares, ns.
    pub const fn virtual_runtime_ns(&self) -> u64 {
        self.virtual_runtime_ns
    }

    /// Where it may run.
    pub const fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// Restricts it to other CPUs.
    pub const fn set_cpus(&mut self, cpus: CpuSet) {
        self.cpus = cpus;
    }
}
