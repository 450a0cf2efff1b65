//! Packages as the sources have them on the day: their versions, what they depend on, and their files.
//!
//! Only what a package itself asks for is taken for granted. What is built of one source package comes to the
//! archive at once; but Debian signs a kernel after it is built, so that at every update the image is hours or
//! days behind its headers and build tools, and the archive drops what has a successor.

use super::apt::{Apt, listed};
use super::source::run;
use super::{debian_version, output};
use crate::{At, Error, Result};
use std::cmp::Reverse;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What to do where the sources do not have a package.
const WAIT: &str = "during an update of Debian's, packages that belong together come hours or days \
    apart: try again later, or name another mirror of Debian in /etc/apt and run `apt-get update`";

/// A package in one of its versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

impl Package {
    /// The package of a name and version.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        let (name, version) = (name.into(), version.into());
        Self { name, version }
    }
}

impl Display for Package {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.name, self.version)
    }
}

impl Apt {
    /// The names that an extended regular expression fits.
    pub fn names(&self, pattern: &str) -> Result<Vec<String>> {
        let found = output(
            self.program("apt-cache")
                .args(["--names-only", "search", pattern]),
        )?;
        let names = found.lines().filter_map(|line| line.split(' ').next());
        Ok(names.map(str::to_owned).collect())
    }

    /// All versions of these packages that the sources have, the newest first.
    pub fn packages(&self, names: &[impl AsRef<str>]) -> Result<Vec<Package>> {
        let mut show = self.program("apt-cache");
        show.arg("madison");
        show.args(names.iter().map(AsRef::as_ref));
        let mut packages = rows(&output(&mut show)?);
        packages.sort_by(|a, b| debian_version::compare(&b.version, &a.version));
        packages.dedup();
        Ok(packages)
    }

    /// The versions of a package, the newest first.
    pub fn versions(&self, name: &str) -> Result<Vec<String>> {
        let packages = self.packages(&[name])?;
        Ok(packages.into_iter().map(|it| it.version).collect())
    }

    /// The newest version of a package.
    pub fn newest(&self, name: &str) -> Result<Package> {
        let mut packages = self.packages(&[name])?.into_iter();
        packages
            .next()
            .ok_or_else(|| self.missing(format!("the package {name}"), name))
    }

    /// A package, and all that it depends on directly or by another of these, as far as `of` says that
    /// it is wanted: each in the newest version that is asked for.
    pub fn with_needed(&self, package: Package, of: &dyn Fn(&str) -> bool) -> Result<Vec<Package>> {
        if !self.versions(&package.name)?.contains(&package.version) {
            return Err(self.missing(&package, &package.name));
        }
        let mut all = vec![package];
        let mut done = 0;
        while let Some(package) = all.get(done).cloned() {
            done += 1;
            for clause in self.dependencies(&package)? {
                let wanted = clause.0.iter().filter(|it| of(&it.name));
                let wanted: Vec<&Dependency> = wanted.collect();
                let Some(first) = wanted.first() else {
                    continue;
                };
                if all.iter().any(|it| wanted.iter().any(|one| one.is_met(it))) {
                    continue;
                }
                let names: Vec<&str> = wanted.iter().map(|it| &*it.name).collect();
                let there = self.packages(&names)?;
                let found = wanted
                    .iter()
                    .find_map(|one| there.iter().find(|it| one.is_met(it)));
                let what = || format!("{clause}, which {package} depends on");
                let found = found.ok_or_else(|| self.missing(what(), &first.name))?;
                all.push(found.clone());
            }
        }
        Ok(all)
    }

    /// What a package depends on.
    fn dependencies(&self, package: &Package) -> Result<Vec<Clause>> {
        let wanted = format!("{}={}", package.name, package.version);
        let shown = output(self.program("apt-cache").args(["show", &wanted]))?;
        Ok(dependencies(&shown))
    }

    /// Downloads packages into a directory, which is made: their files.
    pub fn download(&self, packages: &[Package], place: &Path) -> Result<Vec<PathBuf>> {
        fs::create_dir_all(place).at("create", place)?;
        let mut download = self.program("apt-get");
        download.args(["-q", "download"]).current_dir(place);
        download.args(
            packages
                .iter()
                .map(|it| format!("{}={}", it.name, it.version)),
        );
        run(&download).map_err(|error| {
            let names: Vec<String> = packages.iter().map(Package::to_string).collect();
            let what = format!("download {}", names.join(", "));
            Error::machine(what, error.why)
                .what_to_do("check that this machine reaches its package sources (apt-get update)")
        })?;
        archives(place)
    }

