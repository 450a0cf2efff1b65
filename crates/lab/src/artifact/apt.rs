//! What this machine's package manager knows: sources and versions. No host is named here.

use super::cache::Cache;
use super::debian_version;
use super::source::run;
use super::{SET_UP, output};
use crate::progress::{News, Observer, task};
use crate::{At, Error, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Debian's keys, where set-up has installed them.
const SIGNED: &str = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]";

/// The installed version of a package.
pub fn installed_version(package: &str) -> Result<String> {
    let format = "${db:Status-Status} ${Version}";
    let answer = output(Command::new("dpkg-query").args(["-W", "-f", format, package]));
    if let Ok(Some(("installed", version))) = answer.as_deref().map(|text| text.split_once(' ')) {
        return Ok(version.to_owned());
    }
    let what = format!("find the package {package}");
    Err(Error::machine(what, "it is not installed").what_to_do(SET_UP))
}

/// The version of the source that an installed package was built from.
pub fn installed_source_version(package: &str) -> Result<String> {
    installed_version(package)?;
    let format = "${source:Version}";
    output(Command::new("dpkg-query").args(["-W", "-f", format, package]))
}

/// A state of apt's own: its sources, with indexes that are fetched anew when what they tell of is no longer
/// there. The machine's list and indexes are left alone, and of whatever day they are.
pub struct Apt {
    directory: PathBuf,
    /// What it has packages of: "Debian bookworm".
    name: String,
    sources: String,
    words: Vec<String>,
}

impl Apt {
    /// The state in a directory, with these lines of a sources.list.
    pub fn new(directory: &Path, name: &str, sources: &str) -> Result<Self> {
        let (list, indexes) = (directory.join("sources.list"), directory.join("indexes"));
        let partial = indexes.join("partial");
        fs::create_dir_all(&partial).at("create", &partial)?;
        let installed = directory.join("installed");
        // A file that is written anew makes apt read all indexes anew.
        for (path, text) in [(&list, sources), (&installed, "")] {
            if fs::read_to_string(path).ok().as_deref() != Some(text) {
                fs::write(path, text).at("write", path)?;
            }
        }
        let words = [
            format!("-oDir::Etc::SourceList={}", list.display()),
            "-oDir::Etc::SourceParts=-".to_owned(),
            format!("-oDir::State::Lists={}", indexes.display()),
            // What this machine has installed says nothing of what the sources have.
            format!("-oDir::State::Status={}", installed.display()),
            format!(
                "-oDir::Cache::pkgcache={}",
                directory.join("pkgcache.bin").display()
            ),
            "-oDir::Cache::srcpkgcache=".to_owned(),
            // Its user for downloads cannot write here.
            "-oAPT::Sandbox::User=root".to_owned(),
        ];
        Ok(Self {
            directory: directory.to_owned(),
            name: name.to_owned(),
            sources: sources.to_owned(),
            words: words.to_vec(),
        })
    }

    /// The packages of this machine's own release.
    pub fn of_this_release(cache: &Cache) -> Result<Self> {
        let name = format!("Debian {}", release()?);
        let sources = signed("deb", &debian_sources()?);
        Self::new(&cache.helper_directory("packages"), &name, &sources)
    }

