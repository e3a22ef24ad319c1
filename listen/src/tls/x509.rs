//! The two facts of a certificate that the TLS library keeps to itself: when it is good, and the names in it (RFC 5280,
//! §4.1.2.5 and §4.2.1.6).
//!
//! What is read here was read by rustls before, and a client's was verified. It is read with bounds all the same, and what
//! is not as it should be is not there.

use domain::der::{OBJECT_IDENTIFIER, OCTET_STRING, Reader, SEQUENCE};

/// Names of one certificate that are looked at: more than anybody puts into one.
const NAMES_MAX: usize = 64;

/// `id-ce-subjectAltName`, 2.5.29.17.
const SUBJECT_ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const NAME_EMAIL: u8 = 0x81;
const NAME_DNS: u8 = 0x82;
const NAME_URI: u8 = 0x86;

/// From when to when a certificate says that it is good, in seconds since the Unix epoch; both are within.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    pub not_before_unix_s: i64,
    pub not_after_unix_s: i64,
}

impl Validity {
    /// Of a certificate in DER.
    pub(super) fn of(certificate: &[u8]) -> Option<Self> {
        let mut fields = ToBeSigned::of(certificate)?.0;
        // Serial number, signature, issuer.
        for _ in 0..3 {
            fields.next()?;
        }
        let mut validity = Reader::of(fields.expect(SEQUENCE)?);
        Some(Self { not_before_unix_s: time(validity.next()?)?, not_after_unix_s: time(validity.next()?)? })
    }
}

/// The names of a certificate in DER, with their kinds: `dns:`, `uri:`, `email:`. Those that are not printable ASCII are
/// left out: nobody could write them into a file byte for byte.
pub(super) fn names(certificate: &[u8]) -> Vec<Box<str>> {
    read_names(certificate).unwrap_or_default()
}

fn read_names(certificate: &[u8]) -> Option<Vec<Box<str>>> {
    let fields = ToBeSigned::of(certificate)?.0;
    let (_, extensions) = fields.into_iter().find(|(tag, _)| *tag == EXTENSIONS)?;
    let extensions = Reader::of(Reader::of(extensions).expect(SEQUENCE)?);
    let names = extensions.into_iter().find_map(|(tag, extension)| {
        let mut parts = Reader::of(Some(extension).filter(|_| tag == SEQUENCE)?);
        let is_it = parts.expect(OBJECT_IDENTIFIER)? == SUBJECT_ALTERNATIVE_NAME;
        // Between the two may be whether it is critical.
        let (_, value) = parts.into_iter().find(|(tag, _)| *tag == OCTET_STRING).filter(|_| is_it)?;
        Reader::of(value).expect(SEQUENCE)
    })?;
    let names = Reader::of(names).filter_map(|(tag, name)| {
        let kind = match tag {
            NAME_EMAIL => "email",
            NAME_DNS => "dns",
            NAME_URI => "uri",
            _ => return None,
        };
        let text = std::str::from_utf8(name).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()))?;
        Some(format!("{kind}:{text}").into())
    });
    Some(names.take(NAMES_MAX).collect())
}

/// Behind the version: the fields of what a certificate's signature is over.
struct ToBeSigned<'c>(Reader<'c>);

