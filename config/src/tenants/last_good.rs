//! The last good version of each tenant's file, kept across restarts.
//!
//! One append-only file, so that 100,000 tenants cost one write and one sync, not 100,000:
//!
//! ```text
//! tidegate-last-good 1
//! good acme 312 5b0c…32 hex digits…
//! …the 312 bytes of the file…
//! gone beta 0 9d41…
//! ```
//!
//! The digits are BLAKE3 over kind, tenant, length and bytes. A later record of a tenant replaces an earlier one. It
//! holds copies of files, and so references and never secrets. Reading stops at the first record that does not check:
//! the bytes are tenants' text, which could be made to look like a record of somebody else if one searched on. What
//! is behind it is written anew by the load that found it, since the files themselves are still there.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use domain::TenantId;
use rustix::fs::FlockOperation;

use crate::read::{self, Unreadable};

const MAGIC: &str = "tidegate-last-good 1\n";

/// No record's first line is longer: kind, id, length, digits.
const HEAD_BYTES_MAX: u64 = 256;

/// Larger than any tenant's file that the loader takes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Replaced records are carried along until they are most of the file and more than this.
const GARBAGE_BYTES_MIN: u64 = 16 << 20;

/// Of a record's content: equal if and only if the file is.
pub(crate) type ContentHash = [u8; 16];

/// Device and inode.
pub(crate) type Which = Option<(u64, u64)>;

#[derive(Debug)]
pub(crate) struct LastGood {
    directory: PathBuf,
    garbage: u64,
}

/// What is kept, as far as it checks.
#[derive(Debug)]
pub(crate) struct Index {
    entries: HashMap<TenantId, Entry>,
    file: Option<File>,
    /// Where the last record that checks ends.
    end: u64,
    live: u64,
    /// Whether something behind the end does not check.
    pub(crate) damaged: bool,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    offset: u64,
    bytes: u64,
    hash: ContentHash,
}

/// One thing to be kept.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Record<'r> {
    Good(&'r TenantId, &'r [u8]),
    Gone(&'r TenantId),
}

pub(crate) fn content_hash(tenant: &TenantId, bytes: &[u8]) -> ContentHash {
    hash(&Record::Good(tenant, bytes))
}

fn hash(record: &Record<'_>) -> ContentHash {
    let mut hasher = blake3::Hasher::new();
    let (kind, tenant, bytes) = record.parts();
    hasher.update(format!("{kind} {tenant} {}\n", bytes.len()).as_bytes()).update(bytes);
    let mut short = [0; 16];
    short.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    short
}

impl<'r> Record<'r> {
    fn parts(&self) -> (&'static str, &'r TenantId, &'r [u8]) {
        match self {
            Self::Good(tenant, bytes) => ("good", tenant, bytes),
            Self::Gone(tenant) => ("gone", tenant, &[]),
        }
    }

    fn write(&self, out: &mut impl Write) -> io::Result<u64> {
        let (kind, tenant, bytes) = self.parts();
        let head = format!("{kind} {tenant} {} {:032x}\n", bytes.len(), u128::from_be_bytes(hash(self)));
        out.write_all(head.as_bytes())?;
        out.write_all(bytes)?;
        out.write_all(b"\n")?;
        Ok((head.len() + bytes.len() + 1) as u64)
    }
}

impl LastGood {
    pub(crate) fn new(directory: &Path) -> Self {
        Self { directory: directory.into(), garbage: 0 }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join("tenants.last-good")
    }

    /// Whether it is there. It is not once somebody cleared the directory: then everything has to be kept anew.
    pub(crate) fn is_there(&self) -> bool {
        !fs::symlink_metadata(self.path()).is_err_and(|fault| fault.kind() == io::ErrorKind::NotFound)
    }

    /// Which file it is; none where there is none. Another one may hold what this one does not, as where a volume is
    /// mounted again.
    pub(crate) fn which(&self) -> Which {
        fs::metadata(self.path()).ok().map(|meta| (meta.dev(), meta.ino()))
    }

