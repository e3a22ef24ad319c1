//! References to secrets, and what they resolve to.
//!
//! | reference | in the appliance's file and on the command line | in a tenant's file |
//! |---|---|---|
//! | `env:NAME` | yes | where `tenants.allow_env` allows the name |
//! | `file:PATH` | yes | no |
//! | `systemd-credential:NAME` | yes | no |
//! | `secret:NAME` | no | the file `<tenants.directory>/<tenant>.secrets/NAME` |
//!
//! What was written in the place of a reference may be the secret itself, so no message here repeats it.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use domain::Secret;
use rustix::fs::{Mode, OFlags};
use zeroize::Zeroizing;

use crate::environment::Environment;
use crate::read::{self, Unreadable};
use crate::variables::{self, Neighbours};

/// Longer than any shared secret, token or PEM chain.
const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// A secret, and what somebody should know about where it was found.
#[derive(Debug, Clone)]
pub struct ResolvedSecret {
    pub secret: Secret,
    /// A sentence, such as on a file that others can read.
    pub warning: Option<String>,
}

/// Resolves what an operator may refer to: `env:NAME`, `file:PATH`, `systemd-credential:NAME`.
///
/// # Errors
/// A sentence without the secret.
pub fn resolve_secret(reference: &str, environment: &dyn Environment) -> Result<ResolvedSecret, String> {
    match reference.split_once(':') {
        Some(("env", name)) => variable(name, environment),
        Some(("file", path)) => from_file(read::file(Path::new(path), SECRET_BYTES_MAX), Some(Path::new(path))),
        Some(("systemd-credential", name)) => {
            check_name(name)?;
            let directory = environment.variable("CREDENTIALS_DIRECTORY").ok_or(
                "is a systemd credential and systemd gave none; add LoadCredential= to the unit, or use file: or env:",
            )?;
            from_file(read::file(&PathBuf::from(directory).join(name), SECRET_BYTES_MAX), None)
        }
        Some(("secret", _)) => {
            Err("is a tenant's secret and has no meaning here; write env:NAME, file:PATH or systemd-credential:NAME"
                .into())
        }
        _ => {
            Err("is no reference; secrets are never written out: write env:NAME, file:PATH or systemd-credential:NAME"
                .into())
        }
    }
}

/// What one tenant's file may refer to.
#[derive(Debug)]
pub(crate) struct TenantSecrets<'a> {
    environment: &'a dyn Environment,
    allow_env: &'a [String],
    tenant: &'a str,
    /// The tenant's id as variables are named.
    name: String,
    /// Whose variables it may not name though it could; none where nobody asks.
    neighbours: Option<&'a Neighbours>,
    directory: PathBuf,
    opened: Option<Result<OwnedFd, String>>,
    /// Whether a file is not there that was referred to.
    any_missing: bool,
    /// Whether a file could not be read for a reason that passes.
    any_passing: bool,
}

impl<'a> TenantSecrets<'a> {
    pub(crate) fn new(
        environment: &'a dyn Environment,
        allow_env: &'a [String],
        tenants: &Path,
        tenant: &'a str,
    ) -> Self {
        Self {
            environment,
            allow_env,
            tenant,
            name: variables::own_name(tenant),
            neighbours: None,
            directory: tenants.join(format!("{tenant}.secrets")),
            opened: None,
            any_missing: false,
            any_passing: false,
        }
    }

    /// The same where it may name no variable that is another tenant's as well.
    pub(crate) fn beside(self, neighbours: Option<&'a Neighbours>) -> Self {
        Self { neighbours, ..self }
    }

    pub(crate) fn resolve(&mut self, reference: &str) -> Result<ResolvedSecret, String> {
        match reference.split_once(':') {
            Some(("secret", name)) => self.file(name),
            Some(("env", name)) => {
                let allowed = self.allow_env.iter().any(|pattern| variables::allows(pattern, &self.name, name));
                if !allowed {
                    return Err("is an environment variable that the appliance's file does not allow; add it to tenants.allow_env, or write secret:NAME".into());
                }
                let other = self.neighbours.and_then(|them| them.other_owner(self.allow_env, self.tenant, name));
                if let Some(other) = other {
                    return Err(format!("is an environment variable that by its name is the tenant {other}'s too; write secret:NAME, or, if it is meant for both, name the variable itself in tenants.allow_env"));
                }
                variable(name, self.environment)
            }
            Some(("sealed", _)) => Err("is a sealed value, which this version cannot open; write secret:NAME".into()),
            Some(("file" | "systemd-credential", _)) => Err("is not for tenants' files, which may name only their own secrets; write secret:NAME".into()),
            _ => Err("is no reference; secrets are never written out: write secret:NAME and put it into the tenant's secrets directory".into()),
        }
    }

