//! The fate of every delivery of a load as text, so that it can leave the machine on which the load ran. What was
//! heard stands in the order in which it was heard, so that the book can be read as of any moment.

use crate::load::{Attempt, Key, Ledger, Outcome};

/// The last line: a book without it was not written to its end.
const END: &str = "end";

/// What was sent, and what was heard of it, in order.
#[derive(Debug, Clone)]
pub struct Book {
    ledger: Ledger,
    heard: Vec<Key>,
}

pub fn write(ledger: &Ledger) -> String {
    let mut out = format!("seed {}\n", ledger.seed);
    for key in ledger.heard.keys() {
        let attempt = &ledger.attempts[&key];
        let Outcome::Acknowledged(id) = &attempt.outcome else { panic!("{key} was heard and not acknowledged") };
        out.push_str(&format!("heard {key} {} {id}\n", attempt.endpoint));
    }
    for (key, attempt) in &ledger.attempts {
        match attempt.outcome {
            Outcome::Acknowledged(_) => {}
            Outcome::Refused(status) => out.push_str(&format!("refused {key} {} {status}\n", attempt.endpoint)),
            Outcome::Unknown => out.push_str(&format!("unknown {key} {}\n", attempt.endpoint)),
        }
    }
    out + END + "\n"
}

impl Book {
    /// Reads what `write` wrote; what follows the last line is not looked at.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut ledger = Ledger::default();
        let mut heard = Vec::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let key = |text: &str| Key::of_body(text.as_bytes()).ok_or_else(|| format!("no delivery's name: {line}"));
            let (key, endpoint, outcome) = match words[..] {
                [END] => return Ok(Self { ledger, heard }),
                ["seed", seed] => {
                    ledger.seed = seed.parse().map_err(|_| format!("no seed: {line}"))?;
                    continue;
                }
                ["heard", name, endpoint, id] => {
                    heard.push(key(name)?);
                    (key(name)?, endpoint, Outcome::Acknowledged(id.into()))
                }
                ["refused", name, endpoint, status] => {
                    (key(name)?, endpoint, Outcome::Refused(status.parse().map_err(|_| line.to_owned())?))
                }
                ["unknown", name, endpoint] => (key(name)?, endpoint, Outcome::Unknown),
                _ => return Err(format!("no line of a book: {line}")),
            };
            ledger.attempts.insert(key, Attempt { endpoint: endpoint.into(), outcome });
        }
        Err("the book ends before its last line".into())
    }

    pub fn heard(&self) -> usize {
        self.heard.len()
    }

    pub fn sent(&self) -> usize {
        self.ledger.attempts.len()
    }

    /// What the senders knew when `heard` answers had come in. What they heard later may be there, or not yet.
    pub fn as_of(&self, heard: usize) -> Ledger {
        let mut ledger = self.ledger.clone();
        for key in &self.heard[heard..] {
            ledger.attempts.get_mut(key).expect("what was heard was sent").outcome = Outcome::Unknown;
        }
        ledger
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "seed 7\nheard 1-0 wh_2 evt_a\nheard 0-0 wh_1 evt_b\nrefused 0-1 wh_1 503\nunknown 1-1 wh_2\nend\n";

    #[test]
    fn a_book_is_read_as_of_any_moment() {
        let book = Book::read(&format!("{TEXT}\0\0\0")).unwrap();
        assert_eq!((book.heard(), book.sent()), (2, 4));
        let acknowledged = |heard| book.as_of(heard).acknowledged().map(|(_, id)| id.to_owned()).collect::<Vec<_>>();
        assert_eq!(acknowledged(0), Vec::<String>::new());
        assert_eq!(acknowledged(1), ["evt_a"]);
        assert_eq!(acknowledged(2), ["evt_b", "evt_a"], "in the order of keys");
        assert_eq!(book.as_of(2).refused(503), 1);
    }

    #[test]
    fn a_book_that_ends_early_is_no_book() {
        assert!(Book::read(TEXT.strip_suffix("end\n").unwrap()).is_err());
        assert!(Book::read("heard 1-0 wh_2\nend\n").is_err());
    }
}
