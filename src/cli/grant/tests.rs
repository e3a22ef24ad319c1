use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::Value;

use crate::cli::exit::Exit;
use crate::cli::testing::{Ran, run_with};

/// A directory with an appliance whose issuer can sign.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { directory: tempfile::tempdir().unwrap() };
        let made = place.run(&["keygen", "--out", place.path("key.pem").to_str().unwrap()], b"");
        assert_eq!(made.exit, Exit::Yes, "{}", made.remarks);
        place.write("tidegate.toml", &format!("{HEAD}{}", made.answer));
        place.write("tenants/acme.toml", ACME);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        std::fs::write(self.path(name), text).unwrap();
    }

    /// `tidegate grant WORDS…`, with `--config` where it has one.
    fn run(&self, words: &[&str], stdin: &[u8]) -> Ran {
        let config = self.path("tidegate.toml");
        let config = ["--config", config.to_str().unwrap()];
        let needs_none = matches!(words[0], "keygen" | "token");
        let config = if needs_none { &[][..] } else { &config[..] };
        run_with(&[&["grant"], words, config].concat(), stdin, &[])
    }

    fn mint(&self, words: &[&str]) -> String {
        let ran = self.run(&[&["--tenant", "acme"], words].concat(), b"");
        assert_eq!(ran.exit, Exit::Yes, "{}", ran.remarks);
        ran.answer
    }

    fn show(&self, token: &str, words: &[&str]) -> Value {
        let ran = self.run(&[&["show", "-", "--json"], words].concat(), token.as_bytes());
        let json: Value = serde_json::from_str(&ran.answer).unwrap_or_else(|_| panic!("{}", ran.remarks));
        assert_eq!(ran.exit, Exit::yes_if(json["taken"] == true));
        json
    }
}

/// A role, and a connection, though one that has no credential.
const ACME: &str = "tenant = \"acme\"\n[[egress.role]]\nname = \"build\"\n[[connection]]\nid = \"conn_stripe\"\n\
                    connector = \"stripe\"\nbase_url = \"https://api.stripe.com/v1\"\n";

const HEAD: &str = "[egress]\nlisten = [\"127.0.0.1:0\"]\n[log]\ndirectory = \"log\"\n";

#[test]
fn a_minted_grant_says_what_it_was_told_and_would_be_taken() {
    let place = Place::new();
    let token = place.mint(&[
        "--connection",
        "conn_stripe",
        "--destination",
        "*.example.com",
        "--role",
        "build",
        "--run",
        "run_7",
        "--automation",
        "a",
        "--class",
        "gold",
        "--source",
        "127.0.0.0/8",
        "--calls-max",
        "3",
        "--ttl",
        "15m",
    ]);
    let shown = place.show(&token, &[]);
    assert_eq!((&shown["taken"], &shown["tenant"], &shown["role"]), (&true.into(), &"acme".into(), &"build".into()));
    let claims = &shown["claims"];
    assert_eq!(claims["connections"][0], "conn_stripe");
    assert_eq!(claims["destinations"][0], "*.example.com");
    assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 900);
    assert_eq!(place.show(&token, &["--from", "127.0.0.9"])["taken"], true);
    let elsewhere = place.show(&token, &["--from", "10.0.0.1"]);
    assert_eq!(elsewhere["code"], "caller-unknown");
    assert!(elsewhere["reason"].as_str().unwrap().contains("address"));

    let ran = place.run(&["show", token.trim()], b"");
    assert!(
        ran.answer.starts_with("would be taken\nalg ") && ran.answer.contains("(2025-11-29T14:01:40.000Z)"),
        "{}",
        ran.answer
    );
    let json: Value = serde_json::from_str(&place.mint(&["--json"])).unwrap();
    assert!(json["token"].as_str().unwrap().starts_with("eyJ") && json["expiresAt"] == "2025-11-29T13:51:40.000Z");
}

#[test]
fn what_would_not_be_taken_is_not_minted_and_said_why() {
    let place = Place::new();
    for (ttl, exit) in
        [("15m", Exit::Yes), ("15m1s", Exit::Usage), ("0s", Exit::Usage), ("500ms", Exit::Usage), ("x", Exit::Usage)]
    {
        assert_eq!(place.run(&["--tenant", "acme", "--ttl", ttl], b"").exit, exit, "{ttl}");
    }
    let odd = place.run(&["--tenant", "acme", "--run", "a b"], b"");
    assert_eq!((odd.exit, odd.answer.as_str()), (Exit::No, ""));
    assert!(odd.remarks.contains("`run`"), "{}", odd.remarks);
    assert_eq!(place.run(&["--ttl", "5m"], b"").exit, Exit::Usage, "for whom?");
    assert_eq!(place.run(&["--tenant", "acme", "--issuer", "other"], b"").exit, Exit::Failed);

    let config = std::fs::read_to_string(place.path("tidegate.toml")).unwrap();
    place.write("tidegate.toml", &config.replace("[\"*\"]", "[\"beta\"]"));
    let foreign = place.run(&["--tenant", "acme"], b"");
    assert_eq!((foreign.exit, foreign.answer.as_str()), (Exit::No, ""));
    assert!(foreign.remarks.contains("not bound to"), "{}", foreign.remarks);
    place.write("tidegate.toml", HEAD);
    let nobody = place.run(&["--tenant", "acme"], b"");
    assert!(nobody.exit == Exit::Failed && nobody.remarks.contains("keygen"), "{}", nobody.remarks);
}

