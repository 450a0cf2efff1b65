//! A newcomer's walk through docs/guide/host.md on a host with libvirt: the files and commands of the page one after
//! another, and that they print what the page says: `make libvirt-tests`. As tests/lab.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

#[allow(dead_code, reason = "it uses a part of it")]
#[path = "support/libvirt.rs"]
mod libvirt;

use libvirt::{STEADY_CLOCK, await_guest, define, inside, install_hook, try_inside, write};

const PAGE: &str = include_str!("../../../docs/guide/host.md");
const FILE: &str = "/etc/steadyvm.toml";

/// What a reader of the page does.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Writes the file.
    File(String),
    /// Runs a command, and reads what it prints.
    Command {
        words: String,
        expected: Vec<String>,
    },
}

/// Blocks of `console` are commands after a root's prompt, each with what it prints. A block of `toml` is the host's file
/// where the line before it says so.
fn steps(page: &str) -> Vec<Step> {
    let mut found = Vec::new();
    let mut before = "";
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let kind = line.strip_prefix("```");
        let block: Vec<&str> = match kind {
            Some(_) => lines.by_ref().take_while(|line| *line != "```").collect(),
            None => Vec::new(),
        };
        match kind {
            Some("console") => found.extend(commands(&block)),
            Some("toml") if before.starts_with(&format!("`{FILE}`")) => {
                found.push(Step::File(block.join("\n")));
            }
            _ => {}
        }
        if !line.trim().is_empty() {
            before = line;
        }
    }
    found
}

fn commands(block: &[&str]) -> Vec<Step> {
    let mut found: Vec<Step> = Vec::new();
    for line in block {
        if let Some(words) = line.strip_prefix("# ") {
            let words = words.to_owned();
            let expected = Vec::new();
            found.push(Step::Command { words, expected });
        } else if let Some(Step::Command { expected, .. }) = found.last_mut() {
            expected.push((*line).to_owned());
        } else {
            panic!("{line}: a block of commands begins with one");
        }
    }
    found
}

/// Numbers of processes, threads and interrupts differ from host to host.
fn without_numbers(line: &str) -> String {
    let mut read = String::new();
    for word in line.split_whitespace() {
        let mut in_number = false;
        for letter in word.chars() {
            let is_digit = letter.is_ascii_digit();
            if !is_digit {
                read.push(letter);
            } else if !in_number {
                read.push('N');
            }
            in_number = is_digit;
        }
        read.push(' ');
    }
    read.trim_end().to_owned()
}

/// Whether lines are as expected; `…` stands for any lines, or none.
fn agree(expected: &[String], said: &[String]) -> bool {
    let Some((first, rest)) = expected.split_first() else {
        return said.is_empty();
    };
    if first.trim() == "…" {
        return (0..=said.len()).any(|skipped| agree(rest, &said[skipped..]));
    }
    said.split_first().is_some_and(|(line, others)| {
        without_numbers(first) == without_numbers(line) && agree(rest, others)
    })
}

#[test]
fn a_page_is_read_and_compared() {
    let page = "`/etc/steadyvm.toml`:\n\n```toml\na = 1\n```\n```toml\nb = 1\n```\n\
                ```console\n# one 1\n# two\nsaid 22 s\n…\nend\n```\n";
    let expected = vec!["said 22 s".to_owned(), "…".to_owned(), "end".to_owned()];
    let command = |words: &str, expected| Step::Command {
        words: words.to_owned(),
        expected,
    };
    let read = steps(page);
    let all = vec![
        Step::File("a = 1".to_owned()),
        command("one 1", Vec::new()),
        command("two", expected.clone()),
    ];
    assert_eq!(read, all);
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(agree(&expected, &lines("said 7   s\nend")));
    assert!(agree(&expected, &lines("said 7 s\nmore\nend")));
    for wrong in ["said 7 s\nmore", "said x s\nend", "", "said 7 s\nend\nmore"] {
        assert!(!agree(&expected, &lines(wrong)), "{wrong}");
    }
    // The guide has commands.
    assert!(steps(PAGE).len() > 5);
}

#[test]
#[ignore = "needs the lab: make libvirt-tests"]
fn a_newcomer_walks_through_the_guide() {
    let host = libvirt::host();
    install_hook(&host);
    // The page's host: its card is eth1, and a domain runs.
    inside(
        &host,
        "ip link set rt down; ip link set rt name eth1; ip link set eth1 up",
    );
    define(&host, "web", "10.77.1.3", STEADY_CLOCK);
    inside(&host, "virsh --quiet start web");
    await_guest(&host, "web");
    inside(&host, "steadyvm host snapshot > /run/before.json");
    let mut differences = Vec::new();
    for step in steps(PAGE) {
        match step {
            Step::File(text) => write(&host, FILE, &text),
            Step::Command { words, expected } => {
                // As a shell that people type into: it goes on when a command fails.
                let (_, said) = try_inside(&host, &format!("set +e; {words}"));
                println!("# {words}\n{said}");
                let said: Vec<String> = said
                    .lines()
                    .map(|line| line.trim_end().to_owned())
                    .collect();
                if !agree(&expected, &said) {
                    differences.push(words);
                }
            }
        }
    }
    assert!(
        differences.is_empty(),
        "the page says otherwise of: {differences:?}"
    );
    // The page takes everything back at its end.
    inside(&host, "steadyvm host snapshot --compare /run/before.json");
    inside(
        &host,
        "virsh --quiet destroy web; virsh --quiet undefine web",
    );
}
