//! A transaction in one flight: all of it is sent before any answer is waited for.

use std::pin::Pin;
use std::task::Poll;

use futures_util::future::{MaybeDone, join_all, maybe_done, poll_fn};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::fault::Fault;
use super::pool::Session;

/// A statement and what it is asked with.
pub(crate) struct Statement<'a> {
    pub(crate) sql: &'static str,
    pub(crate) params: Vec<&'a (dyn ToSql + Sync)>,
}

type Asked<'a> = Pin<Box<MaybeDone<Pin<Box<dyn Future<Output = Result<Vec<Row>, Error>> + Send + 'a>>>>>;

/// Commits all of them or none; the rows of each. The session is good for more only if this went well.
///
/// # Errors
/// [`Fault::Unknown`] if the server may have committed it all the same.
pub(crate) async fn fly(session: &mut Session<'_>, statements: &[Statement<'_>]) -> Result<Vec<Vec<Row>>, Fault> {
    let mut prepared = Vec::with_capacity(statements.len());
    for statement in statements {
        prepared.push(session.prepare(statement.sql).await?);
    }
    let client = session.client();
    let begin = async { client.batch_execute("BEGIN").await.map(|()| Vec::new()) };
    let mut asked: Vec<Asked<'_>> = vec![Box::pin(maybe_done(Box::pin(begin)))];
    asked.extend(prepared.iter().zip(statements).map(|(prepared, statement)| {
        let rows = async move { client.query(prepared, &statement.params).await };
        let rows: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(rows);
        Box::pin(maybe_done(rows))
    }));
    for one in &mut asked {
        send(one).await;
        // What could not even be encoded was not sent. Nor is the commit then, and the server undoes the rest.
        if let Some(Err(error)) = one.as_mut().output_mut() {
            return Err(Fault::of_nothing(error));
        }
    }
    let mut commit: Asked<'_> =
        Box::pin(maybe_done(Box::pin(async { client.batch_execute("COMMIT").await.map(|()| Vec::new()) })));
    send(&mut commit).await;
    join_all(asked.iter_mut().map(|one| one.as_mut())).await;
    commit.as_mut().await;
    landed(asked, commit)
}

/// Polls once: that is what sends it, since the statement is prepared and the queue to the connection has no bound.
async fn send(asked: &mut Asked<'_>) {
    poll_fn(|context| {
        let _is_answered = asked.as_mut().poll(context).is_ready();
        Poll::Ready(())
    })
    .await;
}

/// The first error is the one that counts: those behind it say that the transaction has failed, and the commit then says
/// nothing.
fn landed(asked: Vec<Asked<'_>>, mut commit: Asked<'_>) -> Result<Vec<Vec<Row>>, Fault> {
    let mut rows = Vec::with_capacity(asked.len());
    for mut one in asked {
        match one.as_mut().take_output() {
            Some(Ok(found)) => rows.push(found),
            Some(Err(error)) => return Err(Fault::of(&error)),
            None => return Err(Fault::Unknown("an answer was taken twice".into())),
        }
    }
    if let Some(Err(error)) = commit.as_mut().take_output() {
        return Err(Fault::of(&error));
    }
    // That of BEGIN.
    rows.remove(0);
    Ok(rows)
}