#[test]
fn what_a_grant_names_is_there_or_it_is_of_no_use() {
    let place = Place::new();
    for (words, why) in [
        (&["--tenant", "nobody"][..], "no tenant nobody is configured here"),
        (&["--tenant", "acme", "--role", "bild"], "tenant acme has no role bild"),
        (&["--tenant", "acme", "--connection", "conn_stripe", "--connection", "conn_x"], "no connection conn_x"),
    ] {
        let ran = place.run(words, b"");
        assert_eq!((ran.exit, ran.answer.as_str()), (Exit::No, ""), "{words:?}");
        assert!(ran.remarks.contains(why) && ran.remarks.contains("--elsewhere"), "{}", ran.remarks);
        let elsewhere = place.run(&[words, &["--elsewhere"]].concat(), b"");
        assert_eq!(elsewhere.exit, Exit::Yes, "{}", elsewhere.remarks);
        let shown = place.show(&elsewhere.answer, &[]);
        assert_eq!(shown["taken"], false, "{words:?}");
        assert!(shown["reason"].as_str().unwrap().contains(why), "{shown}");
    }
    // A running appliance has its last good version.
    place.write("tenants/acme.toml", "tenant = \"acme\"\nnonsense = 1\n");
    let faulty = place.run(&["--tenant", "acme", "--role", "other"], b"");
    assert_eq!(faulty.exit, Exit::Yes);
    assert!(faulty.remarks.contains("nonsense"), "{}", faulty.remarks);
}

#[test]
fn whoever_is_not_configured_is_revoked_with_a_warning() {
    let place = Place::new();
    place.write("state/keep", "");
    let nobody = place.run(&["revoke", "--tenant", "nobody"], b"");
    assert!(nobody.exit == Exit::Yes && nobody.answer.starts_with("revoked: "), "{}", nobody.answer);
    assert!(nobody.remarks.contains("no tenant nobody is configured here"), "{}", nobody.remarks);
    for words in [&["revoke", "--tenant", "acme"][..], &["revoke", "--tenant", "nobody", "--lift"]] {
        assert!(!place.run(words, b"").remarks.contains("configured here"), "{words:?}");
    }
    // A fault of the file that is about something else does not keep anybody from it.
    let config = std::fs::read_to_string(place.path("tidegate.toml")).unwrap();
    place.write("tidegate.toml", &format!("{config}\n[admin]\nlistn = \"127.0.0.1:1\"\n"));
    let faulty = place.run(&["revoke", "--run", "run_7"], b"");
    assert_eq!(faulty.exit, Exit::Yes, "{}", faulty.remarks);
    assert!(faulty.remarks.contains("listn"), "{}", faulty.remarks);
    // A running appliance has the directory that the file named when it was started.
    let elsewhere = format!("{config}\n[tenants]\nstate_directory = \"new\"\n[admin]\nlistn = \"127.0.0.1:1\"\n");
    place.write("tidegate.toml", &elsewhere);
    let unheard = place.run(&["revoke", "--run", "run_8"], b"");
    assert_eq!(unheard.exit, Exit::Failed, "{}", unheard.remarks);
    assert!(unheard.remarks.contains("--socket") && unheard.remarks.contains("no directory"), "{}", unheard.remarks);
    assert!(!place.path("new").exists());
    // Somebody is there who does not say what it is.
    place.write("new/keep", "");
    let silent = std::os::unix::net::UnixListener::bind(place.path("tidegate.sock")).unwrap();
    std::thread::spawn(move || silent.incoming().for_each(drop));
    let unheard = place.run(&["revoke", "--run", "run_8"], b"");
    assert_eq!(unheard.exit, Exit::Failed, "{}", unheard.remarks);
}

