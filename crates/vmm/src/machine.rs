//! A VM as KVM and this program know it: memory, interrupt lines, devices, VCPUs.

use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::{IoEventAddress, Kvm, VcpuFd, VmFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use steadyvm_sockets::{Device as SocketsDevice, Limits, Memory};
use virtio_bindings::virtio_mmio::VIRTIO_MMIO_QUEUE_NOTIFY;
use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};
use vmm_sys_util::eventfd::EventFd;

use crate::bus::Bus;
use crate::configuration::{self, Configuration};
use crate::cpu;
use crate::devices::block::{self, Block};
use crate::devices::channel::{self, Channel};
use crate::devices::net::{Net, QueueEvents};
use crate::devices::serial::Console;
use crate::devices::sockets::Sockets;
use crate::devices::tap::Tap;
use crate::devices::{Backend, Interrupt, MmioDevice};
use crate::layout;
use crate::output::{Messages, Pipe};
use crate::own_queues;
use crate::resources::Resources;
use crate::statistics::CountedVcpu;
use steadyvm_fault::{At, Fault as Error, Result};

/// A VM that has not run yet.
pub struct Machine {
    /// Its VCPUs, by number.
    pub vcpus: Vec<CountedVcpu>,
    /// Its devices.
    pub bus: Arc<Bus>,
    /// Disks, each to be served by a thread.
    pub disks: Vec<OnLine<Arc<Block>>>,
    /// The channel into the guest, to be served by a thread.
    pub channel: Option<OnLine<Arc<Channel>>>,
    /// Interrupts of cards, each to be passed on by a thread.
    pub relays: Vec<OnLine<Relay>>,
    /// The outsourced sockets, to wake who sleeps there.
    pub sockets: Option<Arc<SocketsDevice>>,
    /// To be kept as long as a VCPU may run.
    pub vm: KernelVm,
}

/// What devices know of the monitor around them.
pub struct Surroundings {
    /// The VM's end has come.
    pub stopping: Arc<AtomicBool>,
    /// The serial port's output.
    pub console: Arc<Pipe>,
    /// What there is to say about the guest.
    pub messages: Messages,
}

/// What raises an interrupt, with its line of the I/O APIC.
pub struct OnLine<T> {
    /// Whatever serves it.
    pub part: T,
    /// The line's number.
    pub line: u32,
}

/// The interrupt of a card on its way through this program, in a VM whose VCPUs may have to be woken
/// for it. In others vhost-net raises it by itself.
pub struct Relay {
    /// vhost-net has used a buffer.
    pub from_kernel: EventFd,
    interrupt: Arc<Interrupt>,
}

impl Relay {
    /// Raises the interrupt if there was one.
    pub fn pass_on(&self) {
        if self.from_kernel.read().is_ok() {
            self.interrupt.raise();
        }
    }
}

/// The kernel's VM, and the guest's memory behind its slots.
pub struct KernelVm {
    /// Where lines lead to is asked of it.
    pub fd: Arc<VmFd>,
    _memory: Memory,
}

impl Machine {
    /// Makes it, with everything in memory that its boot VCPU needs. The calling thread is in the
    /// network namespace of the guest's sockets.
    pub fn new(
        configuration: &Configuration,
        mut resources: Resources,
        surroundings: &Surroundings,
    ) -> Result<Self> {
        let stopping = &surroundings.stopping;
        let memory = layout::allocate(configuration.memory_mib << 20)?;
        let entry = resources.image.load(&memory, configuration)?;
        let vm = make_vm(&resources.kvm, &memory)?;
        let mut slots = Slots::new(&vm, memory.clone(), surroundings)?;
        for disk in resources.disks {
            slots.add_disk(disk, stopping)?;
        }
        let sleepers = configuration.sockets.is_some();
        for (tap, net) in resources.taps.into_iter().zip(&configuration.net) {
            slots.add_card(tap, net, sleepers)?;
        }
        if let Some(sockets) = &configuration.sockets {
            slots.add_sockets(sockets, configuration.vcpus, stopping)?;
        }
        if let (Some(socket), Some(channel)) = (resources.channel, &configuration.channel) {
            slots.add_channel(socket, &channel.name)?;
        }
        let Slots {
            console,
            devices,
            disks,
            channel,
            relays,
            sockets,
            ..
        } = slots;
        let vcpus = make_vcpus(&resources.kvm, &vm, configuration, entry)?;
        Ok(Self {
            vcpus,
            bus: Arc::new(Bus { console, devices }),
            disks,
            channel,
            relays,
            sockets,
            vm: KernelVm {
                fd: Arc::new(vm),
                _memory: memory,
            },
        })
    }
}

