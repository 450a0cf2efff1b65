//! The fuzz target's body on what a kernel could write and on mutations of it: for machines
//! without cargo-fuzz.

#![allow(clippy::unwrap_used)] // helpers of tests

mod fuzz_bodies;

use proptest::prelude::*;

const FORMAT: &str = "ID: 7\nformat:\n\
    field:unsigned short common_type; offset:0; size:2; signed:0;\n\
    field:int common_pid; offset:4; size:4; signed:1;\n\
    field:int irq; offset:8; size:4; signed:1;\n\
    field:__data_loc char[] name; offset:12; size:4; signed:0;\n";

/// A format and a buffer with records that it describes.
fn seed(count: u64) -> Vec<u8> {
    let mut bytes = FORMAT.as_bytes().to_vec();
    let mut first = true;
    for time in 0..count {
        let mut payload = vec![7, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 16, 0, 3, 0];
        payload.extend(*b"rt\0\0");
        let size = (20 + payload.len()) as u16;
        let mut record = 9_u32.to_le_bytes().to_vec();
        record.extend([0, 0]);
        record.extend(size.to_le_bytes());
        record.extend(time.to_le_bytes());
        record.extend((payload.len() as u32).to_le_bytes());
        record.extend(payload);
        if first {
            // The zero that ends the format would shift the records: a record of another kind
            // starts with it.
            bytes.extend([0, 0, 0, 0, 0, 0, 8, 0]);
            first = false;
        }
        bytes.extend(record);
    }
    bytes
}

#[test]
fn the_seed_is_understood() {
    // It describes irq_handler_entry and all tracepoints without fields of their own.
    let with_name_only = ["netif_receive_skb"];
    let without_fields = 6;
    let known = 1 + with_name_only.len() + without_fields;
    assert_eq!(fuzz_bodies::trace_events(&seed(5)), 5 * known);
    let corpus = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fuzz/corpus/trace_events/seed"
    );
    assert_eq!(std::fs::read(corpus).unwrap(), seed(5));
}

proptest! {
    #[test]
    fn no_mutation_panics(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = seed(4);
        for (place, byte) in changes {
            *place.get_mut(&mut bytes) = byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        fuzz_bodies::trace_events(&bytes);
    }
}
