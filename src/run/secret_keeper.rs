//! Keeps secrets that providers make, where tenants' secrets are.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use domain::{Secret, TenantId};
use gateway::handshake::SecretKeeper;

/// `<tenants.directory>/<tenant>.secrets/`, as `config` reads it.
#[derive(Debug)]
pub(super) struct TenantSecretFiles {
    directory: PathBuf,
}

impl TenantSecretFiles {
    pub(super) fn new(tenants: &Path) -> Self {
        Self { directory: tenants.to_owned() }
    }
}

impl SecretKeeper for TenantSecretFiles {
    /// Written beside its place and linked there: whoever reads finds all of it or nothing, and what is there is never replaced.
    fn keep(&self, tenant: &TenantId, name: &str, secret: &Secret) -> Result<(), String> {
        let directory = self.directory.join(format!("{tenant}.secrets"));
        let said = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
        match DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(said(&directory, error)),
            Ok(()) | Err(_) => {}
        }
        // A hidden name is no secret's (`config` refuses it); what a process that died left there is written over.
        let (beside, place) = (directory.join(format!(".{name}.new")), directory.join(name));
        let written = write(&beside, secret)
            .map_err(|error| said(&beside, error))
            .and_then(|()| std::fs::hard_link(&beside, &place).map_err(|error| said(&place, error)));
        let removed = std::fs::remove_file(&beside);
        written?;
        removed.map_err(|error| said(&beside, error))?;
        [&directory, &self.directory]
            .into_iter()
            .try_for_each(|path| File::open(path).and_then(|file| file.sync_all()).map_err(|error| said(path, error)))
    }
}

fn write(path: &Path, secret: &Secret) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(secret.expose())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_secret_is_kept_whole_and_never_replaced() {
        let tenants = tempfile::tempdir().unwrap();
        let keeper = TenantSecretFiles::new(tenants.path());
        let acme = TenantId::parse("acme").unwrap();
        keeper.keep(&acme, "asana", &Secret::new(*b"the first one")).unwrap();
        assert!(keeper.keep(&acme, "asana", &Secret::new(*b"another")).is_err());
        let directory = tenants.path().join("acme.secrets");
        assert_eq!(std::fs::read(directory.join("asana")).unwrap(), b"the first one");
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&directory), mode(&directory.join("asana"))), (0o700, 0o600));
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1, "nothing lies beside it");
        // What a process that died left beside it is in nobody's way.
        std::fs::write(directory.join(".monday.new"), "half").unwrap();
        keeper.keep(&acme, "monday", &Secret::new(*b"whole")).unwrap();
        assert_eq!(std::fs::read(directory.join("monday")).unwrap(), b"whole");
    }
}
