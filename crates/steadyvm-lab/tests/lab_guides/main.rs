//! The guides, typed: every block of the README and of docs/guide is typed by a test from the page's own text, on a host as
//! Debian 13 boots it, or the page says why not. `make guide-tests`; `pages` needs no lab, and is of `make unit-tests`.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

#[path = "../support/debian.rs"]
mod debian;
mod domains;
#[path = "../support/guide.rs"]
mod guide;
mod host;
#[path = "../support/host_program.rs"]
mod host_program;
#[allow(dead_code, reason = "it uses a part of it")]
#[path = "../support/libvirt.rs"]
mod libvirt;
mod measure;
mod pages;
mod proxmox;
mod reader;
