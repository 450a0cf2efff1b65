//! What a measurement says about the machine it ran on.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use steadyvm_experiment::engine::Disturbance;
use steadyvm_experiment::engine::{KernelBuild, RunRecord};
use steadyvm_lab::At;
use steadyvm_lab::artifact::RtKernel;
use steadyvm_lab::laboratory::Laboratory;

/// When a measurement began, and what the machine was at then.
pub struct Beginning {
    begun: Instant,
    started_unix_s: u64,
    load_before: f64,
}

impl Beginning {
    /// Now.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            begun: Instant::now(),
            started_unix_s: since.map_or(0, |since| since.as_secs()),
            load_before: load_average(),
        }
    }

    /// What the run that ends now says about itself. `kernels` are by what was measured.
    pub fn record(
        &self,
        laboratory: &Laboratory,
        kernels: BTreeMap<String, String>,
        disturbance: Disturbance,
        dropped_rounds: Vec<String>,
    ) -> RunRecord {
        RunRecord {
            schema_version: 1,
            git_revision: env!("STEADYVM_GIT_REVISION").to_owned(),
            command_line: command_line(),
            started_unix_s: self.started_unix_s,
            duration_s: self.begun.elapsed().as_secs_f64(),
            kernels,
            kernel_builds: kernel_builds(laboratory),
            accelerator: laboratory.accelerator.to_string(),
            qemu: first_line_of(&laboratory.emulator, "--version"),
            cpu_model: cpu_model(),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            machine_kernel: first_line_of("uname", "-r"),
            load_average: [self.load_before, load_average()],
            disturbance,
            dropped_rounds,
        }
    }
}

/// The words that this program was called by, as a reader would type them: without the place where it is installed.
pub(crate) fn command_line() -> Vec<String> {
    as_typed(std::env::args().collect())
}

fn as_typed(mut words: Vec<String>) -> Vec<String> {
    let name = words
        .first()
        .and_then(|program| Path::new(program).file_name()?.to_str());
    if let Some(name) = name.map(str::to_owned) {
        words[0] = name;
    }
    words
}

/// The kernels that the lab built, by name.
fn kernel_builds(laboratory: &Laboratory) -> BTreeMap<String, KernelBuild> {
    let build = |kernel: &RtKernel| KernelBuild {
        key: kernel.key.clone(),
        configuration_sha256: kernel.configuration_sha256.clone(),
    };
    let ours = laboratory.our_kernels.iter();
    ours.map(|(name, kernel)| (name.name().to_owned(), build(kernel)))
        .collect()
}

/// The load average over one minute; 0 where the kernel does not tell.
pub fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|first| first.parse().ok())
        .unwrap_or(0.0)
}

/// The machine's processor.
pub fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo")
        .at("read", "/proc/cpuinfo")
        .unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    line.and_then(|line| line.split(':').nth(1))
        .unwrap_or("unknown")
        .trim()
        .to_owned()
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
                "/opt/a/steadyvm compare --out /x/y",
                "steadyvm compare --out /x/y",
            ),
            ("steadyvm doctor", "steadyvm doctor"),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(as_typed(words).join(" "), typed);
        }
        assert_eq!(as_typed(Vec::new()), Vec::<String>::new());
    }
}
