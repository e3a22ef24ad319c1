//! The book against its rules, its file against crashes and each other, and the bytes that are published.

use std::net::IpAddr;
use std::path::Path;

use outbound::AddressTable;
use proptest::prelude::*;

use super::file::{self, BookFault, NotChanged, NotTaken, Trust};
use super::*;
use crate::caller::{PublicKey, SigningKey};
use crate::state_file;

const NOW: u64 = 1_764_424_000_000;
const DAY: u64 = 86_400;

const POLICY: Policy = Policy { notice_seconds: 30 * DAY, drain_seconds: 14 * DAY, validity_seconds: 180 * DAY };

/// RFC 8037 A.1: signatures of these tests are always the same.
fn key() -> SigningKey {
    let seed = "nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=";
    let der = [&hex("302e020100300506032b657004220420")[..], &data_encoding::BASE64.decode(seed.as_bytes()).unwrap()];
    let text = data_encoding::BASE64.encode(&der.concat());
    SigningKey::parse(format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n").as_bytes()).unwrap()
}

fn hex(text: &str) -> Vec<u8> {
    data_encoding::HEXLOWER.decode(text.as_bytes()).unwrap()
}

fn day(days: u64) -> At {
    At::of_unix_ms(NOW).plus(days * DAY)
}

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn announce(text: &str) -> Change {
    Change::Announce { prefix: prefix(text), pool: None, country: None, region: None, city: None }
}

fn announce_in(text: &str, pool: &str, country: &str, region: &str, city: &str) -> Change {
    let (pool, country) = (Some(pool.parse().unwrap()), Some(country.parse().unwrap()));
    Change::Announce { prefix: prefix(text), pool, country, region: region.parse().ok(), city: city.parse().ok() }
}

fn activate(text: &str) -> Change {
    Change::Activate { prefix: prefix(text) }
}

fn drain(text: &str) -> Change {
    Change::Drain { prefix: prefix(text) }
}

fn retire(text: &str) -> Change {
    Change::Retire { prefix: prefix(text) }
}

fn withdraw(text: &str) -> Change {
    Change::Withdraw { prefix: prefix(text) }
}

/// Pools as the configuration has them.
fn uses(pools: &str) -> Uses {
    let (appliance, faults) =
        config::parse_appliance(Path::new("tidegate.toml"), format!("[egress]\n{pools}").as_bytes());
    Uses::of(&appliance.unwrap_or_else(|| panic!("{faults:?}")).egress)
}

fn pool(name: &str, addresses: &str) -> String {
    format!("[[egress.pool]]\nname = \"{name}\"\naddresses = [{addresses}]\n")
}

struct Ask {
    uses: Uses,
    force: bool,
    reason: Option<&'static str>,
}

const PLAIN: fn() -> Ask = || Ask { uses: Uses::default(), force: false, reason: None };

fn try_to(book: &Book, change: Change, at: At, ask: &Ask) -> Result<Book, Broken> {
    let reason = ask.reason.map(|reason| reason.parse().unwrap());
    let table = AddressTable::shipped();
    let terms = Terms { at, force: ask.force, reason, policy: POLICY, uses: &ask.uses, table: &table };
    book.draft(change, terms).map(|draft| draft.sign(&key()))
}

/// A book of these changes, each on its day.
fn book(changes: Vec<(u64, Change)>) -> Book {
    let empty = Book::of("000102030405060708090a0b0c0d0e0f", Vec::new()).unwrap();
    changes.into_iter().fold(empty, |book, (on, change)| try_to(&book, change, day(on), &PLAIN()).unwrap())
}

const ONE: &str = "93.184.216.0/24";
const TWO: &str = "93.184.217.0/24";
const SIX: &str = "2600:1f00:1234::/48";

#[test]
fn a_range_goes_its_way_one_step_after_the_other() {
    let mut here = book(vec![(0, announce(ONE))]);
    let state = |book: &Book| book.range_of("93.184.216.7".parse().unwrap()).unwrap().state;
    assert_eq!(state(&here), State::Announced);
    assert_eq!(
        try_to(&here, activate(ONE), day(29), &PLAIN()),
        Err(Broken::ActiveTooEarly { prefix: prefix(ONE), from: day(30) })
    );
    for (on, change, is) in
        [(30, activate(ONE), State::Active), (40, drain(ONE), State::Draining), (54, retire(ONE), State::Retired)]
    {
        here = try_to(&here, change, day(on), &PLAIN()).unwrap();
        assert_eq!(state(&here), is);
    }
    let range = here.ranges().next().unwrap();
    let dates = (range.announced, range.active_from, range.active, range.draining, range.retire_from, range.retired);
    assert_eq!(dates, (day(0), day(30), Some(day(30)), Some(day(40)), Some(day(54)), Some(day(54))));
    // And once more, from the beginning.
    here = try_to(&here, announce(ONE), day(60), &PLAIN()).unwrap();
    assert_eq!((state(&here), here.ranges().count(), here.serial()), (State::Announced, 1, 5));
}

#[test]
fn every_rule_has_its_refusal() {
    let active = book(vec![(0, announce(ONE)), (1, announce(TWO)), (30, activate(ONE))]);
    let refused = |change: Change, on: u64, ask: &Ask| {
        let broken = try_to(&active, change, day(on), ask).expect_err("a rule");
        assert!(!broken.next().is_empty());
        (broken.code(), broken.to_string())
    };
    let code = |change: Change, on: u64| refused(change, on, &PLAIN()).0;
    // Skipped and repeated states.
    for change in [activate(ONE), retire(ONE), withdraw(ONE), drain(TWO), retire(TWO)] {
        assert_eq!(code(change.clone(), 90), "range-state", "{change:?}");
    }
    assert_eq!(code(activate(TWO), 30), "notice-not-over");
    assert_eq!(code(activate(SIX), 90), "range-unknown");
    let near = refused(activate("93.184.216.0/25"), 90, &PLAIN()).1;
    assert_eq!(near, "93.184.216.0/25 is not in the book; 93.184.216.0/24 is");
    // What overlaps, either way round.
    for text in [ONE, "93.184.216.128/25", "93.184.0.0/16"] {
        assert_eq!(code(announce(text), 90), "range-overlaps", "{text}");
    }
    for text in ["10.0.0.0/16", "198.51.100.0/24", "127.0.0.1/32", "2001:db8::/48", "192.0.0.0/16"] {
        assert_eq!(code(announce(text), 90), "range-not-public", "{text}");
    }
    assert_eq!(code(announce_in(SIX, "default", "DE", "US-CA", ""), 90), "place-unclear");
    assert_eq!(code(withdraw(TWO), 90), "reason-missing");
    assert_eq!(code(drain(ONE), 29), "clock-behind");
    let empty = Book::found().unwrap();
    assert_eq!(try_to(&empty, Change::Renew, day(0), &PLAIN()), Err(Broken::Empty));

    // What the configuration leaves from.
    let used = Ask { uses: uses(&pool("default", "{ v4 = \"93.184.216.7\" }")), ..PLAIN() };
    let (code, text) = refused(drain(ONE), 90, &used);
    assert_eq!(code, "range-last-active");
    assert!(text.contains("\"default\"") && text.contains("93.184.216.7"), "{text}");
    let forced = Ask { force: true, reason: Some("we want to"), ..used };
    assert_eq!(refused(drain(ONE), 90, &forced).0, "range-last-active", "force is for notices alone");
    let draining = try_to(&active, drain(ONE), day(31), &PLAIN()).unwrap();
    let broken = try_to(&draining, retire(ONE), day(90), &forced).unwrap_err();
    assert_eq!(broken.code(), "range-in-use");
    // With another active range for the pool, draining is the way to go.
    let both = Ask { uses: uses(&pool("default", "{ v4 = \"93.184.216.7\" }, { v4 = \"93.184.217.7\" }")), ..PLAIN() };
    let two = try_to(&active, activate(TWO), day(31), &PLAIN()).unwrap();
    assert!(try_to(&two, drain(ONE), day(32), &both).is_ok());
}

#[test]
fn a_range_of_the_other_family_takes_nobodys_place() {
    let both = pool("default", "{ v4 = \"93.184.216.7\", v6 = \"2600:1f00:1234::7\" }");
    let used = Ask { uses: uses(&both), ..PLAIN() };
    let active = book(vec![(0, announce(ONE)), (0, announce(SIX)), (30, activate(ONE)), (30, activate(SIX))]);
    for (range, family) in [(ONE, "ipv4"), (SIX, "ipv6")] {
        let broken = try_to(&active, drain(range), day(31), &used).unwrap_err();
        assert_eq!(broken.code(), "range-last-active", "{range}");
        assert!(broken.to_string().contains(family), "{broken}");
    }
}

#[test]
fn a_notice_can_be_cut_short_with_a_reason_that_everybody_reads() {
    let announced = book(vec![(0, announce(ONE))]);
    let forced = Ask { force: true, reason: Some("in use before this was written"), ..PLAIN() };
    let active = try_to(&announced, activate(ONE), day(0), &forced).unwrap();
    let document = Document::of(&active);
    let past = document.history.last().unwrap();
    assert_eq!((past.forced, past.reason.as_ref().unwrap().as_str()), (true, "in use before this was written"));
    // Where nothing is cut short, nothing is said to be.
    let late = try_to(&announced, activate(ONE), day(31), &forced).unwrap();
    assert!(!late.last().unwrap().forced);
    // A notice that is shortened later is not one that was given.
    let table = AddressTable::shipped();
    let policy = Policy { notice_seconds: 0, ..POLICY };
    let terms = Terms { at: day(1), force: false, reason: None, policy, uses: &Uses::default(), table: &table };
    assert!(matches!(announced.draft(activate(ONE), terms), Err(Broken::ActiveTooEarly { .. })));
}

#[test]
fn an_announcement_that_was_a_mistake_is_taken_back() {
    let announced = book(vec![(0, announce(ONE))]);
    let sorry = Ask { reason: Some("a typing error"), ..PLAIN() };
    let after = try_to(&announced, withdraw(ONE), day(1), &sorry).unwrap();
    let range = after.ranges().next().unwrap();
    assert_eq!((range.state, range.active, range.retired), (State::Retired, None, Some(day(1))));
    assert!(!Document::of(&after).to_text().contains(ONE));
}

fn sample() -> Book {
    let changes = vec![
        (0, announce_in(ONE, "default", "DE", "DE-BE", "Berlin")),
        (0, announce(SIX)),
        (30, activate(ONE)),
        (31, announce_in(TWO, "eu", "FR", "", "Saint-Étienne")),
        (40, drain(ONE)),
        (41, Change::Renew),
    ];
    book(changes)
}

/// Bytes that are signed do not change with a build. Who changes this file makes another `schemaVersion`.
#[test]
fn the_document_is_what_it_always_was() {
    let published = Published::of(sample()).unwrap();
    let page = |name: &str| String::from_utf8_lossy(&published.page(name).unwrap().bytes).into_owned();
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        for name in ["egress-ranges.json", "egress-ranges.txt", "egress-ranges-geofeed.csv"] {
            std::fs::write(Path::new("src/ranges/sample").join(name), page(name)).unwrap();
        }
    }
    assert_eq!(page("egress-ranges.json"), include_str!("sample/egress-ranges.json"));
    assert_eq!(page("egress-ranges.txt"), include_str!("sample/egress-ranges.txt"));
    assert_eq!(page("egress-ranges-geofeed.csv"), include_str!("sample/egress-ranges-geofeed.csv"));
    let signature = published.page("egress-ranges.json.sig").unwrap().bytes;
    assert!(key().public().verifies(page("egress-ranges.json").as_bytes(), &signature));
    assert_eq!(page("egress-ranges.pub.pem"), key().public().to_pem());
    // The same book, read back, is published in the same bytes under the same tags.
    let again = file::parse(Path::new("b"), &file::to_bytes(&sample()).unwrap()).unwrap();
    assert_eq!(Published::of(again).unwrap().pages(), published.pages());
}

