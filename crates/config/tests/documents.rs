//! Every file that the documents and the examples show is one that the reader takes.

#![allow(clippy::unwrap_used)] // helpers of tests

use std::path::{Path, PathBuf};

use steadyvm_config::{ClusterSimulation, File, Random, Simulate};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The blocks of a page that are TOML.
fn blocks(page: &str) -> Vec<String> {
    let parts = page.split("\n```toml\n").skip(1);
    let block = |part: &str| part.split("\n```").next().unwrap().to_owned();
    parts.map(block).collect()
}

#[test]
fn every_block_of_the_readme_and_the_guide_is_read() {
    let guide = std::fs::read_dir(root().join("docs/guide")).unwrap();
    let pages = guide.map(|entry| entry.unwrap().path());
    let mut read = 0;
    for page in pages.chain([root().join("README.md")]) {
        for block in blocks(&std::fs::read_to_string(&page).unwrap()) {
            let parsed = File::parse(&page.display().to_string(), &block);
            parsed.unwrap_or_else(|error| panic!("{block}\n{error}"));
            read += 1;
        }
    }
    assert!(read >= 8, "{read}");
}

#[test]
fn every_example_is_read() {
    let mut read = 0;
    for entry in std::fs::read_dir(root().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let error = match name.as_str() {
            // `plan` alone reads a cluster: its own test has it.
            "cluster.toml" => continue,
            "cluster-day.toml" | "dissertation-cluster.toml" => {
                ClusterSimulation::parse(&name, &text).err()
            }
            "random.toml" => Random::parse(&name, &text).err(),
            "simulate.toml" => Simulate::parse(&name, &text).err(),
            _ => File::parse(&name, &text).err(),
        };
        assert_eq!(error, None, "{name}");
        read += 1;
    }
    assert!(read >= 4, "{read}");
}
