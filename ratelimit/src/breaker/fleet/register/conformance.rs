//! What every register must do, as tests that run over any of them.
//!
//! A keeper joins by implementing [`Subject`] and expanding [`register_conformance!`](crate::register_conformance) in
//! its tests.

#![allow(clippy::panic, reason = "a scenario fails by it, in the tests of another crate as well")]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::ConnectorId;
use futures_util::future::join_all;

use super::{Kept, Register, VALUE_BYTES_MAX, Written};
use crate::pair::ProviderKey;
use crate::quota::AskError;

/// A register under test.
#[async_trait]
pub trait Subject: Send {
    fn register(&self) -> Arc<dyn Register>;

    /// Lets so many ms of the keeper's clock pass.
    async fn pass(&mut self, ms: u64);
}

/// Expands to one test per scenario over the subject that the expression makes.
#[macro_export]
macro_rules! register_conformance {
    ($subject:expr) => {
        $crate::register_conformance! { @each $subject;
            what_was_never_written_is_of_version_zero,
            a_write_is_done_at_its_version_and_no_other,
            of_many_writers_one_is_done,
            a_value_is_forgotten_when_its_time_is_over,
            no_version_comes_again,
            providers_are_apart,
            a_value_is_bounded,
        }
    };
    (@each $subject:expr; $($scenario:ident,)*) => {
        $(
            #[tokio::test]
            async fn $scenario() {
                let mut subject = $subject;
                $crate::breaker::fleet::conformance::$scenario(&mut subject).await;
            }
        )*
    };
}

const LONG: Duration = Duration::from_mins(1);

/// A provider by its connector's name.
#[allow(clippy::missing_panics_doc, reason = "it is for tests, whose names are names")]
pub fn provider(name: &str) -> ProviderKey {
    let Ok(connector) = ConnectorId::parse(name) else { panic!("{name} is no connector's name") };
    ProviderKey::of(&connector)
}

async fn read(subject: &dyn Subject, of: &str) -> Kept {
    match subject.register().read(provider(of)).await {
        Ok(kept) => kept,
        Err(error) => panic!("{error}"),
    }
}

async fn write(subject: &dyn Subject, of: &str, expected: u64, bytes: &[u8], ttl: Duration) -> Written {
    match subject.register().write(provider(of), expected, bytes, ttl).await {
        Ok(written) => written,
        Err(error) => panic!("{error}"),
    }
}

async fn done(subject: &dyn Subject, of: &str, expected: u64, bytes: &[u8], ttl: Duration) -> u64 {
    match write(subject, of, expected, bytes, ttl).await {
        Written::Done { version } => version,
        Written::Newer(kept) => panic!("{kept:?} is newer"),
    }
}

pub async fn what_was_never_written_is_of_version_zero(subject: &mut impl Subject) {
    let first = read(subject, "a").await;
    assert_eq!((first.version, first.bytes), (0, Vec::new()));
    subject.pass(200).await;
    let passed_ms = read(subject, "a").await.now_ms - first.now_ms;
    assert!((200..5_000).contains(&passed_ms), "{passed_ms} ms");
}

pub async fn a_write_is_done_at_its_version_and_no_other(subject: &mut impl Subject) {
    let first = done(subject, "a", 0, b"first\0\xff", LONG).await;
    assert!(first > 0);
    let kept = read(subject, "a").await;
    assert_eq!((kept.version, kept.bytes.as_slice()), (first, b"first\0\xff".as_slice()));
    for wrong in [0, first - 1, first + 1, u64::MAX] {
        let Written::Newer(kept) = write(subject, "a", wrong, b"other", LONG).await else { panic!("{wrong}") };
        assert_eq!((kept.version, kept.bytes.as_slice()), (first, b"first\0\xff".as_slice()), "{wrong}");
    }
    let second = done(subject, "a", first, b"", LONG).await;
    assert!(second > first);
    let kept = read(subject, "a").await;
    assert_eq!((kept.version, kept.bytes.len()), (second, 0), "an empty value is one");
}

pub async fn of_many_writers_one_is_done(subject: &mut impl Subject) {
    let mut version = 0;
    for _ in 0..5 {
        let register = subject.register();
        let values: Vec<_> = (0..20_u8).map(|writer| [writer]).collect();
        let writes = values.iter().map(|value| register.write(provider("a"), version, value, LONG));
        let mut winners = Vec::new();
        for (writer, written) in join_all(writes).await.into_iter().enumerate() {
            match written {
                Ok(Written::Done { version }) => winners.push((writer, version)),
                Ok(Written::Newer(kept)) => assert_ne!(kept.version, version),
                Err(error) => panic!("{error}"),
            }
        }
        let [(winner, of)] = winners.as_slice() else { panic!("{winners:?}") };
        assert_eq!(read(subject, "a").await.bytes, values[*winner]);
        version = *of;
    }
}

pub async fn a_value_is_forgotten_when_its_time_is_over(subject: &mut impl Subject) {
    let short = Duration::from_millis(300);
    let first = done(subject, "a", 0, b"x", short).await;
    assert_eq!(read(subject, "a").await.version, first);
    subject.pass(400).await;
    let kept = read(subject, "a").await;
    assert_eq!((kept.version, kept.bytes.len()), (0, 0));
    let Written::Newer(kept) = write(subject, "a", first, b"y", LONG).await else { panic!("it was forgotten") };
    assert_eq!(kept.version, 0);
    // Each write begins it anew.
    let first = done(subject, "a", 0, b"x", short).await;
    let second = done(subject, "a", first, b"y", LONG).await;
    subject.pass(400).await;
    assert_eq!(read(subject, "a").await.version, second);
}

pub async fn no_version_comes_again(subject: &mut impl Subject) {
    let mut last = 0;
    for _ in 0..5 {
        let first = done(subject, "a", 0, b"x", Duration::from_millis(20)).await;
        assert!(first > last, "{first} after {last}");
        last = first;
        subject.pass(50).await;
    }
}

pub async fn providers_are_apart(subject: &mut impl Subject) {
    done(subject, "a", 0, b"of a", LONG).await;
    assert_eq!(read(subject, "b").await.version, 0);
    done(subject, "b", 0, b"of b", LONG).await;
    assert_eq!(read(subject, "a").await.bytes, b"of a");
}

pub async fn a_value_is_bounded(subject: &mut impl Subject) {
    let whole: Vec<u8> = (0..=u8::MAX).cycle().take(VALUE_BYTES_MAX).collect();
    done(subject, "a", 0, &whole, LONG).await;
    assert_eq!(read(subject, "a").await.bytes, whole);
    let longer = vec![0; VALUE_BYTES_MAX + 1];
    let refused = subject.register().write(provider("b"), 0, &longer, LONG).await;
    assert!(matches!(refused, Err(AskError::Store(_))), "{refused:?}");
    assert_eq!(read(subject, "b").await.version, 0);
}
