//! The command line of exit ranges, from the first key to a provider's check.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use super::super::super::exit::Exit;
use super::super::super::testing::{Files, Ran};

const ONE: &str = "93.184.216.0/24";
const TWO: &str = "93.184.217.0/24";

fn files(egress: &str) -> Files {
    let files = Files::with("tenant = \"acme\"\n");
    files.write("tidegate.toml", &format!("[log]\ndirectory = \"log\"\n[egress]\n{egress}"));
    files
}

fn ranges(files: &Files, words: &[&str]) -> Ran {
    let config = files.config();
    let all = [&["egress", "ranges"], words, &["--config", config.to_str().unwrap()]].concat();
    super::super::super::testing::run(&all)
}

fn yes(files: &Files, words: &[&str]) -> String {
    let ran = ranges(files, words);
    assert_eq!(ran.exit, Exit::Yes, "{words:?}: {}{}", ran.answer, ran.remarks);
    ran.answer
}

fn no(files: &Files, words: &[&str]) -> (String, String) {
    let ran = ranges(files, words);
    assert_eq!(ran.exit, Exit::No, "{words:?}: {}{}", ran.answer, ran.remarks);
    (ran.answer, ran.remarks)
}

fn root(files: &Files) -> std::path::PathBuf {
    files.config().parent().unwrap().to_owned()
}

/// No notice to wait for: tests have one clock, and it stands.
const QUICK: &str = "[egress.ranges]\nnotice = \"0s\"\ndrain = \"0s\"\n";