    /// The error of what the sources do not have: what they have instead.
    fn missing(&self, what: impl Display, name: &str) -> Error {
        let instead = match self.packages(&[name]) {
            Ok(there) if !there.is_empty() => {
                let versions = there.iter().map(|it| it.version.clone());
                format!(
                    "{name} is there as {}",
                    listed(&versions.collect::<Vec<_>>())
                )
            }
            _ => match self.alike(name) {
                Ok(names) if !names.is_empty() => format!("there are {}", listed(&names)),
                _ => "there is none of another version either".to_owned(),
            },
        };
        let why = format!("{} does not have it; {instead}", self.name());
        Error::machine(format!("find {what}"), why).what_to_do(WAIT)
    }

    /// The names of packages that differ in a number, those most alike first.
    fn alike(&self, name: &str) -> Result<Vec<String>> {
        let stem = name.split(|c: char| c.is_ascii_digit()).next();
        let stem = stem.unwrap_or_default();
        if stem.is_empty() {
            return Ok(Vec::new());
        }
        let mut names = self.names(&format!("^{}[0-9]", stem.replace('.', "[.]")))?;
        let length = |pairs: &mut dyn Iterator<Item = (char, char)>| {
            pairs.take_while(|(a, b)| a == b).count()
        };
        let common = |other: &str| {
            length(&mut name.chars().zip(other.chars()))
                + length(&mut name.chars().rev().zip(other.chars().rev()))
        };
        names.sort_by(|a, b| debian_version::compare(b, a));
        names.sort_by_key(|other| Reverse(common(other)));
        Ok(names)
    }
}

/// Unpacks packages' files into a tree.
pub fn unpack(archives: &[PathBuf], tree: &Path) -> Result<()> {
    fs::create_dir_all(tree).at("create", tree)?;
    for archive in archives {
        output(Command::new("dpkg-deb").arg("-x").arg(archive).arg(tree))?;
    }
    Ok(())
}

/// The files of packages in a directory.
pub fn archives(place: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(place).at("read", place)?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.at("read", place)?.path();
        if path.extension().is_some_and(|ending| ending == "deb") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// `apt-cache madison`'s lines "name | version | source".
fn rows(table: &str) -> Vec<Package> {
    let row = |line: &str| {
        let mut fields = line.split('|').map(str::trim);
        Some(Package::new(fields.next()?, fields.next()?))
    };
    table.lines().filter_map(row).collect()
}

/// One alternative of what a package asks for.
#[derive(Debug, PartialEq, Eq)]
struct Dependency {
    name: String,
    /// Such as (">=", "6.1.192-2").
    version: Option<(String, String)>,
}

impl Dependency {
    fn is_met(&self, package: &Package) -> bool {
        let version_fits = |(relation, wanted): &(String, String)| {
            debian_version::satisfies(&package.version, relation, wanted)
        };
        self.name == package.name && self.version.as_ref().is_none_or(version_fits)
    }
}

/// One thing that a package asks for: any of its alternatives.
#[derive(Debug, PartialEq, Eq)]
struct Clause(Vec<Dependency>);

impl Display for Clause {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        for (index, Dependency { name, version }) in self.0.iter().enumerate() {
            let or = if index == 0 { "" } else { " | " };
            write!(out, "{or}{name}")?;
            if let Some((relation, version)) = version {
                write!(out, " ({relation} {version})")?;
            }
        }
        Ok(())
    }
}

/// What the first package that `apt-cache show` describes asks for.
fn dependencies(shown: &str) -> Vec<Clause> {
    let fields = shown.lines().take_while(|line| !line.is_empty());
    let asked = fields.filter_map(|line| {
        line.strip_prefix("Depends:")
            .or_else(|| line.strip_prefix("Pre-Depends:"))
    });
    let clauses = asked.flat_map(|text| text.split(',')).map(|clause| {
        let alternatives = clause.split('|').filter_map(dependency);
        Clause(alternatives.collect())
    });
    clauses.filter(|clause| !clause.0.is_empty()).collect()
}

