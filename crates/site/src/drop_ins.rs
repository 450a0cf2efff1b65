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
use steadyvm_config as config;
use steadyvm_host::HostError;

/// The most that one of these files may have, in bytes.
const MAX_BYTES: u64 = 1 << 16;

const TO_DO: &str =
    "fix or delete it; the program that describes its VM writes it at the VM's next start";

/// A file beside the owner's.
#[derive(Debug, Clone, PartialEq)]
pub struct DropIn {
    path: PathBuf,
    /// Its VMs, or why it cannot be used.
    read: Result<config::DropIn, String>,
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
        let name = path.display().to_string();
        let read = config::DropIn::parse(&name, text).map_err(|error| unusable(&error));
        Self { path, read }
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
                read: Err(error.to_string()),
            }),
        }
    }
    found
}

/// None if its program has removed it meanwhile: that VM is gone.
fn drop_in(path: PathBuf) -> Option<DropIn> {
    match read(&path) {
        Ok(text) => Some(DropIn::to_come(path, &text?)),
        Err(error) => Some(DropIn {
            path,
            read: Err(error.to_string()),
        }),
    }
}

/// The owner's file with all files that can stand beside it, and those that cannot. `parse` takes the whole; an error of it
/// that has no place is called by its first argument.
///
/// # Errors
/// The owner's file is wrong by itself.
pub fn combine<T, E: Display>(
    name: &str,
    owners: &config::File,
    files: &[DropIn],
    parse: impl Fn(&str, &config::File) -> Result<T, E>,
) -> Result<(T, Vec<LeftOut>), E> {
    let mut left_out = Vec::new();
    let mut good: Vec<(&Path, &config::DropIn)> = Vec::new();
    let mut known: BTreeMap<&str, String> =
        owners.vm_names().map(|vm| (vm, name.to_owned())).collect();
    for DropIn { path, read } in files {
        let mut leave_out = |error: String| {
            let path = path.clone();
            left_out.push(LeftOut { path, error });
        };
        let file = match read {
            Ok(file) => file,
            Err(error) => {
                leave_out(error.clone());
                continue;
            }
        };
        let place = path.display().to_string();
        if let Some((vm, other)) = file.vm_names().find_map(|vm| known.get_key_value(vm)) {
            leave_out(format!(
                "{place}: VM \"{vm}\" is described by {other} already; delete one of the two"
            ));
            continue;
        }
        // By itself, so that it stops no other file.
        if let Err(error) = parse(&place, &owners.with([file])) {
            leave_out(named(&place, &error.to_string()));
            continue;
        }
        known.extend(file.vm_names().map(|vm| (vm, place.clone())));
        good.push((path, file));
    }
    let all = owners.with(good.iter().map(|(_, file)| *file));
    match parse(name, &all) {
        Ok(parsed) => return Ok((parsed, left_out)),
        Err(error) if good.is_empty() => return Err(error),
        Err(_) => {}
    }
    // Each is good with the owner's, and all of them are not: those count that can, in their order.
    let mut parsed = parse(name, owners)?;
    let mut counting: Vec<&config::DropIn> = Vec::new();
    for (path, file) in good {
        counting.push(file);
        match parse(name, &owners.with(counting.iter().copied())) {
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

/// An error with the file that it is of.
fn named(place: &str, error: &str) -> String {
    if error.contains(place) {
        error.to_owned()
    } else {
        format!("{place}: {error}")
    }
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

fn cannot_read(path: &Path, why: &str) -> HostError {
    HostError::BadInput {
        what: format!("cannot read {}: {why}", path.display()),
        fix: TO_DO.into(),
    }
}

fn unusable(error: &config::Error) -> String {
    format!("{error}; {TO_DO}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A reader that refuses some VMs, with their places as ours do.
    fn parse(name: &str, file: &config::File) -> Result<Vec<String>, String> {
        if let Some(vm) = (file.vm.iter()).find(|vm| vm.class.as_deref() == Some("nope")) {
            return Err(format!("{}: there is no class \"nope\"", vm.place));
        }
        let names: Vec<String> = file.vm_names().map(str::to_owned).collect();
        if names.len() != file.vm.len() {
            return Err(format!("{name}: a VM has no name"));
        }
        if names.iter().any(|name| name == "first") && names.iter().any(|name| name == "second") {
            return Err(format!("{name}: first and second do not go together"));
        }
        Ok(names)
    }

    fn owners(text: &str) -> config::File {
        config::File::parse("steadyvm.toml", text).unwrap()
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
        combine("steadyvm.toml", &owners(OWNERS), &found, parse).unwrap()
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
            (
                &b"[host]\npcpus = 9"[..],
                "m.toml line 1 column 2: this file has \"host\"; files in this directory may only have [[vm]]",
            ),
            (b"[class.rt]\nrt = false", "[[vm]]"),
            (b"vm = 1", "[[vm]]"),
            (b"[vm]\nname = \"a\"", "[[vm]]"),
            (b"[[vm]", "m.toml line 1 column 6"),
            (
                b"[[vm]]\nname = \"x\"\ncpuz = [1]\n",
                "m.toml line 3 column 1: unknown field `cpuz`",
            ),
            (b"\xff\xfe\0", "cannot read"),
            (huge.as_bytes(), "cannot read"),
            (b"[[vm]]\nbudget = \"2ms\"\n", "no name"),
            // Line 5 of the file itself, whatever the owner's has.
            (nope.as_bytes(), "m.toml line 3 column 1: there is no class"),
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

    /// Editors of other systems write one; it counts for no column.
    #[test]
    fn a_byte_order_mark_is_no_fault() {
        let marked = format!("\u{feff}{}", vm("a"));
        let (names, left_out) = combined(&[("a.toml", marked.as_bytes())]);
        assert_eq!((names, left_out), (vec!["own".into(), "a".into()], vec![]));
        let wrong = "\u{feff}cpuz = 1\n";
        let (_, left_out) = combined(&[("a.toml", wrong.as_bytes())]);
        assert!(
            left_out[0].error.contains("a.toml line 1 column 1"),
            "{left_out:?}"
        );
    }

    #[test]
    fn the_owners_own_fault_is_an_error() {
        let error = combine("steadyvm.toml", &owners("[[vm]]\n"), &[], parse).unwrap_err();
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
