//! The two ways to wake a VCPU that waits for a socket, without an interrupt, measured against each
//! other: docs/design/guest-sockets.md, "Idle".
//!
//! - `wait`: the guest leaves for this program, whose VCPU thread sleeps in epoll itself.
//! - `halt`: the guest tells this program that it halts, and halts in KVM. Another thread sleeps in
//!   epoll, kicks the VCPU thread by a signal, and that makes the VCPU runnable again.
//!
//! The guest is a few instructions that wait, then write a port. Measured is the time from just
//! before a datagram is sent to the guest's write after it, received by the VCPU thread in between.
//!
//! usage: `wake_ups [ROUNDS] [WAKE-UPS A ROUND]`, as root, with /dev/kvm and two CPUs

#![allow(clippy::unwrap_used)] // a measurement that cannot go on stops

use kvm_bindings::{
    KVM_MP_STATE_HALTED, KVM_MP_STATE_RUNNABLE, kvm_mp_state, kvm_userspace_memory_region,
};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use steadyvm_stats::Summary;
use steadyvm_stats::bootstrap::{BootstrapOptions, draw_latency, ratio};
use steadyvm_vmm::thread::{Kickable, kick, prepare_kicks, set_fifo};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

/// What the guest's code begins at, and all its memory.
const MEMORY: u64 = 0x1000;
/// Written by the guest before it waits, and when it has been woken.
const WAITS: u16 = 0x600;
const WOKEN: u16 = 0x80;
/// mov dx, WAITS; again: out dx, al; out WOKEN, al; jmp again
const WAIT_CODE: &[u8] = &[0xba, 0x00, 0x06, 0xee, 0xe6, 0x80, 0xeb, 0xfb];
/// The same with hlt behind the first out.
const HALT_CODE: &[u8] = &[0xba, 0x00, 0x06, 0xee, 0xf4, 0xe6, 0x80, 0xeb, 0xfa];
const BEHIND_HALT: u64 = 5;
/// Priorities: the thread that kicks is before what it kicks.
const VCPU_PRIORITY: i32 = 70;
const WAKER_PRIORITY: i32 = 71;
/// How long the VCPU has been asleep when it is woken.
const ASLEEP: Duration = Duration::from_millis(3);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Design {
    Wait,
    Halt,
}

/// A VM of one design, and what wakes it.
struct Sleeper {
    sender: UdpSocket,
    woken: Receiver<Instant>,
}

impl Sleeper {
    fn start(kvm: &Kvm, design: Design) -> Self {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_nonblocking(true).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let epoll = Arc::new(Epoll::new().unwrap());
        let edges = EpollEvent::new(EventSet::IN | EventSet::EDGE_TRIGGERED, 0);
        let add = ControlOperation::Add;
        epoll.ctl(add, receiver.as_raw_fd(), edges).unwrap();
        let (tell, woken) = channel();
        let code = match design {
            Design::Wait => WAIT_CODE,
            Design::Halt => HALT_CODE,
        };
        let (vm, vcpu) = machine(kvm, code);
        let kicked = Arc::new(AtomicBool::new(false));
        let vcpu_thread = {
            let (epoll, kicked) = (Arc::clone(&epoll), Arc::clone(&kicked));
            thread::spawn(move || {
                run_on(1, VCPU_PRIORITY);
                let _vm = vm;
                run(vcpu, design, &epoll, &receiver, &kicked, &tell);
            })
        };
        if design == Design::Halt {
            thread::spawn(move || wake(&epoll, &kicked, &vcpu_thread));
        }
        Self { sender, woken }
    }

    /// Wakes it once: how long that took.
    fn wake(&self) -> u64 {
        thread::sleep(ASLEEP);
        let sent = Instant::now();
        self.sender.send(b"wake").unwrap();
        let woken = self.woken.recv().unwrap();
        u64::try_from((woken - sent).as_nanos()).unwrap()
    }
}

/// A VM with one VCPU in real mode, and an interrupt controller in the kernel, where it halts.
fn machine(kvm: &Kvm, code: &[u8]) -> (VmFd, VcpuFd) {
    let vm = kvm.create_vm().unwrap();
    vm.create_irq_chip().unwrap();
    // SAFETY: a new private mapping at an address of the kernel's choice.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            MEMORY as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
            -1,
            0,
        )
    };
    assert_ne!(page, libc::MAP_FAILED);
    // SAFETY: the mapping is a page, longer than the code, and nobody else's.
    unsafe { page.cast::<u8>().copy_from(code.as_ptr(), code.len()) };
    let region = kvm_userspace_memory_region {
        slot: 0,
        flags: 0,
        guest_phys_addr: MEMORY,
        memory_size: MEMORY,
        userspace_addr: page as u64,
    };
    // SAFETY: the mapping stays until the process ends.
    unsafe { vm.set_user_memory_region(region) }.unwrap();
    let vcpu = vm.create_vcpu(0).unwrap();
    let mut special = vcpu.get_sregs().unwrap();
    special.cs.base = 0;
    special.cs.selector = 0;
    vcpu.set_sregs(&special).unwrap();
    let mut registers = vcpu.get_regs().unwrap();
    registers.rip = MEMORY;
    registers.rflags = 2;
    vcpu.set_regs(&registers).unwrap();
    (vm, vcpu)
}

