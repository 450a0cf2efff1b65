//! The registers of a VCPU: long mode for the boot VCPU, as Linux's 64-bit boot protocol asks
//! (Documentation/arch/x86/boot.rst); the others wait for it to start them.

use kvm_bindings::{
    CpuId, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, KVM_MAX_CPUID_ENTRIES, Msrs, kvm_cpuid_entry2,
    kvm_msr_entry, kvm_regs, kvm_segment,
};
use kvm_ioctls::{Cap, Kvm, VcpuFd};
use steadyvm_sockets::Memory;
use vm_memory::{Bytes, GuestAddress};

use crate::configuration::Configuration;
use crate::layout;
use steadyvm_fault::{At, Fault as Error, Result};

/// `__BOOT_CS` and `__BOOT_DS` of the boot protocol, and a task state segment behind them.
const CODE: u16 = 0x10;
const DATA: u16 = 0x18;
const TASK: u16 = 0x20;

const CR0_PE: u64 = 1;
const CR0_PG: u64 = 1 << 31;
const CR4_PAE: u64 = 1 << 5;
const EFER_LME: u64 = 1 << 8;
const EFER_LMA: u64 = 1 << 10;

const PAGE_PRESENT: u64 = 1;
const PAGE_WRITABLE: u64 = 1 << 1;
const PAGE_LARGE: u64 = 1 << 7;

/// `MSR_IA32_MISC_ENABLE` with fast strings, as after a reset.
const MISC_ENABLE: (u32, u64) = (0x1a0, 1);
/// `MSR_MTRRdefType`: enabled, write-back.
const MEMORY_TYPE: (u32, u64) = (0x2ff, 1 << 11 | 6);

/// Page tables and segments for the boot VCPU, in guest memory.
pub fn write_tables(memory: &Memory) -> Result<()> {
    let put = |value: u64, address: u64| {
        memory
            .write_obj(value, GuestAddress(address))
            .cannot("write the guest's first page tables")
    };
    let (pml4, pdpt) = (layout::PAGE_TABLES, layout::PAGE_TABLES + 0x1000);
    put(pdpt | PAGE_PRESENT | PAGE_WRITABLE, pml4)?;
    // 4 GiB, each address to itself, in pages of 2 MiB.
    for gib in 0..4 {
        let directory = pdpt + 0x1000 * (gib + 1);
        put(directory | PAGE_PRESENT | PAGE_WRITABLE, pdpt + gib * 8)?;
        for page in 0..512 {
            let address = gib << 30 | page << 21;
            let entry = address | PAGE_PRESENT | PAGE_WRITABLE | PAGE_LARGE;
            put(entry, directory + page * 8)?;
        }
    }
    for segment in [code(), data(), task()] {
        put(
            descriptor(&segment),
            layout::SEGMENTS + u64::from(segment.selector),
        )?;
    }
    Ok(())
}

/// Sets VCPU `number` up; the boot VCPU, number 0, starts at `entry`.
pub fn set_up(
    kvm: &Kvm,
    vcpu: &VcpuFd,
    number: u8,
    configuration: &Configuration,
    entry: u64,
) -> Result<()> {
    let what = || format!("set VCPU {number} up");
    vcpu.set_cpuid2(&features(kvm, number, configuration)?)
        .cannot(what())?;
    let entries = [MISC_ENABLE, MEMORY_TYPE].map(|(index, data)| kvm_msr_entry {
        index,
        data,
        ..Default::default()
    });
    let msrs = Msrs::from_entries(&entries)
        .map_err(|_| Error::input("model specific registers", "too many"))?;
    // Where a processor does not have one of them, the guest will not ask for it either.
    let _ = vcpu.set_msrs(&msrs).cannot(what())?;
    // The host's own rate as it knows it now. What KVM gave the VCPU is what the host believed when
    // KVM was loaded; where that differs from the later calibration by more than 250 ppm, KVM without
    // TSC scaling refuses its own default, and the VCPU's timers never fire.
    let _ = vcpu.set_tsc_khz(0);
    if number == 0 {
        enter_long_mode(vcpu).cannot(what())?;
        let registers = kvm_regs {
            // Bit 1 is always set.
            rflags: 2,
            rip: entry,
            rsi: layout::BOOT_PARAMETERS,
            ..Default::default()
        };
        vcpu.set_regs(&registers).cannot(what())?;
    }
    Ok(())
}