#[test]
fn old_versions_stay_and_each_names_the_one_before() {
    let published = Published::of(sample()).unwrap();
    let mut before: Option<Checked> = None;
    for serial in 1..=6 {
        let [document, signature] = published.version(serial).unwrap();
        assert_eq!(published.page(&format!("egress-ranges/{serial}.json")), Some(document.clone()));
        assert_eq!(published.page(&format!("egress-ranges/{serial}.json.sig")), Some(signature.clone()));
        let checked = verify(&document.bytes, &signature.bytes, &key().public(), None).unwrap();
        assert_eq!(checked.document.serial, serial);
        before.inspect(|before| checked.follows(before).unwrap());
        before = Some(checked);
    }
    assert_eq!(published.page("egress-ranges/6.json").unwrap().bytes, published.pages()[0].bytes);
    for name in
        ["0.json", "7.json", "01.json", "+1.json", "1.txt", "../egress-ranges.json", "99999999999999999999.json"]
    {
        assert_eq!(published.page(&format!("egress-ranges/{name}")), None, "{name}");
    }
}

#[tokio::test]
async fn past_versions_are_made_once_and_not_for_those_who_need_no_bytes() {
    let published = Published::of(sample()).unwrap();
    for name in ["egress-ranges.txt", "egress-ranges/1.json", "egress-ranges/6.json", "egress-ranges/2.json.sig"] {
        assert_eq!(published.label(name).unwrap(), published.page(name).unwrap().label(), "{name}");
    }
    assert_eq!(published.label("egress-ranges/0.json"), None);
    assert_eq!(published.label("egress-ranges/7.json.sig"), None);
    let many = (0..6).fold(sample(), |book, nth| try_to(&book, Change::Renew, day(50 + nth), &PLAIN()).unwrap());
    let (published, directory) = (Published::of(many).unwrap(), unwritten());
    let site = PublicSite::new(Shelf::open(&directory.path().join("book")).into());
    let (site, published) = (&site, &published);
    let get = async |serial: u64, head_only: bool| match site
        .page(published, &format!("egress-ranges/{serial}.json"), head_only)
        .await
    {
        serve::Found::Page(page) => Some(page.bytes),
        serve::Found::Unmade | serve::Found::Nothing => None,
    };
    assert_eq!(get(1, true).await, None, "HEAD makes nothing");
    let first = get(1, false).await.unwrap();
    assert_eq!(first, published.version(1).unwrap()[0].bytes);
    for head_only in [false, true] {
        assert_eq!(get(1, head_only).await.unwrap().as_ptr(), first.as_ptr(), "it is the one that was made");
    }
    for serial in 2..=9 {
        assert!(get(serial, false).await.is_some());
    }
    assert_eq!(get(1, true).await, None, "eight are kept");
    assert!(get(2, true).await.is_some());
}

