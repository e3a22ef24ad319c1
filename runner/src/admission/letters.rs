//! Events that are not to be admitted: dead letters.
//!
//! Each is a file of its own, named after its event, so that it is durable before admission's place passes the event, and so
//! that reading the event once more finds it here. The event itself stays in the log for as long as the log keeps it: what is
//! here says which one, and why. An operator has them tried again when the cause is gone; those that get through are no
//! letters any more.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::{EndpointId, EventId, TenantId};
use serde::{Deserialize, Serialize};

/// Letters at most. With more, an event that is poison waits alone in memory, as before, and holds admission's place: nothing is
/// dropped for want of room, and so many are an incident that somebody is told of.
pub const LETTERS_MAX: usize = 1_000;

/// Longest reason, in bytes.
const WHY_BYTES_MAX: usize = 512;

/// Files that are not finished end so.
const UNFINISHED: &str = ".new";

/// Longest file that is one.
const FILE_BYTES_MAX: u64 = 16 << 10;

/// An event that is not to be admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    pub event: EventId,
    pub tenant: TenantId,
    pub endpoint: EndpointId,
    /// It was over its limit when it came.
    pub is_bulk: bool,
    /// Why it could not be admitted the last time.
    pub why: Box<str>,
    pub tries: u32,
    /// When it was set aside, in milliseconds since the Unix epoch.
    pub at_unix_ms: u64,
}

/// A letter as its file has it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Form {
    event: String,
    tenant: String,
    endpoint: String,
    is_bulk: bool,
    why: String,
    tries: u32,
    at_unix_ms: u64,
}

/// Why a letter is not kept.
#[derive(Debug, thiserror::Error)]
pub enum LettersFault {
    #[error("there are {LETTERS_MAX} dead letters already; have them tried again")]
    Full,
    #[error("a dead letter cannot be kept: {0}")]
    Io(#[from] io::Error),
    #[error("keeping a dead letter crashed")]
    Crashed,
}

/// All of them. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Letters(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// None: in memory alone.
    directory: Option<PathBuf>,
    all: Mutex<BTreeMap<EventId, Letter>>,
}

impl Letters {
    /// Makes the directory if need be, and reads what is there. A file that is none of ours is left alone and told.
    ///
    /// # Errors
    /// Of the file system.
    pub fn open(directory: impl Into<PathBuf>) -> io::Result<Self> {
        let directory = directory.into();
        fs::create_dir_all(&directory)?;
        let mut all = BTreeMap::new();
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| UNFINISHED.ends_with(&*extension.to_string_lossy())) {
                fs::remove_file(&path)?;
                continue;
            }
            if let Some(letter) = read(&path)? {
                all.insert(letter.event, letter);
            } else {
                tracing::error!(path = %path.display(), "a dead letter cannot be read, and is left where it is");
            }
        }
        Ok(Self(Arc::new(Inner { directory: Some(directory), all: Mutex::new(all) })))
    }

    /// Of a process that keeps none.
    pub fn in_memory() -> Self {
        Self(Arc::new(Inner { directory: None, all: Mutex::default() }))
    }

    pub fn has(&self, event: EventId) -> bool {
        self.0.lock().contains_key(&event)
    }

    pub fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// The oldest events first.
    pub fn list(&self, max: usize) -> Vec<Letter> {
        self.0.lock().values().take(max).cloned().collect()
    }

    /// Durable when it says so.
    ///
    /// # Errors
    /// Then it is not known to be kept.
    pub async fn keep(&self, mut letter: Letter) -> Result<(), LettersFault> {
        letter.why = letter.why.get(..letter.why.floor_char_boundary(WHY_BYTES_MAX)).unwrap_or_default().into();
        let inner = Arc::clone(&self.0);
        let kept = tokio::task::spawn_blocking(move || inner.keep(letter));
        kept.await.map_err(|_| LettersFault::Crashed)?
    }

    /// It was admitted after all.
    ///
    /// # Errors
    /// Then it is a letter still.
    pub async fn remove(&self, event: EventId) -> Result<(), LettersFault> {
        let inner = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || inner.remove(event)).await.map_err(|_| LettersFault::Crashed)?
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<EventId, Letter>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, letter: Letter) -> Result<(), LettersFault> {
        {
            let all = self.lock();
            if all.len() >= LETTERS_MAX && !all.contains_key(&letter.event) {
                return Err(LettersFault::Full);
            }
        }
        if let Some(directory) = &self.directory {
            let form = Form {
                event: letter.event.to_string(),
                tenant: letter.tenant.as_str().to_owned(),
                endpoint: letter.endpoint.as_str().to_owned(),
                is_bulk: letter.is_bulk,
                why: letter.why.to_string(),
                tries: letter.tries,
                at_unix_ms: letter.at_unix_ms,
            };
            let bytes = serde_json::to_vec(&form).map_err(io::Error::from)?;
            // An event's id is letters, digits and `_`.
            let path = directory.join(&form.event);
            let unfinished = directory.join(format!("{}{UNFINISHED}", form.event));
            let mut file = File::create(&unfinished)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)?;
            File::open(directory)?.sync_all()?;
        }
        self.lock().insert(letter.event, letter);
        Ok(())
    }

    fn remove(&self, event: EventId) -> Result<(), LettersFault> {
        if let Some(directory) = &self.directory {
            match fs::remove_file(directory.join(event.to_string())) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                Ok(()) | Err(_) => {}
            }
        }
        self.lock().remove(&event);
        Ok(())
    }
}

