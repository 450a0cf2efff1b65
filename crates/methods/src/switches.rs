//! What a method sets on a host, by what it is composed of.

use crate::{Method, Unknown};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What is set on a host: `rt`, and with it `dedicated`, `profile` and `levels`, joined by `+`; or `tuned`. Each of
/// [`Method::of_hosts`] names one composition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
// Each is a switch of its own, as its users write them: rt+dedicated+profile+levels.
#[allow(clippy::struct_excessive_bools)]
pub struct Switches {
    /// Ranks for the path from the RT NIC to the RT service. Every other switch but `tuned` needs it.
    pub rt: bool,
    /// One CPU for that path alone.
    pub dedicated: bool,
    /// The other NICs polled in threads below it.
    pub profile: bool,
    /// The RT NICs' packets on the RT level of the receive path, which takes our kernel patches.
    pub levels: bool,
    /// What the peer sets, in place of all of this.
    pub tuned: bool,
    /// It is set on a kernel without PREEMPT_RT, too.
    pub any_kernel: bool,
}

impl Switches {
    /// Nothing is set.
    pub const VANILLA: Self = Self {
        rt: false,
        dedicated: false,
        profile: false,
        levels: false,
        tuned: false,
        any_kernel: false,
    };

    /// Ranks alone.
    pub const RT: Self = Self {
        rt: true,
        ..Self::VANILLA
    };

    /// As a profile that is read from a file.
    pub const RT_PROFILE: Self = Self {
        profile: true,
        ..Self::RT
    };

    /// The peer.
    pub const TUNED: Self = Self {
        tuned: true,
        ..Self::VANILLA
    };

    /// Whether nothing is set.
    pub fn is_vanilla(self) -> bool {
        self == Self::VANILLA
    }

    /// Whether the kernel must have PREEMPT_RT.
    pub const fn needs_preempt_rt(self) -> bool {
        (self.rt || self.tuned) && !self.any_kernel
    }

    /// The method that has a name of its own for it.
    pub fn alias(self) -> Option<Method> {
        let mut all = Method::ALL.into_iter();
        all.find(|method| method.switches() == self)
    }

    /// The switches by name, in the order in which they are written.
    const fn named(self) -> [(&'static str, bool); 6] {
        [
            ("rt", self.rt),
            ("dedicated", self.dedicated),
            ("profile", self.profile),
            ("levels", self.levels),
            ("tuned", self.tuned),
            ("any-kernel", self.any_kernel),
        ]
    }

    /// The names of those that are on, joined by `+`; `vanilla` for none.
    pub fn composition(self) -> String {
        let on = self.named().into_iter().filter(|(_, is_on)| *is_on);
        let names: Vec<&str> = on.map(|(name, _)| name).collect();
        if names.is_empty() {
            Method::Vanilla.name().to_owned()
        } else {
            names.join("+")
        }
    }
}

impl From<Method> for Switches {
    fn from(method: Method) -> Self {
        method.switches()
    }
}

impl fmt::Display for Switches {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.alias() {
            Some(method) => method.fmt(formatter),
            None => formatter.pad(&self.composition()),
        }
    }
}

impl From<Switches> for String {
    fn from(switches: Switches) -> Self {
        switches.to_string()
    }
}

impl TryFrom<String> for Switches {
    type Error = Unknown;

    fn try_from(text: String) -> Result<Self, Unknown> {
        text.parse()
    }
}

impl FromStr for Switches {
    type Err = Unknown;

    /// Reads a composition (`rt+dedicated`), or the name of a method of hosts.
    fn from_str(text: &str) -> Result<Self, Unknown> {
        let is_a_method = Method::ALL
            .into_iter()
            .any(|it| it.name() == text || it.row().formerly.contains(&text));
        if is_a_method {
            return Method::of_host_named(text).map(Method::switches);
        }
        let mut switches = Self::VANILLA;
        for name in text.split('+') {
            let switch = match name {
                "rt" => &mut switches.rt,
                "dedicated" => &mut switches.dedicated,
                "profile" => &mut switches.profile,
                "levels" => &mut switches.levels,
                "tuned" => &mut switches.tuned,
                "any-kernel" => &mut switches.any_kernel,
                _ => return Err(unknown(text)),
            };
            *switch = true;
        }
        let alone = Self {
            any_kernel: switches.any_kernel,
            ..Self::TUNED
        };
        if switches.tuned && switches != alone {
            return Err(Unknown {
                what: format!("method `{text}` joins tuned with other switches"),
                fix: "use tuned alone: it gives the path no ranks that others could build on"
                    .into(),
            });
        }
        if switches.rt || switches.tuned {
            return Ok(switches);
        }
        Err(Unknown {
            what: format!("method `{text}` lacks the switch rt, which the others need"),
            fix: format!("write rt+{text}"),
        })
    }
}

fn unknown(text: &str) -> Unknown {
    let names: Vec<&str> = Method::of_hosts().map(Method::name).collect();
    Unknown {
        what: format!("unknown method `{text}`"),
        fix: format!(
            "use one of: {}; or a composition of rt, dedicated, profile, levels and any-kernel, such as \
             rt+dedicated+levels",
            names.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_composition_is_read_as_it_is_written(bits in 0_u8..16) {
            let switches = Switches {
                rt: true,
                dedicated: bits & 1 != 0,
                profile: bits & 2 != 0,
                levels: bits & 4 != 0,
                tuned: false,
                any_kernel: bits & 8 != 0,
            };
            prop_assert_eq!(switches.composition().parse::<Switches>().unwrap(), switches);
            prop_assert_eq!(switches.to_string().parse::<Switches>().unwrap(), switches);
            let json = serde_json::to_string(&switches).unwrap();
            prop_assert_eq!(serde_json::from_str::<Switches>(&json).unwrap(), switches);
        }
    }

    #[test]
    fn the_old_names_are_compositions() {
        for (name, composition) in [
            ("vanilla", "vanilla"),
            ("preempt-rt", "rt"),
            ("dedicated", "rt+dedicated"),
            ("rt-poll-list", "rt+levels"),
            ("rt-profile", "rt+profile"),
            ("rt-levels", "rt+profile+levels"),
            ("tuned", "tuned"),
        ] {
            let switches: Switches = name.parse().unwrap();
            assert_eq!(switches.composition(), composition);
            assert_eq!(switches.to_string(), name);
            assert_eq!(composition.parse::<Switches>().unwrap(), switches);
        }
        for (wrong, told) in [
            ("fast", "rt+dedicated+levels"),
            ("", "use one of"),
            ("rt+", "use one of"),
            ("levels", "rt+levels"),
            ("rt+tuned", "use tuned alone"),
            ("tuned+levels", "use tuned alone"),
            ("any-kernel", "rt+any-kernel"),
            ("no-patch", "profile-sockets"),
            ("rt-sockets", "on a host it is preempt-rt"),
        ] {
            let error = wrong.parse::<Switches>().unwrap_err();
            assert!(error.to_string().contains(told), "{error}");
        }
    }
}
