//! The rows: a host's kernel, the way of frames into the relay, and what is set.

use crate::experiment::Setting;
use std::fmt;
use steadyvm_host::Method;
use steadyvm_lab::laboratory::HostKernel;

/// How frames get from the card to the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// A bridge and a tap.
    Bridge,
    /// A macvtap above the card.
    Macvtap,
    /// Open vSwitch, its datapath in the kernel, and a tap.
    OpenVswitch,
    /// A function of the card, which the relay has itself. Not the host but the card hands it its frames.
    Passthrough,
}

/// What is set on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Set {
    /// Nothing.
    Nothing,
    /// The guide's file: the relay and its card have class `rt`.
    File,
    /// The same with NAPI threads, where the kernel's interrupt threads would poll.
    Threads,
    /// The file, and the switch's daemon has a rank.
    Switch,
    /// A method of `steadyvm apply`.
    Method(Method),
}

/// A row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub setting: Setting,
    pub way: Way,
    pub set: Set,
}

const fn row(name: &'static str, kernel: HostKernel, way: Way, set: Set) -> Row {
    Row {
        setting: Setting {
            name,
            kernel,
            bulk_in_threads: false,
        },
        way,
        set,
    }
}

use HostKernel::{V7_3, V7_3Rt};
use Way::{Bridge, Macvtap, OpenVswitch, Passthrough};

const DEDICATED: Set = Set::Method(Method::Dedicated);

/// All of them. The first of a way is what its others are held against.
pub(super) const ROWS: [Row; 19] = [
    row("7.3-bridge", V7_3, Bridge, Set::Nothing),
    row("7.3-macvtap", V7_3, Macvtap, Set::Nothing),
    row("7.3-ovs", V7_3, OpenVswitch, Set::Nothing),
    row("7.3-rt-bridge", V7_3Rt, Bridge, Set::Nothing),
    row("7.3-rt-macvtap", V7_3Rt, Macvtap, Set::Nothing),
    row("7.3-rt-ovs", V7_3Rt, OpenVswitch, Set::Nothing),
    row("7.3-bridge-steadyvm", V7_3, Bridge, Set::File),
    row("7.3-macvtap-steadyvm", V7_3, Macvtap, Set::File),
    row("7.3-ovs-steadyvm", V7_3, OpenVswitch, Set::File),
    row("7.3-rt-bridge-steadyvm", V7_3Rt, Bridge, Set::File),
    row("7.3-rt-macvtap-steadyvm", V7_3Rt, Macvtap, Set::File),
    row("7.3-rt-ovs-steadyvm", V7_3Rt, OpenVswitch, Set::File),
    row("7.3-ovs-ranked", V7_3, OpenVswitch, Set::Switch),
    row("7.3-rt-ovs-ranked", V7_3Rt, OpenVswitch, Set::Switch),
    row("7.3-rt-bridge-threads", V7_3Rt, Bridge, Set::Threads),
    row("7.3-rt-macvtap-threads", V7_3Rt, Macvtap, Set::Threads),
    row("7.3-rt-bridge-dedicated", V7_3Rt, Bridge, DEDICATED),
    row("7.3-rt-passthrough", V7_3Rt, Passthrough, Set::Nothing),
    row(
        "7.3-rt-passthrough-steadyvm",
        V7_3Rt,
        Passthrough,
        Set::File,
    ),
];

/// Their settings, by which they are chosen.
pub(super) const SETTINGS: &[Setting] = &{
    let mut settings = [ROWS[0].setting; ROWS.len()];
    let mut number = 1;
    while number < ROWS.len() {
        settings[number] = ROWS[number].setting;
        number += 1;
    }
    settings
};

impl Row {
    pub fn of(setting: &Setting) -> Option<Self> {
        ROWS.into_iter().find(|row| row.setting == *setting)
    }

    /// The stock row of the same way in; none of a stock row.
    pub fn stock(self) -> Option<Self> {
        let stock = ROWS.into_iter().find(|row| row.way == self.way);
        stock.filter(|stock| stock.setting != self.setting)
    }

    /// Whether its kernel has PREEMPT_RT.
    pub fn preempt_rt(self) -> bool {
        self.setting.kernel.row().is_preempt_rt
    }
}

impl fmt::Display for Row {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.setting.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_held_against_stock_of_its_own_way_in() {
        assert!(SETTINGS.iter().all(|it| Row::of(it).is_some()));
        let stock_of = |name: &str| {
            let row = ROWS.into_iter().find(|it| it.setting.name == name).unwrap();
            row.stock().map(|it| it.setting.name)
        };
        assert_eq!(stock_of("7.3-rt-bridge-steadyvm"), Some("7.3-bridge"));
        assert_eq!(stock_of("7.3-macvtap-steadyvm"), Some("7.3-macvtap"));
        assert_eq!(stock_of("7.3-rt-ovs-steadyvm"), Some("7.3-ovs"));
        assert_eq!(
            stock_of("7.3-rt-passthrough-steadyvm"),
            Some("7.3-rt-passthrough")
        );
        assert_eq!(stock_of("7.3-bridge"), None);
        assert_eq!(stock_of("7.3-macvtap"), None);
        for row in ROWS {
            let stock = row.stock().unwrap_or(row);
            assert_eq!((stock.set, stock.way), (Set::Nothing, row.way));
        }
    }
}
