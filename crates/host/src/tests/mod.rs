//! Tests over whole hosts.
