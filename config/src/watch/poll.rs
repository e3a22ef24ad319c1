//! Looking instead of listening: where changes are made by another machine, nobody tells this one.

use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::Watched;

/// File systems whose changes other machines make, by their numbers in `statfs`: NFS, CIFS, SMB2, FUSE, 9P, AFS, Ceph.
const REMOTE: [u64; 7] = [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546, 0x0102_1997, 0x5346_414f, 0x00c3_6400];

pub(super) fn is_remote(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|stat| REMOTE.contains(&(u64::try_from(stat.f_type).unwrap_or(0) & 0xffff_ffff)))
}

/// A number that is another one when a file was written, replaced, added or taken away, as far as its metadata says.
pub(super) fn look(watched: &Watched) -> u64 {
    let Watched { file, tenants, others } = watched;
    let mut sum = one(file, fs::metadata(file).ok().as_ref());
    for other in others {
        sum = sum.wrapping_add(one(other, fs::metadata(other).ok().as_ref()));
    }
    // Also that it is there, and the same: empty, it has no entries to tell.
    sum = sum.wrapping_add(one(tenants, fs::metadata(tenants).ok().as_ref()));
    for entry in fs::read_dir(tenants).into_iter().flatten().flatten() {
        let path = entry.path();
        let meta = fs::metadata(&path).ok();
        sum = sum.wrapping_add(one(&path, meta.as_ref()));
        if meta.is_some_and(|meta| meta.is_dir()) {
            for secret in fs::read_dir(&path).into_iter().flatten().flatten() {
                sum = sum.wrapping_add(one(&secret.path(), fs::metadata(secret.path()).ok().as_ref()));
            }
        }
    }
    sum
}

/// Summed, since directories are listed in any order.
fn one(path: &Path, meta: Option<&Metadata>) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    let facts =
        meta.map(|meta| (meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()));
    facts.hash(&mut hasher);
    hasher.finish()
}
