//! `[net]`.

use crate::{EtherType, Placed, PriorityCodePoint, ThreadPriority, VlanNumber, Written};

table! {
    section "`[net]`";
    /// Keys you leave out change nothing.
    #[derive(Default)]
    #[serde(default)]
    pub struct Net {
        /// `net.core.netdev_budget`, 1 to 65,536
        budget_packets: Option<Placed<u32>> = "as it is",
        /// `net.core.netdev_budget_usecs`, `"1ms"` to `"1s"`
        budget_time: Option<Placed<Written>> = "as it is",
        /// `net.core.rtnet_prio`, 1 to 98; without our patches exit code 3
        levels_from: Option<Placed<u32>> = "as it is",
        /// early demultiplexing
        demux: Option<Placed<Demux>> = "none",
    }
}

table! {
    section "`[net.demux]`";
    /// `cpu` and `levels`, or `rt_from`; anything else is refused.
    pub struct Demux {
        /// cards; none, or one twice, is refused
        nics: Vec<String> = "needed",
        /// where the levels' threads run
        cpu: Option<u32> = "none",
        /// from the lowest
        levels: Option<Vec<Level>> = "none",
        /// frames whose level the file says
        #[serde(default)]
        frames: Vec<Placed<Frames>> = "none",
        /// the kernel's own RT level, from this priority of a receiver on; needs `levels_from`; 0 is refused
        rt_from: Option<u32> = "none",
    }
}

table! {
    section "`frames`";
    /// At least one of `ethertype`, `vlan` and `pcp`; all that are there must be so. The first that a frame is of counts; 16 at
    /// most. No rate bounds them, so all who can send such frames to the card reach their level.
    #[derive(Copy)]
    pub struct Frames {
        /// EtherType, as of `steer`
        ethertype: Option<EtherType> = "any",
        /// VLAN, as of `steer`; the card must leave tags in frames (`ethtool -K NIC rxvlan off`)
        vlan: Option<VlanNumber> = "any",
        /// priority code point, the same
        pcp: Option<PriorityCodePoint> = "any",
        /// the level's number; 0 is the lowest
        level: Option<u32> = "the highest",
    }
}

table! {
    section "`levels`";
    #[derive(Copy)]
    pub struct Level {
        /// receivers of this priority and above; the first must be 0
        from: u32 = "needed",
        /// of the level's thread; must not preempt receivers of the next level
        thread: ThreadPriority = "needed",
    }
}
