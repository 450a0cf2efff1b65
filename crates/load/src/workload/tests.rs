use super::*;
use crate::job::Ran;
use proptest::prelude::*;

fn workload(json: &str) -> Workload {
    serde_json::from_str(json).unwrap()
}

fn run(workload: &Workload) -> Vec<Record> {
    workload.prepare().unwrap().run(&mut |_| {})
}

/// When jobs are released that are never late.
fn releases_ns(workload: &Workload) -> Vec<u64> {
    let separations = workload.plan().map(|planned| planned.separation_ns);
    let sums = separations.scan(0, |next, separation_ns| {
        let released_ns = *next;
        *next += separation_ns;
        Some(released_ns)
    });
    sums.take(workload.jobs as usize).collect()
}

fn any_workload() -> impl Strategy<Value = Workload> {
    let times = (0_u64..300, 0_u64..300, prop::option::of(0_u64..400));
    let computing = (
        0_u64..40,
        0_u32..200,
        0_u32..200,
        prop::option::of(1_u32..64),
    );
    let others = (1_u64..20, any::<bool>(), any::<u64>());
    (times, computing, others).prop_map(|(times, computing, others)| {
        let (period_us, extra_us, deadline_us) = times;
        let (work, least, more, buffer_kib) = computing;
        let (jobs, backlog, seed) = others;
        let task = Task {
            period_us,
            work,
            jobs,
            backlog,
        };
        Workload {
            extra_us,
            deadline_us,
            // Decimals of few digits, which JSON gives back as they were.
            factor: Factor::Uniform([least, least + more].map(|it| f64::from(it) / 100.0)),
            buffer_kib,
            seed,
            ..task.into()
        }
    })
}

