//! Open vSwitch in place of a network's bridge, with its datapath in the kernel.

use crate::Result;
use crate::host::{EmulatedHost, Network};
use crate::init::LATER_MODULES;

/// Starts the data base and the switch as Debian's `ovs-ctl` does, the switch in the cgroup of its unit.
const START: &str = r#"
[ -L /var/run ] || { rm -rf /var/run; ln -s /run /var/run; }
mkdir -p /run/openvswitch /etc/openvswitch
data=/run/openvswitch/conf.db
ovsdb-tool create $data /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server $data --remote=punix:/run/openvswitch/db.sock --no-chdir --pidfile --detach
ovs-vsctl --no-wait init
unit=/sys/fs/cgroup/system.slice/ovs-vswitchd.service
mkdir -p $unit
# Debian's package makes the name in the path as it is installed, which an image is not.
program=$(command -v ovs-vswitchd || echo /usr/lib/openvswitch-switch/ovs-vswitchd)
sh -euc "echo \$\$ > $unit/cgroup.procs; exec $program unix:/run/openvswitch/db.sock --no-chdir --pidfile --detach --log-file=/dev/null"
"#;

impl EmulatedHost {
    /// Puts Open vSwitch in the place of a network's bridge, under the same name. The host's image must have it
    /// ([`UserSpace::Services`](crate::artifact::UserSpace::Services)), and no guest may have been started.
    ///
    /// # Errors
    /// The image or the kernel has no Open vSwitch.
    pub fn use_open_vswitch(&mut self, network: Network) -> Result<()> {
        let (card, bridge, address) = (network.name, network.bridge(), network.host());
        self.load_later_modules()?;
        let replace = format!(
            "{START}
             ip link delete {bridge}
             ovs-vsctl add-br {bridge} -- add-port {bridge} {card}
             ip address add {address}/24 dev {bridge}
             ip link set dev {bridge} up"
        );
        self.connection().run(&["sh", "-euc", &replace])?;
        self.has_open_vswitch = true;
        Ok(())
    }

    /// Loads the modules that a host loads only when it is told to: Open vSwitch's, the firewall's and tc's.
    ///
    /// # Errors
    /// The kernel has none of them, or refuses one.
    pub fn load_later_modules(&self) -> Result<()> {
        self.load_modules("*")
    }

    /// Loads one of them that needs no other; one that the kernel has built in is no error.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn load_later_module(&self, name: &str) -> Result<()> {
        self.load_modules(&format!("*-{name}"))
    }

    fn load_modules(&self, pattern: &str) -> Result<()> {
        let load = format!(
            "for module in {LATER_MODULES}/{pattern}.ko; do
                 name=${{module##*/[0-9]*-}}
                 [ ! -e $module ] || [ -d /sys/module/${{name%.ko}} ] || insmod $module
             done"
        );
        self.connection().run(&["sh", "-euc", &load]).map(drop)
    }

    /// Makes a device a port of a network's bridge.
    pub(crate) fn join_bridge(&self, device: &str, network: Network) -> Result<()> {
        let bridge = network.bridge();
        if self.has_open_vswitch {
            let argv = ["ovs-vsctl", "add-port", &bridge, device];
            self.connection().run(&argv)?;
            return self.ip(&format!("link set dev {device} up"));
        }
        self.ip(&format!("link set dev {device} master {bridge} up"))
    }
}
