//! What keeps a monitor that its guest has taken over from reaching the host.
//!
//! The order matters, and [`crate::life`] keeps it: everything is opened first; then the process leaves
//! the host's namespaces ([`Jail::enter`]), while it has one thread, which a user namespace asks for;
//! then the machine is made, its memory locked and its limits set ([`Limits`]); then the file system goes
//! ([`Jail::leave_file_system`]); and each thread, once it has its priority, gives up its user, groups and
//! capabilities ([`Jail::drop_privileges`]) and takes its filter ([`crate::seccomp`]). The guest begins
//! when all have.
//!
//! Who starts the monitor decides how: with `CAP_SYS_ADMIN` the namespaces are made as such; without it
//! inside a user namespace of its own. There is no process namespace: its first process would be a
//! child, and the number that a supervisor knows would be that of a process that has no VM. No list of
//! system calls has one that reaches another process by its number.

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::unistd::{chdir, chroot, getgid, getuid, pivot_root};
use std::fs;
use std::io;

use crate::configuration::{Configuration, Namespace, Sockets};
use crate::seccomp::Role;
use steadyvm_fault::{At, Fault as Error, Result};

const CAP_SETGID: u32 = 6;
const CAP_SETUID: u32 = 7;
const CAP_NET_BIND_SERVICE: u32 = 10;
const CAP_SYS_ADMIN: u32 = 21;
/// `_LINUX_CAPABILITY_VERSION_3`: two words of 32.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// Descriptors besides sockets: what a VM and its threads have, with room.
const OTHER_DESCRIPTORS: u64 = 64;
/// The same of one device and of one VCPU.
const DESCRIPTORS_EACH: u64 = 8;

/// Where the empty file system is made: a directory that is there wherever the monitor runs, and is not
/// needed any more.
const PLACE: &str = "/proc";

/// What the calling thread may do: the effective capabilities, a bit each.
fn capabilities() -> io::Result<u64> {
    let mut data = [Capabilities::default(); 2];
    capability_call(libc::SYS_capget, &mut data)?;
    Ok(u64::from(data[1].effective) << 32 | u64::from(data[0].effective))
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Capabilities {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

fn capability_call(call: libc::c_long, data: &mut [Capabilities; 2]) -> io::Result<()> {
    let header = [CAPABILITY_VERSION, 0];
    // SAFETY: both calls read a header of two words, here for the calling thread, and read or write the
    // two sets that version 3 has.
    checked(unsafe { libc::syscall(call, header.as_ptr(), data.as_mut_ptr()) })
}

fn checked(result: libc::c_long) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn control(option: libc::c_int, value: libc::c_ulong) -> io::Result<()> {
    // SAFETY: none of the options that this module uses has a pointer.
    checked(unsafe { libc::prctl(option, value, 0, 0, 0) }.into())
}

/// Closes what the caller of this program left open besides standard input, output and error.
///
/// # Errors
/// Before Linux 5.9.
pub fn close_inherited() -> Result<()> {
    // SAFETY: the program has opened nothing yet that it keeps: no descriptor has an owner.
    checked(unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) })
        .cannot_or("close inherited descriptors", "use Linux 5.14 or newer")
}

/// What a jail is for.
pub struct Wanted<'a> {
    /// The user that its threads become; none: they stay who they are.
    pub user: Option<u32>,
    /// The group; none: the user's number.
    pub group: Option<u32>,
    /// The guest's sockets, if it makes such.
    pub sockets: Option<&'a Sockets>,
}

impl<'a> From<&'a Configuration> for Wanted<'a> {
    fn from(configuration: &'a Configuration) -> Self {
        Self {
            user: configuration.user,
            group: configuration.group,
            sockets: configuration.sockets.as_ref(),
        }
    }
}

/// The jail of one monitor.
pub struct Jail {
    user: Option<u32>,
    group: Option<u32>,
    /// There is a mount namespace to throw the file system away in.
    own_mounts: bool,
    /// VCPUs make the guest's sockets, which may have any port, as on the guest's own stack.
    binds: bool,
    /// The right to change users and groups is this namespace's, where there is but one of each.
    own_users: bool,
}