fn make_vm(kvm: &Kvm, memory: &Memory) -> Result<VmFd> {
    let what = "make a VM";
    let vm = kvm.create_vm().cannot(what)?;
    vm.set_identity_map_address(layout::IDENTITY_MAP)
        .cannot(what)?;
    vm.set_tss_address(layout::TASK_STATE as usize)
        .cannot(what)?;
    vm.create_irq_chip().cannot_or(
        what,
        "KVM must have its interrupt controllers in the kernel",
    )?;
    for (slot, region) in memory.iter().enumerate() {
        let region = kvm_userspace_memory_region {
            slot: slot as u32,
            guest_phys_addr: region.start_addr().0,
            memory_size: region.len(),
            userspace_addr: region.as_ptr() as u64,
            flags: 0,
        };
        // SAFETY: the region is mapped, of this length, and stays so as long as the VM: [`KernelVm`]
        // has both. Nobody holds references into it: all access is volatile.
        unsafe { vm.set_user_memory_region(region) }.cannot("give the guest its memory")?;
    }
    Ok(vm)
}

/// Newer kernels start a worker of KVM's at a VM's first `KVM_RUN`, as a thread of this process with the
/// caller's priority (`kvm_mmu_post_init_vm()`). Here that is an ordinary one; an RT VCPU's it would keep.
/// The call returns before the guest begins.
fn start_workers(vcpu: &mut VcpuFd) {
    vcpu.set_kvm_immediate_exit(1);
    // It is interrupted, as asked; what else is wrong shows when the VCPU runs.
    let _ = vcpu.run();
    vcpu.set_kvm_immediate_exit(0);
}

fn make_vcpus(
    kvm: &Kvm,
    vm: &VmFd,
    configuration: &Configuration,
    entry: u64,
) -> Result<Vec<CountedVcpu>> {
    let make = |number: u8| {
        let mut vcpu = vm
            .create_vcpu(number.into())
            .cannot(format!("make VCPU {number}"))?;
        cpu::set_up(kvm, &vcpu, number, configuration, entry)?;
        if number == 0 {
            start_workers(&mut vcpu);
        }
        Ok(CountedVcpu {
            fd: vcpu,
            counters: Arc::default(),
        })
    };
    (0..configuration.vcpus).map(make).collect()
}

/// Fills the device window, a slot a device.
struct Slots<'v> {
    vm: &'v VmFd,
    memory: Memory,
    console: Console,
    messages: Messages,
    devices: Vec<Arc<MmioDevice>>,
    disks: Vec<OnLine<Arc<Block>>>,
    channel: Option<OnLine<Arc<Channel>>>,
    relays: Vec<OnLine<Relay>>,
    sockets: Option<Arc<SocketsDevice>>,
}

impl<'v> Slots<'v> {
    fn new(vm: &'v VmFd, memory: Memory, surroundings: &Surroundings) -> Result<Self> {
        let line = event()?;
        connect_line(vm, &line, layout::SERIAL_LINE)?;
        Ok(Self {
            vm,
            memory,
            console: Console::new(&line, Arc::clone(&surroundings.console))?,
            messages: surroundings.messages.clone(),
            devices: Vec::new(),
            disks: Vec::new(),
            channel: None,
            relays: Vec::new(),
            sockets: None,
        })
    }

    fn add_disk(&mut self, image: block::Image, stopping: &Arc<AtomicBool>) -> Result<()> {
        let (interrupt, rung) = (self.next_interrupt()?, self.next_bell(0)?);
        let (memory, told) = (self.memory.clone(), Arc::clone(&interrupt));
        let block = Block::new(image, memory, told, rung, stopping).cannot("make a disk")?;
        let block = Arc::new(block);
        self.disks.push(self.on_next_line(Arc::clone(&block)));
        self.add(Box::new(block::Registers(block)), interrupt);
        Ok(())
    }

