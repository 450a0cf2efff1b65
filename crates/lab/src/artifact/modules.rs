//! Modules of a kernel: which ones machines of the lab need, and how they are laid out to be loaded.

use super::output;
use crate::{At, Result};
use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where a root has the modules of each release.
pub const PLACE_OF_MODULES: &str = "lib/modules";
/// What `depmod` writes into a directory of modules: what each of them needs.
pub const DEPENDENCIES: &str = "modules.dep";

/// What a host needs besides what the kernel has built in.
pub const HOST_MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_blk",
    "virtio_console",
    "squashfs",
    "overlay",
    "igb",
    "kvm_amd",
    "kvm_intel",
    "vhost_net",
    "tun",
    "tcp_diag",
    "udp_diag",
    "bridge",
    "veth",
    "macvlan",
    "macvtap",
    "vfio_pci",
    "vfio_iommu_type1",
    "igbvf",
];
/// What a host loads only when it is told to, from [`LATER`]: with it come connection tracking and more.
/// libcrc32c of Linux 6.12 and before asks for the algorithm as it begins, which its dependencies do not have.
pub const LATER_MODULES: &[&str] = &[
    "crc32c_generic",
    "openvswitch",
    "nf_tables",
    "nft_ct",
    "sch_ingress",
    "cls_flower",
    "act_police",
];
/// The directory beside a host's other modules that has these.
pub const LATER: &str = "later";
/// What a guest needs.
pub const GUEST_MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_mmio",
    "virtio_blk",
    "virtio_console",
    "virtio_net",
    "igbvf",
    "pvpanic_mmio",
    "squashfs",
    "overlay",
];

/// What lib/modules lies in below a root: packages have it in usr from Debian 13 on.
pub fn base_of_modules(tree: &Path) -> PathBuf {
    let merged = tree.join("usr");
    if merged.join(PLACE_OF_MODULES).is_dir() {
        merged
    } else {
        tree.to_owned()
    }
}

/// Writes the modules that a host needs into `target`, and below it those that it loads later.
pub fn lay_out_hosts(modules: &Path, target: &Path) -> Result<()> {
    lay_out(modules, HOST_MODULES, target)?;
    lay_out(modules, LATER_MODULES, &target.join(LATER))
}

/// Writes the modules for `names`, and all that they need, into `target`: decompressed, under names
/// that sort in load order. `modules` is a "lib/modules/RELEASE" with its modules.dep.
pub fn lay_out(modules: &Path, names: &[&str], target: &Path) -> Result<()> {
    let dependencies = modules.join(DEPENDENCIES);
    let text = fs::read_to_string(&dependencies).at("read", &dependencies)?;
    fs::create_dir_all(target).at("create", target)?;
    for (index, file) in load_order(&text, names).into_iter().enumerate() {
        let source = modules.join(file);
        let place = target.join(format!("{index:03}-{}.ko", module_name(file)));
        match decompressor(file) {
            Some(program) => {
                let unpacked = File::create(&place).at("create", &place)?;
                output(
                    Command::new(program)
                        .arg("-dc")
                        .arg(&source)
                        .stdout(unpacked),
                )?;
            }
            None => fs::copy(&source, &place).map(drop).at("copy", &source)?,
        }
    }
    Ok(())
}

/// The program that decompresses a module, by the endings that kernels give them.
fn decompressor(file: &str) -> Option<&'static str> {
    match file.rsplit_once('.')?.1 {
        "xz" => Some("xz"),
        "gz" => Some("gzip"),
        "zst" => Some("zstd"),
        _ => None,
    }
}

/// The module files to load for `names`, each after everything that it needs.
///
/// `dependencies` is a modules.dep: "file: needed file ..." a line, the farthest need last.
/// A name without a file is built into the kernel.
fn load_order<'d>(dependencies: &'d str, names: &[&str]) -> Vec<&'d str> {
    let needs: HashMap<&str, Vec<&str>> = dependencies
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(file, needed)| (file, needed.split_whitespace().collect()))
        .collect();
    let by_name: HashMap<String, &str> = needs
        .keys()
        .map(|file| (module_name(file), *file))
        .collect();
    let mut order: Vec<&str> = Vec::new();
    for file in names.iter().filter_map(|name| by_name.get(*name)) {
        let needed = needs.get(file).into_iter().flatten().rev();
        for file in needed.chain(std::iter::once(file)) {
            if !order.contains(file) {
                order.push(file);
            }
        }
    }
    order
}

/// "kernel/net/8021q/some-module.ko.xz" is `some_module`.
fn module_name(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split(".ko").next().unwrap_or(name).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn modules_are_found_in_the_packages_of_both_releases() {
        for (laid_in, base) in [("lib/modules/6.12", ""), ("usr/lib/modules/6.12", "usr")] {
            let tree = tempfile::tempdir().unwrap();
            fs::create_dir_all(tree.path().join(laid_in)).unwrap();
            // Both have other things in usr/lib.
            fs::create_dir_all(tree.path().join("usr/lib/linux-image")).unwrap();
            assert_eq!(base_of_modules(tree.path()), tree.path().join(base));
        }
    }

    const MODULES_DEP: &str = "\
kernel/a/one.ko.xz: kernel/a/two.ko.xz kernel/a/base-thing.ko.xz
kernel/a/two.ko.xz: kernel/a/base-thing.ko.xz
kernel/a/base-thing.ko.xz:
kernel/a/other.ko.xz: kernel/a/base-thing.ko.xz
";

    #[test]
    fn every_module_comes_after_what_it_needs_and_once() {
        let order = load_order(MODULES_DEP, &["one", "built_in", "other", "base_thing"]);
        let names: Vec<String> = order.iter().map(|file| module_name(file)).collect();
        assert_eq!(names, ["base_thing", "two", "one", "other"]);
    }

    #[test]
    fn modules_are_laid_out_decompressed_in_load_order() {
        let tree = tempfile::tempdir().unwrap();
        let (modules, target) = (tree.path().join("6.12"), tree.path().join("laid-out"));
        fs::create_dir(&modules).unwrap();
        let dependencies = "extra/a-driver.ko.gz: base.ko\nbase.ko:\nother.ko:\n";
        fs::write(modules.join(DEPENDENCIES), dependencies).unwrap();
        fs::create_dir(modules.join("extra")).unwrap();
        fs::write(modules.join("base.ko"), "base").unwrap();
        fs::write(modules.join("extra/a-driver.ko"), "driver").unwrap();
        output(Command::new("gzip").arg(modules.join("extra/a-driver.ko"))).unwrap();
        lay_out(&modules, &["a_driver"], &target).unwrap();
        for (name, text) in [("000-base.ko", "base"), ("001-a_driver.ko", "driver")] {
            assert_eq!(fs::read_to_string(target.join(name)).unwrap(), text);
        }
        assert_eq!(fs::read_dir(&target).unwrap().count(), 2);
        fs::write(modules.join("extra/a-driver.ko.gz"), "cut").unwrap();
        let error = lay_out(&modules, &["a_driver"], &target).unwrap_err();
        assert!(error.what.contains("a-driver.ko.gz"), "{error}");
    }

    proptest! {
        #[test]
        fn any_modules_dep_gives_each_file_once(text in "((igb|tun|kvm-amd|x)([.]ko)?[:/ \n]{0,2}){0,20}") {
            let order = load_order(&text, HOST_MODULES);
            let different: HashSet<&&str> = order.iter().collect();
            prop_assert_eq!(different.len(), order.len());
        }
    }
}
