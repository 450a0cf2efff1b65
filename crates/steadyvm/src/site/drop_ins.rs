//! VMs that other programs describe: a file each beside the owner's, such as those of a cloud's hook.
//!
//! Beside `/etc/steadyvm.toml` these are `/etc/steadyvm.d/*.toml`, then `/run/steadyvm.d/*.toml`, which are gone with the
//! boot, in the order of their names. A file there has `[[vm]]` tables only: what the host is, and what classes there are,
//! the owner alone says.
//!
//! Rule: a file that is wrong is left out and told by its name. The others, and the owner's, count.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use serde::Serialize;
use steadyvm_host::HostError;

/// The most that one of these files may have, in bytes.
const MAX_BYTES: u64 = 1 << 16;

/// A file beside the owner's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropIn {
    path: PathBuf,
    /// Its text, or why it cannot be used.
    text: Result<String, String>,
}

/// A file that is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The file.
    pub path: PathBuf,
    /// Why, and what to do.
    pub error: String,
}

impl DropIn {
    /// One that is not written yet.
    pub fn to_come(path: PathBuf, text: &str) -> Self {
        let text = check(&path, text).map_err(|error| error.to_string());
        Self { path, text }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The directories beside a file; none for standard input. Beside one of /etc that is one of /run, too.
fn directories(file: &Path) -> Vec<PathBuf> {
    if file == Path::new("-") {
        return Vec::new();
    }
    let beside = file.with_extension("d");
    let etc = file.parent().filter(|parent| parent.ends_with("etc"));
    let until_reboot = etc.and_then(Path::parent).zip(beside.file_name());
    let until_reboot = until_reboot.map(|(root, name)| root.join("run").join(name));
    std::iter::once(beside).chain(until_reboot).collect()
}

/// Reads the files beside the owner's. A directory that cannot be read is told as a file would be.
pub fn beside(file: &Path) -> Vec<DropIn> {
    let mut found = Vec::new();
    for directory in directories(file) {
        match files(&directory) {
            Ok(paths) => found.extend(paths.into_iter().filter_map(drop_in)),
            Err(error) => found.push(DropIn {
                path: directory,
                text: Err(error.to_string()),
            }),
        }
    }
    found
}

/// None if its program has removed it meanwhile: that VM is gone.
fn drop_in(path: PathBuf) -> Option<DropIn> {
    let text = match read(&path) {
        Ok(text) => check(&path, &text?),
        Err(error) => Err(error),
    };
    let text = text.map_err(|error| error.to_string());
    Some(DropIn { path, text })
}

/// The owner's text with all files that can stand behind it, and those that cannot. `parse` reads a text whose errors name
/// the file of its first argument.
///
/// # Errors
/// The owner's text is wrong by itself.
pub fn combine<T, E: Display>(
    name: &str,
    owners: &str,
    files: &[DropIn],
    parse: impl Fn(&str, &str) -> Result<T, E>,
) -> Result<(T, Vec<LeftOut>), E> {
    let mut left_out = Vec::new();
    let mut good: Vec<(&Path, &str)> = Vec::new();
    let mut known: BTreeMap<String, String> = names(owners)
        .into_iter()
        .map(|vm| (vm, name.to_owned()))
        .collect();
    for DropIn { path, text } in files {
        let mut leave_out = |error: String| {
            let path = path.clone();
            left_out.push(LeftOut { path, error });
        };
        let text = match text {
            Ok(text) => text,
            Err(error) => {
                leave_out(error.clone());
                continue;
            }
        };
        let of_file = names(text);
        if let Some((vm, other)) = of_file.iter().find_map(|vm| known.get_key_value(vm)) {
            leave_out(format!(
                "{}: VM \"{vm}\" is described by {other} already; delete one of the two",
                path.display()
            ));
            continue;
        }
        let place = path.display().to_string();
        // By itself, so that it stops no other file.
        if let Err(error) = parse(&place, &joined(owners, &[text])) {
            leave_out(in_own_lines(&error.to_string(), &place, owners));
            continue;
        }
        known.extend(of_file.into_iter().map(|vm| (vm, place.clone())));
        good.push((path, text));
    }
    let all: Vec<&str> = good.iter().map(|(_, text)| *text).collect();
    match parse(name, &joined(owners, &all)) {
        Ok(parsed) => return Ok((parsed, left_out)),
        Err(error) if good.is_empty() => return Err(error),
        Err(_) => {}
    }
    // Each is good with the owner's, and all of them are not: those count that can, in their order.
    let mut parsed = parse(name, owners)?;
    let mut counting: Vec<&str> = Vec::new();
    for (path, text) in good {
        counting.push(text);
        match parse(name, &joined(owners, &counting)) {
            Ok(more) => parsed = more,
            Err(error) => {
                counting.pop();
                left_out.push(LeftOut {
                    path: path.to_owned(),
                    error: format!(
                        "{} does not go with those before it: {error}",
                        path.display()
                    ),
                });
            }
        }
    }
    Ok((parsed, left_out))
}

fn joined(owners: &str, files: &[&str]) -> String {
    let mut text = owners.to_owned();
    for file in files {
        text.push('\n');
        text.push_str(file);
    }
    text
}

/// An error of the joined texts, with the line of the file itself.
fn in_own_lines(error: &str, place: &str, owners: &str) -> String {
    let before = joined(owners, &[""]).matches('\n').count();
    let sign = format!("{place} line ");
    let Some((start, rest)) = error.split_once(&sign) else {
        return format!("{place}: {error}");
    };
    let digits = rest.chars().take_while(char::is_ascii_digit).count();
    match rest[..digits].parse::<usize>() {
        Ok(line) if line > before => {
            format!("{start}{sign}{}{}", line - before, &rest[digits..])
        }
        _ => error.to_owned(),
    }
}

/// The names of a text's VMs; none where it is no TOML, which its reader tells.
fn names(text: &str) -> Vec<String> {
    let tables: toml::Table = text.parse().unwrap_or_default();
    let vms = tables.get("vm").and_then(toml::Value::as_array);
    let names = vms.into_iter().flatten();
    let names = names.filter_map(|vm| vm.get("name")?.as_str().map(str::to_owned));
    names.collect()
}

fn files(directory: &Path) -> Result<Vec<PathBuf>, HostError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(cannot_read(directory, &error.to_string())),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry
            .map_err(|error| cannot_read(directory, &error.to_string()))?
            .path();
        if path.extension().is_some_and(|end| end == "toml") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn read(path: &Path) -> Result<Option<String>, HostError> {
    let mut text = String::new();
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(cannot_read(path, &error.to_string())),
    };
    file.take(MAX_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|error| cannot_read(path, &error.to_string()))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(cannot_read(
            path,
            &format!("it has more than {MAX_BYTES} bytes"),
        ));
    }
    Ok(Some(text))
}

