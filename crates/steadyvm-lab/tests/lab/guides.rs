//! The guides, typed: every block of the README and of docs/guide is typed by a test from the page's own text, on a host as
//! Debian 13 boots it, or the page says why not. `make guide-tests`; `pages` needs no lab, and is of `make unit-tests`.

mod domains;
mod host;
mod measure;
mod pages;
mod proxmox;
mod reader;
mod shared_card;
mod substation;
