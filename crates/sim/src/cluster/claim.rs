//! What a real-time VM takes of a host, as `nova/src/steadyvm_nova/claim.py` and admission.py count it.
//!
//! A host under partitioned EDF sells a million for each CPU, of which real-time VMs may have a part (`limit_ppm`). A VCPU
//! claims the next power of two of its share of that part. Every set of VMs whose claims fit a host passes the exact
//! test: claim.py has the proof. nova/tests/data/placements.json is read by the tests of both.

use steadyvm_analysis::{
    Time,
    host::Vcpu,
    plan::sold::{SoldInterface, VCPU_BUDGET_MIN_US},
};

/// A whole CPU.
pub const WHOLE_PPM: u64 = 1_000_000;
/// A whole CPU by 64 is whole; a smaller class would not be.
const SMALLEST_PPM: u64 = WHOLE_PPM / 64;
/// What steadyvm lets the kernel's fair server run for at a time.
const FAIR_SERVER_US: u64 = 1_000;
/// `SCHED_DEADLINE` admits 95 % of a CPU, of which the fair server holds 5 %.
const BESIDE_FAIR_SERVER_PPM: u64 = 900_000;

/// What a flavour needs of hosts of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// No budget: what is left.
    Rest,
    /// This much.
    Claim(Claim),
    /// More than such a host gives to one VCPU.
    TooMuch,
}

/// What a VM takes of a host of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The bandwidth of all VCPUs, of whole CPUs, rounded down: three thirds are no more than a CPU.
    pub bandwidth_ppm: u64,
    /// A VCPU's share of what real-time VMs may have of a CPU, rounded up.
    pub share_ppm: u64,
    /// What the VM claims of a host's one sum.
    pub host_ppm: u64,
    /// How many VCPUs it has.
    pub vcpus: u32,
    budget: Time,
    period: Time,
}

impl Claim {
    /// The claim of `interface` on hosts whose CPUs give real-time VMs so much; none if no such host holds it.
    pub fn of(interface: SoldInterface, limit_ppm: u64) -> Option<Self> {
        let SoldInterface {
            period_us,
            budget_us,
            vcpus,
        } = interface;
        let counted_us = budget_us + fair_server_us(period_us, limit_ppm);
        let whole = u128::from(WHOLE_PPM);
        let share = (u128::from(counted_us) * whole * whole)
            .div_ceil(u128::from(period_us) * u128::from(limit_ppm));
        let share_ppm = u64::try_from(share).ok()?;
        if share_ppm > WHOLE_PPM || budget_us < VCPU_BUDGET_MIN_US {
            return None;
        }
        let mut class_ppm = SMALLEST_PPM;
        while class_ppm < share_ppm {
            class_ppm *= 2;
        }
        let common = greatest_common_divisor(limit_ppm, WHOLE_PPM);
        Some(Self {
            bandwidth_ppm: budget_us * u64::from(vcpus) * WHOLE_PPM / period_us,
            share_ppm,
            host_ppm: class_ppm * u64::from(vcpus),
            vcpus,
            // A CPU of which real-time VMs may have a part is a slower CPU; in these units nothing is rounded.
            budget: Time::try_from(counted_us * (WHOLE_PPM / common)).ok()?,
            period: Time::try_from(period_us * (limit_ppm / common)).ok()?,
        })
    }

    /// One of its VCPUs for the analysis, of the VM of that number.
    pub fn vcpu(&self, vm: usize) -> Option<Vcpu> {
        Vcpu::new(vm, self.budget, self.period).ok()
    }
}

/// What the fair server may take of a period beyond the part of a CPU that is not sold.
fn fair_server_us(period_us: u64, limit_ppm: u64) -> u64 {
    if limit_ppm > BESIDE_FAIR_SERVER_PPM {
        return 0;
    }
    FAIR_SERVER_US.saturating_sub(period_us * (WHOLE_PPM - limit_ppm) / WHOLE_PPM)
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}