    /// Whether what could not be resolved so far may be there unchanged: something could not be read for now, and nothing
    /// was found to be gone.
    pub(crate) fn may_be_unchanged(&self) -> bool {
        self.any_passing && !self.any_missing
    }

    /// Whether it is worth while to look again, though nobody changes anything.
    pub(crate) fn any_passing(&self) -> bool {
        self.any_passing
    }

    fn file(&mut self, name: &str) -> Result<ResolvedSecret, String> {
        check_name(name)?;
        let found = self.read(name);
        let gone = |fault: std::io::Error| fault.kind() == ErrorKind::NotFound;
        if found.is_err() && std::fs::symlink_metadata(self.directory.join(name)).is_err_and(gone) {
            self.any_missing = true;
        }
        found
    }

    fn read(&mut self, name: &str) -> Result<ResolvedSecret, String> {
        let (directory, any_passing) = (&self.directory, &mut self.any_passing);
        let opened = self.opened.get_or_insert_with(|| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(directory, flags, Mode::empty()).map_err(|fault| {
                *any_passing |= read::is_passing(&fault.into());
                format!(
                    "names a secret, and the directory {} cannot be opened: {fault}",
                    crate::fault::shown(directory)
                )
            })
        });
        let opened = opened.as_ref().map_err(Clone::clone)?;
        let path = directory.join(name);
        let read = read::beneath(opened, OsStr::new(name), SECRET_BYTES_MAX);
        *any_passing |= read.as_ref().is_err_and(Unreadable::is_passing);
        from_file(read, Some(&path)).map_err(|fault| format!("{fault} ({})", crate::fault::shown(&path)))
    }
}

fn variable(name: &str, environment: &dyn Environment) -> Result<ResolvedSecret, String> {
    let plain = name.len() <= 255 && !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !plain {
        return Err("names no environment variable; write env:NAME with letters, digits and _".into());
    }
    let value = environment.variable(name).map(OsString::into_vec).map(Zeroizing::new);
    let value = value.ok_or_else(|| format!("names the environment variable {name}, which is not set"))?;
    if value.is_empty() {
        return Err(format!("names the environment variable {name}, which is empty"));
    }
    if value.len() as u64 > SECRET_BYTES_MAX {
        return Err(format!("names the environment variable {name}, which is longer than any secret"));
    }
    Ok(ResolvedSecret { secret: Secret::new(value.as_slice()), warning: None })
}

fn from_file(read: Result<(Vec<u8>, u32), Unreadable>, path: Option<&Path>) -> Result<ResolvedSecret, String> {
    let (bytes, mode) = read.map_err(|fault| format!("names a file that {fault}"))?;
    let bytes = Zeroizing::new(bytes);
    // Editors and `echo` end a file with a newline, which nobody means; one is taken off and no more.
    let value = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let value = value.strip_suffix(b"\r").unwrap_or(value);
    if value.is_empty() {
        return Err("names a file that is empty".into());
    }
    let warning = path.filter(|_| mode & 0o077 != 0).map(|path| {
        let shown = crate::fault::shown(path);
        format!("is in a file that others on this machine can open (mode {mode:04o}); run: chmod 600 {shown}")
    });
    Ok(ResolvedSecret { secret: Secret::new(value), warning })
}