fn check(path: &Path, text: &str) -> Result<String, HostError> {
    let tables: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| cannot_read(path, error.message()))?;
    match tables
        .iter()
        .find(|(name, value)| *name != "vm" || !value.is_array())
    {
        None => Ok(text.to_owned()),
        Some((name, _)) => Err(HostError::BadInput {
            what: format!(
                "{} has \"{name}\"; files in this directory may only have [[vm]] tables",
                path.display()
            ),
            fix: "move it into the file that describes this host".into(),
        }),
    }
}

fn cannot_read(path: &Path, why: &str) -> HostError {
    HostError::BadInput {
        what: format!("cannot read {}: {why}", path.display()),
        fix: "fix or delete it; the program that describes its VM writes it at the VM's next start"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A reader that knows VMs and refuses some: with the line of the joined text, as ours do.
    fn parse(name: &str, text: &str) -> Result<Vec<String>, String> {
        if let Some(line) = text.lines().position(|line| line.contains("nope")) {
            return Err(format!(
                "{name} line {} column 1: there is no class \"nope\"",
                line + 1
            ));
        }
        let tables: toml::Table = text.parse().map_err(|error| format!("{name}: {error}"))?;
        let vms = tables.get("vm").and_then(toml::Value::as_array);
        let names: Vec<String> = names(text);
        if names.len() != vms.map_or(0, Vec::len) {
            return Err(format!("{name}: a VM has no name"));
        }
        if names.iter().any(|name| name == "first") && names.iter().any(|name| name == "second") {
            return Err(format!("{name}: first and second do not go together"));
        }
        Ok(names)
    }

    const OWNERS: &str = "[class.rt]\nrt = true\n[[vm]]\nname = \"own\"\n";

    fn combined(files: &[(&str, &[u8])]) -> (Vec<String>, Vec<LeftOut>) {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("steadyvm.d");
        fs::create_dir(&directory).unwrap();
        for (name, bytes) in files {
            fs::write(directory.join(name), bytes).unwrap();
        }
        let found = beside(&place.path().join("steadyvm.toml"));
        combine("steadyvm.toml", OWNERS, &found, parse).unwrap()
    }

    fn vm(name: &str) -> String {
        format!("[[vm]]\nname = \"{name}\"\n")
    }

    #[test]
    fn files_stand_behind_each_other_in_the_order_of_their_names() {
        let (a, b) = (vm("a"), vm("b"));
        let (names, left_out) = combined(&[
            ("b.toml", b.as_bytes()),
            ("a.toml", a.as_bytes()),
            ("a.toml.new", b"not read"),
        ]);
        assert_eq!(names, ["own", "a", "b"]);
        assert_eq!(left_out, []);
    }

    #[test]
    fn without_a_directory_or_a_file_there_is_nothing() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(beside(&place.path().join("steadyvm.toml")), []);
        assert_eq!(beside(Path::new("-")), []);
        let both = ["/etc/steadyvm.d", "/run/steadyvm.d"].map(PathBuf::from);
        assert_eq!(directories(Path::new("/etc/steadyvm.toml")), both);
    }

    /// Whatever is wrong with a file, it is named and the files around it count.
    #[test]
    fn a_file_that_is_wrong_is_left_out_by_itself() {
        let (a, z) = (vm("a"), vm("z"));
        let huge = "#".repeat(usize::try_from(MAX_BYTES).unwrap() + 1);
        let nope = format!("\n\n{}class = \"nope\"\n", vm("x"));
        for (bytes, why) in [
            (&b"[host]\npcpus = 9"[..], "[[vm]]"),
            (b"[class.rt]\nrt = false", "[[vm]]"),
            (b"vm = 1", "[[vm]]"),
            (b"[vm]\nname = \"a\"", "[[vm]]"),
            (b"[[vm]", "cannot read"),
            (b"\xff\xfe\0", "cannot read"),
            (huge.as_bytes(), "cannot read"),
            (b"[[vm]]\nbudget = \"2ms\"\n", "no name"),
            // Line 5 of the file itself, whatever the owner's has.
            (nope.as_bytes(), "m.toml line 5 column 1"),
            (
                vm("own").as_bytes(),
                "\"own\" is described by steadyvm.toml",
            ),
            (vm("a").as_bytes(), "a.toml already"),
        ] {
            let files = [
                ("a.toml", a.as_bytes()),
                ("m.toml", bytes),
                ("z.toml", z.as_bytes()),
            ];
            let (names, left_out) = combined(&files);
            assert_eq!(names, ["own", "a", "z"], "{why}");
            let [LeftOut { path, error }] = &left_out[..] else {
                panic!("{why}: {left_out:?}");
            };
            assert!(path.ends_with("steadyvm.d/m.toml"), "{path:?}");
            assert!(error.contains(why) && error.contains("m.toml"), "{error}");
        }
    }

    #[test]
    fn of_files_that_do_not_go_together_the_first_counts() {
        let (first, second, third) = (vm("first"), vm("second"), vm("third"));
        let (names, left_out) = combined(&[
            ("1.toml", first.as_bytes()),
            ("2.toml", second.as_bytes()),
            ("3.toml", third.as_bytes()),
        ]);
        assert_eq!(names, ["own", "first", "third"]);
        assert_eq!(left_out.len(), 1);
        assert!(left_out[0].path.ends_with("2.toml"));
    }

    #[test]
    fn the_owners_own_fault_is_an_error() {
        let error = combine("steadyvm.toml", "[[vm]]\n", &[], parse).unwrap_err();
        assert!(error.contains("steadyvm.toml"), "{error}");
    }

    proptest! {
        #[test]
        fn no_bytes_stop_another_file(bytes in prop::collection::vec(any::<u8>(), 0..48)) {
            let a = vm("a");
            let (names, _) = combined(&[("a.toml", a.as_bytes()), ("b.toml", &bytes)]);
            prop_assert_eq!(&names[..2], &["own".to_owned(), "a".to_owned()]);
        }
    }
}
