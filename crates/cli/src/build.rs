//! Which build this is.

/// The revision that it is built from, "-dirty" with uncommitted changes; "unknown" outside of a repository.
pub const REVISION: &str = env!("STEADYVM_GIT_REVISION");

/// What `--version` prints after the program's name: the version, the revision, and the build, a hash of all sources.
/// Programs of the same build are of the same sources.
pub const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\nrevision ",
    env!("STEADYVM_GIT_REVISION"),
    "\nbuild ",
    env!("STEADYVM_BUILD")
);
