//! What builds from source packages share: unpacking, patching, compiling.

use super::{SET_UP, output};
use crate::child;
use crate::progress::{News, Observer};
use crate::{At, Error, Result};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Unpacks an archive's only top directory into `tree`, which is made.
pub fn unpack(archive: &Path, tree: &Path) -> Result<()> {
    fs::create_dir_all(tree).at("create", tree)?;
    let mut command = Command::new("tar");
    command
        .arg("-xf")
        .arg(archive)
        .arg("--strip-components=1")
        .arg("-C")
        .arg(tree);
    output(&mut command).map(drop)
}

/// Applies a patch, which must fit without guessing.
pub fn apply_patch(tree: &Path, name: &str, text: &str) -> Result<()> {
    let what = format!("apply the patch {name}");
    let mut patch = Command::new("patch")
        .args(["-p1", "--batch", "--forward", "--fuzz=0"])
        .current_dir(tree)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .doing(what.clone())?;
    if let Some(mut input) = patch.stdin.take() {
        input.write_all(text.as_bytes()).doing(what.clone())?;
    }
    let done = patch.wait_with_output().doing(what.clone())?;
    if done.status.success() {
        return Ok(());
    }
    Err(Error::machine(
        what,
        String::from_utf8_lossy(&done.stdout).trim(),
    ))
}

/// Runs a build tool that takes `-jN`, on all CPUs. The observer is told of each of its lines; `lines`, as
/// far as known, scales the progress.
pub fn build_with(tool: &Command, lines: u64, observer: &dyn Observer) -> Result<()> {
    let jobs = std::thread::available_parallelism().map_or(2, usize::from);
    let mut command = contained(tool);
    command.arg(format!("-j{jobs}"));
    let mut done = 0;
    finish(tool, command, |line| {
        let (of, detail) = (lines.max(done + 1), line.trim().to_owned());
        observer.tell(News::Advance { done, of, detail });
        done += 1;
    })
}

/// Runs a long command to its end.
pub fn run(tool: &Command) -> Result<()> {
    finish(tool, contained(tool), |_| {})
}

/// The command in a PID namespace, so that not one of its processes outlives it.
fn contained(tool: &Command) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--pid", "--fork", "--kill-child"])
        .arg(tool.get_program())
        .args(tool.get_args())
        .envs(
            tool.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
    if let Some(directory) = tool.get_current_dir() {
        command.current_dir(directory);
    }
    command
}

fn finish(tool: &Command, mut command: Command, mut see: impl FnMut(&str)) -> Result<()> {
    let name = tool.get_program().to_string_lossy().into_owned();
    let log = tempfile::NamedTempFile::new().doing(format!("run {name}"))?;
    let errors = File::options()
        .append(true)
        .open(log.path())
        .at("write", &log)?;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors);
    let mut child = child::spawn(command).map_err(|error| error.what_to_do(SET_UP))?;
    let mut said = Vec::new();
    if let Some(output) = child.streams().stdout.take() {
        let output = BufReader::new(output).lines();
        for line in output.map_while(std::io::Result::ok) {
            see(&line);
            if line.to_lowercase().contains("error:") {
                said.push(line);
            }
        }
    }
    if child.wait()?.success() {
        return Ok(());
    }
    let errors = fs::read_to_string(log.path()).unwrap_or_default();
    said.extend(most_telling(&errors));
    said.truncate(3);
    let why = format!("{name} failed: {}", said.join(" / "));
    Err(Error::machine(format!("run {name}"), why).what_to_do(SET_UP))
}

/// The lines that speak of an error, or else the last ones.
fn most_telling(errors: &str) -> Vec<String> {
    let of_errors = errors
        .lines()
        .filter(|line| line.to_lowercase().contains("error"));
    let mut lines: Vec<&str> = of_errors.collect();
    if lines.is_empty() {
        lines = errors.lines().collect();
        lines.drain(..lines.len().saturating_sub(3));
    }
    lines.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_the_command_said_of_it() {
        let failing = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            run(&command).unwrap_err().why
        };
        let why = failing("echo CC error.c.o; echo a.c: error: b; echo Error 1 >&2; exit 1");
        assert_eq!(why, "sh failed: a.c: error: b / Error 1");
        let why = failing("for line in 1 2 3 4; do echo E: $line >&2; done; exit 1");
        assert_eq!(why, "sh failed: E: 2 / E: 3 / E: 4");
    }
}
