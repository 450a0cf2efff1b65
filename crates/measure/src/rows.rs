//! The rows of a measurement: what each has in force, on which kernel, and what it is called. Pure, but for the text of files.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use steadyvm_host::{HostError, Switches};
use steadyvm_load::netrt::ClientRun;

use crate::bound::Planned;
use crate::kernel::Kernel;

/// What a row has in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sets {
    /// Nothing: the host without steadyvm.
    Nothing,
    /// What was in force at the start.
    Found,
    /// A method, for the cards and VMs that are named.
    Method(Switches),
    /// What a file says, and its text at the start.
    File {
        /// Where the file is, by a path that holds anywhere.
        path: PathBuf,
        /// Its text.
        text: String,
    },
}

/// A row as far as it is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its name in results.
    pub name: String,
    /// What it has in force.
    pub sets: Sets,
    /// The kernel that it is asked for: as [`Kernel::name`] has it, or a release.
    pub kernel: Option<String>,
    /// The release of the kernel that it is measured on: its first one.
    pub release: Option<String>,
    /// The bounds that its plan has, if it has any.
    #[serde(default)]
    pub planned: Option<Planned>,
    /// Rounds that are over, those left out among them.
    pub rounds_over: u64,
    /// Those that count.
    pub rounds: Vec<Measured>,
}

/// One round of one row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The boot that it was measured in, by its place among the run's.
    pub boot: usize,
    /// What the client measured.
    pub netrt: ClientRun,
    /// Share of the host's CPU time that was not idle: 0 to 1, of all CPUs.
    pub host_cpu_busy_fraction: f64,
}

/// A method of the command line, with the kernel that it is to run on: `METHOD` or `METHOD@KERNEL`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedMethod {
    switches: Switches,
    kernel: Option<String>,
}

impl FromStr for AskedMethod {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (method, kernel) = match text.split_once('@') {
            Some((_, "")) => {
                return Err(format!("{text} names no kernel: write {text}6.12, or no @"));
            }
            Some((method, kernel)) => (method, Some(kernel.to_owned())),
            None => (text, None),
        };
        let switches: Switches = method
            .parse()
            .map_err(|error: <Switches as FromStr>::Err| error.to_string())?;
        Ok(Self { switches, kernel })
    }
}

impl Sets {
    /// What a method sets.
    pub fn of_method(switches: Switches) -> Self {
        if switches.is_vanilla() {
            Self::Nothing
        } else {
            Self::Method(switches)
        }
    }

    /// What a file says.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of_file(path: &Path) -> Result<Self, HostError> {
        let text = fs::read_to_string(path).map_err(|error| HostError::BadInput {
            what: format!("cannot read {}: {error}", path.display()),
            fix: "name files such as /etc/steadyvm.toml".into(),
        })?;
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Ok(Self::File { path, text })
    }

    /// In words.
    pub fn words(&self) -> String {
        match self {
            Self::Nothing => "nothing: the host without steadyvm".to_owned(),
            Self::Found => "what was in force at the start".to_owned(),
            Self::Method(switches) => format!("method {}", switches.composition()),
            Self::File { path, .. } => format!("file {}", path.display()),
        }
    }

    /// Fails if the file is not what it was when the run began.
    ///
    /// # Errors
    /// It is another one, or gone.
    pub fn must_be_as_begun(&self) -> Result<(), HostError> {
        let Self::File { path, text } = self else {
            return Ok(());
        };
        match Self::of_file(path)? {
            Self::File { text: now, .. } if now == *text => Ok(()),
            _ => Err(HostError::BadInput {
                what: format!(
                    "{} has changed since the run began: its row would be of two files",
                    path.display()
                ),
                fix: "restore the file, or begin another run".into(),
            }),
        }
    }
}

impl Row {
    fn new(name: &str, sets: Sets, kernel: Option<String>) -> Self {
        Self {
            name: name.to_owned(),
            sets,
            kernel,
            release: None,
            planned: None,
            rounds_over: 0,
            rounds: Vec::new(),
        }
    }

    /// The bound of its plan's service beside what was measured in a boot, if both are known.
    pub fn held_to_bound(&self, boot: usize) -> Option<steadyvm_site::bounds::Measured> {
        let rounds = self.rounds.iter().filter(|round| round.boot == boot);
        self.planned
            .as_ref()?
            .measured(rounds.map(|round| &round.netrt))
    }