impl Jail {
    /// Leaves the host's namespaces, but for the network's where the guest's sockets are in an existing
    /// one. To be called while the process has one thread.
    ///
    /// # Errors
    /// `user` without the right to change it; a network namespace that cannot be made.
    pub fn enter(wanted: &Wanted<'_>) -> Result<Self> {
        let what = "leave the host's namespaces";
        let held = capabilities().cannot(what)?;
        let has = |capability: u32| held & 1 << capability != 0;
        let mut jail = Self {
            user: wanted.user,
            group: wanted.group.or(wanted.user),
            own_mounts: true,
            binds: wanted.sockets.is_some(),
            own_users: false,
        };
        if (jail.user.is_some() || jail.group.is_some()) && !(has(CAP_SETUID) && has(CAP_SETGID)) {
            return Err(Error::input(
                "user, group",
                "only root can change them: start the monitor as root, or as that user without these keys",
            ));
        }
        // Not of cgroups: its names are of a file system that is left anyway, and a process that has its own is taken for a
        // container's, whose unit nobody on the host believes.
        let spaces = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
        if has(CAP_SYS_ADMIN) {
            unshare(spaces).cannot_or(
                what,
                "use a kernel with namespaces for mounts, IPC and host names",
            )?;
        } else {
            jail.enter_as_user(spaces, wanted.sockets)?;
        }
        if jail.own_mounts {
            let none = None::<&str>;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).cannot(what)?;
        }
        Ok(jail)
    }

    fn enter_as_user(&mut self, spaces: CloneFlags, sockets: Option<&Sockets>) -> Result<()> {
        let (user, group) = (getuid(), getgid());
        let entered = unshare(CloneFlags::CLONE_NEWUSER | spaces)
            .map_err(io::Error::from)
            .and_then(|()| {
                fs::write("/proc/self/setgroups", "deny")?;
                fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
                fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
            });
        let Err(error) = entered else {
            self.own_users = true;
            return Ok(());
        };
        let needed = sockets.is_some_and(|sockets| sockets.namespace == Namespace::New);
        if needed {
            return Err(error).cannot_or(
                "make a network namespace for the guest's sockets without root",
                "let this user make user namespaces (sysctl user.max_user_namespaces, \
                 kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns), \
                 run as root, or enter one first: ip netns exec NAME, and namespace = \"current\"",
            );
        }
        eprintln!(
            "steadyvm: this user cannot make a user namespace ({error}): the monitor keeps the host's \
             file system and namespaces; its system calls are filtered all the same"
        );
        self.own_mounts = false;
        Ok(())
    }

    /// Exchanges the file system for an empty one that nobody can write to. What is open stays open.
    ///
    /// # Errors
    /// The kernel's.
    pub fn leave_file_system(&self) -> Result<()> {
        if !self.own_mounts {
            return Ok(());
        }
        let what = "enter an empty file system";
        let none = None::<&str>;
        let closed = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(
            Some("none"),
            PLACE,
            Some("tmpfs"),
            closed,
            Some("size=4k,nr_inodes=2,mode=555"),
        )
        .cannot(what)?;
        chdir(PLACE).cannot(what)?;
        match pivot_root(".", ".") {
            // The old root lies over the new one.
            Ok(()) => umount2(".", MntFlags::MNT_DETACH).cannot(what)?,
            // The root is the kernel's first, which cannot be exchanged: it is covered.
            Err(nix::Error::EINVAL) => {
                mount(Some("."), "/", none, MsFlags::MS_MOVE, none).cannot(what)?;
                chroot(".").cannot(what)?;
            }
            Err(error) => return Err(error).cannot(what),
        }
        chdir("/").cannot(what)?;
        let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | closed;
        mount(none, "/", none, read_only, none).cannot(what)
    }

    /// Takes the calling thread's groups, user and capabilities. A VCPU that makes sockets keeps the
    /// right to bind ports below 1,024 of their namespace: whether a program of the guest may is for
    /// the guest's kernel.
    ///
    /// By system calls, not by the C library: that would do it to all threads, while each has to have its
    /// priority first.
    ///
    /// # Errors
    /// The kernel's: the thread must not run the guest then.
    pub fn drop_privileges(&self, role: Role) -> Result<()> {
        let what = "give up rights";
        let held = capabilities().cannot(what)?;
        let keeps = u64::from(self.binds && role.makes_sockets()) << CAP_NET_BIND_SERVICE & held;
        if held != 0 {
            // Of numbers that the kernel does not have: EINVAL ends it.
            (0..64)
                .map_while(|number| control(libc::PR_CAPBSET_DROP, number).ok())
                .for_each(drop);
        }
        let clear = libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong;
        control(libc::PR_CAP_AMBIENT, clear).cannot(what)?;
        control(libc::PR_SET_KEEPCAPS, 1).cannot(what)?;
        if !self.own_users && held & 1 << CAP_SETGID != 0 {
            // SAFETY: a list of no groups is not read.
            checked(unsafe { libc::syscall(libc::SYS_setgroups, 0, 0) }).cannot(what)?;
        }
        if let Some(group) = self.group {
            // SAFETY: takes no pointers.
            checked(unsafe { libc::syscall(libc::SYS_setresgid, group, group, group) })
                .cannot(what)?;
        }
        if let Some(user) = self.user {
            // SAFETY: takes no pointers.
            checked(unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) })
                .cannot(what)?;
        }
        let kept = Capabilities {
            effective: keeps as u32,
            permitted: keeps as u32,
            inheritable: 0,
        };
        let mut data = [kept, Capabilities::default()];
        capability_call(libc::SYS_capset, &mut data).cannot(what)?;
        control(libc::PR_SET_KEEPCAPS, 0).cannot(what)?;
        control(libc::PR_SET_NO_NEW_PRIVS, 1).cannot(what)?;
        match capabilities().cannot(what)? {
            left if left == keeps => Ok(()),
            left => Err(format!("capabilities {left:x} are left")).cannot(what),
        }
    }

    /// No core dump, and nobody but root may look into this process.
    ///
    /// # Errors
    /// The kernel's.
    pub fn hide() -> Result<()> {
        control(libc::PR_SET_DUMPABLE, 0).cannot("keep others out of the monitor's memory")
    }
}

