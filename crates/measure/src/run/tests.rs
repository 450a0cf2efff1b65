//! What a run goes on with, and what is refused.

use steadyvm_load::netrt::{ClientRun, Counters, EndedBy, Sample};

use super::*;
use crate::rows;

const STOCK: &str = "6.12.1-amd64";
const RT: &str = "6.12.1-rt-amd64";

fn kernel(release: &str) -> Kernel {
    Kernel {
        release: release.to_owned(),
        is_preempt_rt: release == RT,
        has_levels: false,
    }
}

/// `vanilla` and `preempt-rt`, in two rounds.
fn run() -> Run {
    let load = Load {
        service: "192.0.2.10:7700".to_owned(),
        netns: None,
        remote: Some("ssh client".to_owned()),
        samples: 4,
        rounds: 2,
        rate: 181.8,
        warmup: 1,
        seed: 3,
    };
    let methods = ["vanilla", "preempt-rt"].map(|it| it.parse().unwrap());
    let rows = rows::named(&methods, &[], &[]).unwrap();
    Run::new(vec!["steadyvm".to_owned()], load, rows)
}

/// Both rounds of a row.
fn measured(run: &mut Run, row: usize, release: &str) {
    let boot = run.boots.len();
    run.boots.push(Boot {
        id: release.to_owned(),
        kernel: release.to_owned(),
        started_unix_s: 1,
        duration_s: 0.1,
        load_average: [0.3, 1.7],
    });
    let round = Measured {
        boot,
        netrt: ClientRun {
            samples: vec![Sample {
                sequence: 1,
                sent_ns: 2,
                rtt_ns: 3,
            }],
            counters: Counters::default(),
            ended_by: EndedBy::Done,
            duration_ns: 1,
        },
        host_cpu_busy_fraction: 1.0 / 3.0,
    };
    run.rows[row].release = Some(release.to_owned());
    run.rows[row].rounds = vec![round.clone(), round];
    run.rows[row].rounds_over = 2;
}

#[test]
fn a_run_goes_on_with_the_rows_of_the_kernel_that_runs() {
    let mut run = run();
    assert_eq!(run.rows_for(&kernel(STOCK)).unwrap(), [0]);
    let left: Vec<String> = run
        .left_after(&kernel(STOCK))
        .map(|it| it.words())
        .collect();
    assert_eq!(left, ["preempt-rt waits for a kernel with PREEMPT_RT"]);
    measured(&mut run, 0, STOCK);
    assert_eq!(run.data().methods.len(), 1);
    assert!(run.notes_of_boots()[0].contains("not all is measured yet: preempt-rt"));
    let error = run.rows_for(&kernel(STOCK)).unwrap_err().to_string();
    let told = "no row is for the kernel that runs, 6.12.1-amd64 (6.12): preempt-rt waits for";
    assert!(error.contains(told), "{error}");

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.json");
    run.write(&file).unwrap();
    let mut again = Run::read(&file).unwrap();
    assert_eq!(again, run);
    assert_eq!(again.rows_for(&kernel(RT)).unwrap(), [1]);
    measured(&mut again, 1, RT);
    assert!(again.notes_of_boots()[0].contains("different boots"));
    let data = again.data();
    let rounds: Vec<usize> = data.methods.iter().map(|it| it.rounds.len()).collect();
    assert_eq!(rounds, [2, 2]);
    again.write(&file).unwrap();
    let error = Run::read(&file).unwrap_err().to_string();
    assert!(error.contains("all rounds are measured"), "{error}");
}

#[test]
fn a_run_of_another_host_or_version_and_what_is_no_run_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.json");
    let refused = |run: &Run| {
        run.write(&file).unwrap();
        Run::read(&file).unwrap_err().to_string()
    };
    let mut moved = run();
    moved.host = Host {
        name: "other".to_owned(),
        machine_id: "0".to_owned(),
    };
    let error = refused(&moved);
    assert!(error.contains("of another host (other)"), "{error}");
    let mut newer = run();
    newer.schema_version = 2;
    assert!(refused(&newer).contains("a saved run of version 2"));
    fs::write(&file, "{}").unwrap();
    let error = Run::read(&file).unwrap_err().to_string();
    assert!(error.contains("no saved run: missing field"), "{error}");
    let error = Run::read(&directory.path().join("no")).unwrap_err();
    assert!(error.to_string().contains("No such file"), "{error}");
}

#[test]
fn a_host_without_a_machine_id_is_known_by_its_name() {
    let host = |name: &str, id: &str| Host {
        name: name.to_owned(),
        machine_id: id.to_owned(),
    };
    let mut run = run();
    for (then, now, is_same) in [
        (host("a", ""), host("a", "1"), true),
        (host("a", ""), host("b", ""), false),
        (host("a", "1"), host("b", "1"), true),
        (host("a", "1"), host("a", "2"), false),
    ] {
        run.host = then;
        assert_eq!(run.must_be_of(&now).is_ok(), is_same, "{now:?}");
    }
}