    /// What a reader is told of its plan's bound.
    pub fn notes_of_bound(&self) -> Vec<String> {
        let runs = self.rounds.iter().map(|round| &round.netrt);
        let planned = self.planned.as_ref();
        planned.map_or_else(Vec::new, |it| it.notes(&self.name, runs))
    }

    /// Whether it can be measured on a kernel, and on no other one before.
    pub fn fits(&self, kernel: &Kernel) -> bool {
        match (&self.release, &self.kernel) {
            (Some(release), _) => *release == kernel.release,
            (None, Some(word)) => kernel.is_called(word),
            (None, None) => self.lacks(kernel).is_none(),
        }
    }

    /// What a kernel lacks for it.
    fn lacks(&self, kernel: &Kernel) -> Option<&'static str> {
        match self.sets {
            Sets::Method(method) => kernel.lacks(method),
            _ => None,
        }
    }

    /// The kernel to boot for it, where the one that runs does not fit.
    pub fn wanted_kernel(&self, kernel: &Kernel) -> String {
        match (&self.release, &self.kernel, self.lacks(kernel)) {
            (Some(release), ..) => release.clone(),
            (None, Some(word), _) => word.clone(),
            (None, None, Some(lacks)) => format!("a kernel with {lacks}"),
            (None, None, None) => "any kernel".to_owned(),
        }
    }
}

/// What is compared where nothing is named: the host without what steadyvm has in force, and with it.
pub fn without_and_with(with: Sets) -> Vec<Row> {
    let rows = [("without", Sets::Nothing), ("with", with)];
    rows.map(|(name, sets)| Row::new(name, sets, None)).into()
}

/// The rows of methods and files, on each of the kernels that are named.
///
/// # Errors
/// A file that cannot be read or be a row's name, a row named twice, and one row alone.
pub fn named(
    methods: &[AskedMethod],
    files: &[PathBuf],
    kernels: &[String],
) -> Result<Vec<Row>, HostError> {
    let bad = |what: String, fix: &str| HostError::BadInput {
        what,
        fix: fix.to_owned(),
    };
    let mut rows = Vec::new();
    for method in methods {
        let sets = Sets::of_method(method.switches);
        let name = method.switches.to_string();
        rows.push(Row::new(&name, sets, method.kernel.clone()));
    }
    for file in files {
        rows.push(Row::new(&name_of(file)?, Sets::of_file(file)?, None));
    }
    let (asked_anywhere, mut on_its_own): (Vec<Row>, Vec<Row>) =
        rows.into_iter().partition(|row| row.kernel.is_none());
    let mut rows = Vec::new();
    for kernel in kernels {
        let on_it = asked_anywhere.iter().cloned();
        rows.extend(on_it.map(|row| Row {
            kernel: Some(kernel.clone()),
            ..row
        }));
    }
    if kernels.is_empty() {
        rows = asked_anywhere;
    }
    rows.append(&mut on_its_own);
    let mut named: Vec<Row> = Vec::new();
    for row in rows {
        let name = match &row.kernel {
            Some(kernel) => format!("{}@{kernel}", row.name),
            None => row.name,
        };
        if named.iter().any(|it| it.name == name) {
            let what = format!("two rows would be called {name}");
            let fix = "name each method and kernel once, and give files names of their own";
            return Err(bad(what, fix));
        }
        named.push(Row { name, ..row });
    }
    if let [row] = named.as_slice() {
        let what = format!("{} alone is compared with nothing", row.name);
        let fix = "name another one, such as --methods vanilla: the host without steadyvm";
        return Err(bad(what, fix));
    }
    Ok(named)
}

