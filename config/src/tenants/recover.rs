//! Which endpoints a faulty file most likely has: they answer 503 and never 404, so that no provider gives up on
//! them. A guess is good enough here, since all that follows from it is that answer.

use domain::EndpointId;

use crate::alias;
use crate::tenant::Alias;

/// Ids and aliases that can be made out in a text that need not be TOML; at most `ids_max` and as many aliases.
pub(crate) fn recover(bytes: &[u8], ids_max: usize) -> (Vec<EndpointId>, Vec<Alias>) {
    let text = String::from_utf8_lossy(bytes);
    let (mut ids, mut aliases) = (Vec::new(), Vec::new());
    // Before the first header there may be `endpoint = [{ id = … }]`.
    let mut in_endpoint = true;
    let mut in_aliases = false;
    for line in text.lines() {
        let line = line.trim_start();
        if line.starts_with('#') {
            continue;
        }
        if line.starts_with('[') && !in_aliases {
            let name = line.trim_start_matches('[').trim_start().trim_start_matches(['"', '\'']);
            in_endpoint = name.starts_with("endpoint");
            continue;
        }
        if !in_endpoint {
            continue;
        }
        for value in assignments(line, "id") {
            if ids.len() < ids_max {
                ids.extend(quoted(value).and_then(|text| EndpointId::parse(text).ok()));
            }
        }
        let list = if in_aliases { Some(line) } else { assignments(line, "aliases").next() };
        if let Some(list) = list {
            let (inside, closed) = list.split_once(']').map_or((list, false), |(inside, _)| (inside, true));
            in_aliases = !closed;
            let found = inside.split(['"', '\'']).skip(1).step_by(2).filter_map(alias::recover);
            aliases.extend(found.take(ids_max.saturating_sub(aliases.len())));
        }
    }
    ids.sort_unstable();
    ids.dedup();
    aliases.sort_unstable();
    aliases.dedup();
    (ids, aliases)
}

/// What stands behind each `key =` of a line.
fn assignments<'l>(line: &'l str, key: &'l str) -> impl Iterator<Item = &'l str> {
    line.match_indices(key).filter_map(move |(at, _)| {
        let starts =
            line[..at].chars().next_back().is_none_or(|before| matches!(before, ' ' | '\t' | '{' | ',' | '"' | '\''));
        let rest = line[at + key.len()..].trim_start_matches(['"', '\'']).trim_start();
        starts.then(|| rest.strip_prefix('=')).flatten().map(str::trim_start)
    })
}

fn quoted(value: &str) -> Option<&str> {
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    value[1..].split(quote).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> Vec<String> {
        recover(text.as_bytes(), 100).0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ids_are_made_out_of_broken_files() {
        assert_eq!(ids("[[endpoint]\nid = \"wh_1\"\nscheme = \n[[endpoint]]\n  id='wh_2' # x\n"), ["wh_1", "wh_2"]);
        assert_eq!(ids("endpoint = [{ id = \"wh_1\", scheme = 1 }, {scheme=2,id=\"wh_2\"}"), ["wh_1", "wh_2"]);
        assert_eq!(
            ids("[[endpoint]]\n# id = \"wh_1\"\nvalid = \"wh_2\"\n[[connection]]\nid = \"conn_1\"\n"),
            Vec::<String>::new()
        );
        assert_eq!(ids("[[endpoint]]\nid = \"wh_1\nid = wh_2\nid = \"a b\"\n"), ["wh_1"]);
        assert_eq!(recover(b"id=\"a\"\nid=\"b\"\nid=\"c\"\n\xff", 2).0.len(), 2);
    }

    #[test]
    fn aliases_are_too() {
        let text = "[[endpoint]]\nid = \"wh_1\"\naliases = [\"/in\",\n  'a.com/x', \"http://no\",\n]\nscheme = [\n";
        let shown: Vec<_> = recover(text.as_bytes(), 10).1.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["/in", "a.com/x"]);
    }
}
