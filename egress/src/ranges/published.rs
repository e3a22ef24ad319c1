//! What is there for everybody to read, and the book that it comes from as this process last saw it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use data_encoding::BASE64;
use tokio::sync::watch;

use super::book::{Book, sha256};
use super::change::{At, Entry};
use super::check::BookFound;
use super::document::Document;
use super::file::{self, BookFault};
use super::prefix::Prefix;
use super::range::{Range, State};
use crate::caller::PublicKey;
use crate::looking::keep_looking;
use crate::state_file::Version;

/// A file as it is served and exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Its name, relative to `/.well-known/`.
    pub name: String,
    /// Its type.
    pub media_type: &'static str,
    /// Its bytes.
    pub bytes: Bytes,
    /// Entity tag, quotes and all.
    pub etag: String,
    /// When this version was made.
    pub modified: At,
    /// Whether it is never another one.
    pub is_for_ever: bool,
}

impl Page {
    fn new(name: String, media_type: &'static str, bytes: impl Into<Bytes>, modified: At, is_for_ever: bool) -> Self {
        let bytes = bytes.into();
        let etag = etag_of(&sha256(&bytes));
        Self { name, media_type, bytes, etag, modified, is_for_ever }
    }

    /// What is said of it beside its bytes.
    pub fn label(&self) -> Label {
        let Self { media_type, ref etag, modified, is_for_ever, .. } = *self;
        Label { media_type, etag: etag.clone(), modified, is_for_ever }
    }
}

/// What is said of a file to whoever does not need its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Its type.
    pub media_type: &'static str,
    /// Entity tag, quotes and all.
    pub etag: String,
    /// When this version was made.
    pub modified: At,
    /// Whether it is never another one.
    pub is_for_ever: bool,
}

fn etag_of(sha256: &str) -> String {
    format!("\"{}\"", sha256.get(..32).unwrap_or_default())
}

/// The version that a lasting name is of, and whether it is its signature.
fn past(name: &str) -> Option<(u64, bool)> {
    let file = name.strip_prefix("egress-ranges/")?;
    let (serial, is_signature) = match file.strip_suffix(".json.sig") {
        Some(serial) => (serial, true),
        None => (file.strip_suffix(".json")?, false),
    };
    let number: u64 = serial.parse().ok()?;
    // One way to write a number, so that a cache holds a version once.
    (number.to_string() == serial).then_some((number, is_signature))
}

fn signature(entry: &Entry) -> Option<Page> {
    let bytes = BASE64.decode(entry.signature.as_bytes()).ok()?;
    Some(Page::new(format!("egress-ranges/{}.json.sig", entry.serial), BINARY, bytes, entry.at, true))
}

const JSON: &str = "application/json";
const BINARY: &str = "application/octet-stream";

/// A book, and what is published of its last version.
#[derive(Debug, Clone)]
pub struct Published {
    book: Book,
    pages: Vec<Page>,
}

/// Why a call cannot leave from an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unpublished {
    #[error("is in no published range; `tidegate egress ranges announce`, and activate it when its notice is over")]
    Nowhere,
    #[error(
        "is in {prefix}, which is announced and not active: `tidegate egress ranges activate {prefix}` from {from} on"
    )]
    NotYet { prefix: Prefix, from: At },
    #[error("is in {prefix}, which was retired at {at}: it is not ours any more")]
    Retired { prefix: Prefix, at: At },
    #[error("is in {prefix}, which is published for the pool \"{pool}\"")]
    OtherPool { prefix: Prefix, pool: String },
}

impl Published {
    /// Of a book that has a version.
    pub fn of(book: Book) -> Option<Self> {
        let last = book.last()?;
        let document = Document::of(&book);
        let at = last.at;
        let page = |name: &str, media_type, bytes: Vec<u8>| Page::new(name.into(), media_type, bytes, at, false);
        let key = PublicKey::parse(last.key.as_bytes()).ok()?;
        let signature = BASE64.decode(last.signature.as_bytes()).ok()?;
        let pages = vec![
            page("egress-ranges.json", JSON, document.to_bytes()),
            page("egress-ranges.json.sig", BINARY, signature),
            page("egress-ranges.pub.pem", "application/x-pem-file", key.to_pem().into_bytes()),
            page("egress-ranges.txt", "text/plain; charset=utf-8", document.to_text().into_bytes()),
            page("egress-ranges-geofeed.csv", "text/csv; charset=utf-8", document.to_geofeed().into_bytes()),
        ];
        Some(Self { book, pages })
    }

    /// The book behind it.
    pub fn book(&self) -> &Book {
        &self.book
    }

