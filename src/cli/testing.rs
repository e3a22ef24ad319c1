//! Runs command lines inside tests.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use config::MapEnvironment;
use domain::ManualClock;

use super::exit::{Exit, Outcome};
use super::out::Out;
use super::{Shell, execute};

/// 2025-11-29T13:46:40Z.
pub(crate) const NOW_UNIX_MS: u64 = 1_764_424_000_000;

/// What a command line came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) exit: Exit,
    pub(crate) answer: String,
    pub(crate) remarks: String,
}

/// Runs `tidegate WORDS…` with this standard input and environment.
pub(crate) fn run_with(words: &[&str], stdin: &[u8], environment: &[(&str, &str)]) -> Ran {
    run_all(words.iter().map(OsString::from), stdin, environment)
}

/// The same, with words that need not be text.
pub(crate) fn run_os(words: impl IntoIterator<Item = OsString>) -> Ran {
    run_all(words, b"", &[])
}

fn run_all(words: impl IntoIterator<Item = OsString>, stdin: &[u8], environment: &[(&str, &str)]) -> Ran {
    let environment = MapEnvironment::new(environment.iter().copied());
    let (mut answer, mut remarks) = (Vec::new(), Vec::new());
    let clock: Arc<ManualClock> = ManualClock::at_unix_ms(NOW_UNIX_MS);
    let mut shell =
        Shell { out: Out::new(&mut answer, &mut remarks), stdin: &mut { stdin }, environment: &environment, clock };
    let words = std::iter::once("tidegate".into()).chain(words);
    let exit = execute(words, &mut shell);
    Ran { exit, answer: String::from_utf8(answer).unwrap(), remarks: String::from_utf8(remarks).unwrap() }
}

pub(crate) fn run(words: &[&str]) -> Ran {
    run_with(words, b"", &[])
}

/// What a printing function prints.
pub(crate) fn printed(print: impl FnOnce(&mut Shell<'_>) -> Outcome<()>) -> String {
    let environment = MapEnvironment::default();
    let (mut answer, mut remarks) = (Vec::new(), Vec::new());
    let clock: Arc<ManualClock> = ManualClock::at_unix_ms(NOW_UNIX_MS);
    let mut shell = Shell {
        out: Out::new(&mut answer, &mut remarks),
        stdin: &mut std::io::empty(),
        environment: &environment,
        clock,
    };
    print(&mut shell).unwrap();
    String::from_utf8(answer).unwrap()
}

/// A directory with a configuration in it.
pub(crate) struct Files {
    directory: tempfile::TempDir,
}

/// One endpoint of one tenant.
pub(crate) const GOOD: &str = r#"
tenant = "acme"

[[endpoint]]
id = "wh_9f2c1b7a"
scheme = "github"
secrets = [{ value = "secret:github" }]
"#;

impl Files {
    pub(crate) fn with(tenant: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let files = Self { directory };
        files.write(
            "tidegate.toml",
            "[gateway]\nlisten = [\"127.0.0.1:0\"]\npublic_url = \"https://hooks.example.com\"\n\n[log]\ndirectory = \"log\"\n",
        );
        files.write("tenants/acme.toml", tenant);
        files.write("tenants/acme.secrets/github", "It's a Secret to Everybody");
        files
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.directory.path().join("tidegate.toml")
    }

    pub(crate) fn run(&self, words: &[&str], stdin: &[u8]) -> Ran {
        let config = self.config();
        let (first, rest) = words.split_at(1);
        run_with(&[first, &["--config", config.to_str().unwrap()], rest].concat(), stdin, &[])
    }

    /// What was said, with the directory's name taken out.
    pub(crate) fn said(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.directory.path().display()), "")
    }
}
