//! What the fuzz targets do with their bytes.

use steadyvm_analysis::plan::{self, InputError, Report, Request};

/// Bytes as a JSON request.
pub fn plan_json(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        check(plan::json::parse(text));
    }
}

/// Bytes as a plan file.
pub fn plan_toml(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        check(plan::file::parse(text));
    }
}

fn check(request: Result<Request, InputError>) {
    match request.and_then(|request| plan::run(&request)) {
        Ok(report) => {
            consistent(&report);
            let text = plan::text::render(&report, true);
            assert!(!text.is_empty());
            assert!(plan::svg::render(&report).ends_with("</svg>\n"));
        }
        Err(error) => assert!(!error.place.is_empty() && !error.message.is_empty()),
    }
}

/// What every plan promises, whatever the input was.
fn consistent(report: &Report) {
    let interfaces = report
        .vms
        .iter()
        .filter(|vm| vm.rt)
        .all(|vm| vm.interface.is_some());
    if report.feasible {
        assert!(interfaces && report.explanations.is_empty());
        assert!(report.min_pcpus.is_some_and(|cpus| cpus <= report.pcpus));
        let used: f64 = report.cpus.iter().map(|cpu| cpu.utilization).sum();
        assert!(used <= f64::from(report.pcpus) + 1e-6);
        let placed = report.vms.iter().flat_map(|vm| &vm.vcpus);
        assert!(
            placed
                .into_iter()
                .all(|vcpu| vcpu.budget == 0 || !vcpu.cpus.is_empty())
        );
    } else {
        assert!(!report.explanations.is_empty());
        let enough = report.min_pcpus.is_some_and(|cpus| cpus <= report.pcpus);
        assert!(!enough || !report.services.is_empty());
    }
    for vm in &report.vms {
        let Some(interface) = &vm.interface else {
            continue;
        };
        let sum: i64 = vm.vcpus.iter().map(|vcpu| vcpu.budget).sum();
        assert_eq!(sum, interface.budget);
        assert!(vm.vcpus.iter().all(|vcpu| vcpu.budget <= vcpu.period));
        if let Some(utilization) = interface.utilization {
            assert!(interface.bandwidth >= utilization - 1e-6);
        }
    }
}