#[test]
fn a_revocation_is_told_listed_and_lifted() {
    let place = Place::new();
    place.write("state/keep", "");
    assert!(place.run(&["revoked"], b"").answer.contains("nothing"));
    let token = place.mint(&["--run", "run_7"]);
    let revoked = place.run(&["revoke", "--run", "run_7", "--tenant", "acme"], b"");
    assert_eq!(revoked.exit, Exit::Yes, "{}", revoked.remarks);
    assert_eq!(revoked.answer, "revoked: run run_7 of tenant acme, until 2025-11-29T14:02:10.000Z\n");
    assert!(place.show(&token, &[])["reason"].as_str().unwrap().contains("revoked"));
    assert_eq!(place.run(&["--tenant", "acme", "--run", "run_7"], b"").exit, Exit::No);
    let json: Value = serde_json::from_str(&place.run(&["revoked", "--json"], b"").answer).unwrap();
    assert_eq!((&json["run"], &json["tenant"]), (&"run_7".into(), &"acme".into()));
    assert!(place.run(&["revoke", "--run", "run_7", "--tenant", "acme", "--lift"], b"").answer.starts_with("lifted"));
    assert_eq!(place.show(&token, &[])["taken"], true);

    assert!(place.run(&["revoke", "--tenant", "acme"], b"").answer.contains("until it is lifted"));
    assert_eq!(place.show(&token, &[])["taken"], false);
    for wrong in [
        &["revoke"][..],
        &["revoke", "--jti", "a", "--run", "b"],
        &["revoke", "--jti", "a b"],
        &["revoke", "--run", "r", "--until", "10m"],
        &["revoke", "--tenant", "acme", "--until", "2025-01-01T00:00:00Z"],
        &["revoke", "--tenant", "acme", "--until", "1h", "--lift"],
        &["revoke", "--tenant", "acme", "--until", "soon"],
    ] {
        assert_eq!(place.run(wrong, b"").exit, Exit::Usage, "{wrong:?}");
    }
    let hour = place.run(&["revoke", "--jti", "g", "--until", "1h"], b"");
    assert!(hour.answer.contains("2025-11-29T14:46:40"), "{}", hour.answer);

    place.write("state/grants.revoked", "odd\n");
    assert_eq!(place.run(&["revoke", "--tenant", "beta"], b"").exit, Exit::Failed);
    assert_eq!(place.run(&["revoked"], b"").exit, Exit::Failed);
    assert_eq!(place.run(&["show", &token], b"").exit, Exit::Failed, "nobody can tell");
}

#[test]
fn a_static_token_is_made_hashed_and_found() {
    let place = Place::new();
    let made = place.run(&["token", "--new", "--name", "build \"1\""], b"");
    let (token, lines) = made.answer.split_once("\n\n").unwrap();
    assert!(token.starts_with("tgt_") && lines.contains("name = 'build \"1\"'"), "{lines}");
    let hashed = place.run(&["token", "--hash", "--json"], format!("{token}\n").as_bytes());
    let json: Value = serde_json::from_str(&hashed.answer).unwrap();
    assert!(lines.contains(json["hash"].as_str().unwrap()) && !hashed.answer.contains(token));
    for bad in ["", "tgt_short", "sk_live_0123456789012345678901234567", "tgt_0123456789 0123456789012345"] {
        assert_eq!(place.run(&["token", "--hash"], bad.as_bytes()).exit, Exit::Usage, "{bad}");
    }
    assert_eq!(place.run(&["token"], b"").exit, Exit::Usage);

    assert_eq!(place.show(token, &[])["taken"], false);
    let made = place.run(&["token", "--new", "--json"], b"");
    let json: Value = serde_json::from_str(&made.answer).unwrap();
    let hash = json["hash"].as_str().unwrap();
    place.write(
        "tenants/acme.toml",
        &format!("tenant = \"acme\"\n[[egress.token]]\nname = \"ci\"\nhash = \"{hash}\"\n"),
    );
    let shown = place.show(json["token"].as_str().unwrap(), &[]);
    assert_eq!((&shown["taken"], &shown["tenant"], &shown["name"]), (&true.into(), &"acme".into(), &"ci".into()));
}

#[test]
fn a_private_key_is_for_its_owner_and_replaces_nothing() {
    let place = Place::new();
    let path = place.path("key.pem");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let before = std::fs::read(&path).unwrap();
    let again = place.run(&["keygen", "--out", path.to_str().unwrap()], b"");
    assert_eq!((again.exit, again.answer.as_str()), (Exit::Failed, ""));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let other = place.path("other.pem");
    let json = place.run(&["keygen", "--out", other.to_str().unwrap(), "--json"], b"").answer;
    assert!(!json.contains("PRIVATE") && json.contains("BEGIN PUBLIC KEY"), "{json}");
}

#[test]
fn nothing_that_is_shown_moves_the_cursor() {
    let place = Place::new();
    // `{"alg":"\u001b[2J"}` and `{"iss":"\u001b[31m"}`
    let token = "eyJhbGciOiJcdTAwMWJbMkoifQ.eyJpc3MiOiJcdTAwMWJbMzFtIn0.AAAA";
    let ran = place.run(&["show", token], b"");
    assert!(ran.exit == Exit::No && !ran.answer.contains('\u{1b}'), "{}", ran.answer);
    assert!(ran.answer.contains("iss"));
    assert_eq!(place.run(&["show", "not a token"], b"").exit, Exit::No);
}
