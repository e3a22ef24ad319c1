//! Reads the log ahead, on threads that may block.

use std::sync::Arc;
use std::time::Duration;

use domain::TenantId;
use eventlog::{Cursor, EventLog, EventReader, Filter, Position, ReadError, Scope, Start, StoredEvent};

use super::backlog::{CatchUp, Spot};
use super::service::{Command, Shared};
use super::status::Halt;

/// Events that are read in one go: after a crash so many are read again.
const BATCH: usize = 512;

/// Records that a reader of one tenant goes through in one go.
const CATCH_UP_STEPS: usize = 4096;

/// How often the log is looked at that nobody tells of: another process may append to it.
const PERIOD: Duration = Duration::from_millis(250);

/// Between two tries where reading fails.
const RETRY: Duration = Duration::from_secs(1);

type Reader = Box<dyn EventReader>;

/// What was read in one go: also in front of a fault.
struct Read {
    events: Vec<(TenantId, Spot)>,
    /// Behind them.
    at: Cursor,
    /// None: it is the durable end, or there is more.
    fault: Option<ReadError>,
    is_end: bool,
}

/// Goes on until it is dropped.
pub(super) async fn scan(shared: Arc<Shared>, log: Arc<dyn EventLog>) {
    let mut changes = log.changes();
    let mut reader: Option<Reader> = None;
    loop {
        let at = shared.lock().main.clone();
        let (log_here, at_here) = (Arc::clone(&log), at.clone());
        let taken = reader.take();
        let (returned, read) = blocking(move || read_on(&*log_here, taken, &at_here)).await;
        reader = returned;
        let (is_end, fault) = match read {
            Some(Read { events, at: behind, fault, is_end }) => {
                shared.take_in(&at, events, behind);
                (is_end, fault)
            }
            None => (true, None),
        };
        let is_caught_up = !catch_up(&shared, &log).await;
        if let Some(fault) = fault {
            reader = stop(&shared, reader, fault).await;
            continue;
        }
        shared.goes_on();
        if shared.lock().backlog.is_nearly_full() {
            // Most of what is read now is skipped, and read once more later.
            tokio::time::sleep(Duration::from_millis(10)).await;
        } else if is_end && is_caught_up {
            tokio::select! {
                () = changes.changed() => {}
                () = shared.room.notified() => {}
                () = tokio::time::sleep(PERIOD) => {}
            }
        }
        let mut state = shared.lock();
        if let Some(Command::GoTo(place)) = state.command.take_if(|told| matches!(told, Command::GoTo(_))) {
            reader = None;
            state.main = place;
        }
    }
}

/// Reads a batch, with a reader that is there already or a new one at the place.
fn read_on(log: &dyn EventLog, reader: Option<Reader>, at: &Cursor) -> (Option<Reader>, Read) {
    let mut read = Read { events: Vec::new(), at: at.clone(), fault: None, is_end: false };
    let opened = match reader {
        Some(reader) => Ok(reader),
        None => log.reader(Scope::Operator, Start::At(at.clone()), Filter::default()),
    };
    let mut reader = match opened {
        Ok(reader) => reader,
        Err(fault) => return (None, Read { fault: Some(fault), ..read }),
    };
    while read.events.len() < BATCH {
        match reader.next() {
            Ok(Some(event)) => read.events.push(spot(event)),
            Ok(None) => {
                read.is_end = true;
                break;
            }
            Err(fault) => {
                read.fault = Some(fault);
                break;
            }
        }
    }
    read.at = reader.cursor();
    (Some(reader), read)
}

fn spot(event: StoredEvent) -> (TenantId, Spot) {
    (event.tenant, Spot { event: event.id, endpoint: event.endpoint, class: event.class })
}

/// Reads a part for a tenant that was skipped, if one is to be; says whether there was one.
async fn catch_up(shared: &Shared, log: &Arc<dyn EventLog>) -> bool {
    let (part, passes) = {
        let mut state = shared.lock();
        let main = state.main.clone();
        let part = state.backlog.catch_up(&main);
        // What an operator has let the main reader pass, this one meets once more.
        let is_told =
            state.part_fault.is_some() && state.command.take_if(|told| *told == Command::SkipDamage).is_some();
        (part, is_told || state.damage_skipped > 0)
    };
    let Some(part) = part else { return false };
    let (log, of) = (Arc::clone(log), part.clone());
    let (_, read) = blocking(move || (None, read_part(&*log, &of, passes))).await;
    match read {
        Some(Ok(Part { events, at, is_end, skipped })) => {
            if skipped > 0 {
                tracing::warn!(tenant = %part.tenant, skipped, "damaged places were passed for a tenant, as an operator has said");
            }
            let mut state = shared.lock();
            state.part_fault = None;
            state.damage_skipped += skipped;
            state.backlog.caught_up(part, events, &at, is_end);
            drop(state);
            shared.fed.notify_one();
            true
        }
        Some(Err(ReadError::Trimmed { position, earliest })) => {
            tracing::error!(tenant = %part.tenant, %position, %earliest, "events of a tenant were trimmed before they were admitted");
            let mut at = part.from.clone();
            at.set(earliest.lane, earliest.place);
            let mut state = shared.lock();
            state.trimmed += 1;
            state.backlog.caught_up(part, [], &at, false);
            true
        }
        Some(Err(fault)) => {
            let reason: Box<str> = fault.to_string().into();
            let mut state = shared.lock();
            state.failures += 1;
            if state.part_fault.as_ref() != Some(&reason) {
                tracing::error!(tenant = %part.tenant, %fault, "a tenant's events cannot be read; it is tried again");
                state.part_fault = Some(reason);
            }
            false
        }
        None => false,
    }
}

