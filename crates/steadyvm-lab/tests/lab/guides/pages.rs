//! Every block of every page is accounted for, and its words are words that the program takes.

use std::fs;
use std::path::PathBuf;
use std::process::Command as Program;

use crate::guides::reader::FILE;
use crate::support::guide::{self, Block, Command, Content};
use crate::support::host_program::host_program;

#[test]
fn every_block_of_every_guide_is_typed_or_says_why_not() {
    let mut faults = Vec::new();
    for path in guide::pages() {
        for block in guide::blocks(&guide::page(&path)) {
            let fault = block.fault().or_else(|| wrong_test(&path, &block));
            faults.extend(fault.map(|it| format!("{path}:{}: {it}", block.line)));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What is wrong with the test that a block names, or with the program: it is not there, or does not read the page.
fn wrong_test(path: &str, block: &Block) -> Option<String> {
    let test = block.typed_by.as_ref()?;
    let read = |place: PathBuf| fs::read_to_string(place).unwrap_or_default();
    let is_there = match test.split_once("::") {
        Some((file, name)) => {
            let source = read(guide::root().join("crates/steadyvm-lab/tests").join(file));
            source.contains(&format!("fn {name}()")) && source.contains(path)
        }
        None => read(guide::root().join(test)).contains(path),
    };
    (!is_there).then(|| format!("{test} is not there, or does not name {path}"))
}

/// Words that stand in the text, or in blocks that nobody types, are words that the program takes.
#[test]
fn every_command_of_a_guide_has_options_that_there_are() {
    let mut faults = Vec::new();
    for path in guide::pages() {
        let page = guide::page(&path);
        let mut all = guide::inline_commands(&page);
        for block in guide::blocks(&page) {
            if let Content::Commands(commands) = block.content {
                all.extend(commands.into_iter().map(|it| it.words));
            }
        }
        for words in all {
            let words = words.trim_start_matches("sudo ");
            if let Some((program @ ("steadyvm" | "steadyvm-lab"), rest)) = words.split_once(' ') {
                let fault = unknown(program, rest);
                faults.extend(fault.map(|it| format!("{path}: {words}: {it}")));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What of these words a program does not know: a verb, or an option of it.
fn unknown(program: &str, words: &str) -> Option<String> {
    // What follows is another program's, or the shell's.
    let ends = |it: &&str| ["--", "|", ">", "&&", "#"].contains(it);
    let words = words.split(';').next().unwrap();
    let words: Vec<&str> = words
        .split_whitespace()
        .take_while(|it| !ends(it))
        .collect();
    let is_verb = |it: &&&str| {
        it.starts_with(|letter: char| letter.is_ascii_lowercase())
            && it
                .chars()
                .all(|letter| letter.is_ascii_lowercase() || letter == '-')
    };
    let verbs: Vec<&str> = words.iter().take_while(is_verb).copied().collect();
    let help_of = |length: usize| {
        let mut asked = Program::new(host_program().with_file_name(program));
        let asked = asked.args(&verbs[..length]).arg("--help").output().unwrap();
        asked
            .status
            .success()
            .then(|| String::from_utf8(asked.stdout).unwrap())
    };
    // A verb may have words of its own after it, unless it has verbs.
    let found = (1..=verbs.len())
        .rev()
        .find_map(|length| Some((length, help_of(length)?)));
    let Some((length, help)) = found else {
        return Some("there is no such verb".to_owned());
    };
    if length < verbs.len() && help.contains("\nCommands:") {
        return Some(format!("there is no verb {}", verbs[length]));
    }
    let options = words.iter().filter(|it| it.starts_with("--"));
    let mut names = options.map(|it| it.split('=').next().unwrap());
    let is_new = |name: &&str| !help.split([' ', ',', '\n', '[', '=']).any(|it| it == *name);
    names.find(is_new).map(|name| format!("there is no {name}"))
}

#[test]
fn a_page_is_read_and_compared() {
    let page = "Write `/etc/steadyvm.toml`, for one\nVM.\n\n<!-- typed by a.rs::b -->\n```toml\na = 1\n```\n\
                Or:\n<!-- added to /etc/steadyvm.toml -->\n```toml\nb = 1\n```\n\
                ```console\n# one 1\n# two\nsaid 22 s\n…\nend\n```\n- a list\n  goes on\n\n      set --key x \\\n          y\n      z\n\n\
                <!-- not typed: it ends the machine -->\n```sh\nhalt\n```\n```json\n{}\n```\n";
    let printed = vec!["said 22 s".to_owned(), "…".to_owned(), "end".to_owned()];
    let command = |words: &str, printed| Command {
        words: words.to_owned(),
        printed,
    };
    let (path, read) = (FILE.to_owned(), guide::blocks(page));
    let contents: Vec<&Content> = read.iter().map(|it| &it.content).collect();
    let text = |text: &str| text.to_owned();
    let all = [
        Content::File {
            path: path.clone(),
            text: text("a = 1"),
        },
        Content::Addition {
            path,
            text: text("b = 1"),
        },
        Content::Commands(vec![
            command("one 1", Some(Vec::new())),
            command("two", Some(printed.clone())),
        ]),
        Content::Commands(vec![command("set --key x \\\ny", None), command("z", None)]),
        Content::Commands(vec![command("halt", None)]),
        Content::Unknown("a block of \"json\"".to_owned()),
    ];
    assert_eq!(contents, all.iter().collect::<Vec<_>>());
    assert!(
        read.iter()
            .all(|it| it.typed_by.as_deref() == Some("a.rs::b"))
    );
    let faults: Vec<bool> = read.iter().map(|it| it.fault().is_some()).collect();
    assert_eq!(faults, [false, false, false, false, false, true]);
    assert!(guide::blocks("\n    typed\n")[0].fault().is_some());
    let idle = guide::blocks("<!-- not typed: no -->\n\n    typed\n");
    assert!(idle[0].fault().is_some(), "{idle:?}");

    let agree = |said: &str| guide::agree(&printed, &said.lines().collect::<Vec<_>>());
    assert!(agree("said 7   s\nend"));
    assert!(agree("said 7 s\nmore\nend"));
    for wrong in ["said 7 s\nmore", "said x s\nend", "", "said 7 s\nend\nmore"] {
        assert!(!agree(wrong), "{wrong}");
    }
    let inline = guide::inline_commands("`sudo steadyvm\nundo` and `other`\n\n    `steadyvm x`\n");
    assert_eq!(inline, ["steadyvm undo"]);
    assert_eq!(unknown("steadyvm", "apply --strict"), None);
    assert!(unknown("steadyvm", "apply --wrong").is_some());
    assert!(unknown("steadyvm", "applied").is_some());
    assert_eq!(unknown("steadyvm-lab", "run --kernel 7.3 -- true"), None);
    assert!(unknown("steadyvm-lab", "apply").is_some());
    assert!(unknown("steadyvm", "sockets servee").is_some());
    assert_eq!(unknown("steadyvm", "status; echo $?"), None);
}