#[test]
fn a_document_that_is_not_it_is_told_what_it_is() {
    let published = Published::of(sample()).unwrap();
    let (bytes, signature) = (&published.pages()[0].bytes, &published.pages()[1].bytes);
    let now = Some(day(41));
    let own = verify(bytes, signature, &key().public(), now).unwrap();
    let other = SigningKey::generate().unwrap().0;
    let changed = String::from_utf8_lossy(bytes).replace("93.184.216", "93.184.218");
    for (bytes, signature, key) in [
        (changed.as_bytes(), &signature[..], key().public()),
        (&bytes[..], &signature[1..], key().public()),
        (&bytes[..], &signature[..], other.public()),
        (&bytes[..bytes.len() - 1], &signature[..], key().public()),
    ] {
        assert_eq!(verify(bytes, signature, &key, now), Err(VerifyFault::Signature));
    }
    let key_of = key().public();
    assert_eq!(verify(bytes, signature, &key_of, Some(day(221))), Err(VerifyFault::Old(day(221))));
    assert_eq!(verify(bytes, signature, &key_of, Some(day(40))), Err(VerifyFault::Early(day(41), day(40))));
    let signed = |text: &str| verify(text.as_bytes(), &key().sign(text.as_bytes()), &key_of, None);
    assert!(matches!(signed("{}"), Err(VerifyFault::Form(_))));
    assert_eq!(signed("{\"schemaVersion\":2,\"all\":\"else\"}"), Err(VerifyFault::Schema(2)));
    let text = String::from_utf8_lossy(bytes).replace(&key_of.to_string(), &other.public().to_string());
    assert_eq!(signed(&text), Err(VerifyFault::OtherKey));
    // Order and chain.
    let [first, sig] = published.version(5).unwrap();
    let fifth = verify(&first.bytes, &sig.bytes, &key_of, None).unwrap();
    assert_eq!(fifth.follows(&own), Err(VerifyFault::Order(5, 6)));
    let text = String::from_utf8_lossy(bytes).replace("\"previousSha256\": \"", "\"previousSha256\": \"0");
    assert_eq!(signed(&text).unwrap().follows(&fifth), Err(VerifyFault::Chain));
}