fn enter_long_mode(vcpu: &VcpuFd) -> std::result::Result<(), kvm_ioctls::Error> {
    let mut registers = vcpu.get_sregs()?;
    registers.cs = code();
    for segment in [
        &mut registers.ds,
        &mut registers.es,
        &mut registers.fs,
        &mut registers.gs,
        &mut registers.ss,
    ] {
        *segment = data();
    }
    registers.tr = task();
    registers.gdt.base = layout::SEGMENTS;
    registers.gdt.limit = TASK + 7;
    registers.cr3 = layout::PAGE_TABLES;
    registers.cr4 |= CR4_PAE;
    registers.cr0 |= CR0_PE | CR0_PG;
    registers.efer |= EFER_LME | EFER_LMA;
    vcpu.set_sregs(&registers)
}

/// A flat 64-bit code segment: executable, readable, accessed.
fn code() -> kvm_segment {
    kvm_segment {
        limit: u32::MAX,
        selector: CODE,
        type_: 0xb,
        present: 1,
        s: 1,
        l: 1,
        g: 1,
        ..Default::default()
    }
}

/// A flat data segment: writable, accessed.
fn data() -> kvm_segment {
    kvm_segment {
        selector: DATA,
        type_: 0x3,
        db: 1,
        l: 0,
        ..code()
    }
}

/// A busy task state segment, which long mode wants to be there.
fn task() -> kvm_segment {
    kvm_segment {
        limit: 0x67,
        selector: TASK,
        type_: 0xb,
        present: 1,
        ..Default::default()
    }
}

/// A segment as it stands in a descriptor table.
fn descriptor(segment: &kvm_segment) -> u64 {
    let limit = u64::from(if segment.g == 1 {
        segment.limit >> 12
    } else {
        segment.limit
    });
    let base = segment.base;
    let bit = |value: u8, at: u32| u64::from(value) << at;
    limit & 0xffff
        | (base & 0xff_ffff) << 16
        | bit(segment.type_, 40)
        | bit(segment.s, 44)
        | bit(segment.dpl, 45)
        | bit(segment.present, 47)
        | (limit >> 16 & 0xf) << 48
        | bit(segment.avl, 52)
        | bit(segment.l, 53)
        | bit(segment.db, 54)
        | bit(segment.g, 55)
        | (base >> 24 & 0xff) << 56
}

/// What the VCPU says of itself: what KVM offers, without what was not asked for.
fn features(kvm: &Kvm, number: u8, configuration: &Configuration) -> Result<CpuId> {
    let offered = kvm
        .get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
        .cannot("ask KVM for the processor's features")?;
    let deadline_timer = kvm.check_extension(Cap::TscDeadlineTimer);
    let mut entries = normalized(offered.as_slice(), number, configuration);
    for entry in &mut entries {
        if entry.function == 1 {
            // The only timer that a machine without PIT and HPET can have.
            entry.ecx |= u32::from(deadline_timer) << 24;
        }
    }
    CpuId::from_entries(&entries)
        .map_err(|_| Error::input("processor features", "KVM offers more than it takes"))
}

/// Leaf 1's bits of Intel's nested virtualisation, and of performance counters and their records.
const VMX: u32 = 5;
const DEBUG_STORE: u32 = 21;
const COUNTERS_CAPABILITY: u32 = 15;
/// Leaf `0x8000_0001`'s of AMD's nested virtualisation, and of its counters.
const SVM: u32 = 2;
const COUNTERS_OF_CORE: u32 = 23;
const COUNTERS_OF_NORTH_BRIDGE: u32 = 24;
const COUNTERS_OF_LAST_LEVEL: u32 = 28;

