//! Multi-supply functions: a VM described by the supply of each of its VCPUs.
//!
//! Model: VCPUs with budgets and periods of their own, no common phase. Formula: each VCPU keeps its
//! sbf_PRM; `best(l, t)` is the sum of the l largest values at t; the VM's total is the sum of all.
//!
//! Complexity: O(n log n) a value for n VCPUs. Source: Bini, Buttazzo and Bertogna, RTCSA 2009.

use super::{PeriodicResource, Supply};
use crate::{
    error::Error,
    time::{Amount, MAX_INSTANT, Time},
};

/// The supplies of a VM's VCPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MultiSupply {
    vcpus: Vec<PeriodicResource>,
}

impl MultiSupply {
    /// The supply of these VCPUs.
    ///
    /// # Errors
    /// No VCPU.
    pub fn new(vcpus: Vec<PeriodicResource>) -> Result<Self, Error> {
        if vcpus.is_empty() {
            return Err(Error::Empty {
                what: "the list of VCPUs",
                advice: "give at least one",
            });
        }
        Ok(Self { vcpus })
    }

    /// The VCPUs.
    pub fn vcpus(&self) -> &[PeriodicResource] {
        &self.vcpus
    }

    /// For l = 1, 2, ..., the sum of the l largest supplies in a window.
    pub fn by_parallelism(&self, window: Time) -> Vec<Amount> {
        let mut supplies: Vec<Amount> = self.vcpus.iter().map(|v| v.supply(window)).collect();
        supplies.sort_unstable_by(|a, b| b.cmp(a));
        supplies
            .iter()
            .scan(0, |sum, supply| {
                *sum += supply;
                Some(*sum)
            })
            .collect()
    }
}

/// The inverse of a supply bound function by bisection, between instants its line bounds.
pub(super) fn window_by_bisection(supply: &impl Supply, amount: Amount) -> Option<Time> {
    if amount <= 0 {
        return Some(0);
    }
    let line = supply.lower_line();
    if line.rate.numerator == 0 {
        return None;
    }
    let scaled = amount
        .checked_mul(line.rate.denominator)?
        .checked_add(line.offset)?;
    let above = crate::time::div_ceil_wide(scaled, line.rate.numerator);
    let mut high = Time::try_from(above).ok().filter(|&t| t <= MAX_INSTANT)?;
    let mut low = 0;
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if supply.supply(middle) >= amount {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}