#[test]
fn no_address_is_left_from_that_is_not_published() {
    let found = BookFound::Good(Published::of(sample()).unwrap().into());
    let table = AddressTable::shipped();
    let said = |pools: &str, found: &BookFound| {
        let text = format!("[egress]\n{pools}");
        let (appliance, faults) = config::parse_appliance(Path::new("tidegate.toml"), text.as_bytes());
        let egress = appliance.unwrap_or_else(|| panic!("{faults:?}")).egress;
        let faults = check(&egress, Path::new("tidegate.toml"), found, &table);
        faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    let default = |addresses: &str| pool("default", addresses);
    assert_eq!(said(&default("{ v4 = \"93.184.216.7\" }"), &found), "", "draining is still ours");
    for (addresses, fault) in [
        ("{ v4 = \"93.184.219.7\" }", "93.184.219.7 is in no published range"),
        (
            "{ v4 = \"93.184.216.7\", v6 = \"2600:1f00:1234::7\" }",
            "which is announced and not active: `tidegate egress ranges activate 2600:1f00:1234::/48` from 2025-12-29T13:46:40Z on",
        ),
        ("{ v4 = \"10.0.0.7\" }", "say private = true of the pool"),
    ] {
        let text = said(&default(addresses), &found);
        assert!(text.starts_with("tidegate.toml:4: egress.pool[0].addresses: ") && text.contains(fault), "{text}");
    }
    let eu = format!("{}{}", default("{ v4 = \"93.184.216.7\" }"), pool("eu", "{ v4 = \"93.184.216.8\" }"));
    assert!(said(&eu, &found).contains("which is published for the pool \"default\""));
    // What nobody sees need not be published, and what somebody sees cannot be said to be unseen.
    let private = |address: &str| format!("{}private = true\n", default(&format!("{{ v4 = \"{address}\" }}")));
    assert_eq!(said(&private("127.0.0.1"), &found), "");
    assert!(said(&private("93.184.216.7"), &found).contains("is public, and the pool says private = true"));
    // Without a book nobody is held to it, unless the file says so.
    let none = &BookFound::None;
    assert!(
        said(&default("{ v4 = \"93.184.216.7\" }"), none)
            .contains("warning: egress.pool[0].addresses: 93.184.216.7 is published nowhere")
    );
    assert_eq!(said(&default("{ v4 = \"10.0.0.7\" }"), none), "");
    assert!(said("[egress.ranges]\nrequired = true\n", none).contains("egress.ranges.required: there is no book"));
    // Without a pool the kernel chooses, and nobody has published that.
    let unpooled = "egress.pool: there is no [[egress.pool]]";
    let required = "[egress.ranges]\nrequired = true\n";
    assert!(said("", &found).contains(unpooled) && said(required, &found).contains(unpooled));
    assert!(said(required, none).contains(unpooled));
    assert_eq!(said("", none), "");
    let off = config::Egress { enabled: false, ..config::Egress::default() };
    assert!(check(&off, Path::new("tidegate.toml"), &found, &table).is_empty());
    let faulty = BookFound::Faulty("/x/book:3: is no change".into());
    let text = said("", &faulty);
    assert!(text.contains("egress.ranges.book: /x/book:3: is no change") && text.contains(unpooled), "{text}");
    let retired = try_to(&sample(), retire(ONE), day(90), &PLAIN()).unwrap();
    let retired = BookFound::Good(Published::of(retired).unwrap().into());
    assert!(said(&default("{ v4 = \"93.184.216.7\" }"), &retired).contains("was retired at"));
}

// The file.

fn unwritten() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn add(path: &Path, change: Change, on: u64) -> Result<Book, NotChanged<Broken>> {
    file::change(path, |before| try_to(&before.unwrap_or_else(|| Book::found().unwrap()), change, day(on), &PLAIN()))
}

#[test]
fn what_is_written_is_read_and_a_refused_change_writes_nothing() {
    let directory = unwritten();
    let path = directory.path().join("state/book");
    assert!(file::read(&path).unwrap().is_none());
    let written = add(&path, announce(ONE), 0).unwrap();
    assert_eq!(file::read(&path).unwrap(), Some(written.clone()));
    let before = std::fs::read(&path).unwrap();
    assert!(matches!(add(&path, announce(ONE), 1), Err(NotChanged::Made(Broken::Overlaps { .. }))));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let next = add(&path, announce(TWO), 2).unwrap();
    assert!(next.continues(&written) && !written.continues(&next));
}

/// A crash while a change is written leaves what was there, and the next change is made as if nothing had been.
#[test]
fn a_crash_in_the_middle_of_a_write_loses_nothing() {
    let directory = unwritten();
    let path = directory.path().join("book");
    let before = add(&path, announce(ONE), 0).unwrap();
    let after = try_to(&before, announce(TWO), day(1), &PLAIN()).unwrap();
    let bytes = file::to_bytes(&after).unwrap();
    for length in [0, 1, bytes.len() / 2, bytes.len() - 1, bytes.len()] {
        // As far as the write beside came; what puts it in its place is one rename.
        state_file::write_beside(&path, &bytes[..length]).unwrap();
        assert_eq!(file::read(&path).unwrap().as_ref(), Some(&before), "{length}");
    }
    assert_eq!(add(&path, announce(TWO), 1).unwrap(), after);
}

#[test]
fn damage_anywhere_is_named_and_never_written_over() {
    let directory = unwritten();
    let path = directory.path().join("book");
    let whole = file::to_bytes(&sample()).unwrap();
    let is_named = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let fault = file::read(&path).err();
        let refused =
            matches!(add(&path, announce("93.184.220.0/24"), 99), Err(NotChanged::Book(BookFault::Damaged { .. })));
        fault.is_some_and(|fault| fault.to_string().starts_with(path.to_str().unwrap()))
            && refused
            && std::fs::read(&path).unwrap() == bytes
    };
    // Cut anywhere, also between two lines.
    for length in (0..whole.len()).step_by(7).chain([whole.len() - 1]) {
        assert!(is_named(&whole[..length]), "cut at {length}");
    }
    let mut at = 0;
    for line in whole.split_inclusive(|byte| *byte == b'\n') {
        assert!(is_named(&[&whole[..at], &whole[at + line.len()..]].concat()), "without the line at {at}");
        at += line.len();
    }
    // Every single byte counts: what it says is signed.
    for at in (0..whole.len()).step_by(3) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        assert!(is_named(&bytes), "byte {at} of {}", String::from_utf8_lossy(&whole));
    }
    std::fs::write(&path, vec![b'x'; (8 << 20) + 1]).unwrap();
    assert!(file::read(&path).unwrap_err().to_string().contains("more than 8 MiB"));
}

