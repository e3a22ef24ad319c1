//! No bytes panic a loader; good and bad always have a reason.

use std::path::Path;

use proptest::prelude::*;
use tidegate_config::{Fault, has_errors, parse_appliance, parse_tenant};

const APPLIANCE: &str = include_str!("../../deploy/example/tidegate.toml");
const TENANT: &str = include_str!("../../deploy/example/tenants/acme.toml");
/// The same with what is about calls.
const APPLIANCE_OUT: &str = include_str!("good/tidegate.toml");
const TENANT_OUT: &str = include_str!("good/acme.toml");

fn check(bytes: &[u8]) -> Result<(), TestCaseError> {
    let (appliance, faults) = parse_appliance(Path::new("/etc/tidegate/tidegate.toml"), bytes);
    prop_assert_eq!(appliance.is_none(), has_errors(&faults));
    check_faults(&faults, bytes)?;
    let (tenant, faults) = parse_tenant(bytes);
    prop_assert_eq!(tenant.is_none(), has_errors(&faults));
    check_faults(&faults, bytes)
}

/// Faults are bounded, on one line, and about lines that are there.
fn check_faults(faults: &[Fault], bytes: &[u8]) -> Result<(), TestCaseError> {
    let lines = bytes.split(|byte| *byte == b'\n').count();
    prop_assert!(faults.len() <= 202);
    for fault in faults {
        prop_assert!(fault.line.is_none_or(|line| line >= 1 && line as usize <= lines), "{fault}");
        prop_assert!(fault.message.chars().count() <= 601 && fault.to_string().chars().all(|c| !c.is_control()));
    }
    Ok(())
}

/// A good file with something done to it.
fn mutated(good: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let pieces: Vec<&'static str> = vec![
        "\"",
        "'",
        "[",
        "]",
        "[[endpoint]]\n",
        "{",
        "}",
        "=",
        "\n",
        "#",
        "\\u0000",
        "\u{202e}",
        "0",
        "-1",
        "1e400",
        "\"\"\"",
        "inf",
        "2027-01-31T00:00:00Z",
        "99999999999999999999",
        "\"10s\"",
        "[a.b.c]\n",
        "true",
        "\u{feff}",
        "é",
        "..",
        "/hooks/",
    ];
    let edit = (any::<prop::sample::Index>(), 0_usize..40, proptest::sample::select(pieces));
    prop::collection::vec(edit, 1..8).prop_map(move |edits| {
        let mut bytes = good.as_bytes().to_vec();
        for (at, cut, piece) in edits {
            let at = at.index(bytes.len() + 1);
            let end = (at + cut).min(bytes.len());
            bytes.splice(at..end, piece.bytes());
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        check(&bytes)?;
    }

    #[test]
    fn any_text(text in "(\\[\\[?[a-z.\"]{0,9}\\]?\\]?\n|[a-z_]{1,9} ?= ?[-\"'0-9a-zA-Z\\[\\]{}:/]{0,12}\n|\\PC{0,8}\n){0,12}") {
        check(text.as_bytes())?;
    }

    #[test]
    fn a_mutated_appliance(bytes in mutated(APPLIANCE)) {
        check(&bytes)?;
    }

    #[test]
    fn a_mutated_tenant(bytes in mutated(TENANT)) {
        check(&bytes)?;
    }

    #[test]
    fn a_mutated_way_out(bytes in prop_oneof![mutated(APPLIANCE_OUT), mutated(TENANT_OUT)]) {
        check(&bytes)?;
    }
}

#[test]
fn the_good_files_are_good() {
    for text in [APPLIANCE, APPLIANCE_OUT] {
        assert!(parse_appliance(Path::new("/t.toml"), text.as_bytes()).0.is_some());
    }
    for text in [TENANT, TENANT_OUT] {
        assert!(parse_tenant(text.as_bytes()).0.is_some());
    }
}

#[test]
fn deep_and_wide_files_are_refused_in_time() {
    let deep = |open: &str, close: &str| format!("a = {}{}\n", open.repeat(20_000), close.repeat(20_000));
    let dotted = format!("{}a = 1\n", "a.".repeat(20_000));
    let header = format!("[{}a]\n", "a.".repeat(20_000));
    let many = "x = 1\n".repeat(100_000);
    let keys = (0..50_000).map(|n| format!("k{n} = 1\n")).collect::<Vec<_>>().concat();
    for text in [deep("[", "]"), deep("{a=", "}"), deep("[", ""), dotted, header, many, keys] {
        check(text.as_bytes()).unwrap();
        assert!(parse_tenant(text.as_bytes()).0.is_none());
    }
}

/// A hundred warnings do not make a file faulty, and do not hide the one error.
#[test]
fn warnings_neither_hide_errors_nor_become_them() {
    let endpoint = |n: usize| {
        let limits = "limits = { bytes = \"1MiB/s\" }";
        format!(
            "[[endpoint]]\nid = \"wh_{n}\"\nscheme = \"github\"\nsecrets = [{{ value = \"secret:a\" }}]\n{limits}\n"
        )
    };
    let many = (0..150).map(endpoint).collect::<Vec<_>>().concat();
    let good = format!("tenant = \"acme\"\n{many}");
    let (tenant, faults) = parse_tenant(good.as_bytes());
    assert!(tenant.is_some() && faults.len() == 101 && !has_errors(&faults));
    let (tenant, faults) = parse_tenant(format!("{good}colour = 1\n").as_bytes());
    assert!(tenant.is_none() && faults.iter().any(|fault| fault.is_error() && fault.message.contains("colour")));
}
