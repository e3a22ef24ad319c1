//! `tidegate endpoints issue`

use domain::EndpointId;
use serde_json::json;

use super::Shell;
use super::args::EndpointsIssue;
use super::exit::{Exit, Failure, Outcome};

pub(super) fn issue(args: &EndpointsIssue, shell: &mut Shell<'_>) -> Outcome {
    for _ in 0..args.count {
        let id = EndpointId::issue()
            .map_err(|error| Failure::plain(format_args!("the operating system gives no randomness: {error}")))?;
        if args.form.json {
            shell.out.json(&json!({ "endpoint": id }))?;
        } else {
            shell.out.line(id)?;
        }
    }
    Ok(Exit::Yes)
}
