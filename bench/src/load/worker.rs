//! One thread of load: its connections, their requests, and the moments when those are due.

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::wire::Wire;
use super::{Outcome, Pace, Plan, Shared, TAIL, answer, histogram};
use crate::Result;

/// More failures than this are no benchmark.
const BROKEN_MAX: u64 = 10_000;

pub(super) fn run(plan: &Plan, index: usize, shared: &Shared) -> Result<Tally> {
    let connections = plan.connections / plan.threads + usize::from(index < plan.connections % plan.threads);
    let made = Worker::new(plan, index, shared, connections);
    // Whatever went wrong: the others wait for this thread.
    shared.start.wait();
    let mut worker = made?;
    worker.load()?;
    Ok(worker.tally)
}

/// What one thread saw.
#[derive(Debug)]
pub(super) struct Tally {
    refused: BTreeMap<u16, u64>,
    wrong: u64,
    broken: u64,
    reconnected: u64,
    unanswered: u64,
    latency: Histogram<u64>,
    lateness: Histogram<u64>,
}

impl Tally {
    pub(super) fn add_to(&self, outcome: &mut Outcome) {
        for (status, count) in &self.refused {
            *outcome.refused.entry(*status).or_default() += count;
        }
        outcome.wrong += self.wrong;
        outcome.broken += self.broken;
        outcome.reconnected += self.reconnected;
        outcome.unanswered += self.unanswered;
        outcome.latency.add(&self.latency).expect("all histograms have the same bounds");
        outcome.lateness.add(&self.lateness).expect("all histograms have the same bounds");
    }
}

struct Worker<'a> {
    plan: &'a Plan,
    shared: &'a Shared,
    epoll: std::os::fd::OwnedFd,
    connections: Vec<Connection>,
    idle: Vec<usize>,
    /// Moments at which requests were due that have found no connection yet.
    waiting: VecDeque<Instant>,
    schedule: Option<Schedule>,
    measured: (Instant, Instant),
    scratch: Box<[u8]>,
    tally: Tally,
}

struct Connection {
    stream: Wire,
    out: Vec<u8>,
    sent: usize,
    received: Vec<u8>,
    /// When the request that is under way was due.
    due: Option<Instant>,
}

/// Moments at fixed distances, this thread's share of them.
struct Schedule {
    begin: Instant,
    every: Duration,
    first: Duration,
    made: u32,
}

impl Schedule {
    fn next(&self) -> Instant {
        self.begin + self.first + self.every * self.made
    }
}

impl<'a> Worker<'a> {
    fn new(plan: &'a Plan, index: usize, shared: &'a Shared, count: usize) -> Result<Self> {
        let mut worker = Self {
            plan,
            shared,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            connections: Vec::with_capacity(count),
            idle: (0..count).collect(),
            waiting: VecDeque::new(),
            schedule: None,
            measured: (Instant::now(), Instant::now()),
            scratch: vec![0; 65_536].into(),
            tally: Tally {
                refused: BTreeMap::new(),
                wrong: 0,
                broken: 0,
                reconnected: 0,
                unanswered: 0,
                latency: histogram(),
                lateness: histogram(),
            },
        };
        for at in 0..count {
            let stream = worker.connect(at)?;
            worker.connections.push(Connection {
                stream,
                out: Vec::with_capacity(2_048),
                sent: 0,
                received: Vec::new(),
                due: None,
            });
        }
        if let Pace::Open { per_second } = plan.pace {
            let all = Duration::from_secs_f64(1.0 / per_second);
            let every = all * u32::try_from(plan.threads)?;
            worker.schedule =
                Some(Schedule { begin: Instant::now(), every, first: all * u32::try_from(index)?, made: 0 });
        }
        Ok(worker)
    }

    fn connect(&self, at: usize) -> Result<Wire> {
        let stream = Wire::connect(self.plan.target, self.plan.tls.as_ref())?;
        let interest = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        epoll::add(&self.epoll, stream.socket(), epoll::EventData::new_u64(at as u64), interest)?;
        Ok(stream)
    }

    fn load(&mut self) -> Result<()> {
        let began = Instant::now();
        self.measured = (began + self.plan.warm_up, began + self.plan.warm_up + self.plan.measured);
        if let Some(schedule) = &mut self.schedule {
            schedule.begin = began;
        }
        let mut events = Vec::with_capacity(1_024);
        while !self.shared.stop.load(Ordering::Relaxed) {
            let wait = self.begin_due()?;
            self.serve(&mut events, wait)?;
        }
        // The tail: what is under way is answered, nothing new begins but what was due.
        let end = Instant::now() + TAIL;
        while Instant::now() < end && self.is_busy() {
            self.begin_waiting()?;
            self.serve(&mut events, Duration::from_millis(10))?;
        }
        self.count_unanswered();
        Ok(())
    }