/// None: it is no letter.
fn read(path: &Path) -> io::Result<Option<Letter>> {
    if !fs::symlink_metadata(path)?.is_file() || fs::metadata(path)?.len() > FILE_BYTES_MAX {
        return Ok(None);
    }
    let Ok(form) = serde_json::from_slice::<Form>(&fs::read(path)?) else { return Ok(None) };
    let ids = (form.event.parse(), TenantId::parse(&form.tenant), EndpointId::parse(&form.endpoint));
    let (Ok(event), Ok(tenant), Ok(endpoint)) = ids else { return Ok(None) };
    Ok(Some(Letter {
        event,
        tenant,
        endpoint,
        is_bulk: form.is_bulk,
        why: form.why.into(),
        tries: form.tries,
        at_unix_ms: form.at_unix_ms,
    }))
}

#[cfg(test)]
mod tests {
    use domain::{NodeId, Slot};

    use super::*;

    fn letter(number: u64) -> Letter {
        Letter {
            event: EventId::new(number, Slot(0), NodeId(0), [0; 6]),
            tenant: TenantId::parse("acme").unwrap(),
            endpoint: EndpointId::parse("wh_1").unwrap(),
            is_bulk: number == 1,
            why: "admission itself failed".into(),
            tries: 5,
            at_unix_ms: 7,
        }
    }

    #[tokio::test]
    async fn they_outlive_the_process_until_they_are_admitted() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("letters");
        let letters = Letters::open(&place).unwrap();
        letters.keep(letter(2)).await.unwrap();
        letters.keep(Letter { why: "\u{e9}".repeat(600).into(), ..letter(1) }).await.unwrap();
        letters.keep(Letter { tries: 6, ..letter(2) }).await.unwrap();
        fs::write(place.join("evt_half.new"), "{").unwrap();
        fs::write(place.join("a stranger"), "{}").unwrap();
        let again = Letters::open(&place).unwrap();
        assert_eq!(again.list(9), letters.list(9));
        assert_eq!(again.list(9).iter().map(|letter| letter.tries).collect::<Vec<_>>(), [5, 6]);
        assert_eq!((again.list(1)[0].why.len(), again.list(1)[0].is_bulk), (512, true));
        assert!(again.has(letter(1).event) && place.join("a stranger").exists());
        assert!(!place.join("evt_half.new").exists());
        again.remove(letter(1).event).await.unwrap();
        again.remove(letter(1).event).await.unwrap();
        assert_eq!((again.count(), Letters::open(&place).unwrap().count()), (1, 1));
    }

    #[tokio::test]
    async fn there_are_no_more_than_there_is_room_for() {
        let letters = Letters::in_memory();
        for number in 0..1_000 {
            letters.keep(letter(number)).await.unwrap();
        }
        assert!(matches!(letters.keep(letter(1_000)).await, Err(LettersFault::Full)));
        letters.keep(letter(999)).await.unwrap();
        assert_eq!(letters.count(), 1_000);
    }
}
