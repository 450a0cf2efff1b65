//! VMs that other programs describe: a file each beside the owner's, such as those of a cloud's hook.
//!
//! Beside `/etc/steadyvm.toml` that is `/etc/steadyvm.d/*.toml`, in the order of their names. A file there has
//! `[[vm]]` tables only: what the host is, and what classes there are, the owner alone says.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use steadyvm_host::HostError;

/// The most that one of these files may have, in bytes.
const MAX_BYTES: u64 = 1 << 16;

/// The directory beside a file; none for standard input.
fn directory(file: &Path) -> Option<PathBuf> {
    (file != Path::new("-")).then(|| file.with_extension("d"))
}

/// The text of all of them, to stand behind the owner's; empty without a directory.
///
/// # Errors
/// A file that cannot be read, that is no TOML, or that has more than `[[vm]]` tables.
pub fn text_beside(file: &Path) -> Result<String, HostError> {
    let mut text = String::new();
    for path in directory(file).map_or_else(|| Ok(Vec::new()), |found| files(&found))? {
        // One that its hook has removed meanwhile is a VM that is gone.
        if let Some(of_file) = read(&path)? {
            check(&path, &of_file)?;
            text.push('\n');
            text.push_str(&of_file);
        }
    }
    Ok(text)
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

fn check(path: &Path, text: &str) -> Result<(), HostError> {
    let tables: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| cannot_read(path, error.message()))?;
    match tables
        .iter()
        .find(|(name, value)| *name != "vm" || !value.is_array())
    {
        None => Ok(()),
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
    use super::super::sched;
    use steadyvm_analysis::plan;
    use steadyvm_host::net::Profile;

    use super::*;

    fn beside(files: &[(&str, &str)]) -> Result<String, HostError> {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("steadyvm.d");
        fs::create_dir(&directory).unwrap();
        for (name, text) in files {
            fs::write(directory.join(name), text).unwrap();
        }
        text_beside(&place.path().join("steadyvm.toml"))
    }

    #[test]
    fn files_stand_behind_each_other_in_the_order_of_their_names() {
        let text = beside(&[
            ("b.toml", "[[vm]]\nname = \"b\""),
            ("a.toml", "[[vm]]\nname = \"a\""),
            ("a.toml.new", "not read"),
        ])
        .unwrap();
        let tables: toml::Table = text.parse().unwrap();
        let names: Vec<&str> = tables["vm"]
            .as_array()
            .unwrap()
            .iter()
            .map(|vm| vm["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn without_a_directory_or_a_file_there_is_nothing() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(
            text_beside(&place.path().join("steadyvm.toml")).unwrap(),
            ""
        );
        assert_eq!(text_beside(Path::new("-")).unwrap(), "");
    }

    #[test]
    fn what_only_the_owner_may_say_is_refused_with_its_file() {
        for text in [
            "[host]\npcpus = 9",
            "[class.rt]\nrt = false",
            "vm = 1",
            "[vm]\nname = \"a\"",
        ] {
            let error = beside(&[("nova-x.toml", text)]).unwrap_err().to_string();
            assert!(
                error.contains("nova-x.toml") && error.contains("[[vm]]"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_damaged_or_huge_file_is_refused_with_its_name() {
        let huge = "#".repeat(usize::try_from(MAX_BYTES).unwrap() + 1);
        for text in ["[[vm]", huge.as_str()] {
            let error = beside(&[("nova-x.toml", text)]).unwrap_err().to_string();
            assert!(
                error.contains("cannot read") && error.contains("nova-x.toml"),
                "{error}"
            );
        }
    }

    /// The same file as in `nova/tests/test_hook.py`: what the hook writes for two VCPUs of 4 ms in 10 ms each.
    #[test]
    fn the_vm_that_a_clouds_hook_describes_gets_the_budget_of_its_flavor() {
        let vm = include_str!("../../../../nova/tests/data/drop-in.toml");
        let text = format!("[host]\npcpus = 2\nscheduler = \"gedf\"\n[sched]\n{vm}");
        let report = plan::run(&plan::file::parse(&text).unwrap()).unwrap();
        assert!(report.feasible, "{:?}", report.explanations);
        let mut profile = Profile::default();
        let wanted = sched::Wanted::of("f", &text).unwrap();
        let differences = sched::put_in(&mut profile, Some(&report), wanted.as_ref(), false);
        assert!(differences.is_empty(), "{differences:?}");
        let budgets: Vec<_> = profile.vms[0].budgets.values().collect();
        assert_eq!(profile.vms[0].name, "instance-00000001");
        assert_eq!(budgets.len(), 2);
        for budget in budgets {
            assert_eq!(
                (budget.runtime_ns, budget.period_ns),
                (4_000_000, 10_000_000)
            );
        }
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("steadyvm.d");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("x.toml"), [0xff, 0xfe, 0x00]).unwrap();
        assert!(text_beside(&place.path().join("steadyvm.toml")).is_err());
    }
}