#[test]
fn commands_at_the_same_time_make_their_changes_one_after_the_other() {
    let directory = unwritten();
    let path = directory.path().join("book");
    std::thread::scope(|scope| {
        for third in 0..16 {
            let path = &path;
            scope.spawn(move || add(path, announce(&format!("93.184.{third}.0/24")), 0).unwrap());
        }
    });
    let book = file::read(&path).unwrap().unwrap();
    assert_eq!((book.serial(), book.live().count()), (16, 16));
}

#[test]
fn a_node_takes_what_comes_after_and_nothing_else() {
    let directory = unwritten();
    let path = directory.path().join("book");
    let shelf = Shelf::open(&path);
    assert!(matches!(shelf.found(), BookFound::None));
    let mut changes = shelf.watch();
    let serial = |shelf: &Shelf| {
        shelf.look();
        (shelf.current().map_or(0, |published| published.book().serial()), shelf.fault().is_some())
    };
    let put = |bytes: &[u8]| state_file::replace(&path, bytes).unwrap();
    let four = sample().at(4).unwrap();
    put(&file::to_bytes(&four).unwrap());
    assert_eq!(serial(&shelf), (4, false));
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    put(b"nonsense\n");
    assert_eq!(serial(&shelf), (4, true));
    assert!(matches!(shelf.found(), BookFound::Good(_)) && !shelf.alarms(day(41)).is_empty());
    put(&file::to_bytes(&sample()).unwrap());
    assert_eq!(serial(&shelf), (6, false));
    // Back, aside, and away.
    put(&file::to_bytes(&four).unwrap());
    assert_eq!(serial(&shelf), (6, true));
    assert!(shelf.fault().unwrap().contains("has version 4 last, and version 6 is known"));
    put(&file::to_bytes(&try_to(&four, announce("93.184.220.0/24"), day(50), &PLAIN()).unwrap()).unwrap());
    assert_eq!(serial(&shelf), (6, true));
    assert!(shelf.fault().unwrap().contains("another version 5"), "{:?}", shelf.fault());
    std::fs::remove_file(&path).unwrap();
    assert_eq!(serial(&shelf), (6, true));
    put(&file::to_bytes(&sample()).unwrap());
    assert_eq!((serial(&shelf), shelf.alarms(day(41)).len()), ((6, false), 0));
    assert!(shelf.alarms(day(210))[0].contains("tidegate egress ranges renew"));
    let trust = Trust::default();
    assert!(file::take_over(&path, &four, trust).is_err() && file::take_over(&path, &sample(), trust).is_ok());
}

