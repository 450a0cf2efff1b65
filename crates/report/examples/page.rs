//! A results page for a program that is not Rust's: `{"answer": ..., "details": ...}` as JSON on standard input, the page's file as
//! the one argument. The fields are those of `Answer` and `Details`.

use serde::Deserialize;
use std::path::Path;
use std::{env, io};
use steadyvm_report::Answer;
use steadyvm_report::results_page::{Details, write};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    answer: Answer,
    details: Details,
}

fn main() -> io::Result<()> {
    let file = env::args().nth(1);
    let file = file.ok_or_else(|| io::Error::other("give the page's file"))?;
    let given: Given = serde_json::from_reader(io::stdin())?;
    write(Path::new(&file), &given.answer, &given.details)
}
