use super::*;
use crate::ledger::conformance::made::run;

fn pointer(number: u64, first: u64, count: u16, turn: Turn) -> Pointer {
    let position = Position::from_bytes([u8::try_from(first).unwrap(); 16]);
    Pointer { run: run(number), tenant: TenantTag(5), first, count, lease: 3, turn, position }
}

fn index(directory: &Path) -> Index {
    Index::open(directory, 1 << 20).unwrap()
}

#[test]
fn it_knows_where_runs_are_and_where_they_stand() {
    let directory = tempfile::tempdir().unwrap();
    let index = index(directory.path());
    assert_eq!(index.recall(run(1)).unwrap(), Recalled::Never);
    let (first, second) = (pointer(1, 1, 2, Turn::Open), pointer(1, 3, 1, Turn::Over));
    index.enter(Tier::Journal, &[first, pointer(2, 1, 1, Turn::Open), second]).unwrap();
    let known = |seq, is_over| Known { tenant: TenantTag(5), seq, lease: 3, is_over, is_pending: false };
    assert_eq!(index.recall(run(1)).unwrap(), Recalled::Known(known(3, true)));
    assert_eq!(index.recall(run(2)).unwrap(), Recalled::Known(known(1, false)));
    let mut open = Vec::new();
    index.open_runs(|run, known| open.push((run, known))).unwrap();
    assert_eq!(open, [(run(2), known(1, false))]);
    let places = index.places(run(1)).unwrap();
    let of = |place: &Place| (place.first, place.count, place.tier, place.position);
    let journal = Tier::Journal;
    assert_eq!(
        places.iter().map(of).collect::<Vec<_>>(),
        [(1, 2, journal, first.position), (3, 1, journal, second.position)]
    );
}

#[test]
fn a_run_that_was_dropped_is_known_to_have_been() {
    let directory = tempfile::tempdir().unwrap();
    let index = index(directory.path());
    let (first, second) = (pointer(1, 1, 2, Turn::Open), pointer(1, 3, 1, Turn::Over));
    index.enter(Tier::Journal, &[first, second]).unwrap();
    index.forget(&[first]).unwrap();
    assert_eq!(index.places(run(1)).unwrap().len(), 2, "they are in the journal, and not in the history");
    index.moved(&[first, second]).unwrap();
    index.forget(&[first]).unwrap();
    assert_eq!(index.recall(run(1)).unwrap(), Recalled::Gone, "without its beginning it is none");
    index.forget(&[second]).unwrap();
    assert_eq!(index.recall(run(1)).unwrap(), Recalled::Gone);
    index.clear().unwrap();
    assert_eq!(index.recall(run(1)).unwrap(), Recalled::Gone, "what cannot be made anew stays");
}

#[test]
fn marks_stay() {
    let directory = tempfile::tempdir().unwrap();
    let place = Position::from_bytes([9; 16]);
    {
        let index = index(directory.path());
        assert_eq!(index.mark(Tier::Journal).unwrap(), None);
        index.enter(Tier::Journal, &[pointer(1, 1, 1, Turn::Open)]).unwrap();
        index.set_mark(Tier::Journal, place).unwrap();
    }
    let index = index(directory.path());
    assert_eq!((index.mark(Tier::Journal).unwrap(), index.mark(Tier::History).unwrap()), (Some(place), None));
    assert_eq!(index.places(run(1)).unwrap().len(), 1);
    index.clear().unwrap();
    assert_eq!(index.mark(Tier::Journal).unwrap(), None);
    assert!(index.places(run(1)).unwrap().is_empty());
}

#[test]
fn what_does_not_read_is_told() {
    assert!(place(&[0; 24], &[0; 26]).is_err());
    assert!(place(&[0; 23], &[0; 27]).is_err());
    assert!(place(&[0; 24], &[2; 27]).is_err());
    assert!(tag(&[0; 3]).is_err());
}
