//! How guests are run.

/// How guests are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guests {
    /// By QEMU, with virtio-net over vhost-net.
    Qemu,
    /// By `steadyvm up`, with virtio-net over vhost-net.
    Steadyvm,
    /// By `steadyvm up`, with outsourced sockets, each guest's in a network namespace of its own.
    Outsourced,
    /// So, but the latency-critical service has no guest: it is a process of the host in the
    /// namespace that its guest's sockets would be in.
    OutsourcedBulk,
    /// By QEMU, the latency-critical one as libvirt's documented real-time domain is.
    RealTime,
    /// By QEMU, the latency-critical one with a virtual function of the host's card by VFIO.
    Passthrough,
}
