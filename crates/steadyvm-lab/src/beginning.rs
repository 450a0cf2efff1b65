//! What a run in the lab says about the machine it ran on.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use steadyvm_cli::build;
use steadyvm_cli::machine::{command_line, first_line_of};
use steadyvm_experiment::engine::Disturbance;
use steadyvm_experiment::engine::{KernelBuild, RunRecord};
use steadyvm_lab::artifact::RtKernel;
use steadyvm_lab::laboratory::Laboratory;
use steadyvm_report::machine::{cpu_model, load_average};

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
            git_revision: build::REVISION.to_owned(),
            command_line: command_line("steadyvm-lab"),
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