/// What was read for a tenant.
struct Part {
    events: Vec<(Position, Spot)>,
    at: Cursor,
    is_end: bool,
    /// Damaged places that were passed.
    skipped: u64,
}

fn read_part(log: &dyn EventLog, part: &CatchUp, passes_damage: bool) -> Result<Part, ReadError> {
    let scope = Scope::Tenant(part.tenant.clone());
    let mut reader = log.reader(scope, Start::At(part.from.clone()), Filter::default())?;
    let mut read = Part { events: Vec::new(), at: Cursor::default(), is_end: false, skipped: 0 };
    for _ in 0..CATCH_UP_STEPS.min(part.max) {
        match reader.next() {
            Ok(Some(event)) => {
                let position = event.position.clone();
                read.events.push((position, spot(event).1));
            }
            Ok(None) => {
                read.is_end = true;
                break;
            }
            Err(ReadError::Damaged { .. } | ReadError::NotAnEvent { .. }) if passes_damage && reader.skip_damage() => {
                read.skipped += 1;
            }
            Err(fault) => return Err(fault),
        }
    }
    read.at = reader.cursor();
    Ok(read)
}

/// Reading has stopped: says why, and what is to be read with from here on.
async fn stop(shared: &Shared, mut reader: Option<Reader>, fault: ReadError) -> Option<Reader> {
    match fault {
        ReadError::Trimmed { position, earliest } => {
            tracing::error!(%position, %earliest, "events were trimmed before they were admitted; they are lost, and reading goes on behind them");
            let mut state = shared.lock();
            state.trimmed += 1;
            state.main.set(earliest.lane, earliest.place);
            None
        }
        ReadError::Damaged { .. } | ReadError::NotAnEvent { .. } => match shared.halted(&fault, true).await {
            Some(Command::SkipDamage) => {
                let skipped = reader.as_mut().is_some_and(|reader| reader.skip_damage());
                tracing::warn!(%fault, skipped, "an operator lets a damaged place be passed");
                shared.lock().damage_skipped += u64::from(skipped);
                reader
            }
            Some(Command::GoTo(place)) => {
                shared.lock().main = place;
                None
            }
            None => reader,
        },
        ReadError::NoSuchPlace { .. } => {
            if let Some(Command::GoTo(place)) = shared.halted(&fault, true).await {
                shared.lock().main = place;
            }
            None
        }
        // It may pass: begins anew where it was.
        ReadError::Unreadable { .. } | ReadError::IndexMismatch { .. } | ReadError::ScopeMismatch { .. } => {
            shared.halted(&fault, false).await;
            None
        }
    }
}

impl Shared {
    /// Tells why nothing is read, and waits for an operator, or for a while.
    async fn halted(&self, fault: &ReadError, needs_operator: bool) -> Option<Command> {
        let reason: Box<str> = fault.to_string().into();
        let is_new = {
            let mut state = self.lock();
            let halt = Halt { reason, needs_operator };
            let is_new = state.halt.as_ref() != Some(&halt);
            state.halt = Some(halt);
            is_new
        };
        if is_new {
            tracing::error!(%fault, needs_operator, "admission reads nothing more");
        }
        tokio::select! {
            () = self.commanded.notified() => {}
            () = tokio::time::sleep(RETRY) => {}
        }
        self.lock().command.take()
    }
}

/// Runs it where it may block. None: it panicked.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> (Option<Reader>, T) + Send + 'static,
) -> (Option<Reader>, Option<T>) {
    match tokio::task::spawn_blocking(work).await {
        Ok((reader, value)) => (reader, Some(value)),
        Err(fault) => {
            if fault.is_panic() {
                tracing::error!("reading the log crashed; it begins anew where it was");
                tokio::time::sleep(RETRY).await;
            }
            (None, None)
        }
    }
}