#[test]
fn a_range_is_announced_used_and_given_up() {
    let files = files(QUICK);
    let without = ranges(&files, &["announce", ONE]);
    assert_eq!(without.exit, Exit::Failed, "there is no key yet");
    assert!(without.remarks.contains("key --make"), "{}", without.remarks);
    assert!(yes(&files, &["list"]).contains("announce"));
    let pem = yes(&files, &["key", "--make"]);
    assert!(pem.starts_with("-----BEGIN PUBLIC KEY-----"));
    let mode = fs::metadata(root(&files).join("state/egress-ranges.key.pem")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(ranges(&files, &["key", "--make"]).exit, Exit::Failed, "it is never replaced");
    assert_eq!(yes(&files, &["key"]), pem);

    let said = yes(&files, &["announce", ONE, "--country", "DE", "--region", "DE-BE", "--city", "Berlin"]);
    assert!(
        said.starts_with("93.184.216.0/24 is announced; it may be activated from 2025-11-29T13:46:40Z on"),
        "{said}"
    );
    assert!(yes(&files, &["list"]).contains("activate now"));
    assert!(yes(&files, &["activate", ONE]).contains("is active"));
    assert!(yes(&files, &["drain", ONE]).contains("may be retired from"));
    assert!(yes(&files, &["retire", ONE, "--reason", "sold"]).contains("is retired"));
    assert!(yes(&files, &["announce", TWO]).contains("version 5, valid until 2026-05-28T13:46:40Z"));
    let taken_back = yes(&files, &["withdraw", TWO, "--reason", "a typing error"]);
    assert!(taken_back.contains("is withdrawn"));
    assert!(yes(&files, &["renew"]).contains("version 7"));
    let history = yes(&files, &["history"]);
    let changes: Vec<&str> = history.lines().skip(1).map(|line| line.split_whitespace().nth(2).unwrap()).collect();
    assert_eq!(changes, ["announce", "activate", "drain", "retire", "announce", "withdraw", "renew"]);
    assert!(history.contains("sold") && history.contains("a typing error"));
}

#[test]
fn machines_are_told_in_json() {
    let files = files(QUICK);
    yes(&files, &["key", "--make"]);
    let json = |ran: &str| ran.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>();
    let announced = json(&yes(&files, &["announce", ONE, "--pool", "eu", "--json"]));
    assert_eq!((&announced[0]["ok"], &announced[0]["ranges"][0]["state"]), (&true.into(), &"announced".into()));
    let refused = json(&no(&files, &["announce", ONE, "--json"]).0);
    assert_eq!((&refused[0]["ok"], &refused[0]["code"]), (&false.into(), &"range-overlaps".into()));
    assert!(refused[0]["next"].as_str().unwrap().contains("drain"));
    assert_eq!(json(&yes(&files, &["list", "--json"]))[0]["pool"], "eu");
    assert_eq!(json(&yes(&files, &["history", "--json"]))[0]["change"], "announce");
    assert!(json(&yes(&files, &["key", "--json"]))[0]["publicKey"].as_str().unwrap().starts_with("ed25519:"));
}

#[test]
fn what_breaks_the_rules_is_refused_with_what_to_do() {
    let files = files("[[egress.pool]]\nname = \"default\"\naddresses = [{ v4 = \"93.184.216.7\" }]\n");
    yes(&files, &["key", "--make"]);
    yes(&files, &["announce", ONE]);
    let (said, next) = no(&files, &["activate", ONE]);
    assert!(said.contains("was promised not to be active before 2025-12-29T13:46:40Z"), "{said}");
    assert!(next.contains("--force") && next.contains("--reason"), "{next}");
    assert_eq!(ranges(&files, &["activate", ONE, "--force"]).exit, Exit::Usage, "force needs a reason");
    assert!(no(&files, &["drain", ONE]).1.contains("tidegate egress ranges activate"));
    assert!(
        no(&files, &["retire", ONE, "--force", "--reason", "x"]).0.contains("only what is draining can be retired")
    );
    assert!(no(&files, &["announce", "93.184.216.128/25"]).0.contains("overlaps with 93.184.216.0/24"));
    assert!(no(&files, &["announce", "10.1.0.0/16"]).0.contains("private use"));
    assert!(no(&files, &["withdraw", ONE]).1.contains("--reason"));
    let (said, _) = no(&files, &["withdraw", ONE, "--reason", "x"]);
    assert!(said.contains("holds 93.184.216.7, from which the pool \"default\" leaves"), "{said}");
    assert!(no(&files, &["drain", TWO]).0.contains("is not in the book"));
    yes(&files, &["activate", ONE, "--force", "--reason", "in use before it was published"]);
    assert!(no(&files, &["drain", ONE]).0.contains("is the last active ipv4 range of the pool \"default\""));
    for bad in ["93.184.216.7", "93.184.216.1/24", "x", "8.0.0.0/8"] {
        assert_eq!(ranges(&files, &["announce", bad]).exit, Exit::Usage, "{bad}");
    }
    for bad in
        [&["--country", "de"][..], &["--region", "DE-BE"], &["--city", "a,b", "--country", "DE"], &["--reason", ""]]
    {
        assert_eq!(ranges(&files, &[&["announce", TWO], bad].concat()).exit, Exit::Usage, "{bad:?}");
    }
    assert!(
        no(&files, &["announce", TWO, "--country", "DE", "--region", "US-CA"]).1.contains("begins with its country")
    );
}

#[test]
fn what_is_in_use_already_is_published_and_active_in_one_step() {
    let files = files(
        "[[egress.pool]]\nname = \"default\"\naddresses = [{ v4 = \"93.184.216.7\" }, { v4 = \"93.184.217.7\" }]\n",
    );
    yes(&files, &["key", "--make"]);
    assert_eq!(ranges(&files, &["announce", ONE, "--force"]).exit, Exit::Usage, "force needs a reason");
    // All or nothing.
    assert!(no(&files, &["announce", ONE, ONE, "--force", "--reason", "in use"]).0.contains("overlaps"));
    assert!(yes(&files, &["list"]).contains("there is no book"));
    let said = yes(&files, &["announce", ONE, TWO, "--force", "--reason", "in use since 2024"]);
    assert!(said.contains("93.184.216.0/24 is active\n93.184.217.0/24 is active\nversion 4"), "{said}");
    let history = yes(&files, &["history"]);
    assert_eq!((history.matches("in use since 2024").count(), history.matches("forced").count()), (4, 2), "{history}");
    assert_eq!(files.run(&["check", "--elsewhere"], b"").exit, Exit::Yes);
}

#[test]
fn a_damaged_book_is_named_and_kept() {
    let files = files(QUICK);
    yes(&files, &["key", "--make"]);
    yes(&files, &["announce", ONE]);
    let path = root(&files).join("state/egress-ranges.book");
    let text = fs::read_to_string(&path).unwrap().replace("93.184.216.0", "93.184.218.0");
    fs::write(&path, &text).unwrap();
    for words in [&["list"][..], &["history"], &["renew"], &["announce", TWO], &["export", "out"]] {
        let ran = ranges(&files, words);
        assert_eq!(ran.exit, Exit::Failed, "{words:?}");
        assert!(ran.remarks.contains("egress-ranges.book:2") && ran.remarks.contains("put back"), "{}", ran.remarks);
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    let checked = files.run(&["check"], b"");
    assert!(checked.exit == Exit::No && checked.answer.contains("egress.ranges.book"), "{}", checked.answer);
}

#[test]
fn an_address_that_is_not_published_is_a_fault_of_its_file() {
    let pools = "[[egress.pool]]\nname = \"default\"\naddresses = [\n  { v4 = \"93.184.216.7\" },\n  { v4 = \"93.184.217.7\" },\n]\n";
    let files = files(&format!("{QUICK}{pools}"));
    let check = || {
        let ran = files.run(&["check", "--elsewhere"], b"");
        (ran.exit, files.said(&ran.answer))
    };
    let (exit, said) = check();
    assert!(
        exit == Exit::Yes && said.contains("is published nowhere"),
        "a warning, as long as there is no book: {said}"
    );
    yes(&files, &["key", "--make"]);
    yes(&files, &["announce", ONE]);
    let (exit, said) = check();
    assert_eq!(exit, Exit::No);
    assert!(said.contains("tidegate.toml:10: egress.pool[0].addresses: 93.184.216.7 is in 93.184.216.0/24, which is announced and not active"), "{said}");
    assert!(
        said.contains("tidegate.toml:11: egress.pool[0].addresses: 93.184.217.7 is in no published range"),
        "{said}"
    );
    yes(&files, &["activate", ONE]);
    yes(&files, &["announce", TWO]);
    yes(&files, &["activate", TWO]);
    assert_eq!(check().0, Exit::Yes);
    // On this machine nothing can leave from there.
    let ran = files.run(&["check"], b"");
    assert!(ran.exit == Exit::No && ran.answer.contains("93.184.216.7 is not on this machine"), "{}", ran.answer);
    let required = "[egress]\n[egress.ranges]\nrequired = true\nbook = \"nowhere.book\"\n";
    files.write("tidegate.toml", required);
    let (exit, said) = check();
    assert!(exit == Exit::No && said.contains("tidegate.toml: egress.ranges.required"), "{said}");
}

#[test]
fn what_is_exported_is_checked_by_whoever_gets_it() {
    let files = files(QUICK);
    let out = root(&files).join("out");
    let path = |name: &str| out.join(name).to_str().unwrap().to_owned();
    no(&files, &["export", out.to_str().unwrap()]);
    yes(&files, &["key", "--make"]);
    yes(&files, &["announce", ONE]);
    yes(&files, &["export", out.to_str().unwrap()]);
    yes(&files, &["activate", ONE]);
    yes(&files, &["export", out.to_str().unwrap()]);
    let mut names: Vec<_> =
        fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let expected = [
        "egress-ranges",
        "egress-ranges-geofeed.csv",
        "egress-ranges.json",
        "egress-ranges.json.sig",
        "egress-ranges.pub.pem",
        "egress-ranges.txt",
    ];
    assert_eq!(names, expected);
    assert_eq!(fs::read_dir(out.join("egress-ranges")).unwrap().count(), 4);
    assert!(!root(&files).join(".out.tidegate-export").exists(), "nothing is left beside");

    let verify = |words: &[&str]| {
        let ran = super::super::super::testing::run(&[&["egress", "ranges", "verify"], words].concat());
        (ran.exit, ran.answer + &ran.remarks)
    };
    fs::write(root(&files).join("pinned.pem"), yes(&files, &["key"])).unwrap();
    let pinned = root(&files).join("pinned.pem").to_str().unwrap().to_owned();
    let (exit, said) = verify(&[&path("egress-ranges/1.json"), &path("egress-ranges.json"), "--key", &pinned]);
    assert_eq!(exit, Exit::Yes, "{said}");
    assert!(said.contains("version 2") && said.contains("1 active"), "{said}");
    // The key beside it is whatever the sender put there: it proves nothing.
    let (exit, said) = verify(&[&path("egress-ranges.json")]);
    assert!(exit == Exit::No && said.starts_with("unproven: ") && said.contains("proves nothing"), "{said}");
    let told = |words: &[&str]| {
        let (_, said) = verify(&[&[&path("egress-ranges.json"), "--json"], words].concat());
        serde_json::from_str::<Value>(said.lines().next().unwrap()).unwrap()
    };
    let (bare, pinned_told) = (told(&[]), told(&["--key", &pinned]));
    assert_eq!((&bare["ok"], &bare["pinned"]), (&false.into(), &false.into()));
    assert_eq!((&pinned_told["ok"], &pinned_told["pinned"]), (&true.into(), &true.into()));
    let (exit, said) = verify(&[&path("egress-ranges/2.json"), &path("egress-ranges/1.json"), "--key", &pinned]);
    assert!(exit == Exit::No && said.contains("is version 1, and version 2 was checked before it"), "{said}");
    fs::write(path("egress-ranges.json"), "{}").unwrap();
    let (exit, said) = verify(&[&path("egress-ranges.json"), "--key", &pinned]);
    assert!(exit == Exit::No && said.contains("is not that of this key"), "{said}");
    assert_eq!(verify(&[&path("egress-ranges.json"), "--key", &path("egress-ranges.txt")]).0, Exit::Failed);
    assert_eq!(verify(&[&path("nothing.json"), "--key", &pinned]).0, Exit::Failed);

    // A directory with anything else in it is not touched.
    fs::write(out.join("index.html"), "ours").unwrap();
    let ran = ranges(&files, &["export", out.to_str().unwrap()]);
    assert!(ran.exit == Exit::Failed && ran.remarks.contains("index.html"), "{}", ran.remarks);
    assert_eq!(fs::read_to_string(out.join("index.html")).unwrap(), "ours");
}

#[test]
fn another_key_is_taken_only_on_purpose() {
    let files = files(QUICK);
    yes(&files, &["key", "--make"]);
    yes(&files, &["announce", ONE]);
    fs::remove_file(root(&files).join("state/egress-ranges.key.pem")).unwrap();
    let pem = yes(&files, &["key", "--make"]);
    let ran = ranges(&files, &["activate", ONE]);
    assert!(ran.exit == Exit::Failed && ran.remarks.contains("renew --new-key"), "{}", ran.remarks);
    yes(&files, &["renew", "--new-key"]);
    yes(&files, &["activate", ONE]);
    let out = root(&files).join("out");
    yes(&files, &["export", out.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(out.join("egress-ranges.pub.pem")).unwrap(), pem);
}

#[test]
fn a_book_is_carried_to_another_machine_and_never_back() {
    let (one, other) = (files(QUICK), files(QUICK));
    yes(&one, &["key", "--make"]);
    yes(&one, &["announce", ONE]);
    let book = |files: &Files| root(files).join("state/egress-ranges.book");
    let import = |from: &Path| ranges(&other, &["import", from.to_str().unwrap()]);
    let import_by = |key: &Path, more: &[&str]| {
        let words = ["import", book(&one).to_str().unwrap(), "--key", key.to_str().unwrap()].map(str::to_owned);
        ranges(&other, &[&words.each_ref().map(String::as_str)[..], more].concat())
    };
    let pem = root(&one).join("pinned.pem");
    fs::write(&pem, yes(&one, &["key"])).unwrap();
    let unpinned = import(&book(&one));
    assert!(unpinned.exit == Exit::No && unpinned.remarks.contains("--key"), "{}", unpinned.remarks);
    assert_eq!(import_by(&pem, &[]).exit, Exit::Yes);
    let old = root(&one).join("old.book");
    fs::copy(book(&one), &old).unwrap();
    yes(&one, &["activate", ONE]);
    assert_eq!(import(&book(&one)).exit, Exit::Yes);
    let back = import(&old);
    assert!(
        back.exit == Exit::No && back.answer.contains("has version 1 last, and version 2 is known"),
        "{}",
        back.answer
    );
    assert_eq!(fs::read(book(&one)).unwrap(), fs::read(book(&other)).unwrap());
    assert_eq!(import(Path::new("/nonexistent")).exit, Exit::Failed);
    // Another key's continuation of it is taken where somebody names that key, and says that it is a new one.
    fs::remove_file(root(&one).join("state/egress-ranges.key.pem")).unwrap();
    let new = root(&one).join("new.pem");
    fs::write(&new, yes(&one, &["key", "--make"])).unwrap();
    yes(&one, &["renew", "--new-key"]);
    let refused = import(&book(&one));
    assert!(refused.exit == Exit::No && refused.remarks.contains("--new-key"), "{}", refused.remarks);
    assert_eq!(import_by(&new, &[]).exit, Exit::No);
    assert_eq!(import_by(&pem, &["--new-key"]).exit, Exit::No);
    let keyless = ranges(&other, &["import", book(&one).to_str().unwrap(), "--new-key"]);
    assert_eq!(keyless.exit, Exit::Usage);
    assert_eq!(import_by(&new, &["--new-key"]).exit, Exit::Yes);
}
