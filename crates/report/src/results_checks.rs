//! What tests require of a record, here and of each experiment.

use super::results::{RATIO, Record, from_json, from_json_of, to_json};

/// What is shown of results is the same when nothing but results.json is left of the run, and a results.json
/// without one of the figures is refused.
pub fn require_shown_from_json(
    record: &Record,
    required: fn(&str) -> &'static [&'static str],
    show: impl Fn(&Record) -> String,
) {
    let json = to_json(record).unwrap();
    let again = from_json_of(&json, &record.experiment, required).unwrap();
    assert_eq!(&again, record);
    assert_eq!(show(&again), show(record));
    for it in &record.figures {
        let known = record.rows.contains(&it.row) && record.cells.contains(&it.cell);
        assert!(known && !it.unit.is_empty(), "{it:?}");
        assert_eq!(it.unit == RATIO, it.over.is_some(), "{it:?}");
    }
    assert_eq!(record.csv().lines().count(), 1 + record.figures.len());
    for name in record.cells.iter().flat_map(|cell| required(cell)) {
        let mut without = record.clone();
        without.figures.retain(|it| it.name != *name);
        let json = to_json(&without).unwrap();
        let said = from_json_of(&json, &record.experiment, required).unwrap_err();
        assert!(said.to_string().contains(&format!("no `{name}` of")));
    }
}

/// A file in the shape that an experiment had for itself is refused, and the error says what to do.
pub fn require_old_shape_refused(old: &str) {
    let refused = [
        from_json(old).unwrap_err().to_string(),
        serde_json::from_str::<Record>(old).unwrap_err().to_string(),
    ];
    for said in refused {
        let clear = said.contains("this steadyvm reads 5") && said.contains("measure again");
        assert!(clear, "{said}");
    }
}