/// "name:architecture (relation version)", of which only the name must be there.
fn dependency(text: &str) -> Option<Dependency> {
    let (name, rest) = match text.split_once('(') {
        Some((name, rest)) => (name, rest.split(')').next().unwrap_or_default()),
        None => (text, ""),
    };
    let name = name.split([':', '[']).next().unwrap_or_default().trim();
    let digits = rest
        .find(|c: char| !"<=>".contains(c))
        .unwrap_or(rest.len());
    let (relation, version) = rest.split_at(digits);
    (!name.is_empty()).then(|| Dependency {
        name: name.to_owned(),
        version: (!relation.is_empty()).then(|| (relation.to_owned(), version.trim().to_owned())),
    })
}

#[cfg(test)]
mod tests {
    use super::super::repository::Repository;
    use super::*;
    use crate::progress::Silent;
    use proptest::prelude::*;

    /// With the indexes of this moment.
    fn apt(archive: &Repository) -> Apt {
        let apt = archive.apt();
        apt.today(&Silent, || Ok(()), |()| Ok(())).unwrap();
        apt
    }

    #[test]
    fn what_a_package_depends_on_is_taken_in_the_newest_version_that_it_asks_for() {
        let archive = Repository::new();
        let depends = "our-a (= 1), our-b (<< 3) | our-c, other, our-d:any (>= 2~)";
        archive.add("our-top", "5", depends, &[]);
        archive.add("our-a", "1", "our-d (>> 1)", &[]);
        archive.add("our-a", "2", "", &[]);
        archive.add("our-b", "3", "", &[]);
        archive.add("our-c", "7", "", &[]);
        archive.add("our-d", "2~rc1", "", &[]);
        archive.add("our-d", "2", "our-top", &[]);
        let top = Package::new("our-top", "5");
        let all = apt(&archive).with_needed(top, &|name| name.starts_with("our-"));
        let expected = [
            ("our-top", "5"),
            ("our-a", "1"),
            ("our-c", "7"),
            ("our-d", "2"),
        ];
        assert_eq!(
            all.unwrap(),
            expected.map(|(name, version)| Package::new(name, version))
        );
    }

    #[test]
    fn what_is_not_there_is_told_with_what_is_there_instead() {
        let archive = Repository::new();
        archive.add("our-top", "5", "our-tools-6.1 (>= 3) | our-c", &[]);
        archive.add("our-tools-6.1", "1", "", &[]);
        archive.add("our-tools-6.1", "2", "", &[]);
        archive.add("our-tools-6.12", "9", "", &[]);
        let apt = apt(&archive);
        let top = Package::new("our-top", "5");
        let error = apt
            .with_needed(top, &|name| name.starts_with("our-"))
            .unwrap_err();
        let told = error.to_string();
        for part in [
            "our-tools-6.1 (>= 3) | our-c, which our-top 5 depends on",
            "the test's archive does not have it; our-tools-6.1 is there as 2, 1",
            "try again later",
        ] {
            assert!(told.contains(part), "{told}");
        }
        let gone = apt
            .with_needed(Package::new("our-top", "4"), &|_| false)
            .unwrap_err();
        assert!(gone.to_string().contains("find our-top 4"), "{gone}");
        assert!(gone.to_string().contains("is there as 5"), "{gone}");
        let unknown = apt.newest("our-tools-7.3").unwrap_err().to_string();
        assert!(
            unknown.contains("there are our-tools-6.12, our-tools-6.1"),
            "{unknown}"
        );
        let none = apt.newest("nothing-1").unwrap_err().to_string();
        assert!(none.contains("none of another version either"), "{none}");
    }

    #[test]
    fn of_many_names_some_are_listed() {
        let names: Vec<String> = (0..9).map(|number| number.to_string()).collect();
        assert_eq!(listed(&names), "0, 1, 2, 3, 4, 5 and 3 more");
        assert_eq!(listed(&names[..2]), "0, 1");
        assert_eq!(listed(&[]), "none");
    }

    proptest! {
        #[test]
        fn no_description_makes_it_panic(
            shown in "((Pre-)?Depends:)?[ a-c|,():<>=~\n\u{e9}\\[\\]]{0,40}"
        ) {
            for clause in dependencies(&shown) {
                prop_assert!(clause.0.iter().all(|it| !it.name.is_empty()));
            }
        }
    }
}
