//! What went wrong below, as the API says it.

use runner::api::{DocumentFault, No};
use runner::automation::{Faults, StoreError};
use runner::engine::ActError;
use runner::index::IndexError;
use runner::ledger::ReadError;

pub(super) fn act(error: &ActError) -> No {
    match error {
        ActError::NotFound => No::NotFound,
        ActError::DuplicateNotAccepted => {
            No::Unconfirmed("its effect may happen twice: say that you accept it (confirmDuplicates)".into())
        }
        ActError::Busy | ActError::Unavailable(_) => No::Unavailable(error.to_string().into()),
        ActError::By | ActError::Reason => No::Internal,
        ActError::Over
        | ActError::Cancelling
        | ActError::NoStep
        | ActError::NothingToChoose
        | ActError::NotSettled
        | ActError::NoCall
        | ActError::TooOften
        | ActError::Quarantined
        | ActError::NothingToRelease
        | ActError::ChooseInstead
        | ActError::NoDeadLetter => No::State(error.to_string().into()),
    }
}

/// `NameTaken` and `Conflict` have more to say where they come from.
pub(super) fn store(error: &StoreError) -> No {
    match error {
        StoreError::Conflict { last } => No::VersionConflict { last: *last },
        StoreError::NameTaken => No::NameTaken("".into()),
        StoreError::Deleted => No::State("the automation is deleted".into()),
        StoreError::Tenant | StoreError::Damaged(_) => {
            tracing::error!(%error, "definitions do not answer");
            No::Internal
        }
        StoreError::Unavailable(why) => No::Unavailable(why.clone()),
    }
}

/// Another tenant's run is none: it is told here, and nowhere else.
pub(super) fn read(error: ReadError) -> No {
    match error {
        ReadError::Tenant { .. } => {
            tracing::error!(%error, "somebody asked for another tenant's run");
            No::NotFound
        }
        ReadError::Damaged(_) => {
            tracing::error!(%error, "a run cannot be read");
            No::Internal
        }
        ReadError::Unavailable(why) => No::Unavailable(why),
        ReadError::Trimmed => No::NotFound,
    }
}

pub(super) fn index(error: IndexError) -> No {
    match error {
        IndexError::Cursor => No::Malformed(vec![DocumentFault::new("?after", "is no place that an answer named")]),
        IndexError::Kept { .. } => {
            tracing::error!(%error, "the index of runs does not answer");
            No::Internal
        }
        IndexError::Tenant { .. } | IndexError::Damaged(_) => {
            tracing::error!(%error, "the index of runs does not answer; `tidegate runs rebuild` makes it anew");
            No::Internal
        }
        IndexError::Ledger(error) => read(error),
        IndexError::Unavailable(why) => No::Unavailable(why),
        IndexError::Poisoned | IndexError::Locked | IndexError::Closed => No::Unavailable(error.to_string().into()),
    }
}

/// What an operator is told of a ledger that cannot be read whole: where, and what that leaves to be done.
pub(super) fn rebuild(error: IndexError) -> No {
    let IndexError::Ledger(ReadError::Damaged(why)) = error else { return index(error) };
    tracing::error!(%why, "the index of runs cannot be made anew: the ledger is damaged");
    let kept = "the index that serves stays as it was, and is followed on. Stop the appliance and put the files back from a \
                copy, then do this again; without one, runs that have records there cannot be read, and all others can";
    No::Damaged(format!("{why}. {kept}").into())
}

pub(super) fn faults(faults: Faults) -> No {
    let told = faults.0.into_iter().map(|fault| DocumentFault {
        path: fault.path,
        message: fault.message,
        place: fault.place,
    });
    No::Invalid(told.collect())
}