    fn add_channel(&mut self, socket: UnixStream, name: &str) -> Result<()> {
        let (interrupt, rung) = (self.next_interrupt()?, event()?);
        for queue in 0..channel::QUEUES {
            self.hear_bell(&rung, queue as u32)?;
        }
        let (memory, told) = (self.memory.clone(), Arc::clone(&interrupt));
        let channel = Channel::new(name, socket, memory, told, rung).cannot("make the channel")?;
        let channel = Arc::new(channel);
        self.channel = Some(self.on_next_line(Arc::clone(&channel)));
        self.add(Box::new(channel::Registers(channel)), interrupt);
        Ok(())
    }

    fn add_card(&mut self, tap: Tap, net: &configuration::Net, sleepers: bool) -> Result<()> {
        let interrupt = self.next_interrupt()?;
        let share = |event: &EventFd| event.try_clone().cannot("share an event");
        let raise = if sleepers {
            let from_kernel = event()?;
            let relay = Relay {
                from_kernel: share(&from_kernel)?,
                interrupt: Arc::clone(&interrupt),
            };
            self.relays.push(self.on_next_line(relay));
            from_kernel
        } else {
            share(&interrupt.line)?
        };
        let queue = |index| {
            Ok(QueueEvents {
                rung: self.next_bell(index)?,
                interrupt: share(&raise)?,
            })
        };
        let card = Net::new(&self.memory, tap, net.mac, [queue(0)?, queue(1)?])?;
        self.add(Box::new(card), interrupt);
        Ok(())
    }

    fn add_sockets(
        &mut self,
        sockets: &configuration::Sockets,
        vcpus: u8,
        stopping: &Arc<AtomicBool>,
    ) -> Result<()> {
        let refused =
            |why: steadyvm_sockets::DeviceError| Error::cannot("make the sockets device", why);
        let limits = Limits {
            poll: own_queues::granted(sockets),
            ..sockets.limits()
        };
        let device = SocketsDevice::new(limits, vcpus.into()).map_err(refused)?;
        let backend = Sockets::new(
            &device,
            vcpus.into(),
            self.memory.clone(),
            layout::notification_port(self.devices.len()),
            Arc::clone(stopping),
        )
        .map_err(refused)?;
        let interrupt = self.next_interrupt()?;
        self.sockets = Some(device);
        self.add(Box::new(backend), interrupt);
        Ok(())
    }

    fn add(&mut self, backend: Box<dyn Backend>, interrupt: Arc<Interrupt>) {
        self.devices
            .push(Arc::new(MmioDevice::new(backend, interrupt)));
    }

    /// The number of the interrupt line of the device that is added next.
    fn next_line(&self) -> u32 {
        layout::device_line(self.devices.len())
    }

    fn on_next_line<T>(&self, part: T) -> OnLine<T> {
        OnLine {
            part,
            line: self.next_line(),
        }
    }

    /// The interrupt line of the device that is added next.
    fn next_interrupt(&self) -> Result<Arc<Interrupt>> {
        let line = event()?;
        connect_line(self.vm, &line, self.next_line())?;
        Ok(Arc::new(Interrupt::new(line, self.messages.clone())))
    }

    /// An event that queue `queue` of the device that is added next rings.
    fn next_bell(&self, queue: u32) -> Result<EventFd> {
        let rung = event()?;
        self.hear_bell(&rung, queue)?;
        Ok(rung)
    }

    /// Lets the kernel itself hear queue `queue` of the device that is added next being rung.
    fn hear_bell(&self, rung: &EventFd, queue: u32) -> Result<()> {
        let register =
            layout::device_address(self.devices.len()) + u64::from(VIRTIO_MMIO_QUEUE_NOTIFY);
        self.vm
            .register_ioevent(rung, &IoEventAddress::Mmio(register), queue)
            .cannot("let KVM signal a queue")
    }
}

fn event() -> Result<EventFd> {
    EventFd::new(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC)
        .cannot_or("make an event", "raise the limit of open files (ulimit -n)")
}

fn connect_line(vm: &VmFd, event: &EventFd, line: u32) -> Result<()> {
    vm.register_irqfd(event, line)
        .cannot("let KVM raise an interrupt")
}
