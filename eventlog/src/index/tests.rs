//! Both forms of an index against a plain list.

use std::collections::BTreeSet;
use std::io;

use domain::{EventId, NodeId, Slot};
use proptest::prelude::*;

use super::*;

impl Source for Vec<u8> {
    fn read_exact_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let at = usize::try_from(offset).unwrap();
        let bytes = self.get(at..at + into.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(bytes);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(Self::len(self) as u64)
    }
}

const SEGMENT: (u64, u32) = (3, 9);
const TENANTS: [&str; 3] = ["acme", "globex", "initech"];

#[derive(Debug, Clone)]
struct Record {
    row: Row,
    tenant: &'static str,
    bytes: u64,
}

fn records(max: usize) -> impl Strategy<Value = Vec<Record>> {
    let one = (0..TENANTS.len(), 0_u64..6, prop_oneof![9 => 1_000_u64..2_000, 1 => Just(1 << 40)], any::<[u8; 6]>());
    proptest::collection::vec(one, 0..max).prop_map(|rows| {
        let records = rows.into_iter().enumerate().map(|(nth, (tenant, endpoint, received_unix_ms, random))| Record {
            row: Row {
                id: EventId::new(received_unix_ms, Slot(1), NodeId(1), random),
                endpoint: endpoint_key(&format!("wh_{endpoint}")),
                received_unix_ms,
                spot: u32::try_from(nth * 3).unwrap(),
                tenant: 0,
            },
            tenant: TENANTS[tenant],
            bytes: 100 + nth as u64,
        });
        records.collect()
    })
}

fn active(records: &[Record]) -> ActiveIndex {
    let mut index = ActiveIndex::default();
    for record in records {
        let tenant = index.tenant(record.tenant);
        index.push(Row { tenant, ..record.row }, record.bytes);
    }
    index
}

proptest! {
    #[test]
    fn both_forms_find_what_a_list_finds(
        records in records(3_000),
        tenant in proptest::option::of(0..TENANTS.len()),
        endpoint in proptest::option::of(0_u64..7),
        from in proptest::option::of(900_u64..2_100),
        until in proptest::option::of(900_u64..2_100),
    ) {
        let active = active(&records);
        let file = encode(SEGMENT, &active);
        let (side, totals) = SideIndex::open(&file, SEGMENT).unwrap();
        prop_assert_eq!(side.summary(), active.summary());
        prop_assert_eq!(&totals[..], active.totals());
        prop_assert_eq!(side.summary().bytes, records.iter().map(|r| r.bytes).sum::<u64>());
        for total in &totals {
            let theirs: Vec<_> = records.iter().filter(|r| *r.tenant == *total.tenant).collect();
            prop_assert_eq!(total.records as usize, theirs.len());
            prop_assert_eq!(total.bytes, theirs.iter().map(|r| r.bytes).sum::<u64>());
        }

        let wanted = Wanted {
            endpoint: endpoint.map(|n| endpoint_key(&format!("wh_{n}"))),
            tenant: tenant.map(|n| TENANTS[n]),
            from_unix_ms: from,
            until_unix_ms: until,
            only_certain: false,
        };
        let expected: Vec<u32> = records
            .iter()
            .filter(|r| wanted.endpoint.is_none_or(|key| r.row.endpoint == key))
            .filter(|r| wanted.tenant.is_none_or(|tenant| r.tenant == tenant))
            .filter(|r| wanted.takes_time(r.row.received_unix_ms))
            .map(|r| r.row.spot)
            .collect();
        // A time far behind the first is capped in the side file: it may be offered, the record decides.
        let capped: BTreeSet<u32> =
            records.iter().filter(|r| r.row.received_unix_ms >= 1 << 40).map(|r| r.row.spot).collect();
        let known = wanted.tenant.map(|tenant| active.known_tenant(tenant).unwrap_or(u32::MAX));
        let from_side: Vec<u32> = side.select(&file, &wanted, known).unwrap();
        prop_assert!(expected.iter().all(|spot| from_side.contains(spot)));
        prop_assert!(from_side.iter().all(|spot| expected.contains(spot) || capped.contains(spot)));
        prop_assert!(from_side.is_sorted());
        let certain = side.select(&file, &Wanted { only_certain: true, ..wanted.clone() }, known).unwrap();
        prop_assert!(certain.iter().all(|spot| expected.contains(spot)));
        prop_assert!(expected.iter().all(|spot| certain.contains(spot) || capped.contains(spot)));
        prop_assert_eq!(active.snapshot().select(&wanted, known), &expected[..]);
        if !expected.is_empty() {
            prop_assert!(wanted.meets(side.summary()));
        }

        for record in records.iter().step_by(97) {
            let first = records.iter().find(|r| r.row.id == record.row.id).map(|r| r.row.spot);
            prop_assert_eq!(side.find(&file, record.row.id).unwrap(), first);
            prop_assert_eq!(active.snapshot().find(record.row.id), first);
            prop_assert_eq!(active.snapshot_near(record.row.id).find(record.row.id), first);
            prop_assert!(side.summary().holds_time(record.row.received_unix_ms));
        }
        let absent = EventId::new(5, Slot(1), NodeId(1), [0; 6]);
        prop_assert_eq!(side.find(&file, absent).unwrap(), None);
        prop_assert_eq!(active.snapshot().find(absent), None);
        prop_assert_eq!(active.snapshot_near(absent).find(absent), None);
    }

    /// One wrong byte anywhere is seen when what it belongs to is used, or it is padding that nothing uses.
    #[test]
    fn damage_is_seen_and_never_answers(records in records(400), at: prop::sample::Index, flip in 1_u8..) {
        let whole = encode(SEGMENT, &active(&records));
        let mut file = whole.clone();
        let at = at.index(file.len());
        file[at] ^= flip;
        let Ok((side, totals)) = SideIndex::open(&file, SEGMENT) else { return Ok(()) };
        prop_assert_eq!((side, totals), SideIndex::open(&whole, SEGMENT).unwrap());
        let wanted =
            Wanted { endpoint: None, tenant: None, from_unix_ms: None, until_unix_ms: None, only_certain: false };
        if let Ok(spots) = side.select(&file, &wanted, None) {
            prop_assert_eq!(spots.len(), records.len());
        }
        for record in &records {
            if let Ok(found) = side.find(&file, record.row.id) {
                prop_assert_eq!(found, side.find(&whole, record.row.id).unwrap());
            }
        }
    }

    #[test]
    fn any_bytes_are_an_index_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300), magic: bool) {
        let mut file = bytes;
        if magic && file.len() >= 8 {
            file[..8].copy_from_slice(b"TGEI\x01\0\0\0");
        }
        prop_assert!(SideIndex::open(&file, SEGMENT).is_err());
    }

    #[test]
    fn a_cut_index_is_refused(records in records(300), cut: prop::sample::Index) {
        let mut file = encode(SEGMENT, &active(&records));
        file.truncate(cut.index(file.len()));
        prop_assert!(SideIndex::open(&file, SEGMENT).is_err());
    }
}

#[test]
fn another_segments_index_is_refused() {
    let file = encode(SEGMENT, &ActiveIndex::default());
    assert!(SideIndex::open(&file, SEGMENT).is_ok());
    assert!(SideIndex::open(&file, (3, 10)).is_err());
}

#[test]
fn a_key_is_never_no_stream() {
    assert_ne!(endpoint_key(""), 0);
    assert_ne!(endpoint_key("wh_1"), endpoint_key("wh_2"));
}

#[test]
fn a_row_costs_what_the_bound_says() {
    assert_eq!(size_of::<Row>(), 40);
}