#[test]
fn a_sporadic_task_is_released_at_its_least_separation_and_a_uniform_time_later() {
    let sporadic =
        workload(r#"{"period_us": 1000, "work": 1, "jobs": 20001, "extra_us": 500, "seed": 3}"#);
    let times = releases_ns(&sporadic);
    let between: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(times[0], 0);
    let (least, most) = (between.iter().min().unwrap(), between.iter().max().unwrap());
    assert!((1_000_000..1_001_000).contains(least), "{least}");
    assert!((1_499_000..=1_500_000).contains(most), "{most}");
    // Each tenth of the extra time is as likely: 2000 of 20,000, and 6 times their deviation of 42.
    for tenth in 0..10 {
        let from = 1_000_000 + tenth * 50_000;
        let count = between
            .iter()
            .filter(|own| (from..from + 50_000).contains(*own))
            .count();
        assert!((1740..2260).contains(&count), "{tenth} {count}");
    }
    // Without an extra time it is a periodic one.
    let periodic = Workload {
        extra_us: 0,
        jobs: 4,
        ..sporadic
    };
    assert_eq!(releases_ns(&periodic), [0, 1_000_000, 2_000_000, 3_000_000]);
}

#[test]
fn a_factor_is_fixed_or_uniform_and_moves_no_release() {
    let sporadic = workload(
        r#"{"period_us": 1000, "work": 1, "jobs": 5000, "extra_us": 500, "factor": [0.5, 1.5]}"#,
    );
    let factors: Vec<f64> = sporadic.plan().take(5000).map(|it| it.factor).collect();
    assert!(factors.iter().all(|factor| (0.5..=1.5).contains(factor)));
    let mean = factors.iter().sum::<f64>() / 5000.0;
    // 6 times the mean's deviation, 0.289 of one.
    assert!((mean - 1.0).abs() < 0.0245, "{mean}");
    let fixed = Workload {
        factor: Factor::Fixed(0.7),
        ..sporadic.clone()
    };
    assert!(
        fixed
            .plan()
            .take(100)
            .all(|it| it.factor.to_bits() == 0.7_f64.to_bits())
    );
    assert_eq!(releases_ns(&fixed), releases_ns(&sporadic));
}

#[test]
fn the_same_seed_draws_the_same_in_later_versions_too() {
    let of_seed = |seed| -> Vec<(u64, u64)> {
        let base = workload(
            r#"{"period_us": 1000, "work": 1, "jobs": 1, "extra_us": 500, "factor": [0, 1]}"#,
        );
        let drawn = Workload { seed, ..base }.plan().take(3);
        drawn
            .map(|it| (it.separation_ns, (it.factor * 1e6) as u64))
            .collect()
    };
    let expected = [
        (1_201_243, 851_912),
        (1_040_191, 50_913),
        (1_298_280, 558_752),
    ];
    assert_eq!(of_seed(1), expected);
    assert_ne!(of_seed(1), of_seed(2));
}

#[test]
fn the_json_of_a_task_is_a_workload_and_its_answer_is_read_as_before() {
    let task = Task {
        period_us: 300,
        work: 10,
        jobs: 3,
        backlog: true,
    };
    let same = workload(&serde_json::to_string(&task).unwrap());
    assert_eq!(same, task.into());
    let done = run(&same);
    let answer = Answer {
        done: done.clone(),
        missed: 0,
        work: 10,
        waited_ns: 7,
    };
    let ran: Ran = serde_json::from_str(&serde_json::to_string(&answer).unwrap()).unwrap();
    assert_eq!((ran.done.len(), ran.waited_ns), (3, 7));
    for (old, new) in ran.done.iter().zip(&done) {
        assert_eq!(
            (old.released_ns, old.finished_ns),
            (new.released_ns, new.finished_ns)
        );
        assert_eq!(new.deadline_ns, new.released_ns + 300_000);
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_what_to_write() {
    for (json, said) in [
        (r#"{"period_us": 1, "jobs": 1}"#, "neither of \"work\""),
        (
            r#"{"period_us": 1, "jobs": 1, "work": 1, "execution_us": 1}"#,
            "both of \"work\"",
        ),
        (
            r#"{"period_us": 1, "jobs": 1000001, "work": 1}"#,
            "1000000 at most",
        ),
        (
            r#"{"period_us": 1, "jobs": 1, "work": 1, "factor": -1}"#,
            "\"factor\" is -1",
        ),
        (
            r#"{"period_us": 1, "jobs": 1, "work": 1, "factor": [2, 1]}"#,
            "\"factor\" is [2.0, 1.0]",
        ),
        (
            r#"{"period_us": 1, "jobs": 1, "work": 1, "factor": [0, 1001]}"#,
            "0 to 1000",
        ),
        (
            r#"{"period_us": 1, "jobs": 1, "work": 1, "buffer_kib": 0}"#,
            "1 to 1048576",
        ),
        (
            r#"{"period_us": 1, "jobs": 1, "work": 1, "buffer_kib": 1048577}"#,
            "1 to 1048576",
        ),
    ] {
        let error = workload(json).prepare().unwrap_err().to_string();
        assert!(error.contains(said), "{json}: {error}");
    }
    for (json, said) in [
        (
            r#"{"period_us": 1, "jobs": 1, "work": 1, "dedline_us": 1}"#,
            "`deadline_us`",
        ),
        (
            r#"{"period_us": 1, "jobs": 1, "work": 1, "policy": "fifo"}"#,
            "fifo:PRIORITY",
        ),
        (
            r#"{"period_us": 1, "jobs": 1, "work": 1, "factor": "x"}"#,
            "two such as [0.5, 1.5]",
        ),
        (r#"{"jobs": 1, "work": 1}"#, "period_us"),
    ] {
        let error = serde_json::from_str::<Workload>(json)
            .unwrap_err()
            .to_string();
        assert!(error.contains(said), "{json}: {error}");
    }
}

#[test]
fn jobs_are_released_a_period_apart_or_after_the_one_before() {
    let done = run(&workload(r#"{"period_us": 300, "work": 10, "jobs": 20}"#));
    assert_eq!(done.len(), 20);
    for pair in done.windows(2) {
        let due = pair[0].released_ns + 300_000;
        assert_eq!(pair[1].released_ns, due.max(pair[0].finished_ns));
        assert!(pair[1].finished_ns >= pair[1].released_ns);
    }
}

#[test]
fn jobs_that_take_longer_than_their_period_are_counted_as_missed() {
    let late = workload(r#"{"period_us": 1, "work": 100, "jobs": 20, "backlog": true}"#);
    let mut count = Count::default();
    let done = late.prepare().unwrap().run(&mut |job| count.add(job));
    let responses = done.iter().map(|job| job.finished_ns - job.released_ns);
    let missed = responses.filter(|response| *response > 1000).count();
    assert_eq!((count.jobs, count.misses), (20, missed as u64));
    assert!(missed > 0);
}

#[test]
fn with_a_backlog_late_jobs_delay_no_release() {
    let late = workload(r#"{"period_us": 1, "work": 100, "jobs": 20, "backlog": true}"#);
    let done = run(&late);
    for (number, job) in (0..).zip(&done) {
        assert_eq!(job.released_ns, number * 1000);
    }
    // Each takes more than its period: what waits grows.
    let response = |job: &Record| job.finished_ns - job.released_ns;
    assert!(response(&done[19]) > response(&done[0]));
}

#[test]
fn a_length_by_time_is_calibrated_before_the_first_release() {
    let short =
        workload(r#"{"period_us": 2000, "execution_us": 1000, "jobs": 5, "buffer_kib": 64}"#);
    let mut prepared = short.prepare().unwrap();
    assert!(prepared.units() > 1);
    // Half of it: another program may make a job longer, but none shorter by so much.
    for job in prepared.run(&mut |_| {}) {
        assert!(job.finished_ns - job.started_ns > 500_000, "{job:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_job_is_recorded_as_the_model_says(workload in any_workload()) {
        let mut told = Vec::new();
        let done = workload.prepare().unwrap().run(&mut |job| told.push(*job));
        prop_assert_eq!(&told, &done);
        prop_assert_eq!(done.len() as u64, workload.jobs);
        let deadline_ns = workload.deadline_us.unwrap_or(workload.period_us) * 1000;
        for job in &done {
            prop_assert!(job.released_ns <= job.started_ns && job.started_ns <= job.finished_ns);
            prop_assert_eq!(job.deadline_ns, job.released_ns + deadline_ns);
            prop_assert_eq!(job.missed, job.finished_ns > job.deadline_ns);
        }
        for (pair, planned) in done.windows(2).zip(workload.plan()) {
            prop_assert!(pair[0].finished_ns <= pair[1].started_ns);
            let due = pair[0].released_ns + planned.separation_ns;
            let late = if workload.backlog { due } else { due.max(pair[0].finished_ns) };
            prop_assert_eq!(pair[1].released_ns, late);
        }
        if workload.backlog {
            let released: Vec<u64> = done.iter().map(|job| job.released_ns).collect();
            prop_assert_eq!(released, releases_ns(&workload));
        }
    }

    #[test]
    fn a_workload_is_read_as_it_was_written(workload in any_workload(), fifo in prop::option::of(1_u32..100)) {
        let workload = Workload { policy: fifo.map(Policy::Fifo), ..workload };
        let json = serde_json::to_string(&workload).unwrap();
        prop_assert_eq!(serde_json::from_str::<Workload>(&json).unwrap(), workload);
    }

    #[test]
    fn no_text_panics(text in "\\{?(\"(period_us|work|jobs|factor|policy|seed)\": ?[0-9.\\[\\],\"a-z:]{0,8},?){0,6}\\}?") {
        if let Ok(workload) = serde_json::from_str::<Workload>(&text) {
            let _ = workload.plan().take(3).count();
        }
    }
}
