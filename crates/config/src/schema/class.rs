//! `[class.NAME.net]`.

use serde::{Deserialize, Deserializer, de};

use crate::{LARGEST_BATCH, TapQdisc, ThreadPriority};

table! {
    section "`[class.NAME.net]`";
    /// The ranks are refused unless `irq` >= `napi` >= `vhost` >= `vcpu`. Defaults are those of `rt`; other classes have none, but
    /// `best-effort` has `napi = "normal"` and `threaded_napi = true`. A written `rt` or `best-effort` keeps the defaults of
    /// what it leaves out: `"normal"` takes a rank away.
    #[derive(PartialEq)]
    pub struct ClassNet {
        /// interrupt threads
        irq: Option<ThreadPriority> = "80",
        /// NAPI threads, where there are any
        napi: Option<ThreadPriority> = "78",
        /// whether the card is polled in threads
        threaded_napi: Option<bool> = "only where the kernel has no interrupt threads",
        /// for interrupts, NAPI threads and vhost workers
        cpus: Option<Vec<usize>> = "as they are",
        /// vhost workers of the class's VMs; a budget does not bound them
        vhost: Option<ThreadPriority> = "75; as they are for a VM with a budget",
        /// their VCPUs; VCPU 0 stays normal if there are others
        vcpu: Option<ThreadPriority> = "70",
        /// QEMU's IO threads (`-object iothread`); not below `vcpu`
        io: Option<ThreadPriority> = "as they are",
        /// the monitor's main thread, whose lock a VCPU waits for as it leaves KVM for a device; not below `vcpu`
        main: Option<ThreadPriority> = "as it is",
        /// `noqueue` or `prio`, of their taps
        tap_qdisc: Option<TapQdisc> = "`noqueue`",
        /// 1 to 64: packets that their taps handle at once
        #[serde(default, deserialize_with = "batch")]
        tap_batch: Option<u32> = "as it is",
    }
}

fn batch<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let packets = i64::deserialize(deserializer)?;
    let batch = u32::try_from(packets).ok();
    let batch = batch.filter(|batch| (1..=LARGEST_BATCH).contains(batch));
    let refused = || format!("tap_batch {packets} is not one of 1 to {LARGEST_BATCH}");
    batch.map(Some).ok_or_else(|| de::Error::custom(refused()))
}