    /// Reads what is kept; nothing is fine.
    pub(crate) fn index(&mut self) -> io::Result<Index> {
        let index = Index::read(&self.path())?;
        self.garbage = index.end.saturating_sub(index.live);
        Ok(index)
    }

    /// What is kept now, for a look at a tenant's text.
    pub(crate) fn look(&self) -> io::Result<Index> {
        Index::read(&self.path())
    }

    /// Keeps records; they are durable when this returns. `index` is what [`Self::index`] said, where it was just
    /// read: then what does not check is cut off first.
    pub(crate) fn append<'r>(
        &mut self,
        records: impl Iterator<Item = Record<'r>>,
        index: Option<&Index>,
    ) -> io::Result<()> {
        let mut records = records.peekable();
        if records.peek().is_none() && index.is_none_or(|index| !index.damaged) {
            return Ok(());
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let _lock = self.lock()?;
        let mut file = open(OpenOptions::new().create(true).truncate(false).read(true).write(true), &self.path())?;
        let mut end = file.metadata()?.len();
        if let Some(index) = index.filter(|index| index.damaged) {
            file.set_len(index.end)?;
            end = index.end;
        }
        let start = end;
        file.seek(SeekFrom::Start(end))?;
        let written = write_all(&file, end == 0, records);
        match written {
            Ok((bytes, replaced)) => {
                end += bytes;
                self.garbage += replaced;
            }
            Err(fault) => {
                // Half a record at the end would hide whatever is written behind it.
                file.set_len(start)?;
                return Err(fault);
            }
        }
        if start == 0 {
            File::open(&self.directory)?.sync_all()?;
        }
        if self.garbage > GARBAGE_BYTES_MIN && self.garbage > end / 2 { self.compact() } else { Ok(()) }
    }

    /// Two processes of one appliance overlap for a moment at an upgrade.
    fn lock(&self) -> io::Result<File> {
        let path = self.directory.join("tenants.lock");
        let file = open(OpenOptions::new().create(true).truncate(false).write(true), &path)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    }

    /// Writes the current records anew and puts that file in the place of the old one.
    fn compact(&mut self) -> io::Result<()> {
        let index = Index::read(&self.path())?;
        let fresh = self.directory.join("tenants.last-good.new");
        let file = open(OpenOptions::new().create(true).truncate(true).write(true), &fresh)?;
        let mut out = BufWriter::new(&file);
        out.write_all(MAGIC.as_bytes())?;
        for tenant in index.entries.keys() {
            if let Some(bytes) = index.read_one(tenant)? {
                Record::Good(tenant, &bytes).write(&mut out)?;
            }
        }
        out.flush()?;
        drop(out);
        file.sync_all()?;
        fs::rename(&fresh, self.path())?;
        File::open(&self.directory)?.sync_all()?;
        self.garbage = 0;
        Ok(())
    }
}

/// Opens a regular file to write it. Opened without waiting, then looked at: a pipe in its place hangs nobody.
fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let waits_not = rustix::fs::OFlags::NONBLOCK.union(rustix::fs::OFlags::NOCTTY).bits();
    let file = options.mode(0o600).custom_flags(waits_not.cast_signed()).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::Unsupported, Unreadable::NotAFile))
    }
}

fn write_all<'r>(file: &File, new: bool, records: impl Iterator<Item = Record<'r>>) -> io::Result<(u64, u64)> {
    let mut out = BufWriter::with_capacity(1 << 18, file);
    let mut bytes = 0;
    if new {
        out.write_all(MAGIC.as_bytes())?;
        bytes += MAGIC.len() as u64;
    }
    let mut replaced = 0;
    for record in records {
        let length = record.write(&mut out)?;
        bytes += length;
        // On a new file nothing is replaced; later on nearly every record replaces one of about its size.
        replaced += if new { 0 } else { length };
    }
    out.flush()?;
    drop(out);
    file.sync_all()?;
    Ok((bytes, replaced))
}

impl Index {
    pub(crate) fn empty() -> Self {
        Self { entries: HashMap::new(), file: None, end: 0, live: 0, damaged: false }
    }