fn run(
    mut vcpu: VcpuFd,
    design: Design,
    epoll: &Epoll,
    socket: &UdpSocket,
    kicked: &AtomicBool,
    tell: &Sender<Instant>,
) {
    let immediate_exit = &raw mut vcpu.get_kvm_run().immediate_exit;
    // SAFETY: kvm_run stays mapped as long as `vcpu` lives, which is longer than `_kickable`: locals
    // are dropped before arguments.
    let _kickable = unsafe { Kickable::new(immediate_exit) };
    let mut datagram = [0; 64];
    loop {
        match vcpu.run() {
            Ok(VcpuExit::IoOut(WAITS, _)) if design == Design::Wait => {
                let mut events = [EpollEvent::default()];
                while epoll.wait(-1, &mut events).unwrap_or(0) == 0 {}
                socket.recv(&mut datagram).unwrap();
            }
            // What is there already would be told here; in this measurement nothing is.
            Ok(VcpuExit::IoOut(WAITS, _)) => {}
            Ok(VcpuExit::IoOut(WOKEN, _)) => {
                if tell.send(Instant::now()).is_err() {
                    return;
                }
            }
            Ok(exit) => panic!("unexpected exit {exit:?}"),
            Err(error) if error.errno() == libc::EINTR => {
                vcpu.set_kvm_immediate_exit(0);
                if kicked.swap(false, Ordering::AcqRel) {
                    socket.recv(&mut datagram).unwrap();
                    go_on(&vcpu);
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Makes a VCPU runnable that halts; one that was kicked before shall not halt any more.
fn go_on(vcpu: &VcpuFd) {
    if vcpu.get_mp_state().unwrap().mp_state == KVM_MP_STATE_HALTED {
        let mp_state = KVM_MP_STATE_RUNNABLE;
        vcpu.set_mp_state(kvm_mp_state { mp_state }).unwrap();
    } else {
        let mut registers = vcpu.get_regs().unwrap();
        registers.rip = MEMORY + BEHIND_HALT;
        vcpu.set_regs(&registers).unwrap();
    }
}

/// Kicks the VCPU thread at every event.
fn wake(epoll: &Epoll, kicked: &AtomicBool, vcpu_thread: &JoinHandle<()>) {
    run_on(1, WAKER_PRIORITY);
    loop {
        let mut events = [EpollEvent::default()];
        if epoll.wait(-1, &mut events).unwrap_or(0) > 0 {
            kicked.store(true, Ordering::Release);
            kick(vcpu_thread);
        }
    }
}

/// Puts the calling thread on a CPU, at a `SCHED_FIFO` priority.
fn run_on(cpu: usize, priority: i32) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu).unwrap();
    sched_setaffinity(Pid::from_raw(0), &cpus).unwrap();
    set_fifo(priority).unwrap();
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |otherwise| {
        arguments
            .next()
            .map_or(otherwise, |word| word.parse().unwrap())
    };
    let (rounds, count) = (number(10), number(100));
    prepare_kicks().unwrap();
    let kvm = Kvm::new().unwrap();
    let designs = [("wait", Design::Wait), ("halt", Design::Halt)];
    let sleepers = designs.map(|(_, design)| Sleeper::start(&kvm, design));
    run_on(0, VCPU_PRIORITY);
    let mut samples = [const { Vec::new() }; 2];
    for _ in 0..rounds {
        for (sleeper, samples) in sleepers.iter().zip(&mut samples) {
            samples.push((0..count).map(|_| sleeper.wake()).collect::<Vec<u64>>());
        }
    }
    let draws = [1, 2].map(|stream| {
        let rounds: Vec<&[u64]> = samples[stream - 1].iter().map(Vec::as_slice).collect();
        draw_latency(&rounds, BootstrapOptions::default(), stream as u64)
    });
    for ((name, _), samples) in designs.iter().zip(&samples) {
        let all = Summary::of(&samples.concat()).unwrap();
        let us = |ns: u64| ns as f64 / 1e3;
        println!(
            "{name}: n {}, mean {:.1} us, p50 {:.1}, p90 {:.1}, p99 {:.1}, max {:.1}",
            all.n,
            all.mean_ns / 1e3,
            us(all.p50_ns),
            us(all.p90_ns),
            us(all.p99_ns),
            us(all.max_ns),
        );
    }
    for (figure, name) in ["mean", "SD", "p50", "p99"].iter().enumerate() {
        match ratio(&draws[0], &draws[1], figure).map(|ratio| (ratio.estimate, ratio.interval())) {
            Some((estimate, Some((low, high)))) => {
                println!("wait / halt, {name}: {estimate:.2} [{low:.2}, {high:.2}]");
            }
            _ => println!("wait / halt, {name}: too few samples"),
        }
    }
}