#[test]
fn a_book_that_is_damaged_is_not_read_again_and_again_and_holds_up_nobody() {
    let directory = unwritten();
    let path = directory.path().join("book");
    let shelf = std::sync::Arc::new(Shelf::open(&path));
    let reads = std::cell::Cell::new(0);
    let looks = |count: u32, broken_disk: bool| {
        reads.set(0);
        for _ in 0..count {
            shelf.look_by(|path| {
                reads.set(reads.get() + 1);
                let (asked, told) = std::sync::mpsc::channel();
                let other = std::sync::Arc::clone(&shelf);
                std::thread::spawn(move || asked.send(other.fault()));
                told.recv_timeout(std::time::Duration::from_secs(20)).expect("whoever asks meanwhile is told");
                let source = std::io::Error::other("of the disk");
                if broken_disk { Err(BookFault::Io { path: path.into(), source }) } else { file::read(path) }
            });
        }
        reads.get()
    };
    state_file::replace(&path, b"nonsense\n").unwrap();
    // A second time, in case that somebody was writing.
    assert_eq!((looks(100, false), looks(100, false)), (2, 0));
    assert!(shelf.fault().is_some());
    state_file::replace(&path, &file::to_bytes(&sample()).unwrap()).unwrap();
    assert_eq!((looks(100, false), shelf.fault()), (1, None));
    // What is in order and older, or signed by another, is not folded again either.
    state_file::replace(&path, &file::to_bytes(&sample().at(4).unwrap()).unwrap()).unwrap();
    assert_eq!(looks(100, false), 2);
    // A disk may get well without another version of the file.
    state_file::replace(&path, &file::to_bytes(&sample()).unwrap()).unwrap();
    assert_eq!(looks(1 + 2 * 21, true), 3);
    assert!(shelf.fault().is_some());
    assert_eq!((looks(21, false), shelf.fault()), (1, None));
}

