//! Debian 13's backports: kernels that this machine's own release does not have. Nothing of them is installed.

use super::apt::{Apt, source_of_suite};
use super::cache::Cache;
use crate::Result;

const BACKPORTS: &str = "trixie-backports";

/// Their packages.
pub fn apt(cache: &Cache) -> Result<Apt> {
    let name = "Debian 13's backports";
    let source = source_of_suite(BACKPORTS)?;
    Apt::new(&cache.helper_directory(BACKPORTS), name, &source)
}
