//! The methods and the kernels, a row each: what a host is set to, what it runs, what that needs and what it costs.
//!
//! [`Method`] is the table of methods and [`HostKernel`] that of kernels. Whoever applies, checks, compares or documents
//! one reads its row; nobody else lists them. It depends on nothing of ours, so that the file's reader may know the words.

#![forbid(unsafe_code)]

/// A table: an enum whose variants are its keys, with a constant row for each.
macro_rules! table {
    ($(#[$about:meta])* $Key:ident of $Row:ident { $($(#[$doc:meta])* $variant:ident: $row:expr,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $Key {
            $($(#[$doc])* $variant,)+
        }

        impl $Key {
            /// Every one, in the table's order.
            pub const ALL: [Self; [$($Key::$variant),+].len()] = [$(Self::$variant),+];

            /// Its row.
            pub const fn row(self) -> &'static $Row {
                match self {
                    $(Self::$variant => {
                        const ROW: $Row = $row;
                        &ROW
                    })+
                }
            }

            /// The name on the command line, in files and in results.
            pub const fn name(self) -> &'static str {
                self.row().name
            }
        }

        impl std::fmt::Debug for $Key {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(self.name())
            }
        }

        impl std::fmt::Display for $Key {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.pad(self.name())
            }
        }

        impl std::str::FromStr for $Key {
            type Err = $crate::Unknown;

            fn from_str(text: &str) -> Result<Self, $crate::Unknown> {
                let mut all = Self::ALL.into_iter();
                all.find(|it| it.name() == text)
                    .ok_or_else(|| Self::unknown(text))
            }
        }
    };
}

mod kernel;
mod method;
mod page;
mod row;
mod switches;

pub use kernel::{Build, HostKernel, KernelRow};
pub use method::Method;
pub use page::{help, markdown};
pub use row::{Guests, MethodRow, Need, Price, Role};
pub use switches::Switches;

/// A name that no row has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {fix}")]
pub struct Unknown {
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub fix: String,
}