    /// The files of the last version.
    pub fn pages(&self) -> &[Page] {
        &self.pages
    }

    /// What there is to say of a file without making it, by its name relative to `/.well-known/`.
    pub fn label(&self, name: &str) -> Option<Label> {
        if let Some(page) = self.pages.iter().find(|page| page.name == name) {
            return Some(page.label());
        }
        let (serial, is_signature) = past(name)?;
        let entry = self.entry(serial)?;
        Some(if is_signature {
            signature(entry)?.label()
        } else {
            let etag = etag_of(&entry.sha256);
            Label { media_type: JSON, etag, modified: entry.at, is_for_ever: true }
        })
    }

    /// A file by its name relative to `/.well-known/`. The document of an older version is made when it is asked for:
    /// milliseconds for a full book.
    pub fn page(&self, name: &str) -> Option<Page> {
        if let Some(page) = self.pages.iter().find(|page| page.name == name) {
            return Some(page.clone());
        }
        let (serial, is_signature) = past(name)?;
        if is_signature {
            return signature(self.entry(serial)?);
        }
        self.version(serial).map(|[document, _]| document)
    }

    fn entry(&self, serial: u64) -> Option<&Entry> {
        self.book.entries().get(usize::try_from(serial.checked_sub(1)?).ok()?)
    }

    /// The document of a version and its signature, under their lasting names; none where there was no such version, or
    /// where this build would write it otherwise than it was signed.
    pub fn version(&self, serial: u64) -> Option<[Page; 2]> {
        let book = self.book.at(serial)?;
        let entry = book.last()?;
        let bytes = Document::of(&book).to_bytes();
        if sha256(&bytes) != entry.sha256 {
            return None;
        }
        Some([Page::new(format!("egress-ranges/{serial}.json"), JSON, bytes, entry.at, true), signature(entry)?])
    }

    /// May calls of this pool leave from this address?
    ///
    /// # Errors
    /// Says why not.
    pub fn covers(&self, pool: &str, address: IpAddr) -> Result<&Range, Unpublished> {
        let range = self.book.range_of(address).ok_or(Unpublished::Nowhere)?;
        let prefix = range.prefix;
        match range.state {
            State::Announced => return Err(Unpublished::NotYet { prefix, from: range.active_from }),
            State::Retired => {
                return Err(Unpublished::Retired { prefix, at: range.retired.unwrap_or(range.announced) });
            }
            State::Active | State::Draining => {}
        }
        match &range.pool {
            Some(own) if own.as_str() != pool => Err(Unpublished::OtherPool { prefix, pool: own.to_string() }),
            Some(_) | None => Ok(range),
        }
    }
}

/// How a book is another key's than the one that is known, and what to do.
fn other_key(known: &Book, book: &Book) -> String {
    let named = |book: &Book| book.signer().map_or_else(|| "no key".to_owned(), |key| key.to_string());
    format!(
        "is signed by {}, and what is published by {}: put back a copy; or, if the key was changed on purpose, start \
         this node again, and it takes the new one",
        named(book),
        named(known)
    )
}

/// Days before the end of a document's validity from which on somebody should renew it.
const RENEW_DAYS: i64 = 14;

/// Addresses that are named where they are not published: as many as somebody reads.
const NAMED_MAX: usize = 20;

/// The book as it was last seen whole. A file that is damaged, gone, or older than what was seen changes nothing but
/// what is said about it: what was published stays published.
#[derive(Debug)]
pub struct Shelf {
    path: PathBuf,
    good: ArcSwapOption<Published>,
    /// Held by whoever looks: one reads at a time.
    looking: Mutex<()>,
    /// Held for a moment: readyz and metrics ask.
    seen: Mutex<Seen>,
    changes: watch::Sender<u64>,
    /// Configured addresses that calls do not leave from because of the book.
    unpublished: Mutex<Vec<String>>,
}

#[derive(Debug, Default, Clone)]
struct Seen {
    version: Option<Version>,
    fault: Option<String>,
    /// How many more looks pass before the same file is read again; none: only another one is. What is damaged stays so,
    /// and is large. It is read twice, though: whoever writes in place may have been in the middle, within one tick of
    /// the clock that tells versions apart. A disk that failed is asked again.
    looks_left: Option<u8>,
}

/// Five seconds.
const LOOKS_UNTIL_READ_AGAIN: u8 = 20;

impl Shelf {
    /// Looks at the file of a book, which need not be there.
    pub fn open(path: &Path) -> Self {
        let shelf = Self {
            path: path.to_owned(),
            good: ArcSwapOption::empty(),
            looking: Mutex::default(),
            seen: Mutex::default(),
            changes: watch::Sender::new(0),
            unpublished: Mutex::default(),
        };
        shelf.look();
        shelf
    }

