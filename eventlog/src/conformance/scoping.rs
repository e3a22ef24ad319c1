//! Scopes: nobody reads what is somebody else's.

use super::{EPOCH_UNIX_MS, Subject, clock, commit, endpoint, event, ids, now_and_reopened, read, tenant};
use crate::error::ReadError;
use crate::log::{Filter, Scope, Start};

pub fn a_tenant_reads_its_own_and_nothing_else(subject: &mut dyn Subject) {
    let clock = clock();
    let log = subject.open(std::sync::Arc::clone(&clock));
    let names = ["acme", "globex", "initech"];
    for n in 0..90_u32 {
        let name = names[n as usize % 3];
        commit(&*log, event(name, &format!("wh_{name}"), EPOCH_UNIX_MS + u64::from(n), n));
    }
    now_and_reopened(subject, &clock, log, |log| {
        for name in names {
            let stored = read(log, Scope::Tenant(tenant(name)), Start::Earliest, Filter::default());
            assert_eq!(stored.len(), 30);
            assert!(stored.iter().all(|event| event.tenant.as_str() == name));
        }
        assert!(read(log, Scope::Tenant(tenant("nobody")), Start::Earliest, Filter::default()).is_empty());
        assert_eq!(read(log, Scope::Operator, Start::Earliest, Filter::default()).len(), 90);
    });
}

/// An endpoint that was moved from one tenant to another: what the old owner received stays the old owner's, and
/// the read stops there, loudly, again and again.
pub fn a_foreign_endpoint_halts_the_reader(subject: &mut dyn Subject) {
    let log = subject.open(clock());
    let first = commit(&*log, event("acme", "wh_moved", EPOCH_UNIX_MS, 1));
    let second = commit(&*log, event("globex", "wh_moved", EPOCH_UNIX_MS, 2));
    commit(&*log, event("acme", "wh_moved", EPOCH_UNIX_MS, 3));

    let scope = Scope::Tenant(tenant("acme"));
    let filter = Filter::endpoint(endpoint("wh_moved"));
    let mut reader = log.reader(scope, Start::Earliest, filter.clone()).expect("it reads");
    assert_eq!(reader.next().expect("its own comes first").map(|event| event.id), Some(first.id));
    let place = reader.cursor();
    let halted = Err(ReadError::ScopeMismatch { position: second.position.clone(), scope: tenant("acme") });
    assert_eq!(reader.next(), halted);
    assert_eq!(reader.next(), halted, "a halted reader stays halted");
    assert_eq!(reader.cursor(), place, "the place does not pass the record");
    assert!(halted.unwrap_err_text().contains(&second.position.to_string()), "the error names the position");
    // The operator sees all of them.
    assert_eq!(ids(&read(&*log, Scope::Operator, Start::Earliest, filter)).len(), 3);
}

pub fn a_foreign_id_is_not_told(subject: &mut dyn Subject) {
    let log = subject.open(clock());
    let theirs = commit(&*log, event("globex", "wh_1", EPOCH_UNIX_MS, 1));
    let refused = log.by_id(&Scope::Tenant(tenant("acme")), theirs.id);
    let expected = ReadError::ScopeMismatch { position: theirs.position.clone(), scope: tenant("acme") };
    assert_eq!(refused, Err(expected));
    let found = log.by_id(&Scope::Tenant(tenant("globex")), theirs.id).expect("it reads");
    assert_eq!(found.map(|event| event.id), Some(theirs.id));
}

trait ErrText {
    fn unwrap_err_text(&self) -> String;
}

impl<T> ErrText for Result<T, ReadError> {
    fn unwrap_err_text(&self) -> String {
        self.as_ref().err().map(ToString::to_string).unwrap_or_default()
    }
}
