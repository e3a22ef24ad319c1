//! `tidegate runs token`: a token of the runner's API, and its table.

use data_encoding::BASE64URL_NOPAD;
use egress::caller::TokenHash;
use serde_json::json;

use super::super::Shell;
use super::super::args::RunsToken;
use super::super::exit::{Exit, Failure, Outcome};

/// By it a token is recognised where somebody has left one lying about.
pub(crate) const TOKEN_PREFIX: &str = "tgr_";

pub(super) fn run(args: &RunsToken, shell: &mut Shell<'_>) -> Outcome {
    let mut random = [0; 24];
    getrandom::fill(&mut random)
        .map_err(|fault| Failure::plain(format_args!("the operating system gives no randomness: {fault}")))?;
    let token = format!("{TOKEN_PREFIX}{}", BASE64URL_NOPAD.encode(&random));
    let hash = TokenHash::of(token.as_bytes());
    if args.form.json {
        shell.out.json(&json!({ "token": token, "hash": hash.to_string() }))?;
        return Ok(Exit::Yes);
    }
    let name = toml::Value::from(args.name.as_str());
    shell.out.line(format_args!("{token}\n"))?;
    shell
        .out
        .line(format_args!("[[runner.token]]\nname = {name}\nhash = \"{hash}\"\nscope = \"{}\"", args.scope.word()))?;
    shell.out.remark("the last lines are for the tenant's file");
    Ok(Exit::Yes)
}
