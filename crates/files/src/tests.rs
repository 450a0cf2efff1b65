#![allow(clippy::unwrap_used)]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};

use super::*;

const NOBODY: u32 = 65534;

fn is_root() -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        eprintln!("not tested: only root gives files to others");
    }
    is_root
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_file_is_replaced_in_one_step_and_nothing_is_left_beside_it() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("steadyvm.prom");
    for text in ["one\n", "two\n"] {
        write(&file, text).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
    let (directory, name) = Directory::of(&file, Others::Refused).unwrap();
    let failed = directory.replace(&name, READABLE, |_| Err(io::Error::other("full")));
    assert_eq!(failed.unwrap_err().to_string(), "full");
    assert_eq!(fs::read_to_string(&file).unwrap(), "two\n");
    let mut stream = create(&file).unwrap();
    stream.write_all(b"three\n").unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "three\n");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
}

#[test]
fn links_and_devices_are_not_written_to() {
    let place = tempfile::tempdir().unwrap();
    let victim = place.path().join("victim");
    fs::write(&victim, "secret").unwrap();
    let file = place.path().join("out");
    symlink(&victim, &file).unwrap();
    let said = write(&file, "x").unwrap_err().to_string();
    assert!(said.contains("symbolic link"), "{said}");
    assert!(create(&file).is_err());
    assert_eq!(fs::read_to_string(&victim).unwrap(), "secret");
    assert!(write(Path::new("/dev/null"), "x").is_err());
    assert!(write(place.path(), "x").is_err());
    assert!(write(Path::new("/"), "x").is_err());
    // A name beside it that others have prepared is taken away, and not followed.
    let (directory, name) = Directory::of(&place.path().join("new"), Others::Refused).unwrap();
    for number in 0..1000 {
        let beside = format!(".new.{}.{number}.new", std::process::id());
        symlink(&victim, place.path().join(beside)).unwrap();
    }
    directory.create_anew(&name, READABLE).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "secret");
}

#[test]
fn root_writes_where_nobody_else_can() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("collector");
    fs::create_dir(&directory).unwrap();
    let open = |others| Directory::open(&directory, others).map(drop);
    open(Others::Refused).unwrap();
    for mode in [0o775, 0o757, 0o777, 0o1777] {
        set_mode(&directory, mode);
        let said = open(Others::Refused).unwrap_err().to_string();
        let told = said.contains("written by others") && said.contains("chmod");
        assert!(told, "{said}");
        open(Others::Allowed).unwrap();
    }
    set_mode(&directory, 0o755);
    chown(&directory, Some(NOBODY), None).unwrap();
    let said = open(Others::Refused).unwrap_err().to_string();
    assert!(said.contains("user 65534"), "{said}");
    // What a person asks for once: it is theirs, too, and nothing else is touched.
    write(&directory.join("file"), "x").unwrap();
}

/// As Debian's /var/lib/prometheus, whose owner may put anything in the place of root's directory in it.
#[test]
fn what_is_above_a_directory_has_to_be_roots_too() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let above = place.path().join("prometheus");
    let directory = above.join("node-exporter");
    fs::create_dir_all(&directory).unwrap();
    chown(&above, Some(NOBODY), None).unwrap();
    let said = Directory::open(&directory, Others::Refused).unwrap_err();
    assert!(said.to_string().contains("prometheus belongs to"), "{said}");
    // In the place of root's directory there is a link to another one of root's.
    let victim = place.path().join("victim");
    fs::create_dir(&victim).unwrap();
    fs::remove_dir(&directory).unwrap();
    symlink(&victim, &directory).unwrap();
    std::os::unix::fs::lchown(&directory, Some(NOBODY), None).unwrap();
    assert!(write(&directory.join("steadyvm.prom"), "x").is_err());
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
}

#[test]
fn roots_links_are_followed_and_no_others() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let real = place.path().join("real");
    fs::create_dir(&real).unwrap();
    let link = place.path().join("link");
    symlink("./real/../real", &link).unwrap();
    write(&link.join("file"), "x").unwrap();
    assert_eq!(fs::read_to_string(real.join("file")).unwrap(), "x");
    std::os::unix::fs::lchown(&link, Some(NOBODY), None).unwrap();
    assert!(write(&link.join("file"), "y").is_err());
    let circle = place.path().join("circle");
    symlink("circle", &circle).unwrap();
    assert!(write(&circle.join("file"), "y").is_err());
    assert_eq!(fs::read_to_string(real.join("file")).unwrap(), "x");
}

#[test]
fn a_directory_that_was_opened_stays_the_one() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("a");
    fs::create_dir(&path).unwrap();
    let directory = Directory::open(&path, Others::Refused).unwrap();
    fs::rename(&path, place.path().join("b")).unwrap();
    fs::create_dir(&path).unwrap();
    drop(directory.create(OsStr::new("file"), READABLE).unwrap());
    assert!(place.path().join("b/file").exists());
    assert!(directory.reach(OsStr::new("file")).exists());
    assert_eq!(
        directory.kind(OsStr::new("file")).unwrap(),
        Some(FileType::RegularFile)
    );
    directory.remove(OsStr::new("file")).unwrap();
    assert_eq!(directory.kind(OsStr::new("file")).unwrap(), None);
}
