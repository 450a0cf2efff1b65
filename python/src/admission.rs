//! Admission of one more VM on one host, for schedulers of clouds.

use steadyvm_analysis::{
    Error, Time, Work,
    host::{
        Admission, Host, HostScheduler, RejectionReason, Vcpu, VcpuServer, admit,
        overhead::Overheads,
    },
};

use crate::{HostVerdict, RtVm};

/// Bad input, and whose.
pub struct Wrong {
    /// The VM on the host; `None`: the request, or the host itself.
    vm: Option<usize>,
    what: &'static str,
    pub error: Error,
}

impl Wrong {
    /// The path of the argument.
    pub fn place(&self, host: usize) -> String {
        match self.vm {
            Some(vm) => format!("hosts[{host}][1][{vm}]"),
            None if self.what == "host" => format!("hosts[{host}][0]"),
            None => self.what.to_owned(),
        }
    }
}

/// Decides for one host.
pub fn host(
    cpus: u32,
    vms: &[RtVm],
    request: RtVm,
    scheduler: HostScheduler,
    server: VcpuServer,
) -> Result<HostVerdict, Wrong> {
    let host = Host::new(cpus, scheduler, server, Overheads::default()).map_err(|error| Wrong {
        vm: None,
        what: "host",
        error,
    })?;
    let mut vcpus = Vec::with_capacity(vms.len() + 1);
    for (number, &vm) in vms.iter().chain([&request]).enumerate() {
        push(&mut vcpus, number, vm).map_err(|error| Wrong {
            vm: (number < vms.len()).then_some(number),
            what: "request",
            error,
        })?;
    }
    let Admission { outcome, .. } = admit(&host, &vcpus, &mut Work::default());
    Ok(match outcome {
        Ok(_) => (true, None),
        Err(rejection) => (
            false,
            Some(reason(&rejection.reason, vms.len(), &vcpus[rejection.vcpu])),
        ),
    })
}

fn push(vcpus: &mut Vec<Vcpu>, vm: usize, (budget, period, count): RtVm) -> Result<(), Error> {
    if count == 0 || count > steadyvm_analysis::interface::MAX_VCPUS {
        return Err(Error::OutOfRange {
            what: "the number of VCPUs",
            value: count.into(),
            low: 1,
            high: steadyvm_analysis::interface::MAX_VCPUS.into(),
        });
    }
    for _ in 0..count {
        vcpus.push(Vcpu::new(vm, budget, period)?);
    }
    Ok(())
}

fn reason(reason: &RejectionReason, request: usize, vcpu: &Vcpu) -> String {
    let who = if vcpu.vm() == request {
        "the requested VM".to_owned()
    } else {
        format!("VM {} of the host", vcpu.vm())
    };
    let ns = |time: Time| format!("{time} ns");
    match reason {
        RejectionReason::Violation(violation) | RejectionReason::NoCpu(violation) => format!(
            "{who}: in a window of {} it and what comes before it demand {} ns, but only {} ns are certain",
            ns(violation.at),
            violation.demand,
            violation.supply
        ),
        RejectionReason::OverheadsExceedPeriod => format!("{who}: costs more than its period"),
        RejectionReason::Undecided(_) => {
            format!("{who}: undecided within the allowance of work, so no")
        }
    }
}
