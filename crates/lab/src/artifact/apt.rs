//! What this machine's package manager knows: sources and versions. No host is named here.

use super::source::run;
use super::{SET_UP, output};
use crate::{At, Error, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// A state of apt's own: other sources, with their indexes. The machine's list and indexes are left alone.
pub struct Apt {
    directory: PathBuf,
    words: Vec<String>,
}

impl Apt {
    /// The state in a directory, with these lines of a sources.list.
    pub fn new(directory: &Path, sources: &str) -> Result<Self> {
        let (list, indexes) = (directory.join("sources.list"), directory.join("indexes"));
        let partial = indexes.join("partial");
        fs::create_dir_all(&partial).at("create", &partial)?;
        fs::write(&list, sources).at("write", &list)?;
        let words = [
            format!("-oDir::Etc::SourceList={}", list.display()),
            "-oDir::Etc::SourceParts=-".to_owned(),
            format!("-oDir::State::Lists={}", indexes.display()),
            "-oDir::Cache::pkgcache=".to_owned(),
            "-oDir::Cache::srcpkgcache=".to_owned(),
            // Its user for downloads cannot write here.
            "-oAPT::Sandbox::User=root".to_owned(),
        ];
        Ok(Self {
            directory: directory.to_owned(),
            words: words.to_vec(),
        })
    }

    /// One of apt's programs, on this state.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.args(&self.words).current_dir(&self.directory);
        command
    }

    /// Fetches the indexes.
    pub fn update(&self) -> Result<()> {
        run(self.program("apt-get").args(["-q", "update"]))
    }
}

/// Downloads a source package's upstream archive into a directory. The machine's own list of sources is
/// left alone, and need not have any of source packages.
pub fn download_source(package: &str, version: &str, directory: &Path) -> Result<PathBuf> {
    let apt = Apt::new(directory, &of_source_packages(&debian_sources()?))?;
    let archives = directory.join("archives");
    fs::create_dir_all(&archives).at("create", &archives)?;
    let what = format!("download the source of {package} {version}");
    let advise = |error: Error| {
        let advice = "`apt-get update && apt-get upgrade`, then try again";
        Error::machine(&what, error.why).what_to_do(advice)
    };
    apt.update().map_err(advise)?;
    let wanted = format!("{package}={version}");
    let mut source = apt.program("apt-get");
    source
        .args(["-q", "source", "--tar-only", &wanted])
        .current_dir(&archives);
    run(&source).map_err(advise)?;
    let mut files = fs::read_dir(&archives).at("read", &archives)?;
    let file = files
        .next()
        .ok_or_else(|| Error::machine(&what, "apt-get downloaded nothing"))?;
    Ok(file.at("read", &archives)?.path())
}

/// The same sources as in a sources.list, of source packages.
fn of_source_packages(sources: &str) -> String {
    let key = "signed-by=/usr/share/keyrings/debian-archive-keyring.gpg";
    let places = sources.lines().filter_map(|line| line.strip_prefix("deb "));
    let lines: Vec<String> = places
        .map(|place| format!("deb-src [{key}] {place}"))
        .collect();
    lines.join("\n") + "\n"
}

/// The name and version of the distribution's kernel image whose version is `wanted`, or else
/// the newest of the same series ("6.12"). `program` makes one of apt's programs.
pub fn kernel_image(
    series: &str,
    preempt_rt: bool,
    wanted: &str,
    program: &dyn Fn(&str) -> Command,
) -> Result<(String, String)> {
    let pattern = format!(
        "^linux-image-{}[.][0-9].*-amd64$",
        series.replace('.', "[.]")
    );
    let names = output(program("apt-cache").args(["--names-only", "search", &pattern]))?;
    let names: Vec<&str> = names
        .lines()
        .filter_map(|line| line.split(' ').next())
        .filter(|name| name.contains("-rt-") == preempt_rt && !name.contains("-cloud-"))
        .collect();
    let kind = if preempt_rt { "-rt" } else { "" };
    let missing = || {
        let what = format!("find Debian's kernel image {series}{kind}");
        Error::machine(what, "no package source of this machine has it").what_to_do(SET_UP)
    };
    if names.is_empty() {
        return Err(missing());
    }
    let table = output(program("apt-cache").arg("madison").args(&names))?;
    choose_image(&table, wanted).ok_or_else(missing)
}

/// Picks from `apt-cache madison`'s lines "name | version | source". Names sort by their
/// version because `sort -V`'s order is used.
fn choose_image(table: &str, wanted: &str) -> Option<(String, String)> {
    let rows: Vec<(&str, &str)> = table
        .lines()
        .filter_map(|line| {
            let mut fields = line.split('|').map(str::trim);
            Some((fields.next()?, fields.next()?))
        })
        .collect();
    let exact = rows.iter().find(|(_, version)| *version == wanted);
    let newest = rows.iter().max_by_key(|(name, _)| numbers(name));
    exact
        .or(newest)
        .map(|(name, version)| ((*name).to_owned(), (*version).to_owned()))
}

/// The numbers in a name, in their order.
fn numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect()
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
    let key = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]";
    sources
        .lines()
        .filter_map(|line| line.strip_prefix("deb "))
        .filter_map(|line| line.split_once(' '))
        .find(|(_, rest)| !rest.contains("-security"))
        .map(|(mirror, _)| format!("deb {key} {mirror} {suite} main\n"))
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

    const TABLE: &str = "\
linux-image-6.12.95+deb12-amd64 | 6.12.95-1~deb12u1 | a source
linux-image-6.12.117+deb12-amd64 | 6.12.117-1~deb12u1 | a source
linux-image-6.12.100+deb12-amd64 | 6.12.100-2~deb12u1 | a source
";

    #[test]
    fn a_source_of_packages_is_one_of_their_sources() {
        let key = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]";
        assert_eq!(
            of_source_packages("deb file:/a/deb trixie main\ndeb file:/b trixie-updates main\n"),
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
    fn the_image_of_the_same_version_is_chosen() {
        let (name, version) = choose_image(TABLE, "6.12.100-2~deb12u1").unwrap();
        assert_eq!(name, "linux-image-6.12.100+deb12-amd64");
        assert_eq!(version, "6.12.100-2~deb12u1");
    }

    #[test]
    fn else_the_newest_by_number_and_not_by_letter() {
        assert_eq!(
            choose_image(TABLE, "other").unwrap().0,
            "linux-image-6.12.117+deb12-amd64"
        );
        assert_eq!(choose_image("", "other"), None);
    }
}