/// This VCPU's place in the topology, one socket with a thread a core, instead of the host's; without
/// nested virtualisation and performance counters where the VM is not to have them.
fn normalized(
    offered: &[kvm_cpuid_entry2],
    number: u8,
    configuration: &Configuration,
) -> Vec<kvm_cpuid_entry2> {
    let id = u32::from(number);
    let count = u32::from(configuration.vcpus);
    let (nested, pmu) = (configuration.nested, configuration.pmu);
    let mut entries = offered.to_vec();
    // KVM leaves the topology to us.
    entries.retain(|entry| match entry.function {
        TOPOLOGY | NEWER_TOPOLOGY | AMD_TOPOLOGY => false,
        COUNTERS | COUNTER_RECORDS | AMD_COUNTERS => pmu,
        AMD_NESTED => nested,
        _ => true,
    });
    entries.extend(topology(id, count));
    for entry in &mut entries {
        match entry.function {
            1 => {
                entry.ebx = entry.ebx & 0xff00 | id << 24 | count << 16;
                // Runs under a hypervisor.
                entry.ecx |= 1 << 31;
                set_bit(&mut entry.edx, 28, count > 1);
                keep_bit(&mut entry.ecx, VMX, nested);
                keep_bit(&mut entry.ecx, COUNTERS_CAPABILITY, pmu);
                keep_bit(&mut entry.edx, DEBUG_STORE, pmu);
            }
            CACHES | AMD_CACHES if entry.eax & 0x1f != 0 => share_cache(entry, count),
            0x8000_0001 => {
                keep_bit(&mut entry.ecx, SVM, nested);
                for bit in [
                    COUNTERS_OF_CORE,
                    COUNTERS_OF_NORTH_BRIDGE,
                    COUNTERS_OF_LAST_LEVEL,
                ] {
                    keep_bit(&mut entry.ecx, bit, pmu);
                }
            }
            // AMD: cores of the package, and this one's number.
            0x8000_0008 => entry.ecx = entry.ecx & !0xf0ff | (count - 1),
            0x8000_001e => (entry.eax, entry.ebx, entry.ecx) = (id, id, 0),
            _ => {}
        }
    }
    entries
}

/// Who shares a cache: caches of the third level and beyond belong to the package, others to a core. The
/// host's threads and cores are none of the guest's.
fn share_cache(entry: &mut kvm_cpuid_entry2, count: u32) {
    const THREADS: u32 = 0xfff << 14;
    const CORES: u32 = 0x3f << 26;
    let level = entry.eax >> 5 & 7;
    let sharing = if level >= 3 { count - 1 } else { 0 };
    entry.eax = entry.eax & !THREADS | sharing << 14;
    // AMD's leaf has nothing there.
    if entry.function == CACHES {
        entry.eax = entry.eax & !CORES | (count - 1) << 26;
    }
}

/// Deterministic cache parameters.
const CACHES: u32 = 4;
const AMD_CACHES: u32 = 0x8000_001d;
/// Performance counters, architectural and recorded (LBR), and AMD's second version of them.
const COUNTERS: u32 = 0xa;
const COUNTER_RECORDS: u32 = 0x1c;
const AMD_COUNTERS: u32 = 0x8000_0022;
/// AMD's nested virtualisation.
const AMD_NESTED: u32 = 0x8000_000a;
/// AMD's extended topology, which Linux 6.9 and newer read.
const AMD_TOPOLOGY: u32 = 0x8000_0026;
/// Leaves of the extended topology.
const TOPOLOGY: u32 = 0xb;
const NEWER_TOPOLOGY: u32 = 0x1f;

