//! The man page.

use roff::{Inline, Roff, bold, roman};

use super::{INTRODUCTION, Key, SECTIONS};

/// steadyvm.toml(5), of a version of the program.
pub fn man(version: &str) -> String {
    let mut page = Roff::new();
    let program = format!("steadyvm {version}");
    page.control("TH", ["steadyvm.toml", "5", "", &program]);
    page.control("SH", ["NAME"]);
    page.text([roman(
        "steadyvm.toml - what a host of virtual machines is to have",
    )]);
    page.control("SH", ["DESCRIPTION"]);
    prose(&mut page, INTRODUCTION);
    for section in SECTIONS {
        page.control("SH", [section.heading.replace('`', "").as_str()]);
        prose(&mut page, &section.prose());
        for key in section.keys {
            entry(&mut page, key);
        }
    }
    page.control("SH", ["FILES"]);
    page.text([roman(
        "/etc/steadyvm.toml, /etc/steadyvm.d/*.toml, /run/steadyvm.d/*.toml",
    )]);
    page.control("SH", ["SEE ALSO"]);
    page.text([roman(
        "steadyvm(1), steadyvm-apply(1), steadyvm-plan(1), steadyvm-status(1)",
    )]);
    page.render()
}

fn entry(page: &mut Roff, key: &Key) {
    page.control("TP", []);
    page.text(inlines(&key.code()));
    let mut text = vec![roman(format!("({}; default: ", key.kind))];
    if key.default == "needed" {
        text = vec![roman(format!("({}; needed", key.kind))];
    } else {
        text.extend(inlines(key.default));
    }
    text.push(roman(") "));
    text.extend(inlines(&key.meaning()));
    page.text(text);
}

/// Paragraphs and lists.
fn prose(page: &mut Roff, text: &str) {
    for block in text.split("\n\n") {
        let is_list = block.trim_start().starts_with("- ");
        if !is_list {
            page.control("PP", []);
            page.text(inlines(&joined(block)));
            continue;
        }
        for item in block.trim_start().trim_start_matches("- ").split("\n- ") {
            page.control("IP", ["\u{2022}", "2"]);
            page.text(inlines(&joined(item)));
        }
    }
}

fn joined(block: &str) -> String {
    let lines: Vec<&str> = block.lines().map(str::trim).collect();
    lines.join(" ").trim().to_owned()
}

/// A line of Markdown: code and bold in bold, links by their words.
fn inlines(line: &str) -> Vec<Inline> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(start) = rest.find(['`', '*', '[']) {
        let (before, mark) = rest.split_at(start);
        let next = marked(mark);
        let (inline, after) = next.unwrap_or_else(|| {
            let (one, after) = mark.split_at(1);
            (roman(one), after)
        });
        found.extend([roman(before), inline]);
        rest = after;
    }
    found.push(roman(rest));
    found
}

/// What a text begins with, and what follows it; none if it is not marked.
fn marked(text: &str) -> Option<(Inline, &str)> {
    if let Some(code) = text.strip_prefix('`') {
        let (code, after) = code.split_once('`')?;
        return Some((bold(code), after));
    }
    if let Some(strong) = text.strip_prefix("**") {
        let (strong, after) = strong.split_once("**")?;
        return Some((bold(strong), after));
    }
    let (words, after) = text.strip_prefix('[')?.split_once("](")?;
    let (_, after) = after.split_once(')')?;
    Some((roman(words), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_not_shown() {
        let page = man("1.2.3");
        assert!(page.contains("steadyvm 1.2.3"), "{page}");
        for mark in ["`", "](", "**"] {
            assert!(!page.contains(mark), "{mark}: {page}");
        }
        assert!(page.contains("\\fBpcpus\\fR"), "{page}");
    }

    #[test]
    fn what_only_looks_like_a_mark_stays() {
        let text = |line: &str| {
            let mut page = Roff::new();
            page.text(inlines(line));
            page.to_roff()
        };
        assert_eq!(text("a * b [c] `d"), "a * b [c] `d\n");
    }
}