/// The sample, renewed with another key.
fn renewed_by(key: &SigningKey) -> Book {
    let table = AddressTable::shipped();
    let (policy, uses) = (POLICY, &Uses::default());
    let terms = Terms { at: day(50), force: false, reason: None, policy, uses, table: &table };
    sample().draft(Change::Renew, terms).unwrap().sign(key)
}

#[test]
fn a_book_goes_over_to_another_key_only_where_somebody_says_so() {
    let directory = unwritten();
    let path = directory.path().join("book");
    let stranger = SigningKey::generate().unwrap().0;
    let (ours, theirs) = (key().public(), stranger.public());
    let after = renewed_by(&stranger);
    assert!(after.continues(&sample()), "that it continues ours says nothing of whose it is");
    let take =
        |book: &Book, key: Option<PublicKey>, new_key: bool| match file::take_over(&path, book, Trust { key, new_key })
        {
            Ok(()) => None,
            Err(NotChanged::Made(why)) => Some(why),
            Err(NotChanged::Book(fault)) => panic!("{fault}"),
        };
    assert_eq!(take(&sample(), None, false), Some(NotTaken::Unpinned { signer: ours }));
    assert_eq!(take(&sample(), Some(theirs), true), Some(NotTaken::OtherKey { signer: ours, pinned: theirs }));
    assert!(file::read(&path).unwrap().is_none());
    assert_eq!(take(&sample(), Some(ours), false), None);
    assert_eq!(take(&sample(), None, false), None, "from here on the book says whose it is");
    let refused = Some(NotTaken::NewKey { signer: theirs, known: ours });
    for (key, new_key) in [(None, false), (Some(theirs), false), (None, true)] {
        assert_eq!(take(&after, key, new_key), refused);
    }
    assert_eq!(take(&after, Some(ours), true), Some(NotTaken::OtherKey { signer: theirs, pinned: ours }));
    assert_eq!(file::read(&path).unwrap().unwrap(), sample());
    // A node that runs stays with the key that it knows, and says what to do; one that is started has none to go by.
    let shelf = Shelf::open(&path);
    assert_eq!(take(&after, Some(theirs), true), None);
    shelf.look();
    let fault = shelf.fault().unwrap();
    assert!(fault.contains(&theirs.to_string()) && fault.contains("start this node again"), "{fault}");
    assert_eq!(shelf.current().unwrap().book(), &sample());
    assert_eq!(Shelf::open(&path).current().unwrap().book(), &after);
}