/// Threads of a core, then cores of the package.
fn topology(id: u32, count: u32) -> [kvm_cpuid_entry2; 2] {
    let level = |index: u32, kind: u32, shift: u32, processors: u32| kvm_cpuid_entry2 {
        function: TOPOLOGY,
        index,
        flags: KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
        eax: shift,
        ebx: processors,
        ecx: kind << 8 | index,
        edx: id,
        ..Default::default()
    };
    let shift = count.next_power_of_two().trailing_zeros();
    [level(0, 1, 0, 1), level(1, 2, shift, count)]
}

fn set_bit(register: &mut u32, bit: u32, value: bool) {
    *register = *register & !(1 << bit) | u32::from(value) << bit;
}

fn keep_bit(register: &mut u32, bit: u32, keep: bool) {
    if !keep {
        *register &= !(1 << bit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn configuration(more: &str) -> Configuration {
        let text = format!("name = \"a\"\nkernel = \"k\"\nvcpus = 4\n{more}");
        Configuration::parse(&text, "vm.toml").unwrap()
    }

    fn leaf(entries: &[kvm_cpuid_entry2], function: u32) -> Option<&kvm_cpuid_entry2> {
        entries.iter().find(|entry| entry.function == function)
    }

    prop_compose! {
        /// Whatever a host offers.
        fn offered()(words in prop::collection::vec(any::<[u32; 4]>(), 16)) -> Vec<kvm_cpuid_entry2> {
            let functions = [
                0, 1, 4, 7, 0xa, 0xb, 0xd, 0x1c, 0x1f, 0x8000_0001, 0x8000_0008, 0x8000_000a,
                0x8000_001d, 0x8000_001e, 0x8000_0022, 0x8000_0026,
            ];
            functions.into_iter().zip(words).map(|(function, [eax, ebx, ecx, edx])| {
                kvm_cpuid_entry2 { function, eax, ebx, ecx, edx, ..Default::default() }
            }).collect()
        }
    }

    proptest! {
        #[test]
        fn a_guest_has_counters_and_guests_of_its_own_only_where_asked(offered in offered(), asked in any::<bool>()) {
            let configuration = configuration(&format!("nested = {asked}\npmu = {asked}"));
            let entries = normalized(&offered, 1, &configuration);
            for function in [0xa, 0x1c, 0x8000_000a, 0x8000_0022] {
                prop_assert_eq!(leaf(&entries, function).is_some(), asked);
            }
            let (one, amd) = (leaf(&entries, 1).unwrap(), leaf(&entries, 0x8000_0001).unwrap());
            let before = (leaf(&offered, 1).unwrap(), leaf(&offered, 0x8000_0001).unwrap());
            let left = |bits: u32| if asked { bits } else { 0 };
            prop_assert_eq!(one.ecx & 1 << 5, left(before.0.ecx & 1 << 5));
            prop_assert_eq!(one.ecx & 1 << 15, left(before.0.ecx & 1 << 15));
            prop_assert_eq!(amd.ecx & 1 << 2, left(before.1.ecx & 1 << 2));
            prop_assert_eq!(amd.ecx & 1 << 23, left(before.1.ecx & 1 << 23));
        }

        #[test]
        fn caches_and_topology_are_the_guests(offered in offered(), number in 0_u8..4) {
            let entries = normalized(&offered, number, &configuration(""));
            prop_assert!(leaf(&entries, 0x8000_0026).is_none());
            let cache = leaf(&entries, 4).unwrap();
            if cache.eax & 0x1f != 0 {
                let shared = cache.eax >> 14 & 0xfff;
                prop_assert_eq!(shared, if cache.eax >> 5 & 7 >= 3 { 3 } else { 0 });
                prop_assert_eq!(cache.eax >> 26, 3);
            }
            prop_assert_eq!(leaf(&entries, 1).unwrap().ebx >> 24, u32::from(number));
            prop_assert_eq!(leaf(&entries, 0xb).unwrap().edx, u32::from(number));
        }
    }
}