/// Limits of the process, set while it may still raise them.
pub struct Limits;

impl Limits {
    /// Descriptors for all that the guest was promised, files of at most `largest_file` bytes, no core.
    ///
    /// # Errors
    /// Where this user may not have so many descriptors.
    pub fn set(configuration: &Configuration, largest_file: u64) -> Result<()> {
        let sockets = configuration.sockets.as_ref();
        let sockets = sockets.map_or(0, |sockets| sockets.max_sockets);
        let parts = configuration.virtio_devices() as u64 + u64::from(configuration.vcpus);
        Self::of_process(sockets, parts, largest_file)
    }

    /// The same for a process with these sockets, and parts that have descriptors each.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub fn of_process(sockets: u32, parts: u64, largest_file: u64) -> Result<()> {
        let sockets = u64::from(sockets);
        let descriptors = sockets + OTHER_DESCRIPTORS + DESCRIPTORS_EACH * parts;
        set(Resource::RLIMIT_NOFILE, descriptors).cannot_or(
            format!("have {descriptors} open files, which sockets.max_sockets = {sockets} needs"),
            "raise the limit (ulimit -Hn, or LimitNOFILE=), or lower sockets.max_sockets",
        )?;
        let what = "limit the monitor";
        // A write beyond is an error then, and not the end.
        // SAFETY: ignoring a signal installs no handler.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        set(Resource::RLIMIT_FSIZE, largest_file).cannot(what)?;
        set(Resource::RLIMIT_CORE, 0).cannot(what)
    }

    /// How readily the kernel kills the monitor when memory is short, of all its threads and children.
    ///
    /// # Errors
    /// Less readily than now takes `CAP_SYS_RESOURCE`.
    pub fn set_oom_score_adj(adjustment: i16) -> Result<()> {
        fs::write("/proc/self/oom_score_adj", adjustment.to_string()).cannot_or(
            format!("set oom_score_adj = {adjustment}"),
            "run with CAP_SYS_RESOURCE, set OOMScoreAdjust= in the unit, or leave it out",
        )
    }

    /// Whether what is mapped later may be locked in memory without privileges: raises the limit where
    /// it may.
    pub fn allow_locked_memory() -> bool {
        let kind = Resource::RLIMIT_MEMLOCK;
        let _ = setrlimit(kind, RLIM_INFINITY, RLIM_INFINITY);
        getrlimit(kind).is_ok_and(|(soft, _)| soft == RLIM_INFINITY)
    }
}

/// Sets both limits, lower or, where the hard one or a right allows it, higher.
fn set(kind: Resource, value: u64) -> nix::Result<()> {
    setrlimit(kind, value, value)
}
