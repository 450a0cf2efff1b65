//! What the kernel would refuse is found as a program is built.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use steadyvm_bpf_build::stack::{Chain, MOST_BYTES, MOST_CALLS, chains};

const HEAD: &str = r#"
    #define NOINLINE __attribute__((noinline))
    #define PROGRAM __attribute__((section("struct_ops/f"), used))
    extern int kernel(void *place) __attribute__((section(".ksyms")));
    static long (*helper)(int count, void *turn, void *context, long flags) = (void *)181;
"#;

/// The chains of a program.
fn of(source: &str) -> Vec<Chain> {
    chains(&compile(&format!("{HEAD}{source}"))).unwrap()
}

/// The object file.
fn compile(source: &str) -> Vec<u8> {
    let mut compiler = Command::new("clang")
        .args(["-target", "bpf", "-mcpu=v3", "-g", "-O2", "-c"])
        .args(["-x", "c", "-", "-o", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = compiler.stdin.take().unwrap();
    input.write_all(source.as_bytes()).unwrap();
    drop(input);
    let output = compiler.wait_with_output().unwrap();
    assert!(output.status.success());
    output.stdout
}

/// Functions that each call the one before, and a program that calls the last; each has a frame of `bytes`.
fn nested(count: usize, bytes: usize, qualifier: &str) -> String {
    let mut source = format!(
        "NOINLINE {qualifier} int f0(int a) {{ char b[{bytes}]; b[0] = a; return kernel(b); }}\n"
    );
    for i in 1..count - 1 {
        let before = i - 1;
        writeln!(
            source,
            "NOINLINE {qualifier} int f{i}(int a) {{ char b[{bytes}]; b[0] = a; return kernel(b) + f{before}(a); }}"
        )
        .unwrap();
    }
    let last = count - 2;
    writeln!(
        source,
        "PROGRAM int program(int a) {{ char b[{bytes}]; b[0] = a; return kernel(b) + f{last}(a); }}"
    )
    .unwrap();
    source
}

#[test]
fn a_chain_of_calls_has_the_frames_of_all_of_it() {
    for qualifier in ["static", ""] {
        let chains = of(&nested(4, 128, qualifier));
        assert_eq!(chains[0].bytes(), MOST_BYTES, "{}", chains[0]);
        assert_eq!(chains[0].0[0].0, "program");
        assert_eq!(chains[0].0.len(), 4);
        assert!(chains[0].fits());

        let chains = of(&nested(5, 112, qualifier));
        assert_eq!(chains[0].bytes(), 560, "{}", chains[0]);
        assert!(!chains[0].fits());
    }
}

#[test]
fn a_chain_of_more_calls_than_the_kernel_takes_is_found() {
    assert!(
        of(&nested(MOST_CALLS, 16, "static"))
            .iter()
            .all(Chain::fits)
    );
    let chains = of(&nested(MOST_CALLS + 1, 16, "static"));
    assert!(!chains[0].fits(), "{}", chains[0]);
}

#[test]
fn functions_beside_one_another_share_the_stack() {
    let source = "
        NOINLINE static int left(int a) { char b[304]; b[0] = a; return kernel(b); }
        NOINLINE static int right(int a) { char b[288]; b[8] = a; return kernel(b + 8); }
        PROGRAM int program(int a) { long b = a; kernel(&b); return left(a) + right(b); }";
    let chains = of(source);
    assert_eq!(chains[0].bytes(), 320, "{}", chains[0]);
}

#[test]
fn what_is_called_back_counts() {
    let source = "
        static long turn(int i, void *context) { char b[400]; b[0] = i; return kernel(b); }
        PROGRAM int program(int a) { char b[160]; b[0] = a; kernel(b); return helper(4, turn, b, 0); }";
    let chains = of(source);
    assert_eq!(chains[0].bytes(), 560, "{}", chains[0]);
}

#[test]
fn what_is_no_object_is_refused() {
    assert!(chains(b"no object").is_err());
    assert!(chains(&[]).is_err());
}