    fn read(path: &Path) -> io::Result<Self> {
        let file = match read::regular(path) {
            Ok(file) => file,
            Err(Unreadable::Missing) => return Ok(Self::empty()),
            Err(Unreadable::Io(fault)) => return Err(fault),
            // As the system says it of what is there and cannot be what is asked for.
            Err(fault) => return Err(io::Error::new(io::ErrorKind::Unsupported, fault)),
        };
        let length = file.metadata()?.len();
        let mut reader = BufReader::with_capacity(1 << 18, &file);
        let mut index = Self::empty();
        let mut magic = Vec::new();
        reader.by_ref().take(MAGIC.len() as u64).read_to_end(&mut magic)?;
        if magic == MAGIC.as_bytes() {
            index.end = MAGIC.len() as u64;
            let mut content = Vec::new();
            while index.read_record(&mut reader, &mut content)?.is_some() {}
        }
        index.damaged = index.end < length;
        index.file = Some(file);
        Ok(index)
    }

    /// Reads the next record; none where nothing follows that checks.
    fn read_record(&mut self, reader: &mut impl BufRead, content: &mut Vec<u8>) -> io::Result<Option<()>> {
        let mut head = String::new();
        match reader.take(HEAD_BYTES_MAX).read_line(&mut head) {
            Ok(_) => {}
            Err(fault) if fault.kind() == io::ErrorKind::InvalidData => return Ok(None),
            Err(fault) => return Err(fault),
        }
        let Some((kind, tenant, bytes, expected)) = parse_head(&head) else { return Ok(None) };
        content.clear();
        reader.take(bytes + 1).read_to_end(content)?;
        if content.len() as u64 != bytes + 1 || content.pop() != Some(b'\n') {
            return Ok(None);
        }
        let record = if kind == "good" { Record::Good(&tenant, content) } else { Record::Gone(&tenant) };
        if hash(&record) != expected || (kind == "gone" && bytes != 0) {
            return Ok(None);
        }
        let offset = self.end + head.len() as u64;
        self.end = offset + bytes + 1;
        let size = |entry: &Entry| entry.bytes + HEAD_BYTES_MAX / 2;
        let old = match record {
            Record::Good(..) => {
                let entry = Entry { offset, bytes, hash: expected };
                self.live += size(&entry);
                self.entries.insert(tenant, entry)
            }
            Record::Gone(_) => self.entries.remove(&tenant),
        };
        self.live -= old.as_ref().map_or(0, size);
        Ok(Some(()))
    }

    pub(crate) fn tenants(&self) -> impl Iterator<Item = &TenantId> {
        self.entries.keys()
    }

    pub(crate) fn has(&self, tenant: &TenantId) -> bool {
        self.entries.contains_key(tenant)
    }

    /// Whether exactly these bytes are kept for the tenant.
    pub(crate) fn holds(&self, tenant: &TenantId, bytes: &[u8]) -> bool {
        self.entries.get(tenant).is_some_and(|entry| entry.hash == content_hash(tenant, bytes))
    }

    /// The last good version of a tenant's file.
    pub(crate) fn read_one(&self, tenant: &TenantId) -> io::Result<Option<Vec<u8>>> {
        use std::os::unix::fs::FileExt;
        let Some((entry, file)) = self.entries.get(tenant).zip(self.file.as_ref()) else { return Ok(None) };
        let mut bytes = vec![0; usize::try_from(entry.bytes).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, entry.offset)?;
        Ok((content_hash(tenant, &bytes) == entry.hash).then_some(bytes))
    }
}

