//! The bodies on their corpora and on mutations of those: for machines without cargo-fuzz.

#[path = "../../../../fuzz/bounded.rs"]
mod bounded;

#[test]
fn hostile_drivers_do_no_harm() {
    bounded::run("vmm_devices", 4_000, bounded::in_pieces, super::devices);
}

#[test]
fn no_file_is_booted_badly() {
    bounded::run("vmm_boot", 4_000, bounded::in_pieces, super::boot);
}

#[test]
fn no_shared_memory_keeps_a_new_beginning_from_working() {
    bounded::run(
        "vmm_shared",
        4_000,
        bounded::in_pieces,
        super::shared_memory,
    );
}