/// A file's row is called as the file is, without directory and ending.
fn name_of(file: &Path) -> Result<String, HostError> {
    let stem = file.file_stem().and_then(|stem| stem.to_str());
    let is_plain = |stem: &&str| {
        let mut letters = stem.chars();
        letters.all(|letter| letter.is_alphanumeric() || "._+-".contains(letter))
    };
    let name = stem.filter(is_plain).map(str::to_owned);
    name.ok_or_else(|| HostError::BadInput {
        what: format!(
            "{} cannot be the name of a row",
            steadyvm_host::printable(&file.display().to_string())
        ),
        fix: "give the file a name of letters, digits and . _ + - alone".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn methods(text: &str) -> Vec<AskedMethod> {
        let of = |method: &str| method.parse().unwrap();
        text.split(',')
            .filter(|it| !it.is_empty())
            .map(of)
            .collect()
    }

    fn names(rows: &[Row]) -> Vec<&str> {
        rows.iter().map(|row| &*row.name).collect()
    }

    fn kernel(release: &str, is_preempt_rt: bool) -> Kernel {
        Kernel {
            release: release.to_owned(),
            is_preempt_rt,
            has_levels: false,
        }
    }

    #[test]
    fn methods_and_files_are_rows_in_the_order_of_the_command_line() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("mine.toml");
        fs::write(&file, "[net]\nbudget_packets = 64\n").unwrap();
        let rows = named(&methods("vanilla,rt,rt+profile@6.12-rt"), &[file], &[]).unwrap();
        assert_eq!(
            names(&rows),
            ["vanilla", "preempt-rt", "mine", "rt-profile@6.12-rt"]
        );
        assert_eq!(rows[0].sets, Sets::Nothing);
        assert!(rows[2].sets.words().starts_with("file /"));
        assert_eq!(rows[3].sets.words(), "method rt+profile");
    }

    #[test]
    fn kernels_have_each_row_that_names_none() {
        let kernels = ["6.12".to_owned(), "6.12-rt".to_owned()];
        let rows = named(&methods("vanilla,rt-profile@7.3-rt"), &[], &kernels).unwrap();
        assert_eq!(
            names(&rows),
            ["vanilla@6.12", "vanilla@6.12-rt", "rt-profile@7.3-rt"]
        );
    }

    #[test]
    fn what_cannot_be_compared_is_refused_with_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let place = |name: &str| {
            let file = directory.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "").unwrap();
            file
        };
        let (one, other, odd) = (place("a.toml"), place("b/a.toml"), place("my @.toml"));
        let missing = directory.path().join("missing.toml");
        for (asked, files, told) in [
            ("vanilla", vec![], "vanilla alone is compared with nothing"),
            (
                "rt,preempt-rt",
                vec![],
                "two rows would be called preempt-rt",
            ),
            ("", vec![one, other], "two rows would be called a"),
            ("vanilla", vec![odd], "cannot be the name of a row"),
            ("vanilla", vec![missing], "missing.toml: No such file"),
        ] {
            let error = named(&methods(asked), &files, &[]).unwrap_err().to_string();
            assert!(error.contains(told) && error.contains("; "), "{error}");
        }
        for (text, told) in [
            ("fast", "unknown method `fast`"),
            ("rt-sockets", "on a host it is preempt-rt"),
            ("rt@", "names no kernel"),
        ] {
            let error = text.parse::<AskedMethod>().unwrap_err();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn a_row_fits_the_kernel_that_it_names_or_that_has_what_it_needs_and_then_no_other() {
        let (stock, rt) = (kernel("6.12.1", false), kernel("6.12.1-rt", true));
        let mut rows = named(&methods("vanilla,rt-profile,vanilla@6.12-rt"), &[], &[]).unwrap();
        let fitting = |rows: &[Row], kernel: &Kernel| {
            let rows = rows.iter().map(|row| row.fits(kernel));
            rows.collect::<Vec<bool>>()
        };
        assert_eq!(fitting(&rows, &stock), [true, false, false]);
        assert_eq!(fitting(&rows, &rt), [true, true, true]);
        assert_eq!(rows[1].wanted_kernel(&stock), "a kernel with PREEMPT_RT");
        assert_eq!(rows[2].wanted_kernel(&stock), "6.12-rt");
        rows[0].release = Some("6.12.1".to_owned());
        assert_eq!(fitting(&rows, &rt), [false, true, true]);
        assert_eq!(rows[0].wanted_kernel(&rt), "6.12.1");
    }

    #[test]
    fn a_file_that_has_changed_since_the_run_began_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.toml");
        fs::write(&file, "# 1").unwrap();
        let sets = Sets::of_file(&file).unwrap();
        sets.must_be_as_begun().unwrap();
        fs::write(&file, "# 2").unwrap();
        let error = sets.must_be_as_begun().unwrap_err().to_string();
        assert!(error.contains("has changed since the run began"), "{error}");
    }
}