fn parse_head(head: &str) -> Option<(&str, TenantId, u64, ContentHash)> {
    let mut parts = head.strip_suffix('\n')?.split(' ');
    let kind = parts.next().filter(|kind| matches!(*kind, "good" | "gone"))?;
    let tenant = TenantId::parse(parts.next()?).ok()?;
    let bytes = parts.next()?.parse().ok().filter(|bytes| *bytes <= FILE_BYTES_MAX)?;
    let digits = parts.next().filter(|digits| digits.len() == 32)?;
    let hash = u128::from_str_radix(digits, 16).ok()?.to_be_bytes();
    parts.next().is_none().then_some((kind, tenant, bytes, hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> TenantId {
        TenantId::parse(text).unwrap()
    }

    fn contents(directory: &Path) -> Vec<(String, Vec<u8>)> {
        let index = LastGood::new(directory).index().unwrap();
        let mut all: Vec<_> =
            index.tenants().map(|tenant| (tenant.to_string(), index.read_one(tenant).unwrap().unwrap())).collect();
        all.sort();
        all
    }

    #[test]
    fn a_cut_anywhere_keeps_what_was_whole_and_can_be_written_behind() {
        let directory = tempfile::tempdir().unwrap();
        let (a, b) = (id("a"), id("b"));
        let mut kept = LastGood::new(directory.path());
        let records = [Record::Good(&a, b"one\n"), Record::Good(&b, b"two"), Record::Good(&a, b""), Record::Gone(&b)];
        kept.append(records.into_iter(), None).unwrap();
        assert_eq!(contents(directory.path()), [("a".to_owned(), Vec::new())]);
        let whole = fs::read(kept.path()).unwrap();
        let mut seen = Vec::new();
        for cut in 0..=whole.len() {
            fs::write(kept.path(), &whole[..cut]).unwrap();
            let index = LastGood::new(directory.path()).index().unwrap();
            if seen.last() != Some(&contents(directory.path())) {
                seen.push(contents(directory.path()));
            }
            kept.append([Record::Good(&id("c"), b"c")].into_iter(), Some(&index)).unwrap();
            let after = contents(directory.path());
            assert!(after.contains(&("c".into(), b"c".to_vec())), "cut at {cut}");
            assert_eq!(after.len(), seen.last().unwrap().len() + 1, "cut at {cut}");
            assert!(!LastGood::new(directory.path()).index().unwrap().damaged);
        }
        // However much of it does not check, nothing of it is left behind what is written next.
        fs::write(kept.path(), [&whole[..], &[b'x'; 4096]].concat()).unwrap();
        let index = LastGood::new(directory.path()).index().unwrap();
        assert!(index.damaged);
        kept.append([Record::Good(&b, b"b")].into_iter(), Some(&index)).unwrap();
        assert!(!LastGood::new(directory.path()).index().unwrap().damaged);
        let states: Vec<Vec<_>> =
            seen.iter().map(|s| s.iter().map(|(t, c)| format!("{t}={}", c.escape_ascii())).collect()).collect();
        assert_eq!(
            states,
            [
                vec![],
                vec!["a=one\\n".to_owned()],
                vec!["a=one\\n".into(), "b=two".into()],
                vec!["a=".into(), "b=two".into()],
                vec!["a=".into()]
            ]
        );
    }

    #[test]
    fn a_tenants_text_cannot_speak_for_another() {
        let directory = tempfile::tempdir().unwrap();
        let (a, b) = (id("a"), id("b"));
        let mut forged = Vec::new();
        Record::Good(&b, b"forged").write(&mut forged).unwrap();
        let mut kept = LastGood::new(directory.path());
        kept.append([Record::Good(&b, b"true"), Record::Good(&a, &forged)].into_iter(), None).unwrap();
        assert_eq!(contents(directory.path())[1], ("b".to_owned(), b"true".to_vec()));
        // The head of the record around it is damaged: what is inside stays inside.
        let mut bytes = fs::read(kept.path()).unwrap();
        let at = bytes.windows(7).position(|w| w == b"good a ").unwrap();
        bytes[at + 5] = b'x';
        fs::write(kept.path(), bytes).unwrap();
        assert_eq!(contents(directory.path()), [("b".to_owned(), b"true".to_vec())]);
    }

    #[test]
    fn replaced_records_do_not_grow_it_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let a = id("a");
        let mut kept = LastGood::new(directory.path());
        let large = vec![b'x'; 4 << 20];
        for _ in 0..12 {
            kept.append([Record::Good(&a, &large)].into_iter(), None).unwrap();
        }
        assert!(fs::metadata(kept.path()).unwrap().len() < 24 << 20);
        assert_eq!(contents(directory.path())[0].1.len(), large.len());
    }
}