/// What may happen, as somebody would say it who never saw the code.
#[derive(Debug, Default, Clone)]
struct Model {
    /// State, and the day from which the next step may be taken.
    ranges: [Option<(State, u64)>; 3],
}

const THREE: [&str; 3] = [ONE, TWO, SIX];

fn steps() -> impl Strategy<Value = Vec<(usize, u8, u64, bool)>> {
    proptest::collection::vec((0..3_usize, 0..6_u8, 0..40_u64, any::<bool>()), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_commands_breaks_a_promise(steps in steps()) {
        let mut here = book(Vec::new());
        let (mut model, mut today) = (Model::default(), 0);
        for (which, what, later, force) in steps {
            today += later;
            let text = THREE[which];
            let was = model.ranges[which];
            let (change, expected) = match (what, was) {
                (0, None | Some((State::Retired, _))) => (announce(text), Some((State::Announced, today + 30))),
                (0, _) => (announce(text), None),
                (1, Some((State::Announced, from))) if force || today >= from => (activate(text), Some((State::Active, 0))),
                (1, _) => (activate(text), None),
                (2, Some((State::Active, _))) => (drain(text), Some((State::Draining, today + 14))),
                (2, _) => (drain(text), None),
                (3, Some((State::Draining, from))) if force || today >= from => (retire(text), Some((State::Retired, 0))),
                (3, _) => (retire(text), None),
                (4, Some((State::Announced, _))) => (withdraw(text), Some((State::Retired, 0))),
                (4, _) => (withdraw(text), None),
                (_, _) => (Change::Renew, (here.serial() > 0).then_some(was).flatten()),
            };
            let is_renewal = change == Change::Renew;
            let ask = Ask { force, reason: Some("because"), ..PLAIN() };
            let early = matches!(was, Some((State::Announced | State::Draining, from)) if today < from) && matches!(what, 1 | 3);
            match try_to(&here, change, day(today), &ask) {
                Ok(after) => {
                    prop_assert!(expected.is_some() || (is_renewal && here.serial() > 0));
                    prop_assert_eq!(after.last().unwrap().forced, early);
                    prop_assert!(after.continues(&here));
                    here = after;
                    if !is_renewal { model.ranges[which] = expected; }
                }
                Err(broken) => prop_assert!(expected.is_none(), "{}", broken),
            }
            for (text, known) in THREE.iter().zip(&model.ranges) {
                let range = here.ranges().find(|range| range.prefix == prefix(text));
                prop_assert_eq!(range.map(|range| range.state), known.map(|(state, _)| state));
            }
        }
        // What was written is read as it was, and every version is what it was when it was signed.
        if here.serial() > 0 {
            let read = file::parse(Path::new("book"), &file::to_bytes(&here).unwrap()).unwrap();
            prop_assert_eq!(&read, &here);
            let published = Published::of(here.clone()).unwrap();
            for serial in 1..=here.serial() {
                let [document, signature] = published.version(serial).unwrap();
                prop_assert!(verify(&document.bytes, &signature.bytes, &key().public(), None).is_ok());
            }
        }
    }

    #[test]
    fn no_bytes_are_a_book_by_accident(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(file::parse(Path::new("book"), &bytes).is_err());
    }

    /// An address is published if and only if a range around it is active or draining.
    #[test]
    fn an_address_is_covered_by_what_is_around_it(address in any::<u32>()) {
        let published = Published::of(sample()).unwrap();
        let near = IpAddr::from((0x5db8_d800_u32 + (address % 0x400)).to_be_bytes());
        let is_covered = published.covers("default", near).is_ok();
        prop_assert_eq!(is_covered, prefix(ONE).has(near));
    }
}