    /// What it has packages of, for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One of apt's programs, on this state.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.args(&self.words).current_dir(&self.directory);
        command
    }

    /// Finds something in the indexes and gets it. Where either fails, they may be of another day than the
    /// archive, which drops what has a successor: they are fetched, and what they then tell is got.
    ///
    /// # Errors
    /// It is not there today either, or the indexes cannot be fetched.
    pub fn today<F: PartialEq, T>(
        &self,
        observer: &dyn Observer,
        find: impl Fn() -> Result<F>,
        get: impl Fn(&F) -> Result<T>,
    ) -> Result<T> {
        let before = self.fetched();
        let tried = match before.map(|_| find()) {
            None => None,
            Some(Err(error)) => Some((None, error)),
            Some(Ok(found)) => match get(&found) {
                Ok(got) => return Ok(got),
                Err(error) => Some((Some(found), error)),
            },
        };
        match (self.renew(before, observer), tried) {
            (Err(_), Some((_, error))) | (Err(error), None) => Err(error),
            (Ok(()), tried) => {
                let found = find()?;
                match tried {
                    Some((Some(same), error)) if same == found => Err(error),
                    _ => get(&found),
                }
            }
        }
    }

    /// Fetches the indexes, unless another thread or process has since they were those of `before`.
    fn renew(&self, before: Option<SystemTime>, observer: &dyn Observer) -> Result<()> {
        let place = self.directory.join("lock");
        let lock = File::create(&place).at("create", &place)?;
        lock.lock().at("lock", &place)?;
        if self.fetched() != before {
            return Ok(());
        }
        let title = format!("fetch the index of {}", self.name);
        task(observer, title, || self.update())
    }

    /// Fetches the indexes.
    fn update(&self) -> Result<()> {
        run(self
            .program("apt-get")
            .args(["-q", "--error-on=any", "update"]))?;
        let mark = self.mark();
        fs::write(&mark, &self.sources).at("write", &mark)
    }

    /// When its indexes were fetched; `None`: there are none of these sources.
    fn fetched(&self) -> Option<SystemTime> {
        let mark = self.mark();
        let of = fs::read_to_string(&mark).ok()?;
        (of == self.sources).then(|| fs::metadata(&mark).ok()?.modified().ok())?
    }

    /// The file that says which sources the indexes are of.
    fn mark(&self) -> PathBuf {
        self.directory.join("fetched")
    }
}

/// How many names an error lists.
const LISTED: usize = 6;