impl<'c> ToBeSigned<'c> {
    fn of(certificate: &'c [u8]) -> Option<Self> {
        let mut whole = Reader::of(Reader::of(certificate).expect(SEQUENCE)?);
        let mut fields = Reader::of(whole.expect(SEQUENCE)?);
        if fields.rest().first() == Some(&VERSION) {
            fields.next()?;
        }
        Some(Self(fields))
    }
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`, as RFC 5280 has them.
fn time((tag, text): (u8, &[u8])) -> Option<i64> {
    let digits = text.strip_suffix(b"Z").filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    let number = |digits: &[u8]| digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
    let (year, rest) = match (tag, digits.len()) {
        // Two digits of a year before 2050 (RFC 5280, §4.1.2.5.1).
        (UTC_TIME, 12) => match number(&digits[..2]) {
            year @ 50.. => (1900 + year, &digits[2..]),
            year => (2000 + year, &digits[2..]),
        },
        (GENERALIZED_TIME, 14) => (number(&digits[..4]), &digits[4..]),
        _ => return None,
    };
    let [month, day, hour, minute, second] = [0, 2, 4, 6, 8].map(|at| number(&rest[at..at + 2]));
    let sound = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    sound.then(|| days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Days since 1970-01-01 of a date of the Gregorian calendar. Years begin in March here, so that a leap day is the last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, SanType, date_time_ymd};

    fn made(change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
        let mut params = CertificateParams::default();
        change(&mut params);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for (date, expected) in [
            ((1970, 1, 1), 0),
            ((1970, 3, 1), 59),
            ((1972, 2, 29), 789),
            ((2000, 2, 29), 11_016),
            ((2000, 3, 1), 11_017),
            ((2026, 11, 30), 20_787),
            ((2100, 3, 1), 47_541),
        ] {
            assert_eq!(days(date.0, date.1, date.2), expected, "{date:?}");
        }
    }

    #[test]
    fn a_certificate_says_when_it_is_good() {
        // The first ends in the form with two digits of a year, the second in the one with four.
        for (from, to, expected) in [
            ((2020, 1, 2), (2049, 12, 31), (1_577_923_200, 2_524_521_600)),
            ((1975, 1, 1), (2050, 1, 1), (157_766_400, 2_524_608_000)),
        ] {
            let der = made(|params| {
                params.not_before = date_time_ymd(from.0, from.1, from.2);
                params.not_after = date_time_ymd(to.0, to.1, to.2);
            });
            let validity = Validity::of(&der).unwrap();
            assert_eq!((validity.not_before_unix_s, validity.not_after_unix_s), expected);
        }
    }

    #[test]
    fn names_have_their_kinds_and_are_as_they_were_written() {
        let der = made(|params| {
            params.subject_alt_names = vec![
                SanType::DnsName("Runner.example.com".try_into().unwrap()),
                SanType::URI("spiffe://example.com/runner".try_into().unwrap()),
                SanType::IpAddress("192.0.2.1".parse().unwrap()),
                SanType::Rfc822Name("ops@example.com".try_into().unwrap()),
                SanType::URI("a b".try_into().unwrap()),
            ];
        });
        let names = names(&der);
        assert_eq!(
            names.iter().map(|name| &**name).collect::<Vec<_>>(),
            ["dns:Runner.example.com", "uri:spiffe://example.com/runner", "email:ops@example.com"]
        );
        assert!(super::names(&made(|_| ())).is_empty());
    }

    #[test]
    fn what_is_cut_or_broken_has_no_facts_and_breaks_nothing() {
        let der = made(|params| params.subject_alt_names = vec![SanType::DnsName("a.test".try_into().unwrap())]);
        for cut in 0..der.len() {
            assert_eq!(Validity::of(&der[..cut]), None, "{cut}");
            assert!(names(&der[..cut]).is_empty(), "{cut}");
        }
        for at in 0..der.len() {
            for byte in [0, 0x30, 0x7f, 0x80, 0x84, 0xff] {
                let mut broken = der.clone();
                broken[at] = byte;
                let _any = (Validity::of(&broken), names(&broken));
            }
        }
    }

    #[test]
    fn times_are_the_two_forms_and_nothing_else() {
        assert_eq!(time((UTC_TIME, b"700101000000Z")), Some(0));
        assert_eq!(time((GENERALIZED_TIME, b"19700101000001Z")), Some(1));
        for (tag, text) in [
            (UTC_TIME, &b"700101000000"[..]),
            (UTC_TIME, b"7001010000Z"),
            (UTC_TIME, b"19700101000000Z"),
            (UTC_TIME, b"701301000000Z"),
            (UTC_TIME, b"70010100000aZ"),
            (GENERALIZED_TIME, b"700101000000Z"),
            (GENERALIZED_TIME, b"19700101240000Z"),
            (0x02, b"700101000000Z"),
        ] {
            assert_eq!(time((tag, text)), None, "{}", text.escape_ascii());
        }
    }
}
