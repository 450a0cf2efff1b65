//! What holds for every kind of setting.

use super::change::examples;
use super::{Change, Restored};

#[test]
fn a_change_of_every_kind_is_made_read_restored_and_verified() {
    for (host, change) in examples() {
        let (machine, before) = (host.machine(), host.state());
        assert!(!change.is_empty(), "{change}");
        let now = change.read(&machine).unwrap();
        assert!(
            now.is_old && !now.is_new && !now.is_halfway,
            "{change}: {now:?}"
        );
        assert_eq!(change.restore(&machine), Restored::AlreadyOld, "{change}");
        change.make(&machine).unwrap();
        let now = change.read(&machine).unwrap();
        assert!(
            now.is_new && !now.is_old && !now.is_halfway,
            "{change}: {now:?}"
        );
        assert_eq!(now.text, change.new_text());
        let Restored::Restored { note: None } = change.restore(&machine) else {
            panic!("{change} is not restored");
        };
        let restored = if change.settles() {
            change.settle(&machine, None)
        } else {
            change.verify_old(&machine, None)
        };
        assert_eq!(restored, Restored::Restored { note: None }, "{change}");
        assert_eq!(change.restore(&machine), Restored::AlreadyOld, "{change}");
        let mut after = host.state();
        // A driver restarts its NIC's threads.
        if change.replaces_threads() {
            after.threads.clone_from(&before.threads);
        }
        assert_eq!(after, before, "{change}");
    }
}

#[test]
fn a_change_of_every_kind_survives_the_journal() {
    for (_, change) in examples() {
        let text = serde_json::to_string(&change).unwrap();
        let kind = text.split('"').nth(3).unwrap().to_owned();
        assert_eq!(serde_json::from_str::<Change>(&text).unwrap(), change);
        assert!(text.contains(&format!("\"kind\":\"{kind}\"")), "{text}");
        // One that a later version wrote, with a kind that this one does not know.
        let unknown = text.replace(&kind, "of-tomorrow");
        assert!(serde_json::from_str::<Change>(&unknown).is_err());
    }
}

#[test]
fn a_change_of_every_kind_is_the_same_as_itself_and_none_other() {
    let all: Vec<Change> = examples().into_iter().map(|(_, change)| change).collect();
    for (at, one) in all.iter().enumerate() {
        for (other_at, other) in all.iter().enumerate() {
            assert_eq!(one.same_subject(other), at == other_at, "{one}, {other}");
        }
        assert_eq!(&one.clone().since(one), one);
    }
}

#[test]
fn a_change_of_every_kind_is_a_difference_of_snapshots() {
    for (host, change) in examples() {
        let machine = host.machine();
        let before = crate::Snapshot::take(&machine).unwrap();
        change.make(&machine).unwrap();
        let differences = crate::Snapshot::take(&machine)
            .unwrap()
            .differences(&before);
        assert!(!differences.is_empty(), "{change}");
    }
}
