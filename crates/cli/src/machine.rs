//! What a measurement says about how it was called, and of the programs that it used.

use std::ffi::OsStr;
use std::process::Command;

/// The words that this program was called by, as a reader can type them: by its own name, whatever its file is called.
pub fn command_line(program: &str) -> Vec<String> {
    as_typed(program, std::env::args().collect())
}

fn as_typed(program: &str, mut words: Vec<String>) -> Vec<String> {
    if let Some(first) = words.first_mut() {
        program.clone_into(first);
    }
    words
}

/// The first line that a program prints for one argument.
pub fn first_line_of(program: impl AsRef<OsStr>, argument: &str) -> String {
    let output = Command::new(program).arg(argument).output();
    let text = output.map(|done| String::from_utf8_lossy(&done.stdout).into_owned());
    text.unwrap_or_default()
        .lines()
        .next()
        .unwrap_or("unknown")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::as_typed;

    #[test]
    fn a_command_line_names_the_program_and_not_its_place() {
        for (line, typed) in [
            (
                "/opt/a/steadyvm measure --out /x/y",
                "steadyvm measure --out /x/y",
            ),
            ("steadyvm doctor", "steadyvm doctor"),
            ("/tmp/svm2 doctor", "steadyvm doctor"),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(as_typed("steadyvm", words).join(" "), typed);
        }
        assert_eq!(as_typed("steadyvm", Vec::new()), Vec::<String>::new());
    }
}
