use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proptest::prelude::*;

use super::super::tests::{acme, address, exit, site};
use super::*;

/// A connection of nothing.
#[derive(Debug)]
struct Bench {
    number: usize,
    site: usize,
    address: VettedAddr,
    made: Instant,
    seats: Mutex<Option<usize>>,
    taken: Mutex<usize>,
    idle_since: Mutex<Instant>,
    is_closed: AtomicBool,
}

impl Bench {
    fn new(to: u8, made: Instant, seats: Option<usize>) -> Self {
        Self {
            number: 0,
            site: 0,
            address: address(to),
            made,
            seats: Mutex::new(seats),
            taken: Mutex::new(1),
            idle_since: Mutex::new(made),
            is_closed: AtomicBool::new(false),
        }
    }
}

impl Share for Bench {
    fn address(&self) -> VettedAddr {
        self.address
    }

    fn made(&self) -> Instant {
        self.made
    }

    fn sit(&self) -> Sat {
        let mut taken = self.taken.lock().unwrap();
        if self.is_closed.load(Ordering::Relaxed) {
            return Sat::Closed;
        }
        if *taken >= self.seats.lock().unwrap().unwrap_or(1) {
            return Sat::Full;
        }
        *taken += 1;
        Sat::Down
    }

    fn idle_since(&self) -> Option<Instant> {
        (*self.taken.lock().unwrap() == 0).then(|| *self.idle_since.lock().unwrap())
    }

    fn seats(&self) -> Option<usize> {
        *self.seats.lock().unwrap()
    }

    fn rise(&self) {
        *self.taken.lock().unwrap() -= 1;
        *self.idle_since.lock().unwrap() = Instant::now();
    }
}

fn shares() -> Arc<Shares<Bench>> {
    Shares::new(PoolSettings::default())
}

fn turn(shares: &Arc<Shares<Bench>>, site: &Arc<Site>) -> Turn<Bench> {
    shares.turn(site, &[address(1)], true, Instant::now())
}

fn dial(shares: &Arc<Shares<Bench>>, site: &Arc<Site>) -> Dialling<Bench> {
    match turn(shares, site) {
        Turn::Dial(dialling) => dialling,
        other @ (Turn::Sit(_) | Turn::Wait(_)) => panic!("{other:?}"),
    }
}

fn waits(shares: &Arc<Shares<Bench>>, site: &Arc<Site>) -> Waiting<Bench> {
    match turn(shares, site) {
        Turn::Wait(waiting) => waiting,
        other @ (Turn::Sit(_) | Turn::Dial(_)) => panic!("{other:?}"),
    }
}

