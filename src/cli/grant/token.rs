//! `tidegate grant token`: a static token, or the hash of one.

use domain::Secret;
use egress::caller::{TOKEN_PREFIX, TokenHash, new_token};
use serde_json::json;

use super::super::Shell;
use super::super::args::GrantToken;
use super::super::capture;
use super::super::exit::{Exit, Failure, Outcome};

/// The prefix and 128 bits in base64url: what is shorter could be guessed from its hash.
const TOKEN_BYTES_MIN: usize = 26;

pub(super) fn run(args: &GrantToken, shell: &mut Shell<'_>) -> Outcome {
    let (token, hash) = if args.new {
        let (token, hash) = new_token().map_err(super::no_randomness)?;
        (Some(token), hash)
    } else {
        let given = Secret::new(capture::read("-".as_ref(), shell.stdin)?);
        let token = given.expose().trim_ascii();
        let is_sound = token.starts_with(TOKEN_PREFIX.as_bytes()) && token.iter().all(u8::is_ascii_graphic);
        if !is_sound || token.len() < TOKEN_BYTES_MIN {
            return Err(Failure::usage(
                "standard input holds no token: `tgt_` and 22 or more random characters",
                "`tidegate grant token --new` makes one",
            ));
        }
        (None, TokenHash::of(token))
    };
    let shown = token.as_ref().map(|token| String::from_utf8_lossy(token.expose()));
    if args.form.json {
        shell.out.json(&json!({ "token": shown, "hash": hash.to_string() }))?;
        return Ok(Exit::Yes);
    }
    if let Some(token) = shown {
        shell.out.line(format_args!("{token}\n"))?;
    }
    let name = toml::Value::from(args.name.as_str());
    shell.out.line(format_args!("[[egress.token]]\nname = {name}\nhash = \"{hash}\""))?;
    shell.out.remark("the last lines are for the tenant's file");
    Ok(Exit::Yes)
}