/// One part of a path, and not a hidden one.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    if (1..=128).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('.') {
        Ok(())
    } else {
        Err("names no file; behind the colon write 1 to 128 letters, digits, '.', '-' and '_', and no path".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::MapEnvironment;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn tenant<'a>(environment: &'a MapEnvironment, allow: &'a [String], directory: &Path) -> TenantSecrets<'a> {
        TenantSecrets::new(environment, allow, directory, "acme")
    }

    #[test]
    fn operators_refer_to_variables_files_and_credentials() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        fs::write(&path, "hunter2\r\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let mut environment = MapEnvironment::new([("KEY", "k1"), ("EMPTY", "")]);
        let get = |reference: &str, environment: &MapEnvironment| resolve_secret(reference, environment);
        assert_eq!(get("env:KEY", &environment).unwrap().secret, Secret::new(*b"k1"));
        assert!(get("env:EMPTY", &environment).unwrap_err().contains("empty"));
        assert!(get("env:NONE", &environment).unwrap_err().contains("not set"));
        assert!(get("env:A=B", &environment).is_err());
        let found = get(&format!("file:{}", path.display()), &environment).unwrap();
        assert_eq!(found.secret, Secret::new(*b"hunter2"));
        assert!(found.warning.unwrap().contains("chmod 600"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(get(&format!("file:{}", path.display()), &environment).unwrap().warning.is_none());
        assert!(get("systemd-credential:key", &environment).unwrap_err().contains("LoadCredential"));
        environment.set("CREDENTIALS_DIRECTORY", directory.path().to_str().unwrap());
        assert_eq!(get("systemd-credential:key", &environment).unwrap().secret, Secret::new(*b"hunter2"));
        assert!(get("systemd-credential:../key", &environment).is_err());
        assert!(get("file:/dev/zero", &environment).unwrap_err().contains("no regular file"));
    }

    #[test]
    fn what_looks_like_a_secret_is_never_repeated() {
        let environment = MapEnvironment::default();
        let directory = tempfile::tempdir().unwrap();
        for reference in
            ["whsec_hunter2", "hunter2:hunter2", "sealed:hunter2", "file:hunter2", "secret:/hunter2", "env:hunter2-x"]
        {
            let operator = resolve_secret(reference, &environment).unwrap_err();
            let of_tenant = tenant(&environment, &[], directory.path()).resolve(reference).unwrap_err();
            assert!(!operator.contains("hunter2") && !of_tenant.contains("hunter2"), "{operator} {of_tenant}");
        }
    }

    #[test]
    fn a_tenant_reaches_its_own_secrets_only() {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join("acme.secrets");
        fs::create_dir(&own).unwrap();
        fs::create_dir(own.join("..data")).unwrap();
        fs::write(own.join("..data/github"), "s1\n").unwrap();
        symlink("..data/github", own.join("github")).unwrap();
        fs::write(directory.path().join("other"), "theirs").unwrap();
        symlink("../other", own.join("up")).unwrap();
        symlink("/etc/hostname", own.join("away")).unwrap();
        fs::write(own.join("large"), vec![b'x'; 64 * 1024 + 1]).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, own.join("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        let environment = MapEnvironment::new([("ACME_KEY", "k1"), ("OTHER_KEY", "k2")]);
        let allow = ["ACME_*".to_owned()];
        let mut secrets = tenant(&environment, &allow, directory.path());
        assert_eq!(secrets.resolve("secret:github").unwrap().secret, Secret::new(*b"s1"));
        assert_eq!(secrets.resolve("env:ACME_KEY").unwrap().secret, Secret::new(*b"k1"));
        for refused in [
            "secret:up",
            "secret:away",
            "secret:large",
            "secret:pipe",
            "secret:none",
            "secret:../other",
            "secret:.",
            "secret:",
            "env:OTHER_KEY",
            "file:/etc/hostname",
        ] {
            assert!(secrets.resolve(refused).is_err(), "{refused}");
        }
        assert!(secrets.resolve("env:OTHER_KEY").unwrap_err().contains("allow_env"));
    }

    #[test]
    fn a_tenant_may_name_variables_of_its_own_name() {
        let environment = MapEnvironment::new([("ACME_EU_GITHUB", "k"), ("ACME_GITHUB", "k"), ("OTHER_GITHUB", "k")]);
        let allow = crate::Tenants::default().allow_env;
        let mut secrets = TenantSecrets::new(&environment, &allow, Path::new("tenants"), "acme-eu");
        assert!(secrets.resolve("env:ACME_EU_GITHUB").is_ok());
        for another in ["env:ACME_GITHUB", "env:OTHER_GITHUB", "env:ACME_EU", "env:{TENANT}_GITHUB"] {
            assert!(secrets.resolve(another).is_err(), "{another}");
        }
        let mut secrets = TenantSecrets::new(&environment, &[], Path::new("tenants"), "acme-eu");
        assert!(secrets.resolve("env:ACME_EU_GITHUB").is_err());
    }
}
