/// Why parameters are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParametersError {
    /// A budget of 0.
    #[error("the budget is 0; a server needs at least 1 ns")]
    BudgetIsZero,
    /// More budget than fits before the deadline.
    #[error("the budget is longer than the deadline; a VCPU runs on one CPU at a time")]
    BudgetAboveDeadline,
    /// A deadline behind the period's end.
    #[error("the deadline is longer than the period; shorten it")]
    DeadlineAbovePeriod,
    /// A period whose products do not fit 64 bits.
    #[error("the period is longer than 4.294 s; use a shorter one with the same share")]
    PeriodTooLong,
    /// Not a kind of server.
    #[error("no such kind of server")]
    UnknownKind,
    /// A weight of 0 or above 10,000.
    #[error("the weight is not within 1 to 10,000")]
    WeightOutOfRange,
    /// A constant-bandwidth server with a deadline before its period's end.
    #[error("a constant-bandwidth server's deadline is its period; leave the deadline out")]
    DeadlineBelowPeriod,
}

impl ParametersError {
    /// `enum policy_error`.
    pub(crate) fn check(code: u32) -> Result<(), Self> {
        match code {
            0 => Ok(()),
            1 => Err(Self::BudgetIsZero),
            2 => Err(Self::BudgetAboveDeadline),
            3 => Err(Self::DeadlineAbovePeriod),
            4 => Err(Self::PeriodTooLong),
            6 => Err(Self::WeightOutOfRange),
            7 => Err(Self::DeadlineBelowPeriod),
            _ => Err(Self::UnknownKind),
        }
    }
}