/// Names or versions in a sentence, and how many more there are.
pub fn listed(names: &[String]) -> String {
    let shown = &names[..names.len().min(LISTED)];
    match names.len() - shown.len() {
        _ if names.is_empty() => "none".to_owned(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Downloads a source package's upstream archive into a directory: of this version, or of the next one, which
/// has taken its place. The machine's own list of sources is left alone, and need not have any of source packages.
pub fn download_source(
    package: &str,
    version: &str,
    directory: &Path,
    observer: &dyn Observer,
) -> Result<PathBuf> {
    let apt = Apt::new(
        directory,
        "Debian's source packages",
        &signed("deb-src", &debian_sources()?),
    )?;
    let archives = directory.join("archives");
    fs::create_dir_all(&archives).at("create", &archives)?;
    let what = format!("download the source of {package} {version}");
    let advise = |error: Error| {
        let advice = "`apt-get update && apt-get upgrade`, then try again";
        Error::machine(&what, error.why).what_to_do(advice)
    };
    apt.update().map_err(advise)?;
    let there = apt.versions(package)?;
    let chosen = this_or_next(&there, version).ok_or_else(|| {
        let why = format!("the package sources have: {}", listed(&there));
        advise(Error::machine(&what, why))
    })?;
    if chosen != version {
        observer.tell(News::Note(format!(
            "the source of {package} {version} is no longer there: that of {chosen} is taken"
        )));
    }
    let mut source = apt.program("apt-get");
    source
        .args(["-q", "source", "--tar-only", &format!("{package}={chosen}")])
        .current_dir(&archives);
    run(&source).map_err(advise)?;
    let mut files = fs::read_dir(&archives).at("read", &archives)?;
    let file = files
        .next()
        .ok_or_else(|| Error::machine(&what, "apt-get downloaded nothing"))?;
    Ok(file.at("read", &archives)?.path())
}

/// The wanted version, or else the oldest that is newer.
fn this_or_next<'v>(there: &'v [String], wanted: &str) -> Option<&'v str> {
    let newer = there
        .iter()
        .filter(|version| debian_version::compare(version, wanted).is_ge());
    newer
        .min_by(|a, b| debian_version::compare(a, b))
        .map(String::as_str)
}

/// The same sources as in a sources.list, of this kind of packages and with Debian's keys.
fn signed(kind: &str, sources: &str) -> String {
    let places = sources.lines().filter_map(|line| line.strip_prefix("deb "));
    let lines: Vec<String> = places
        .map(|place| format!("{kind} {SIGNED} {place}"))
        .collect();
    lines.join("\n") + "\n"
}

/// One line of a sources.list for each of this machine's sources of Debian's own packages.
pub fn debian_sources() -> Result<String> {
    let format = "$(ORIGIN)|deb $(REPO_URI) $(RELEASE) $(COMPONENT)";
    let targets = output(Command::new("apt-get").args([
        "indextargets",
        "--format",
        format,
        "Created-By: Packages",
    ]))?;
    let lines: Vec<&str> = targets
        .lines()
        .filter_map(|line| line.split_once('|'))
        .filter(|(origin, _)| *origin == "Debian" || *origin == "Debian Backports")
        .map(|(_, source)| source)
        .collect();
    if lines.is_empty() {
        return Err(Error::machine(
            "find this machine's sources of Debian packages",
            "none found",
        )
        .what_to_do("run `apt-get update` and try again"));
    }
    Ok(lines.join("\n") + "\n")
}

/// One line of a sources.list for another suite of the machine's own mirror of Debian.
pub fn source_of_suite(suite: &str) -> Result<String> {
    suite_of_mirror(&debian_sources()?, suite).ok_or_else(|| {
        let what = format!("find a mirror of Debian's {suite}");
        Error::machine(
            what,
            "no package source of this machine is one of Debian's own",
        )
        .what_to_do("name Debian's mirror in /etc/apt, run `apt-get update` and try again")
    })
}

/// The first source that is not of security updates, which have a mirror of their own, with another suite.
fn suite_of_mirror(sources: &str, suite: &str) -> Option<String> {
    sources
        .lines()
        .filter_map(|line| line.strip_prefix("deb "))
        .filter_map(|line| line.split_once(' '))
        .find(|(_, rest)| !rest.contains("-security"))
        .map(|(mirror, _)| format!("deb {SIGNED} {mirror} {suite} main\n"))
}

/// The release's code name, such as "bookworm".
pub fn release() -> Result<String> {
    let text = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    name.map(|name| name.trim_matches('"').to_owned())
        .ok_or_else(|| {
            Error::machine(
                "find this machine's Debian release",
                "/etc/os-release has no code name",
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_of_packages_is_one_of_their_sources() {
        let key = SIGNED;
        assert_eq!(
            signed(
                "deb-src",
                "deb file:/a/deb trixie main\ndeb file:/b trixie-updates main\n"
            ),
            format!(
                "deb-src {key} file:/a/deb trixie main\ndeb-src {key} file:/b trixie-updates main\n"
            )
        );
    }

    #[test]
    fn another_suite_is_looked_for_at_the_mirror_of_the_release() {
        let sources = "deb file:/security bookworm-security main\ndeb file:/debian bookworm main\n";
        let line = suite_of_mirror(sources, "trixie-backports").unwrap();
        assert!(
            line.ends_with("] file:/debian trixie-backports main\n"),
            "{line}"
        );
        assert_eq!(suite_of_mirror("", "sid"), None);
    }

    #[test]
    fn a_source_that_is_gone_is_replaced_by_the_next_one() {
        let there = ["1:10.2-1", "1:10.0.2-3", "1:7.2-1"].map(str::to_owned);
        assert_eq!(this_or_next(&there, "1:10.0.2-3"), Some("1:10.0.2-3"));
        assert_eq!(this_or_next(&there, "1:10.0.2-2"), Some("1:10.0.2-3"));
        assert_eq!(this_or_next(&there, "1:10.3-1"), None);
    }
}
