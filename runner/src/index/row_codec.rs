//! Rows on disk: CBOR, an array of a fixed length with the form's number first.

use std::num::NonZeroU32;

use domain::{ConnectionId, EndpointId, EventId, TenantId};
use minicbor::data::Type;
use minicbor::decode::Error;
use minicbor::{Decoder, Encoder};

use super::error::IndexError;
use super::row::{Park, RunRow};
use super::word::Word;
use crate::failure::FailureClass;
use crate::ids::{AutomationId, RunId, StepId};
use crate::ledger::Cause;

/// Raised by one when a row is written in another way; an index of another form is made anew.
pub(super) const FORM: u8 = 2;

/// Fields of a row.
const FIELDS: u64 = 25;

/// The form before, without dismissals: dead letters beyond retention may be of it, since nothing makes them anew.
const FORMER: (u8, u64) = (1, 24);

type Written = Result<(), minicbor::encode::Error<std::convert::Infallible>>;
type Read<T> = Result<T, Error>;

pub(super) fn encode(row: &RunRow) -> Vec<u8> {
    let mut encoder = Encoder::new(Vec::with_capacity(160));
    write(row, &mut encoder).expect("writing to memory does not fail");
    encoder.into_writer()
}

fn write(row: &RunRow, e: &mut Encoder<Vec<u8>>) -> Written {
    e.array(FIELDS)?.u8(FORM)?.str(row.tenant.as_str())?.bytes(row.run.as_bytes())?;
    e.bytes(row.automation.as_bytes())?.u32(row.version.get())?;
    write_cause(&row.cause, e)?;
    e.u8(row.class.number())?.u8(row.status.number())?.u64(row.admitted_unix_ms)?.u64(row.deadline_unix_ms)?;
    e.u64(row.updated_unix_ms)?;
    option(e, row.ended_unix_ms, |e, at| e.u64(at).map(drop))?;
    option(e, row.failed_at.as_ref(), |e, step| e.str(step.as_str()).map(drop))?;
    option(e, row.failure, |e, class| e.u8(class.number()).map(drop))?;
    e.u64(row.seq)?.u32(row.attempts)?.u32(row.reruns)?.u32(row.crashes)?;
    let flags = [row.is_cancel_requested, row.was_quarantined, row.is_worked_on];
    e.u8(flags.iter().rev().fold(0, |bits, flag| bits << 1 | u8::from(*flag)))?.u64(row.span_ms)?;
    option(e, row.quarantined_unix_ms, |e, at| e.u64(at).map(drop))?;
    option(e, row.park.as_ref(), write_park)?;
    e.array(row.waits.len() as u64)?;
    row.waits.iter().try_for_each(|wait| write_park(e, wait))?;
    e.array(row.connections.len() as u64)?;
    for (step, connection) in &row.connections {
        e.array(2)?.str(step.as_str())?.str(connection.as_str())?;
    }
    option(e, row.dismissed_unix_ms, |e, at| e.u64(at).map(drop))
}

fn write_park(e: &mut Encoder<Vec<u8>>, park: &Park) -> Written {
    e.array(5)?.u8(park.reason.number())?;
    option(e, park.step.as_ref(), |e, step| e.str(step.as_str()).map(drop))?;
    option(e, park.connection.as_ref(), |e, connection| e.str(connection.as_str()).map(drop))?;
    e.u64(park.since_unix_ms)?;
    option(e, park.until_unix_ms, |e, at| e.u64(at).map(drop))
}

fn option<T>(
    e: &mut Encoder<Vec<u8>>,
    value: Option<T>,
    some: impl FnOnce(&mut Encoder<Vec<u8>>, T) -> Written,
) -> Written {
    match value {
        Some(value) => some(e, value),
        None => e.null().map(drop),
    }
}

fn write_cause(cause: &Cause, e: &mut Encoder<Vec<u8>>) -> Written {
    match cause {
        Cause::Event { event, endpoint } => e.array(3)?.u8(1)?.bytes(event.as_bytes())?.str(endpoint.as_str())?,
        Cause::Replay { event, endpoint, replay } => {
            e.array(4)?.u8(2)?.bytes(event.as_bytes())?.str(endpoint.as_str())?.str(replay)?
        }
        Cause::Manual { by } => e.array(2)?.u8(3)?.str(by)?,
        Cause::Again { of, replay, by } => e.array(4)?.u8(4)?.bytes(of.as_bytes())?.str(replay)?.str(by)?,
    };
    Ok(())
}

/// # Errors
/// `Damaged`: it is no row of this form.
pub(super) fn decode(bytes: &[u8]) -> Result<RunRow, IndexError> {
    read(&mut Decoder::new(bytes)).map_err(|fault| IndexError::Damaged(format!("a row: {fault}").into()))
}