    fn is_busy(&self) -> bool {
        self.idle.len() < self.connections.len() || !self.waiting.is_empty()
    }

    /// Begins what is due; how long until something is.
    fn begin_due(&mut self) -> Result<Duration> {
        let Some(schedule) = &mut self.schedule else {
            while let Some(at) = self.idle.pop() {
                self.begin(at, Instant::now())?;
            }
            return Ok(Duration::from_millis(50));
        };
        let now = Instant::now();
        while schedule.next() <= now {
            self.waiting.push_back(schedule.next());
            schedule.made += 1;
        }
        let next = schedule.next();
        self.begin_waiting()?;
        Ok(next.saturating_duration_since(Instant::now()).min(Duration::from_millis(50)))
    }

    fn begin_waiting(&mut self) -> Result<()> {
        while !self.waiting.is_empty()
            && let Some(at) = self.idle.pop()
        {
            let due = self.waiting.pop_front().expect("it is not empty");
            if self.is_measured(due) {
                self.tally.lateness.saturating_record(nanos(due.elapsed()));
            }
            self.begin(at, due)?;
        }
        Ok(())
    }

    fn begin(&mut self, at: usize, due: Instant) -> Result<()> {
        let n = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let connection = &mut self.connections[at];
        self.plan.requests.write(n, &mut connection.out);
        connection.sent = 0;
        connection.due = Some(due);
        if connection.send().is_err() { self.mend(at) } else { Ok(()) }
    }

    fn serve(&mut self, events: &mut Vec<epoll::Event>, wait: Duration) -> Result<()> {
        events.clear();
        let wait = Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: i64::from(wait.subsec_nanos()) };
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events.iter() {
            let (at, flags) = (event.data.u64() as usize, event.flags);
            let hung_up = flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR);
            if flags.contains(epoll::EventFlags::OUT) && !hung_up && self.connections[at].send().is_err() {
                self.mend(at)?;
            } else if hung_up || flags.contains(epoll::EventFlags::IN) {
                self.receive(at)?;
            }
        }
        Ok(())
    }

    fn receive(&mut self, at: usize) -> Result<()> {
        loop {
            let connection = &mut self.connections[at];
            match connection.stream.read(&mut self.scratch) {
                Ok(0) => return self.mend(at),
                Ok(count) => {
                    connection.received.extend_from_slice(&self.scratch[..count]);
                    if let Some(answer) = answer::parse(&connection.received)? {
                        self.answered(at, answer)?;
                    }
                    if self.connections[at].stream.is_drained(count, self.scratch.len()) {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.mend(at),
            }
        }
    }

    fn answered(&mut self, at: usize, answer: answer::Answer) -> Result<()> {
        let connection = &mut self.connections[at];
        let body = answer.body.and_then(|body| connection.received.get(body));
        let is_right = self.plan.requests.is_right(body);
        connection.received.clear();
        let Some(due) = connection.due.take() else { return Err("an answer that nobody asked for".into()) };
        let measured = self.is_measured(due);
        if (200..300).contains(&answer.status) && !is_right {
            self.tally.wrong += 1;
        } else if (200..300).contains(&answer.status) {
            self.shared.acknowledged.fetch_add(1, Ordering::Relaxed);
            if measured {
                self.tally.latency.saturating_record(nanos(due.elapsed()));
            }
        } else if measured {
            *self.tally.refused.entry(answer.status).or_default() += 1;
        }
        if answer.close {
            self.tally.reconnected += 1;
            self.connections[at].stream = self.connect(at)?;
        }
        if self.schedule.is_none() && !self.shared.stop.load(Ordering::Relaxed) {
            self.begin(at, Instant::now())
        } else {
            self.idle.push(at);
            self.begin_waiting()
        }
    }

    /// Makes a broken connection anew. What it carried is lost and counted.
    fn mend(&mut self, at: usize) -> Result<()> {
        let stream = self.connect(at)?;
        let connection = &mut self.connections[at];
        connection.stream = stream;
        connection.received.clear();
        if connection.due.take().is_some() {
            self.tally.broken += 1;
            self.idle.push(at);
        } else {
            self.tally.reconnected += 1;
        }
        if self.tally.broken > BROKEN_MAX {
            return Err("the server breaks connections all the time".into());
        }
        Ok(())
    }

    fn count_unanswered(&mut self) {
        let under_way: Vec<_> = self.connections.iter_mut().filter_map(|connection| connection.due.take()).collect();
        for due in under_way.into_iter().chain(std::mem::take(&mut self.waiting)) {
            if self.is_measured(due) {
                self.tally.unanswered += 1;
                self.tally.latency.saturating_record(nanos(due.elapsed()));
            }
        }
    }

    fn is_measured(&self, due: Instant) -> bool {
        (self.measured.0..self.measured.1).contains(&due)
    }
}

impl Connection {
    fn send(&mut self) -> std::io::Result<()> {
        while self.due.is_some() && self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
