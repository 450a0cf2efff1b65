//! Parameters of a server and of the host.

use crate::ParametersError;

unsafe extern "C" {
    // Each reads or writes only what its pointers point to, and keeps no pointer.
    fn steadyvm_policy_validate(parameters: *const Parameters) -> u32;
}

/// How a server's budget is used and replenished (`enum policy_kind`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Kind {
    /// Keeps unused budget to the end of the period.
    Deferrable = 0,
    /// Purely time-driven (PTPS): idles its budget away.
    Periodic = 1,
    /// WCPS: idle budget lets servers of lower priority run on theirs.
    WorkConserving = 2,
    /// CRPS: idle budget is given to any other server.
    CapacityReclaiming = 3,
    /// Discards budget that it has no work for.
    Polling = 4,
    /// What was used comes back one period after the server had work and budget.
    Sporadic = 5,
    /// Hard constant-bandwidth server, as `SCHED_DEADLINE`.
    ConstantBandwidth = 6,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Deferrable,
        Self::Periodic,
        Self::WorkConserving,
        Self::CapacityReclaiming,
        Self::Polling,
        Self::Sporadic,
        Self::ConstantBandwidth,
    ];

    /// The word of plan files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Deferrable => "deferrable",
            Self::Periodic => "periodic",
            Self::WorkConserving => "work-conserving",
            Self::CapacityReclaiming => "capacity-reclaiming",
            Self::Polling => "polling",
            Self::Sporadic => "sporadic",
            Self::ConstantBandwidth => "cbs",
        }
    }

    /// Whether an idle server uses its budget up.
    pub const fn idles(self) -> bool {
        matches!(
            self,
            Self::Periodic | Self::WorkConserving | Self::CapacityReclaiming
        )
    }
}

/// What orders real-time servers (`enum policy_order`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Order {
    /// By absolute deadline.
    EarliestDeadline = 0,
    /// By relative deadline.
    DeadlineMonotonic = 1,
    /// By period.
    RateMonotonic = 2,
    /// By [`Parameters::priority`], 0 first.
    Explicit = 3,
}

/// `struct policy_host`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Host {
    order: Order,
    partitioned: u32,
    /// Budget events are seen at its multiples; 0: at exact times.
    pub quantum_ns: u64,
}

impl Host {
    /// A host with one queue, or `partitioned`, one a CPU.
    pub const fn new(order: Order, partitioned: bool, quantum_ns: u64) -> Self {
        Self {
            order,
            partitioned: partitioned as u32,
            quantum_ns,
        }
    }

    /// What orders real-time servers.
    pub const fn order(&self) -> Order {
        self.order
    }

    /// Whether each server has one CPU of its own queue.
    pub const fn is_partitioned(&self) -> bool {
        self.partitioned != 0
    }
}

/// `struct policy_parameters`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Parameters {
    budget_ns: u64,
    period_ns: u64,
    deadline_ns: u64,
    kind: u32,
    priority: u32,
    rt: u32,
    weight: u32,
}

impl Parameters {
    /// What a non-RT VCPU of one share has as weight.
    pub const WEIGHT_ONE: u32 = 1024;

    /// A real-time server with deadline = period and priority 0.
    ///
    /// # Errors
    /// A budget of 0 or above the period, a period above 4.294 s.
    pub fn new(kind: Kind, budget_ns: u64, period_ns: u64) -> Result<Self, ParametersError> {
        Self {
            budget_ns,
            period_ns,
            deadline_ns: period_ns,
            kind: kind as u32,
            priority: 0,
            rt: 1,
            weight: Self::WEIGHT_ONE,
        }
        .checked()
    }

    /// A VCPU that is not real-time, of `weight` / 1024 shares.
    ///
    /// # Errors
    /// A weight that is not within 1 to 10,000.
    pub fn best_effort(weight: u32) -> Result<Self, ParametersError> {
        Self {
            rt: 0,
            weight,
            ..Self::new(Kind::Deferrable, 1, 1_000_000)?
        }
        .checked()
    }

    /// The same with a relative deadline below the period.
    ///
    /// # Errors
    /// A deadline below the budget or above the period, or a constant-bandwidth server.
    pub fn with_deadline(self, deadline_ns: u64) -> Result<Self, ParametersError> {
        Self {
            deadline_ns,
            ..self
        }
        .checked()
    }

    /// The same with a priority, 0 first: of [`Order::Explicit`]; under the monotonic orders, among equal durations.
    #[must_use]
    pub const fn with_priority(self, priority: u32) -> Self {
        Self { priority, ..self }
    }

    /// The same of another kind.
    ///
    /// # Errors
    /// A constant-bandwidth server with a deadline below its period.
    pub fn with_kind(self, kind: Kind) -> Result<Self, ParametersError> {
        Self {
            kind: kind as u32,
            ..self
        }
        .checked()
    }

    /// As the record of a RUN holds its order and its key, and that of a HOST its order and its quantum.
    #[cfg(test)]
    pub(crate) const fn of_event(self, order: Order, period_ns: u64) -> Self {
        Self {
            kind: order as u32,
            period_ns,
            ..self
        }
    }

    /// As the record of a RUN holds the kind of the idle holder.
    #[cfg(test)]
    pub(crate) const fn with_holder(self, kind: Kind) -> Self {
        Self {
            priority: kind as u32,
            ..self
        }
    }

    fn checked(self) -> Result<Self, ParametersError> {
        // SAFETY: points to a live value of the C type (layout test).
        ParametersError::check(unsafe { steadyvm_policy_validate(&raw const self) }).map(|()| self)
    }

    /// Budget, ns in each period.
    pub const fn budget_ns(&self) -> u64 {
        self.budget_ns
    }

    /// Period, ns.
    pub const fn period_ns(&self) -> u64 {
        self.period_ns
    }

    /// Relative deadline, ns.
    pub const fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// The kind of server.
    pub fn kind(&self) -> Kind {
        Kind::ALL[self.kind as usize % Kind::ALL.len()]
    }

    /// Orders servers of equal key, or what a record keeps there.
    pub const fn priority(&self) -> u32 {
        self.priority
    }

    /// Whether it comes before all non-RT servers, within its budget.
    pub const fn is_rt(&self) -> bool {
        self.rt != 0
    }
}