fn read(d: &mut Decoder<'_>) -> Read<RunRow> {
    let fields = d.array()?;
    let form = d.u8()?;
    let is_former = (form, fields) == (FORMER.0, Some(FORMER.1));
    if !is_former && (form, fields) != (FORM, Some(FIELDS)) {
        return Err(Error::message("another form"));
    }
    let tenant = name(d, TenantId::parse)?;
    let run = RunId::from_bytes(id(d)?);
    let automation = AutomationId::from_bytes(id(d)?);
    let version = NonZeroU32::new(d.u32()?).ok_or_else(|| Error::message("version 0"))?;
    let cause = read_cause(d)?;
    let (class, status) = (word(d)?, word(d)?);
    let (admitted_unix_ms, deadline_unix_ms, updated_unix_ms) = (d.u64()?, d.u64()?, d.u64()?);
    let ended_unix_ms = maybe(d, time)?;
    let failed_at = maybe(d, step)?;
    let failure = maybe(d, |d| FailureClass::from_number(d.u8()?).ok_or_else(|| Error::message("a class")))?;
    let (seq, attempts, reruns, crashes) = (d.u64()?, d.u32()?, d.u32()?, d.u32()?);
    let (flags, span_ms) = (d.u8()?, d.u64()?);
    let quarantined_unix_ms = maybe(d, time)?;
    let (park, waits) = (maybe(d, read_park)?, list(d, read_park)?);
    let connections = list(d, |d| {
        is_array(d, 2)?;
        Ok((step(d)?, name(d, ConnectionId::parse)?))
    })?;
    let dismissed_unix_ms = if is_former { None } else { maybe(d, time)? };
    Ok(RunRow {
        tenant,
        run,
        automation,
        version,
        cause,
        class,
        status,
        admitted_unix_ms,
        deadline_unix_ms,
        updated_unix_ms,
        ended_unix_ms,
        failed_at,
        failure,
        seq,
        attempts,
        reruns,
        crashes,
        is_cancel_requested: flags & 1 != 0,
        quarantined_unix_ms,
        was_quarantined: flags & 2 != 0,
        dismissed_unix_ms,
        is_worked_on: flags & 4 != 0,
        span_ms,
        park,
        waits,
        connections,
    })
}

fn read_park(d: &mut Decoder<'_>) -> Read<Park> {
    is_array(d, 5)?;
    Ok(Park {
        reason: word(d)?,
        step: maybe(d, step)?,
        connection: maybe(d, |d| name(d, ConnectionId::parse))?,
        since_unix_ms: d.u64()?,
        until_unix_ms: maybe(d, time)?,
    })
}

fn is_array(d: &mut Decoder<'_>, length: u64) -> Read<()> {
    if d.array()? == Some(length) { Ok(()) } else { Err(Error::message("an array of another length")) }
}

fn read_cause(d: &mut Decoder<'_>) -> Read<Cause> {
    d.array()?;
    match d.u8()? {
        1 => Ok(Cause::Event { event: EventId::from_bytes(id(d)?), endpoint: name(d, EndpointId::parse)? }),
        2 => Ok(Cause::Replay {
            event: EventId::from_bytes(id(d)?),
            endpoint: name(d, EndpointId::parse)?,
            replay: d.str()?.into(),
        }),
        3 => Ok(Cause::Manual { by: d.str()?.into() }),
        4 => Ok(Cause::Again { of: RunId::from_bytes(id(d)?), replay: d.str()?.into(), by: d.str()?.into() }),
        _ => Err(Error::message("a cause")),
    }
}

fn time(d: &mut Decoder<'_>) -> Read<u64> {
    d.u64()
}

fn id(d: &mut Decoder<'_>) -> Read<[u8; 16]> {
    d.bytes()?.try_into().map_err(|_| Error::message("an id of another length"))
}

fn name<T, E>(d: &mut Decoder<'_>, parse: impl FnOnce(&str) -> Result<T, E>) -> Read<T> {
    parse(d.str()?).map_err(|_| Error::message("a name"))
}

fn step(d: &mut Decoder<'_>) -> Read<StepId> {
    StepId::parse(d.str()?).ok_or_else(|| Error::message("a step"))
}

fn word<W: Word>(d: &mut Decoder<'_>) -> Read<W> {
    W::from_number(d.u8()?).ok_or_else(|| Error::message("a number without a meaning"))
}

fn maybe<T>(d: &mut Decoder<'_>, some: impl FnOnce(&mut Decoder<'_>) -> Read<T>) -> Read<Option<T>> {
    if d.datatype()? == Type::Null { d.null().map(|()| None) } else { some(d).map(Some) }
}

/// Each element is read before the next has any room: a length on disk allocates nothing.
fn list<T>(d: &mut Decoder<'_>, mut one: impl FnMut(&mut Decoder<'_>) -> Read<T>) -> Read<Vec<T>> {
    let length = d.array()?.ok_or_else(|| Error::message("a list without a length"))?;
    let mut items = Vec::new();
    for _ in 0..length {
        items.push(one(d)?);
    }
    Ok(items)
}