    /// What is published.
    pub fn current(&self) -> Option<Arc<Published>> {
        self.good.load_full()
    }

    /// What is wrong with the file, if anything is.
    pub fn fault(&self) -> Option<String> {
        self.seen().fault.clone()
    }

    /// What configuration is judged by.
    pub fn found(&self) -> BookFound {
        match (self.current(), self.fault()) {
            (Some(good), _) => BookFound::Good(good),
            (None, Some(fault)) => BookFound::Faulty(fault),
            (None, None) => BookFound::None,
        }
    }

    /// A number that changes with the book.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Looks at the file for ever, every [`LOOK_EVERY`](crate::LOOK_EVERY).
    pub async fn keep_looking(self: Arc<Self>) {
        keep_looking(self, "exit ranges", Self::look).await;
    }

    /// Looks once: reads the file again if it is another one. Whoever asks what is wrong meanwhile does not wait for it.
    pub fn look(&self) {
        self.look_by(file::read);
    }

    /// The same, by what reads the file.
    pub(super) fn look_by(&self, read: impl Fn(&Path) -> Result<Option<Book>, BookFault>) {
        let _alone = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        // Only who looks changes this.
        let before = self.seen().clone();
        let found = Version::of(&self.path);
        let is_told = found.is_ok();
        let version = found.ok().flatten();
        let is_same = version == before.version;
        // Where the system does not say which file it is, reading says why.
        if is_same && before.looks_left.map_or(is_told, |left| left > 0) {
            let looks_left = before.looks_left.map(|left| left - 1);
            self.seen().looks_left = looks_left;
            return;
        }
        let known = self.current();
        let read = read(&self.path);
        let is_io = matches!(read, Err(BookFault::Io { .. }));
        let fault = match (read, &known) {
            (Ok(None), None) => None,
            (Ok(None), Some(_)) => Some(format!("{}: was taken away", self.path.display())),
            (Ok(Some(book)), Some(known)) if !book.continues(known.book()) => {
                Some(format!("{}: {}", self.path.display(), file::goes_back(known.book(), &book)))
            }
            // Each line names its own key, so that anybody could continue a book with theirs.
            (Ok(Some(book)), Some(known)) if book.signer() != known.book().signer() => {
                Some(format!("{}: {}", self.path.display(), other_key(known.book(), &book)))
            }
            (Ok(Some(book)), known) => {
                let is_new = known.as_ref().is_none_or(|known| *known.book() != book);
                match Published::of(book) {
                    Some(published) if is_new => {
                        tracing::info!(serial = published.book().serial(), "the book of exit ranges has changed");
                        self.good.store(Some(Arc::new(published)));
                        self.changes.send_modify(|number| *number = number.wrapping_add(1));
                        None
                    }
                    Some(_) => None,
                    None => Some(format!("{}: holds no version", self.path.display())),
                }
            }
            (Err(fault), _) => Some(fault.to_string()),
        };
        if let Some(fault) = fault.as_ref().filter(|fault| before.fault.as_ref() != Some(*fault)) {
            tracing::error!(%fault, "the book of exit ranges cannot be taken; what was published stays");
        }
        let looks_left = match &fault {
            None => None,
            Some(_) if is_io => Some(LOOKS_UNTIL_READ_AGAIN),
            Some(_) => (!is_same).then_some(0),
        };
        *self.seen() = Seen { version, fault, looks_left };
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps which configured addresses calls do not leave from, for whoever asks what is wrong.
    pub fn tell_unpublished(&self, addresses: Vec<String>) {
        *self.unpublished.lock().unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    /// How many these are.
    pub fn unpublished(&self) -> usize {
        self.unpublished.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// What somebody should look at, a line each, in bounds.
    pub fn alarms(&self, now: At) -> Vec<String> {
        let mut alarms: Vec<String> = self.fault().map(|fault| format!("egress ranges: {fault}")).into_iter().collect();
        let until = self.current().and_then(|published| published.book().valid_until());
        if let Some(until) = until.filter(|until| until.days_from(now) < RENEW_DAYS) {
            alarms.push(format!(
                "egress ranges: the published document is valid until {until}: `tidegate egress ranges renew`"
            ));
        }
        let unpublished = self.unpublished.lock().unwrap_or_else(PoisonError::into_inner);
        alarms.extend(unpublished.iter().take(NAMED_MAX).map(|address| format!("egress ranges: {address}")));
        if unpublished.len() > NAMED_MAX {
            alarms.push(format!("egress ranges: and {} addresses more", unpublished.len() - NAMED_MAX));
        }
        alarms
    }
}