fn sits(shares: &Arc<Shares<Bench>>, site: &Arc<Site>) -> Seat<Bench> {
    match turn(shares, site) {
        Turn::Sit(seat) => seat,
        other @ (Turn::Dial(_) | Turn::Wait(_)) => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn one_dials_for_as_many_as_a_connection_carries() {
    let (shares, now) = (shares(), Instant::now());
    let first = dial(&shares, &acme());
    let waiting: Vec<_> = (1..SEATS_MAX).map(|_| waits(&shares, &acme())).collect();
    let second = dial(&shares, &acme());
    // It speaks HTTP/2, and all sit down once it has said how many may.
    let seat = first.sit(Bench::new(1, now, None));
    for waiting in waiting {
        waiting.changed().await;
    }
    drop(second);
    let again = waits(&shares, &acme());
    *seat.share().seats.lock().unwrap() = Some(3);
    let seats = [sits(&shares, &acme()), sits(&shares, &acme())];
    drop(again);
    // Where three sit on each, a dial is for two more.
    let _third = dial(&shares, &acme());
    let _kept = [waits(&shares, &acme()), waits(&shares, &acme())];
    let _fourth = dial(&shares, &acme());
    drop((seat, seats));
    assert_eq!(shares.idle(), 1);
}

#[tokio::test(start_paused = true)]
async fn whoever_is_not_patient_dials() {
    let shares = shares();
    let _first = dial(&shares, &acme());
    assert!(matches!(shares.turn(&acme(), &[address(1)], false, Instant::now()), Turn::Dial(_)));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_where_http_1_1_was_chosen_until_http_2_is() {
    let shares = shares();
    dial(&shares, &acme()).alone();
    let all: Vec<_> = (0..100).map(|_| dial(&shares, &acme())).collect();
    drop(all);
    let _seat = dial(&shares, &acme()).sit(Bench::new(1, Instant::now(), Some(1)));
    let _dialling = dial(&shares, &acme());
    assert!(matches!(turn(&shares, &acme()), Turn::Dial(_)), "one seat each: nobody is waited for");
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_what_nobody_may_share() {
    let off = Shares::<Bench>::new(PoolSettings { total_max: 0, ..PoolSettings::default() });
    let first = dial(&off, &acme());
    let _second = dial(&off, &acme());
    let _seat = first.sit(Bench::new(1, Instant::now(), Some(64)));
    assert!(matches!(turn(&off, &acme()), Turn::Dial(_)));
    let closed = shares();
    closed.close();
    let _first = dial(&closed, &acme());
    let _second = dial(&closed, &acme());
}

/// One who names more hosts than are kept in mind makes room with its own.
#[tokio::test(start_paused = true)]
async fn a_tenant_that_names_many_hosts_takes_no_place_from_others() {
    let shares = shares();
    drop(dial(&shares, &acme()).sit(Bench::new(1, Instant::now(), Some(64))));
    let busy = site("many", None, "busy.example.com:443", exit(1));
    let seat = dial(&shares, &busy).sit(Bench::new(1, Instant::now(), Some(64)));
    for host in 0..PLACES_MAX + 100 {
        tokio::time::advance(Duration::from_millis(1)).await;
        dial(&shares, &site("many", None, &format!("h{host}.example.com:443"), exit(1))).alone();
        assert!(shares.places().by_site.len() <= PLACES_MAX);
    }
    // Another one's new site is shared as ever, and what it had is there.
    let new = site("other", None, "api.example.com:443", exit(1));
    let dialling = dial(&shares, &new);
    let waiting = waits(&shares, &new);
    drop((dialling, waiting, sits(&shares, &acme())));
    // Who makes room does so with what it asked for longest ago, but for where somebody is.
    let (first, last) = ("h0.example.com:443", format!("h{}.example.com:443", PLACES_MAX + 99));
    let is_known = |host: &str| shares.places().by_site.contains_key(&site("many", None, host, exit(1)));
    assert!(!is_known(first) && is_known(&last) && is_known("busy.example.com:443"));
    drop(seat);
    drop(sits(&shares, &busy));
}

#[tokio::test(start_paused = true)]
async fn where_every_place_is_in_use_calls_dial_alone() {
    let shares = shares();
    let sites = (0..PLACES_MAX).map(|host| site("many", None, &format!("h{host}.example.com:443"), exit(1)));
    let all: Vec<_> = sites.map(|site| dial(&shares, &site)).collect();
    let [first, _second] = [dial(&shares, &acme()), dial(&shares, &acme())];
    drop(first.sit(Bench::new(1, Instant::now(), Some(64))));
    let known = shares.places().by_site.len();
    assert_eq!((known, shares.idle()), (PLACES_MAX, 0));
    drop(all);
    tokio::time::advance(Duration::from_secs(1)).await;
    let _dialling = dial(&shares, &acme());
    drop(waits(&shares, &acme()));
}

/// The one that is idle longest goes, of the tenant that has the most.
#[tokio::test(start_paused = true)]
async fn idle_connections_make_room_for_new_ones() {
    let shares = Shares::<Bench>::new(PoolSettings { total_max: 4, ..PoolSettings::default() });
    let hosts: Vec<_> = (0..3).map(|host| site("many", None, &format!("h{host}.example.com:443"), exit(1))).collect();
    let new = site("other", None, "www.example.com:443", exit(1));
    let made = |site: &Arc<Site>| dial(&shares, site).sit(Bench::new(1, Instant::now(), Some(64)));
    drop(made(&acme()));
    let mut busy = None;
    for host in &hosts {
        tokio::time::advance(Duration::from_secs(1)).await;
        let seat = made(host);
        busy.get_or_insert(seat);
    }
    let first = dial(&shares, &new);
    drop(waits(&shares, &new));
    drop(first.sit(Bench::new(1, Instant::now(), Some(64))));
    drop((sits(&shares, &new), sits(&shares, &acme()), sits(&shares, &hosts[0]), sits(&shares, &hosts[2])));
    let _gone = dial(&shares, &hosts[1]);
    assert_eq!(shares.places().connections, 4);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_is_told_of_every_change() {
    let shares = shares();
    let is_told = async |waiting: Waiting<Bench>| {
        tokio::time::timeout(Duration::from_secs(1), waiting.changed()).await.expect("it is told");
    };
    // Of a dial that failed, one that chose HTTP/1.1, and one that is there.
    let dialling = dial(&shares, &acme());
    let waiting = waits(&shares, &acme());
    drop(dialling);
    is_told(waiting).await;
    let dialling = dial(&shares, &acme());
    let waiting = waits(&shares, &acme());
    let seat = dialling.sit(Bench::new(1, Instant::now(), Some(2)));
    is_told(waiting).await;
    // Of a seat that is free.
    let second = sits(&shares, &acme());
    let _dialling = dial(&shares, &acme());
    let waiting = waits(&shares, &acme());
    drop(second);
    is_told(waiting).await;
    drop(seat);
}

#[tokio::test(start_paused = true)]
async fn what_is_closed_old_or_idle_takes_nobody() {
    let shares = shares();
    let PoolSettings { age_max, idle_max, .. } = PoolSettings::default();
    let now = Instant::now();
    let seat = dial(&shares, &acme()).sit(Bench::new(1, now, Some(8)));
    seat.share().is_closed.store(true, Ordering::Relaxed);
    let dialling = dial(&shares, &acme());
    let seat = dialling.sit(Bench::new(1, now, Some(8)));
    drop(shares.turn(&acme(), &[address(1)], true, now + age_max - Duration::from_nanos(1)));
    assert!(matches!(shares.turn(&acme(), &[address(1)], true, now + age_max), Turn::Dial(_)), "although it is in use");
    drop(seat);
    let seat = dial(&shares, &acme()).sit(Bench::new(1, now, Some(8)));
    drop(seat);
    assert_eq!(shares.idle(), 1);
    shares.reap(now + idle_max - Duration::from_nanos(1));
    assert_eq!(shares.idle(), 1);
    shares.reap(now + idle_max);
    assert_eq!((shares.idle(), shares.places().connections), (0, 0));
    shares.reap(now + age_max);
    assert!(shares.places().by_site.is_empty(), "and the site is forgotten");
}

#[derive(Debug, Clone)]
enum Step {
    Ask {
        site: usize,
        addresses: Vec<u8>,
        is_patient: bool,
    },
    /// The dial at this place ends.
    Connect {
        at: usize,
        to: u8,
        seats: Option<usize>,
    },
    ChooseHttp11 {
        at: usize,
    },
    Fail {
        at: usize,
    },
    GiveUp {
        at: usize,
    },
    Rise {
        at: usize,
    },
    Settle {
        at: usize,
        seats: usize,
    },
    Close {
        at: usize,
    },
    Wait {
        s: u64,
    },
    Reap,
    CloseTenant {
        site: usize,
    },
}

fn sites() -> Vec<Arc<Site>> {
    let site = |tenant, connection, authority, last| site(tenant, connection, authority, exit(last));
    vec![
        site("a", None, "api.example.com:443", 1),
        site("b", None, "api.example.com:443", 1),
        site("a", Some("conn_1"), "api.example.com:443", 1),
        site("a", None, "www.example.com:443", 1),
        site("a", None, "api.example.com:443", 2),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let at = 0..8_usize;
    let ask = (0..5_usize, prop::collection::vec(1..4_u8, 1..3), any::<bool>());
    prop_oneof![
        8 => ask.prop_map(|(site, addresses, is_patient)| Step::Ask { site, addresses, is_patient }),
        4 => (at.clone(), 1..4_u8, prop::option::of(1..4_usize))
            .prop_map(|(at, to, seats)| Step::Connect { at, to, seats }),
        1 => at.clone().prop_map(|at| Step::ChooseHttp11 { at }),
        1 => at.clone().prop_map(|at| Step::Fail { at }),
        1 => at.clone().prop_map(|at| Step::GiveUp { at }),
        3 => at.clone().prop_map(|at| Step::Rise { at }),
        1 => (at.clone(), 0..4_usize).prop_map(|(at, seats)| Step::Settle { at, seats }),
        1 => at.prop_map(|at| Step::Close { at }),
        1 => (0..60_u64).prop_map(|s| Step::Wait { s }),
        1 => Just(Step::Reap),
        1 => (0..5_usize).prop_map(|site| Step::CloseTenant { site }),
    ]
}

/// What there is at a place, and that taken out.
fn take<T>(all: &mut Vec<T>, at: usize) -> Option<T> {
    (!all.is_empty()).then(|| all.remove(at % all.len()))
}

proptest! {
    /// In whatever order calls ask, dial, fail, give up and end: nobody sits on another's connection, on one to an
    /// address that was not asked for, on one that is too old or closed, or where no seat is; the counts are right; and
    /// whoever waits has somebody to wait for.
    #[test]
    fn nobody_sits_where_somebody_else_belongs(steps in prop::collection::vec(step(), 0..150)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let settings = PoolSettings { per_site_max: 3, total_max: 6, ..PoolSettings::default() };
            let shares = Shares::<Bench>::new(settings.clone());
            let sites = sites();
            let (mut dialling, mut waiting, mut seats) = (Vec::new(), Vec::new(), Vec::<Seat<Bench>>::new());
            let mut made = 0;
            for step in steps {
                let now = Instant::now();
                match step {
                    Step::Ask { site, addresses, is_patient } => {
                        let vetted: Vec<_> = addresses.iter().map(|last| address(*last)).collect();
                        match shares.turn(&sites[site], &vetted, is_patient, now) {
                            Turn::Dial(it) => dialling.push((site, it)),
                            Turn::Wait(it) => {
                                prop_assert!(is_patient);
                                let has_hope = dialling.iter().any(|(other, _)| *other == site)
                                    || shares.places().by_site[&sites[site]].connections.iter().any(|it| it.seats().is_none());
                                prop_assert!(has_hope, "for whom?");
                                waiting.push(it);
                            }
                            Turn::Sit(seat) => {
                                let bench = Arc::clone(seat.share());
                                prop_assert_eq!(bench.site, site);
                                prop_assert!(vetted.contains(&bench.address));
                                prop_assert!(now - bench.made < settings.age_max);
                                prop_assert!(!bench.is_closed.load(Ordering::Relaxed));
                                prop_assert!(*bench.taken.lock().unwrap() <= bench.seats().unwrap_or(1));
                                seats.push(seat);
                            }
                        }
                    }
                    Step::Connect { at, to, seats: count } => if let Some((site, it)) = take(&mut dialling, at) {
                        made += 1;
                        seats.push(it.sit(Bench { number: made, site, ..Bench::new(to, now, count) }));
                    },
                    Step::ChooseHttp11 { at } => if let Some((_, it)) = take(&mut dialling, at) {
                        it.alone();
                    },
                    Step::Fail { at } => drop(take(&mut dialling, at)),
                    Step::GiveUp { at } => drop(take(&mut waiting, at)),
                    Step::Rise { at } => drop(take(&mut seats, at)),
                    Step::Settle { at, seats: count } => if !seats.is_empty() {
                        *seats[at % seats.len()].share().seats.lock().unwrap() = Some(count);
                    },
                    Step::Close { at } => if !seats.is_empty() {
                        seats[at % seats.len()].share().is_closed.store(true, Ordering::Relaxed);
                    },
                    Step::Wait { s } => tokio::time::advance(Duration::from_secs(s)).await,
                    Step::Reap => shares.reap(now),
                    Step::CloseTenant { site } => shares.close_tenants(|tenant| *tenant == sites[site].tenant),
                }
                let places = shares.places();
                let kept: Vec<_> = places.by_site.values().flat_map(|place| &place.connections).collect();
                prop_assert!(kept.len() == places.connections && kept.len() <= 6);
                prop_assert!(places.by_site.values().all(|place| place.connections.len() <= 3));
                let numbers: std::collections::BTreeSet<_> = kept.iter().map(|bench| bench.number).collect();
                prop_assert_eq!(numbers.len(), kept.len());
                let counted = dialling.iter().filter(|(_, it)| it.is_counted).count();
                prop_assert_eq!(places.by_site.values().map(|place| place.dialling).sum::<usize>(), counted);
                prop_assert_eq!(places.by_site.values().map(|place| place.waiting).sum::<usize>(), waiting.len());
            }
            // When all have risen, everything that is left is idle.
            drop((dialling, waiting, seats));
            prop_assert_eq!(shares.idle(), shares.places().connections);
            Ok(())
        })?;
    }
}
