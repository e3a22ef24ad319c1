//! What a misspelt name most likely stands for.

/// The known name that a misspelt one most likely stands for.
pub(crate) fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    if name.len() > 64 {
        return None;
    }
    let folded = name.to_ascii_lowercase().replace('-', "_");
    let scored = known.iter().map(|candidate| (distance(&folded, candidate), *candidate));
    let (score, best) = scored.min_by_key(|(score, _)| *score)?;
    // A third of the letters wrong is a typing error, more is another word; a part of a known word is a guess at it.
    let near = score <= 1.max(folded.len().max(best.len()) / 3);
    if near {
        return Some(best);
    }
    known
        .iter()
        .copied()
        .find(|candidate| folded.len() >= 4 && (candidate.contains(&folded) || folded.contains(candidate)))
}

/// Edits (insert, delete, replace, swap of neighbours) between two short words.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let replaced = last[j] + usize::from(a[i] != b[j]);
            let mut best = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_keys_are_recognised() {
        let known = ["listen", "public_url", "body_bytes_max", "threads"];
        assert_eq!(nearest("lsiten", &known), Some("listen"));
        assert_eq!(nearest("public-url", &known), Some("public_url"));
        assert_eq!(nearest("publicURL", &known), Some("public_url"));
        assert_eq!(nearest("body_max_bytes", &known), None);
        assert_eq!(nearest("body_bytes", &known), Some("body_bytes_max"));
        assert_eq!(nearest("zzz", &known), None);
        assert_eq!(nearest(&"x".repeat(1 << 20), &known), None);
    }
}
