//! The compiled code of htm transactions, as it is measured.
//!
//! Few machines have RTM, so the tests inspect its engine's assembly everywhere. Between `xbegin`
//! and `xend` there are only the body's moves. Without htm transactions, an attempt must leave no
//! code in its caller.

use std::{fs, path::PathBuf, process::Command, sync::OnceLock};

/// Returns the assembly of `examples/inspected.rs`, with the optimisation of benches.
fn assembly() -> &'static str {
    static ASSEMBLY: OnceLock<String> = OnceLock::new();
    ASSEMBLY.get_or_init(|| {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("inspected.s");
        // Not by `--profile bench`, for which `cargo rustc` builds a harness of tests.
        let built = Command::new(env!("CARGO"))
            .envs([("CARGO_PROFILE_RELEASE_LTO", "fat"), ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")])
            .args(["rustc", "--release", "--quiet", "--package", "drtm-htm", "--example", "inspected", "--"])
            .arg(format!("--emit=asm={}", path.display()))
            .status()
            .expect("cargo runs");
        assert!(built.success());
        fs::read_to_string(path).expect("the compiler wrote assembly")
    })
}

/// Returns a function's labels and instructions, each instruction as mnemonic and operands.
fn function(name: &str) -> Option<Vec<&'static str>> {
    let mut lines = assembly().lines();
    lines.find(|line| line.ends_with(':') && line.starts_with('_') && line.contains(name))?;
    let body = lines.take_while(|line| !line.contains(".cfi_endproc")).map(str::trim);
    Some(body.filter(|line| is_label(line) || !line.is_empty() && !line.starts_with(['.', '#'])).collect())
}

fn is_label(line: &str) -> bool {
    line.ends_with(':')
}

fn is_jump(line: &str) -> bool {
    line.starts_with('j')
}

fn instructions(body: &[&'static str]) -> Vec<&'static str> {
    body.iter().copied().filter(|line| !is_label(line)).collect()
}

/// Returns the instructions that run after `start`, up to one that begins with `end`. Follows a
/// conditional jump on "the transaction has begun".
fn path(body: &[&'static str], start: &str, end: &str) -> Vec<&'static str> {
    let mut at = body.iter().position(|line| line.starts_with(start)).expect(start) + 1;
    let mut path = Vec::new();
    while !body[at].starts_with(end) {
        if body[at].starts_with("je") {
            let target = format!("{}:", body[at].split_whitespace().last().expect("a target"));
            at = body.iter().position(|line| *line == target).expect("a label of this function");
        } else if !is_label(body[at]) && !body[at].starts_with("jne") {
            path.push(body[at]);
        }
        at += 1;
    }
    path
}

#[test]
fn a_hardware_transaction_is_its_moves() {
    let body = function("two_loads_one_store").expect("not inlined away");
    assert_eq!(body.iter().filter(|line| line.starts_with("xbegin")).count(), 1, "{body:#?}");
    assert_eq!(body.iter().filter(|line| line.starts_with("xend")).count(), 1, "{body:#?}");

    let inside = path(&body, "xbegin", "xend");
    let (test, transaction) = inside.split_first().expect("at least the test of the status");
    assert!(test.starts_with("cmpl\t$-1, %eax"), "{inside:#?}");
    let loads = transaction.iter().filter(|line| line.starts_with("movq\t(")).count();
    let adds_from_memory = transaction.iter().filter(|line| line.starts_with("addq\t(")).count();
    let stores = transaction.iter().filter(|line| line.starts_with("movq\t%") && line.ends_with(')')).count();
    assert_eq!((loads + adds_from_memory, stores), (2, 1), "{transaction:#?}");
    assert!(transaction.iter().all(|line| line.starts_with("movq") || line.starts_with("addq")), "{transaction:#?}");
    assert!(transaction.len() <= 4, "two loads, an addition and a store: {transaction:#?}");
}

#[test]
fn an_attempt_without_regions_is_its_fallback() {
    let alone = function("software_alone").expect("not inlined away");
    match function("software_behind_an_attempt") {
        // The compiler merged the two identical functions.
        None => assert!(assembly().contains("software_alone")),
        Some(behind) => {
            let behind = instructions(&behind);
            let merged = matches!(behind[..], [jump] if jump.contains("software_alone"));
            assert!(merged || behind == instructions(&alone), "{alone:#?}\n{behind:#?}");
        }
    }
}

#[test]
fn an_engine_chosen_at_run_time_costs_one_test() {
    let body = function("software_behind_a_choice").expect("not inlined away");
    // One test selects either engine's code, by a jump or inline.
    let branches = body.iter().filter(|line| is_jump(line) && !line.starts_with("jmp")).count();
    let calls_elsewhere = body.iter().filter(|line| line.starts_with("call")).count();
    assert_eq!((branches, calls_elsewhere), (1, 0), "{body:#?}");
}
