//! The page of the soundness search: `cargo run --release -p steadyvm-sim --example soundness_page docs/results/soundness.md`.
//!
//! Takes some minutes. Exit code 1 if the file cannot be written.

use std::{env, fmt::Write as _, io, path::Path};

use steadyvm_report::{
    Answer, Finding, Picture,
    picture::{Bar, Group},
    results_page::{self, Details},
};
use steadyvm_sim::soundness::{Search, Tally, search};

const COMMAND: &str =
    "cargo run --release -p steadyvm-sim --example soundness_page docs/results/soundness.md";

/// What is searched: in words, the first seed, and how many files.
const SEARCHES: [(&str, u64, u64); 5] = [
    ("all", 1, 50_000),
    ("all", 460_000, 50_000),
    ("all", 31_000_000, 100_000),
    ("all", 47_100_000, 100_000),
    ("switches cost nothing", 1, 100_000),
];
/// Of the counter-check: the first seed, and how many files.
const LESS: (u64, u64) = (1, 2_000);

/// A search's words, how it is asked for, and what came of it.
struct Row {
    files: &'static str,
    arguments: String,
    tally: Tally,
}

fn run(files: &'static str, seed: u64, wanted: u64, change: impl Fn(Search) -> Search) -> Row {
    let asked = change(Search::new(seed, wanted));
    let mut arguments = format!("--files {wanted} --seed {seed}");
    if !asked.costs {
        arguments += " --free";
    }
    if asked.less {
        arguments += " --less";
    }
    eprintln!("soundness_page: {arguments}");
    Row {
        files,
        arguments,
        tally: search(&asked, |_| ()),
    }
}

fn main() -> io::Result<()> {
    let file = env::args().nth(1);
    let file = file.ok_or_else(|| io::Error::other("give the page's file"))?;
    let rows = SEARCHES.map(|(files, seed, wanted)| {
        let costs = files == "all";
        run(files, seed, wanted, |search| Search {
            costs,
            most: usize::MAX,
            ..search
        })
    });
    let less = run("one VCPU a unit less", LESS.0, LESS.1, |search| Search {
        less: true,
        most: usize::MAX,
        ..search
    });
    let details = Details {
        command: COMMAND.to_owned(),
        warning: "Each file is a plan over random keys that `steadyvm plan` accepts, played by the simulator in up to \
                  four patterns. A file is late if a job is. `cargo run --release -p steadyvm-sim --example soundness -- \
                  ARGUMENTS` repeats a row, and prints the files that are late."
            .to_owned(),
        tables: tables(&rows, &less),
        facts: Vec::new(),
    };
    results_page::write(Path::new(&file), &answer(&rows, &less), &details)
}

fn sum(rows: &[Row], of: impl Fn(&Tally) -> u64) -> u64 {
    rows.iter().map(|row| of(&row.tally)).sum()
}

fn answer(rows: &[Row], less: &Row) -> Answer {
    let late = |of: &str, count: u64, all: u64| Finding::Count {
        of: of.to_owned(),
        what: "accepted files with a late job".to_owned(),
        count,
        all,
    };
    let (accepted, all_late) = (sum(rows, |it| it.accepted), sum(rows, |it| it.late));
    let group = |(name, count, all): (&str, u64, u64)| Group {
        name: name.to_owned(),
        bars: vec![Bar::new(
            "late",
            (all > 0).then(|| 100.0 * count as f64 / all as f64),
            |share| format!("{share:.1} %, {count} of {all} files"),
        )],
    };
    let groups = [
        ("as installed", all_late, accepted),
        (less.files, less.tally.late, less.tally.accepted),
    ];
    Answer {
        question: "Is a plan that is accepted ever late?".to_owned(),
        findings: vec![
            late("as installed", all_late, accepted),
            late("one VCPU a unit less", less.tally.late, less.tally.accepted),
        ],
        picture: Picture {
            title: "Accepted files with a late job".to_owned(),
            groups: groups.into_iter().map(group).collect(),
        },
    }
}

fn tables(rows: &[Row], less: &Row) -> String {
    let mut text =
        "| files | accepted | drawn | jobs | late | ARGUMENTS |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for row in rows.iter().chain([less]) {
        let it = &row.tally;
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | `{}` |",
            row.files, it.accepted, it.drawn, it.jobs, it.late, row.arguments
        );
    }
    text += "\nThe files as installed, by what they have:\n\n| files with | accepted | late |\n|---|---|---|\n";
    let mut kinds = std::collections::BTreeMap::<&str, (u64, u64)>::new();
    for (kind, (accepted, late)) in rows.iter().flat_map(|row| &row.tally.kinds) {
        let sums = kinds.entry(kind).or_default();
        *sums = (sums.0 + accepted, sums.1 + late);
    }
    for (kind, (accepted, late)) in kinds {
        let _ = writeln!(text, "| {kind} | {accepted} | {late} |");
    }
    text
}
